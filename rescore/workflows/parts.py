"""The parts of a long scoring: a file for each batch of lists, kept in `OUT/.parts` until all are there.

A stopped run goes on with them.  They are also what several processes or machines share: batches are cut the same way
by all of them, the parts with `index % of == number - 1` are those of `--split number/of`, and whoever comes last takes
all of them over.  So the scores do not depend on how the work was shared out.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_zoo.files import write_text
from lm_zoo.reading import read_json
from rescore.console import remark
from rescore.errors import FormatError, UsageError
from rescore.files import atomic_path, make_folder

FOLDER = ".parts"
PLAN = "plan.json"


@dataclass(frozen=True)
class Split:
    """One of several shares of the work.

    Attributes:
      number: of this share, from 1.
      of: how many there are.
    """

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise UsageError(f"--split {self}: expected K/N with K from 1 to N, as in 3/8")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, index: int) -> bool:
        """Whether the part `index`, from 0, belongs to this share."""
        return index % self.of == self.number - 1


def parse_split(text: str) -> Split:
    """`3/8`.

    Raises:
      UsageError: anything else.
    """
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None:
        raise UsageError(f"--split {text}: expected K/N with K from 1 to N, as in 3/8")
    return Split(int(match[1]), int(match[2]))


class Parts:
    """The folder of the parts of one output folder, of one plan.

    Args:
      plan: what is scored with what, by content; None if that cannot be known: nothing is taken over.
      split: the share of this run; None is a run that does all that is left.
    Raises:
      UsageError: there are parts of another plan, and other processes may still be writing them (`split` is given).
    """

    def __init__(self, out: Path, plan: dict[str, Any] | None, split: Split | None = None) -> None:
        self.folder, self.plan, self.split = out / FOLDER, plan, split
        if plan is None:
            self._begin_without_plan()
            return
        differs = _differences(self.folder / PLAN, plan)
        if differs and split is not None:
            raise UsageError(
                f"{self.folder}: parts of a run with another {', '.join(differs)}; remove the folder, or give this run "
                "another --out"
            )
        if differs:
            remark(
                f"{self.folder}: scores of a run that was stopped are not taken over, "
                f"it had another {', '.join(differs)}"
            )
            self.remove()
        if differs != []:
            write_text(self.folder / PLAN, json.dumps(plan, sort_keys=True))

    def _begin_without_plan(self) -> None:
        if self.split is not None:
            raise UsageError("--split needs a source that every process can read for itself, found a pipe")
        if self.folder.exists():
            remark(
                f"{self.folder}: scores of a run that was stopped are not taken over, "
                "what was scored there is not known"
            )
        self.remove()
        make_folder(self.folder)

    def path(self, index: int) -> Path:
        """The file of a part, from 0."""
        return _part(self.folder, index)

    def has(self, index: int) -> bool:
        """Whether this run has to do the part, or to take it over."""
        return self.split is None or self.split.has(index)

    def finish(self, found: dict[str, Any]) -> None:
        """Says that all parts of this run's share are there, and what was found in them."""
        assert self.split is not None
        write_text(_summary(self.folder, self.split), json.dumps(found, sort_keys=True))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _part(folder: Path, index: int) -> Path:
    return folder / f"{index:06d}.jsonl.gz"


def read_plan(out: Path) -> dict[str, Any]:
    """The plan of the parts of an output folder; nothing where none was written, or its file is damaged."""
    try:
        plan = read_json(out / FOLDER / PLAN)
    except (OSError, ValueError):
        return {}
    return plan if isinstance(plan, dict) else {}


def part_files(out: Path, number: int) -> list[Path]:
    """The files of the first `number` parts of an output folder, in order.

    Raises:
      FormatError: one is missing.
    """
    paths = [_part(out / FOLDER, index) for index in range(number)]
    for path in paths:
        if not path.exists():
            raise FormatError(path, "no such part of a scoring; run its share again, then merge again")
    return paths


def join_parts(out: Path, number: int, target: Path) -> None:
    """Writes the first `number` parts into one file, and removes the folder of parts."""
    with atomic_path(target) as path, open(path, "wb") as whole:
        for part in part_files(out, number):  # files of gzip one after the other are one
            with open(part, "rb") as source:
                shutil.copyfileobj(source, whole)
    shutil.rmtree(out / FOLDER, ignore_errors=True)


def finished_splits(out: Path) -> list[dict[str, Any]]:
    """What the shares of a finished scoring found, in their order.

    Raises:
      FormatError: there are none, or some are missing.
    """
    folder = out / FOLDER
    names = [re.fullmatch(r"split-(\d+)-of-(\d+)\.json", path.name) for path in sorted(folder.glob("split-*.json"))]
    found = sorted((int(match[2]), int(match[1])) for match in names if match)
    if not found:
        raise FormatError(folder, "no finished share of a scoring; run rescore nbest --split K/N --out DIR first")
    of = found[-1][0]
    there = {number for many, number in found if many == of}
    missing = [f"{number}/{of}" for number in range(1, of + 1) if number not in there]
    if missing:
        shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise FormatError(folder, f"shares that are not finished: {shown}; run them with --split, then merge again")
    return [read_json(_summary(folder, Split(number, of))) for number in range(1, of + 1)]


def _summary(folder: Path, split: Split) -> Path:
    return folder / f"split-{split.number}-of-{split.of}.json"


def _differences(path: Path, plan: dict[str, Any]) -> list[str] | None:
    """What a plan that was written has otherwise; None if there is neither a plan nor a part."""
    if not path.exists():
        return ["plan, which is not known"] if any(path.parent.glob("*.jsonl.gz")) else None
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        names = [*plan, *(name for name in before if name not in plan)]
        return [name for name in names if name not in plan or name not in before or plan[name] != before[name]]
    except (ValueError, TypeError):
        return ["plan, as its file is damaged"]
