"""The parts of a long work, a file each, kept in a folder until all are there.

A stopped run goes on with them.  They are also what several processes or machines share: the work is cut the same way
by all of them, the parts with `index % of == number - 1` are those of `--split number/of`, and whoever comes last takes
all of them over.  So the results do not depend on how the work was shared out.

Beside the parts lie `plan.json` (what is done with what, by content), `INDEX.note.json` (what was counted and left out
in a part), `split-K-of-N.json` (a share that is finished), `at-K-of-N.json` (what a share is at work on) and
`INDEX.cut.json` (a part that is to be done in pieces, as a process has died of it).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_zoo.files import write_text
from lm_zoo.reading import read_json
from rescore.console import remark
from rescore.errors import FormatError, UsageError
from rescore.files import atomic_path, make_folder

FOLDER = ".parts"
PLAN = "plan.json"
DONE = "done"  # written before the parts are removed
MAX_UNKNOWN = "--max-unknown"  # of a plan: for who puts the parts together; they do not depend on it
LISTS = ".jsonl.gz"  # the end of a part's name: N-best lists


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

    @property
    def name(self) -> str:
        """As it stands in the names of files."""
        return f"{self.number}-of-{self.of}"

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
        raise UsageError(f"--split {text}: expected K/N with K from 1 to N, as in 3/8 (to split words: --split-words)")
    return Split(int(match[1]), int(match[2]))


def parts_inside(out: Path) -> Path:
    """Where the parts are of a command that writes a folder which may be there before."""
    return out / FOLDER


def parts_beside(target: Path) -> Path:
    """Where the parts are of a command that writes a file, or a folder that is not there before."""
    whole = Path(os.path.abspath(target))
    return whole.with_name(f".{whole.name}{FOLDER}")


@dataclass
class Note:
    """What was counted while a part was made, and the errors of what was left out of it."""

    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)

    def __add__(self, other: Note) -> Note:
        return Note(self.counts + other.counts, self.skipped + other.skipped)


@dataclass(frozen=True)
class Bite:
    """What a process is at work on: the utterances `[begin, end)` of a part, and the name of the first."""

    index: int
    begin: int
    end: int
    first: str


class Parts:
    """The folder of the parts of one work, of one plan.

    Args:
      folder: of `parts_inside` or `parts_beside`.
      plan: what is done with what, by content; None if that cannot be known: nothing is taken over.
      split: the share of this run; None is a run that does all that is left.
      suffix: of the parts' names.
    Raises:
      UsageError: there are parts of another plan, and other processes may still be writing them (`split` is given).
    """

    def __init__(
        self, folder: Path, plan: dict[str, Any] | None, split: Split | None = None, suffix: str = LISTS
    ) -> None:
        self.folder, self.plan, self.split, self.suffix = folder, plan, split, suffix
        were_merged(folder)
        if plan is None:
            self._begin_without_plan()
            return
        if split is not None:
            check_plan(folder, plan)
        plan = json.loads(json.dumps(plan))  # as it is read
        differs = _differences(self.folder / PLAN, plan)
        if differs:
            remark(
                f"{self.folder}: scores of a run that was stopped are not taken over, "
                f"it had another {', '.join(differs)}"
            )
            self.remove()
        if differs != [] or read_plan(self.folder).get(MAX_UNKNOWN) != plan.get(MAX_UNKNOWN):
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
        return _part(self.folder, index, self.suffix)

    def has(self, index: int) -> bool:
        """Whether this run has to do the part, or to take it over."""
        return self.split is None or self.split.has(index)

    def begin(self, bite: Bite) -> None:
        """Says what this run's share is at work on."""
        if self.split is not None:
            write_text(_at(self.folder, self.split), json.dumps(vars(bite)))

    def cuts(self, index: int) -> tuple[list[int], set[int]]:
        """Where a part is cut into pieces, and the utterances that are left out of it; see `cut`."""
        return _places(self.folder, index, "cuts"), set(_places(self.folder, index, "left out"))

    def note(self, index: int, note: Note) -> None:
        """Says, before the part is written, what was counted and left out in it."""
        if note.counts or note.skipped:
            write_text(_note(self.folder, index), json.dumps(vars(note), sort_keys=True))
        else:
            _note(self.folder, index).unlink(missing_ok=True)

    def finish(self, found: dict[str, Any]) -> None:
        """Says that all parts of this run's share are there, and what was found in them."""
        assert self.split is not None
        write_text(_summary(self.folder, self.split), json.dumps(found, sort_keys=True))
        _at(self.folder, self.split).unlink(missing_ok=True)

    def remove(self) -> None:
        _remove(self.folder)


