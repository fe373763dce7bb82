"""Commands in files of others: pipes in Kaldi's scp files and in lhotse's manifests, run with `--allow-pipes` alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

ALLOW = "--allow-pipes"
ADVICE = f"which is run with {ALLOW} alone; give it if you trust whoever wrote this file"
_STORAGES = ("kaldiio", "memory_raw")  # of features: runs the commands of an scp file; unpickles
_PATHS = ("source", "storage_path", "storage_key")


def is_command(place: str) -> bool:
    """Whether a place in Kaldi's `wav.scp` or `feats.scp` is the output of a command."""
    return place.strip().endswith("|") or place.strip().startswith("|")


def command_of(manifest: Any) -> str | None:
    """What lhotse would run to load what a manifest (as its JSON, or as lhotse's objects) describes; None: nothing.

    That is a source of type `command`, a path `pipe:...`, the name of a `.sph` file, which goes to a shell as it is,
    and features in Kaldi's files.
    """
    todo = [manifest]
    while todo:
        value = todo.pop()
        if isinstance(value, (list, tuple)):
            todo += value
            continue
        fields = value if isinstance(value, Mapping) else vars(value) if _is_lhotse(value) else {}
        if fields.get("type") == "command":
            return str(fields.get("source"))
        if fields.get("storage_type") in _STORAGES:
            return f"{fields['storage_type']} {fields.get('storage_path')}"
        paths = (fields[name] for name in _PATHS if isinstance(fields.get(name), str))
        if command := next((path for path in paths if path.startswith("pipe:") or shell_reads(path)), None):
            return str(command)
        todo += fields.values()
    return None


def shell_reads(path: str) -> bool:
    """Whether the path is that of a `.sph` file in which a shell would see more than a name."""
    return path.lower().endswith(".sph") and shlex.quote(path) != path


def _is_lhotse(value: Any) -> bool:
    return type(value).__module__.startswith("lhotse.") and hasattr(value, "__dict__")
