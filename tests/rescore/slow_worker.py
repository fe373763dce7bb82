"""Work for the tests of processes; light to import, as each worker does it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rescore.errors import FormatError
from rescore.workflows.parts import Split


def work() -> None:
    """Says that it has begun, and then takes a minute."""
    os.write(1, b"ready\n")
    time.sleep(60)


def note(folder: Path, deaths: int, split: Split) -> None:
    """Writes that a share is done; the process that does the second one dies before, so many times."""
    died = len(list(folder.glob("died-*")))
    if split.number == 2 and died < deaths:
        (folder / f"died-{died}").touch()
        os._exit(9)
    with open(folder / "done", "a") as stream:
        stream.write(f"{split}\n")


def fail_at_three(split: Split) -> None:
    """One share cannot be done."""
    if split.number == 3:
        raise FormatError("lists.jsonl", "not JSON", line=7)


def take_time(folder: Path, split: Split) -> None:
    """Writes that a share has begun, takes a second, and writes that it is done."""
    (folder / f"begun-{split.number}").touch()
    time.sleep(1)
    (folder / f"done-{split.number}").touch()
