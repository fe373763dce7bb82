"""Doing the parts of a work, in bites; what cannot be done in one is done in halves, down to one utterance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lm_zoo.deadline import OutOfTime, time_limit, timed
from lm_zoo.errors import LMError, VocabError
from lm_zoo.inference.limits import give_back, is_want_of_memory
from rescore.console import progress
from rescore.errors import RescoreError, ScoreError
from rescore.sharing.parts import Bite, Note, Parts, bites
from rescore.skipping import OnError, Skip, said_by

T = TypeVar("T")
R = TypeVar("R")

Do = Callable[[list[T]], Sequence[R]]
Name = Callable[[Any], str]
Counted = Callable[[], Counter[str]]  # all that was counted so far


def in_halves(do: Do[T, R], items: list[T], name: Name, on_error: OnError) -> list[R]:
    """What `do` makes of the items; in halves where memory does not suffice, or one is in error: it is named.

    Where the time of an utterance is limited, each is done alone: so its results are the same whatever others take.

    Raises:
      RescoreError: memory does not suffice for one item alone, or it took too long, and that is not to be skipped.
    """
    if len(items) > 1 and time_limit() is not None:
        return [result for item in items for result in in_halves(do, [item], name, on_error)]
    try:
        with timed():
            return list(do(items))
    except OutOfTime as error:
        problem = RescoreError(f"utterance {name(items[0])}: {error}")
    except (ScoreError, LMError) as error:
        if isinstance(error, VocabError):  # such a text is the wrong one for the LM
            raise
        if isinstance(error, ScoreError) and not isinstance(on_error, Skip):  # of all items, or with a name
            raise
        problem = RescoreError(_of_utterance(error, name(items[0])))
    except (MemoryError, RuntimeError) as error:
        if not is_want_of_memory(error):
            raise
        problem = RescoreError(f"utterance {name(items[0])}: memory does not suffice for it")
    give_back(collect=True)  # behind the error, which holds all that was there when it was raised
    if len(items) == 1:
        on_error(problem)
        return []
    middle = len(items) // 2
    halves = (items[:middle], items[middle:])
    return [result for half in halves for result in in_halves(do, half, name, on_error)]


def _of_utterance(error: Exception, utterance: str) -> str:
    """What an error says, with the utterance's name: LMs, which go over several together, do not know it."""
    said = str(error)
    named = f"utterance {utterance}" in said or f"'{utterance}'" in said
    return said if named else f"utterance {utterance}: {said}"


def do_bites(
    parts: Parts,
    index: int,
    items: Iterable[T],
    do: Do[T, R],
    name: Name,
    on_error: OnError,
    size: int | None = None,
) -> Iterator[R]:
    """What `do` makes of a part's items, `size` of them at a time (None: all), or fewer if a process has died of it."""
    cuts, left_out = parts.cuts(index)
    for place, bite in bites(items, size, cuts):
        if place in left_out and len(bite) == 1:
            on_error(RescoreError(f"utterance {name(bite[0])}: worker processes die of it, perhaps for want of memory"))
            continue
        parts.begin(Bite(index, place, place + len(bite), name(bite[0])))
        yield from in_halves(do, bite, name, on_error)
        give_back()


def do_parts(
    parts: Parts,
    groups: Iterable[Iterable[T]],
    do: Do[T, R],
    write: Callable[[Path, Iterator[R], OnError], object],
    name: Name,
    on_error: OnError,
    counted: Counted,
    size: int | None = None,
) -> int:
    """Does the parts of this run's share that are not there yet, a group of items each; gives the number of all parts.

    Args:
      groups: cut the same way by every process; those of others are not gone through.
      counted: what `do` has counted so far.
      size: items at a time.
    """
    number = 0
    for number, items in enumerate(progress(groups, "parts"), start=1):
        index = number - 1
        if not parts.has(index) or parts.path(index).exists():
            continue
        results = do_bites(parts, index, items, do, name, on_error, size)
        write(parts.path(index), _noted(parts, index, results, on_error, counted), on_error)
    return number


def _noted(parts: Parts, index: int, results: Iterator[R], on_error: OnError, counted: Counted) -> Iterator[R]:
    """The results; at their end, and so before the part has its name, says what was counted."""
    before = counted()
    yield from results
    counts = counted()
    counts.subtract(before)
    parts.note(index, Note(counts, said_by(on_error)))
