"""Commands that make a list or a lattice of each utterance of a source, shared out among processes."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lm_zoo.deadline import time_limit
from rescore import __version__
from rescore.console import progress, remark
from rescore.errors import FormatError, RescoreError, UsageError
from rescore.formats import (
    check_target,
    is_pipe,
    lattice_pieces,
    lattice_reader,
    parse_spec,
    read_lattices,
    read_nbest,
    source_identity,
    write_lattices,
    write_nbest,
)
from rescore.formats.common import Piece
from rescore.formats.part_files import PARTS, utt_id_of
from rescore.sharing.parts import (
    MAX_UNKNOWN,
    Parts,
    Split,
    bites,
    check_plan,
    finished_splits,
    notes,
    part_files,
    parts_beside,
    remove_parts,
    whole_plan,
)
from rescore.sharing.shares import Sharing, share_out
from rescore.sharing.work import do_parts, in_halves
from rescore.skipping import OnError, Skip, fail, note_skipped
from rescore.types import Lattice, NbestList
from rescore.workflows.seen import check_all_unknown

T = TypeVar("T")
LISTS_A_PART = 500
SAYS = {  # command -> the function that says what it has done
    "lattice rescore": "rescore.workflows.lattice_rescore:say_rescored",
    "lattice nbest": "rescore.workflows.convert:say_converted",
    "convert": "rescore.workflows.convert:say_converted",
}
KINDS = {"lists": "nbest", "lattices": "lattice"}
WRITERS: dict[str, Callable[[str, Iterable[Any], OnError], int]] = {"lists": write_nbest, "lattices": write_lattices}


class Doer(Protocol):
    """What a process does with utterances, once all that it needs is loaded."""

    @property
    def source(self) -> str:
        """What it reads."""
        ...

    @property
    def size(self) -> int:
        """Utterances at a time."""
        ...

    @property
    def said(self) -> Sequence[str]:
        """Lines on all of the source, once it is read, for who puts the shares together."""
        ...

    def groups(self, on_error: OnError) -> Iterator[Iterable[Any]]:
        """The utterances of the source, cut into parts; each part is read only when it is gone through."""
        ...

    def __call__(self, items: list[Any]) -> Sequence[Any]: ...

    def counted(self) -> Counter[str]:
        """What was counted so far."""
        ...

    def check(self) -> None:
        """Raises an error if all of it, done by this process alone, makes no sense."""
        ...


@dataclass(frozen=True)
class Job:
    """A command's work.

    Attributes:
      command: its name, by which `rescore merge` knows what is to be said at the end.
      source, target: `[FORMAT:]PATH`.
      results: "lists" or "lattices".
      settings: all else that the results depend on, by name, by content.
      n: hypotheses of a list, where the command bounds them.
      open: loads what is needed; can be sent to another process.
      skip: what cannot be read or done is left out.
    """

    command: str
    source: str
    target: str
    results: str
    settings: dict[str, Any]
    open: Callable[[], Doer]
    n: int | None = None
    skip: bool = False

    @property
    def target_path(self) -> Path:
        return parse_spec(self.target)[1]

    @property
    def identity(self) -> str:
        """Of the source, by content.

        Raises:
          UsageError: it is a pipe.
        """
        if is_pipe(self.source):
            raise UsageError(f"{self.source} is a pipe, which one process alone can read; give it a file")
        return source_identity(self.source)

    @property
    def plan(self) -> dict[str, Any]:
        """All that the results depend on, and what `rescore merge` has to know."""
        return {
            "command": self.command,
            "source": self.identity,
            "target": self.target,
            "results": self.results,
            "version": __version__,
            "n": self.n,
            **self.settings,
            "--on-error": "skip" if self.skip else "stop",
            "--max-seconds": time_limit(),
        }


def run_shared(
    job: Job, sharing: Sharing, max_memory: int | None = None, finish: Callable[[Path], None] | None = None
) -> None:
    """Does the share that is asked for, or shares all of it out and writes the target.

    Args:
      finish: writes it, from the folder of the parts; None for `merge_stream`.
    Raises:
      UsageError: the target, all of which is to be written, is a folder with something in it.
      RescoreError: `merge_stream` could not write the target (see `check_target`).
    """
    if sharing.split is None and job.target_path.is_dir() and any(job.target_path.iterdir()):
        raise UsageError(f"{job.target_path}: exists already; remove it first, or name a new folder")
    if finish is None:
        check_target(job.target, KINDS[job.results])
    plan, folder = job.plan, parts_beside(job.target_path)  # sources are read for it once, not once a process
    work = partial(_do_share, job, plan, folder)
    if sharing.split is not None:
        work(sharing.split)
    else:
        share_out(work, sharing, folder, job.skip, max_memory)
        (finish or merge_stream)(folder)


def merge_stream(folder: Path) -> dict[str, Any]:
    """Writes the target of the parts in a folder, says what was counted, and removes them.

    Returns:
      the same as data: target, number of results, counts.
    Raises:
      FormatError: a share or a part is missing.
      VocabError: too many words are unknown to an LM.
    """
    shares, plan = finished_splits(folder), whole_plan(folder, "results", "target", "command", "n", "--on-error")
    part_file, number = PARTS[plan["results"]], shares[0]["parts"]
    files = part_files(folder, number, part_file.suffix)
    note = notes(folder, number)
    check_all_unknown(note.counts, plan.get(MAX_UNKNOWN, 1.0))
    on_error = Skip() if plan["--on-error"] == "skip" else fail
    found = chain.from_iterable(part_file.read(file, on_error) for file in files)
    total = WRITERS[plan["results"]](plan["target"], progress(found, "writing"), on_error)
    module, _, name = SAYS[plan["command"]].partition(":")
    getattr(importlib.import_module(module), name)(note.counts, total, plan["target"], plan["n"])
    note_skipped(note.skipped)
    remove_parts(folder)
    return {"target": plan["target"], plan["results"]: total, "counts": dict(note.counts)}


def _do_share(job: Job, plan: dict[str, Any], folder: Path, split: Split) -> None:
    on_error = Skip() if job.skip else fail
    part_file = PARTS[job.results]
    check_plan(folder, plan)
    doer = job.open()
    groups = iter(doer.groups(on_error))
    first = next(groups, None)  # what cannot be read or done at all is refused before a plan is left
    if first is None:
        raise FormatError(job.source, "no utterance in it")
    parts = Parts(folder, plan, split, part_file.suffix)
    write, name = part_file.write, utt_id_of
    number = do_parts(parts, chain([first], groups), doer, write, name, on_error, doer.counted, doer.size)
    parts.finish({"parts": number, "said": list(doer.said)})
    remark(f"share {split} of {number} parts done")


def through(doer: Doer, on_error: OnError) -> Iterator[Any]:
    """What the doer makes of all utterances, in this process alone.

    Raises:
      FormatError: there is none.
    """
    empty = True
    for group in doer.groups(on_error):
        for _, bite in bites(group, doer.size):
            empty = False
            yield from in_halves(doer, bite, utt_id_of, on_error)
    if empty:
        raise FormatError(doer.source, "no utterance in it that can be read")
    doer.check()


# -- cutting a source into parts ------------------------------------------------------------------------------------


def lattice_groups(spec: str, size: int, on_error: OnError) -> Iterator[Iterable[Lattice]]:
    """Files of a lattice each, and lines of an index, `size` together; archives one by one.

    What is a single file is read by every process, which takes its parts of `size` lattices.
    """
    pieces = lattice_pieces(spec)
    if pieces is None or (len(pieces) == 1 and pieces[0].many):
        return _read_by_all(lambda collect: read_lattices(spec, collect), size, on_error)
    read = lattice_reader(spec)
    return (read(chosen, on_error) for chosen in _together(pieces, size))


def _together(pieces: Sequence[Piece], size: int) -> Iterator[list[Piece]]:
    chosen: list[Piece] = []
    for piece in pieces:
        if chosen and (piece.many or chosen[-1].many or len(chosen) == size):
            yield chosen
            chosen = []
        chosen.append(piece)
    if chosen:
        yield chosen


def list_groups(spec: str, on_error: OnError) -> Iterator[Iterable[NbestList]]:
    """Lists, so many together."""
    return _read_by_all(lambda collect: read_nbest(spec, collect), LISTS_A_PART, on_error)


def _read_by_all(read: Callable[[OnError], Iterator[T]], size: int, on_error: OnError) -> Iterator[Iterable[T]]:
    """Cuts what is read; the errors before an item are those of its group, so that one process alone tells of them."""
    errors: list[RescoreError] = []
    items = read(fail if on_error is fail else errors.append)
    while (group := list(islice(items, size))) or errors:
        yield _told(group, errors.copy(), on_error)
        errors.clear()


def _told(items: list[T], errors: list[RescoreError], on_error: OnError) -> Iterator[T]:
    for error in errors:
        on_error(error)
    yield from items
