"""Skips for want of a package: a failure in an environment that `make venv` made, which has the package pinned."""

from __future__ import annotations

import re
import sys
from pathlib import Path

READY = Path(sys.prefix) / ".ready"  # tools/make_venv.sh leaves there what it has installed
REASONS = (r"could not import '([\w.]+)'", r"needs? (\w+)$", r"^(?:Skipped: )?(\w+)(?:: | cannot be imported)")


def pinned(ready: Path = READY) -> set[str]:
    """Packages that this environment was made with; none where `make venv` has not made it."""
    if not ready.exists():
        return set()
    lines = ready.read_text(encoding="utf-8").splitlines()
    return {line.split("==")[0].replace("-", "_") for line in lines if "==" in line and not line.startswith("#")}


def missing(reason: str, packages: set[str]) -> str | None:
    """The package of `packages` for want of which a test was skipped."""
    found = [match[1].split(".")[0] for pattern in REASONS for match in re.finditer(pattern, reason)]
    return next((name for name in found if name in packages), None)