def check_plan(folder: Path, plan: dict[str, Any]) -> None:
    """For a share, whose parts other processes may be writing.

    Raises:
      UsageError: there are parts of another plan.
    """
    if differs := _differences(folder / PLAN, json.loads(json.dumps(plan))):
        raise UsageError(
            f"{folder}: parts of a run with another {', '.join(differs)}; remove the folder, or give this run another "
            "--out"
        )


def _part(folder: Path, index: int, suffix: str) -> Path:
    return folder / f"{index:06d}{suffix}"


def _note(folder: Path, index: int) -> Path:
    return _part(folder, index, ".note.json")


def _cut(folder: Path, index: int) -> Path:
    return _part(folder, index, ".cut.json")


def _at(folder: Path, split: Split) -> Path:
    return folder / f"at-{split.name}.json"


def _summary(folder: Path, split: Split) -> Path:
    return folder / f"split-{split.name}.json"


def _read(path: Path) -> dict[str, Any]:
    """An object of JSON; nothing where there is none, or it is damaged."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _places(folder: Path, index: int, name: str) -> list[int]:
    """The places in a part that its file `.cut.json` has under a name."""
    found = _read(_cut(folder, index)).get(name)
    return [place for place in found if type(place) is int] if isinstance(found, list) else []


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan of a folder of parts; nothing where none was written, or its file is damaged."""
    return _read(folder / PLAN)


def whole_plan(folder: Path, *names: str) -> dict[str, Any]:
    """The plan, which has these entries.

    Raises:
      FormatError: it has not, as it is damaged or was removed.
    """
    plan = read_plan(folder)
    missing = [name for name in names if name not in plan]
    if missing:
        raise FormatError(
            folder / PLAN, f"damaged or removed (no {missing[0]}); remove the folder, and run the shares again"
        )
    return plan


def read_note(folder: Path, index: int) -> Note:
    """What was counted and left out in a part."""
    found = _read(_note(folder, index))
    counts, skipped = found.get("counts"), found.get("skipped")
    kept = {name: count for name, count in counts.items() if type(count) is int} if isinstance(counts, dict) else {}
    return Note(Counter(kept), list(map(str, skipped)) if isinstance(skipped, list) else [])


def at_work(folder: Path, split: Split) -> Bite | None:
    """What a share was at work on when its process died; None if it was at nothing yet (see `at_nothing`)."""
    found = _read(_at(folder, split))
    try:
        return Bite(int(found["index"]), int(found["begin"]), int(found["end"]), str(found["first"]))
    except (LookupError, TypeError, ValueError, OverflowError):
        return None


def at_nothing(folder: Path, split: Split) -> None:
    """For when a process is to begin a share: what one before it was at work on, in another run too, is past."""
    _at(folder, split).unlink(missing_ok=True)


