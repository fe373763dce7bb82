"""Work for the tests of processes; light to import, as each worker does it."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path

from rescore.errors import FormatError
from rescore.formats.part_files import LISTS
from rescore.sharing.parts import Parts, Split
from rescore.sharing.work import do_parts
from rescore.skipping import Skip
from rescore.types import Hypothesis, NbestList


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


def die(folder: Path, split: Split) -> None:
    """Dies before it has begun, as while an LM is loaded; ends after ten times, so that a test does."""
    with open(folder / "tries", "a") as stream:
        stream.write(f"{split}\n")
    if len((folder / "tries").read_text().split()) < 10:
        os._exit(9)


def fail_at_three(split: Split) -> None:
    """One share cannot be done."""
    if split.number == 3:
        raise FormatError("lists.jsonl", "not JSON", line=7)


def take_time(folder: Path, split: Split) -> None:
    """Writes that a share has begun, takes a second, and writes that it is done."""
    (folder / f"begun-{split.number}").touch()
    time.sleep(1)
    (folder / f"done-{split.number}").touch()


def make_shares(folder: Path) -> partial[None]:
    """Work of four parts of four lists each; a process is killed of one list, memory does not suffice for another."""
    return partial(_do_lists, folder)


def _do_lists(folder: Path, split: Split) -> None:
    parts = Parts(folder, {"plan": 1}, split)
    lists = [NbestList(f"u{number}", [Hypothesis(("A",), {"am": -1.0})]) for number in range(16)]

    def do(items: list[NbestList]) -> list[NbestList]:
        for nbest in items:
            if nbest.utt_id == "u6":
                os.kill(os.getpid(), signal.SIGKILL)
            elif nbest.utt_id == "u13":
                bytearray(4 << 30)
        return items

    groups = [lists[begin : begin + 4] for begin in range(0, 16, 4)]
    number = do_parts(parts, groups, do, LISTS.write, lambda nbest: nbest.utt_id, Skip(), Counter)
    parts.finish({"parts": number})
