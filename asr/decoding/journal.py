"""What a long decoding has found so far, on disk, so that a run that was killed goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lm_zoo.files import append_line, write_text
from rescore.console import remark


class Journal:
    """What a decoding has found so far, on disk; it goes when the results are written."""

    def __init__(self, path: Path, made_by: dict[str, Any]) -> None:
        """Keeps the whole lines of an earlier run by the same settings; begins anew where they were others."""
        self.path, self._head = path, json.dumps(made_by, sort_keys=True)
        lines: list[str] = []
        with suppress(FileNotFoundError):
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # what does not end was cut off
        if lines and lines[0] != self._head:
            remark(f"{path}: of a run with other settings; begun anew")
            lines = []
        write_text(path, "".join(f"{line}\n" for line in lines or [self._head]))
        self.count = max(0, len(lines) - 1)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The entries that were there."""
        with open(self.path, encoding="utf-8") as stream:
            next(stream)
            for _, line in zip(range(self.count), stream, strict=False):
                yield json.loads(line)

    def add(self, entry: dict[str, Any]) -> None:
        append_line(self.path, json.dumps(entry, ensure_ascii=False))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