def cut(folder: Path, bite: Bite, leave_out: bool = False) -> None:
    """Says that a part is to be done in smaller pieces, `bite` in two; with `leave_out`, its utterance not at all."""
    cuts, left_out = (set(_places(folder, bite.index, name)) for name in ("cuts", "left out"))
    cuts |= {bite.begin, (bite.begin + bite.end) // 2, bite.end}
    if leave_out:
        left_out.add(bite.begin)
    write_text(_cut(folder, bite.index), json.dumps({"cuts": sorted(cuts), "left out": sorted(left_out)}))


def part_files(folder: Path, number: int, suffix: str = LISTS) -> list[Path]:
    """The files of the first `number` parts of a folder, in order.

    Raises:
      FormatError: one is missing.
    """
    paths = []
    for index in range(number):
        paths.append(path := _part(folder, index, suffix))
        if not path.exists():
            raise FormatError(path, "no such part of a scoring; run its share again, then merge again")
    return paths


def join_parts(folder: Path, number: int, target: Path) -> None:
    """Writes the first `number` parts into one file."""
    with atomic_path(target) as path, open(path, "wb") as whole:
        for part in part_files(folder, number):  # files of gzip one after the other are one
            with open(part, "rb") as source:
                shutil.copyfileobj(source, whole)


def remove_parts(folder: Path) -> None:
    """For when all that was in them is written elsewhere; one that is killed meanwhile is known by what is left."""
    if folder.is_dir():
        write_text(folder / DONE, "")
    _remove(folder)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name != DONE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def were_merged(folder: Path) -> bool:
    """Whether all that was in a folder of parts is written already; what is left of it goes."""
    found = (folder / DONE).exists()
    if found:
        _remove(folder)
    return found


def finished_splits(folder: Path) -> list[dict[str, Any]]:
    """What the shares of a finished work found, in their order.

    Raises:
      FormatError: there are none, some are missing or damaged, or they were cut in different ways.  Where the work was
        divided again, shares of one number that are all there do.
    """
    names = [re.fullmatch(r"split-(\d+)-of-(\d+)\.json", path.name) for path in sorted(folder.glob("split-*.json"))]
    found = sorted((int(match[2]), int(match[1])) for match in names if match)
    if not found:
        raise FormatError(folder, "no finished share of a scoring; run the command with --split K/N first")
    whole = [many for many in {many for many, _ in found} if sum(of == many for of, _ in found) == many]
    of = min(whole, default=found[-1][0])
    there = {number for many, number in found if many == of}
    missing = [f"{number}/{of}" for number in range(1, of + 1) if number not in there]
    if missing:
        shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise FormatError(folder, f"shares that are not finished: {shown}; run them with --split, then merge again")
    shares = [_finished(_summary(folder, Split(number, of))) for number in range(1, of + 1)]
    if any(share["parts"] != shares[0]["parts"] for share in shares):
        raise FormatError(folder, "its shares were cut in different ways; remove the folder, and begin anew")
    return shares


def _finished(path: Path) -> dict[str, Any]:
    """What a share found; `parts` is the number of parts."""
    try:
        found = read_json(path)
        if type(found["parts"]) is not int or found["parts"] < 0:
            raise ValueError("a count that is none")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise FormatError(path, f"damaged ({error}); remove it and run its share again, then merge again") from None
    return dict(found)


def notes(folder: Path, number: int) -> Note:
    """What was counted and left out in all of the first `number` parts."""
    total = Note()
    for index in range(number):
        total += read_note(folder, index)
    return total


def bites(items: Iterable[Any], size: int | None, cuts: Iterable[int] = ()) -> Iterator[tuple[int, list[Any]]]:
    """`(place of the first, items)` in lists of `size` (None: all of them), cut at the places `cuts` too."""
    at, found, ends = 0, list[Any](), set(cuts)
    for place, item in enumerate(items):
        if found and (place in ends or len(found) == size):
            yield at, found
            at, found = place, []
        found.append(item)
    if found:
        yield at, found


def _differences(path: Path, plan: dict[str, Any]) -> list[str] | None:
    """What a plan that was written has otherwise; None if there is neither a plan nor a part."""
    if not path.exists():
        return ["plan, which is not known"] if any(path.parent.glob("[0-9]*.gz")) else None
    try:
        before = read_json(path)
        names = [name for name in {**plan, **before} if name != MAX_UNKNOWN]
        return [name for name in names if name not in plan or name not in before or plan[name] != before[name]]
    except (ValueError, TypeError):
        return ["plan, as its file is damaged"]
