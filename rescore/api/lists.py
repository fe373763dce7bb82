"""N-best lists in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, SupportsIndex, overload

from lm_zoo.reading import BLANKS
from rescore import formats
from rescore.errors import UsageError
from rescore.shown import Shown, Table
from rescore.text import short
from rescore.types import Hypothesis, NbestList, Words

_BLANK = re.compile(f"[{BLANKS}]")


@dataclass(repr=False)
class Lists(Shown):
    """N-best lists, an utterance each; of a data frame, a hypothesis a row, `words` the words themselves.

    Words that are given as another sequence become tuples, in copies of their lists.

    Raises:
      UsageError: what is no list or hypothesis; an id that is no string; the words of a hypothesis or of a reference
        are a string, or no sequence of strings without blanks.
    """

    lists: Sequence[NbestList]
    _places: dict[str, int] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.lists, Iterable):
            raise UsageError(f"lists are a {type(self.lists).__name__}, expected a sequence of them: rs.Lists([...])")
        self.lists = [_with_tuples(_list_of(nbest)) for nbest in self.lists]

    def __len__(self) -> int:
        return len(self.lists)

    def __iter__(self) -> Iterator[NbestList]:
        return iter(self.lists)

    def __contains__(self, which: object) -> bool:
        """Whether there is a list of this utterance id, or this list."""
        return place_of(which, self.lists, self._places) is not None if isinstance(which, str) else which in self.lists

    @overload
    def __getitem__(self, which: SupportsIndex | str) -> NbestList: ...
    @overload
    def __getitem__(self, which: slice) -> Lists: ...
    def __getitem__(self, which: SupportsIndex | str | slice) -> NbestList | Lists:
        """A list by its place or its utterance id; or some of them."""
        if isinstance(which, slice):
            return Lists(self.lists[which])
        if isinstance(which, SupportsIndex):  # numpy's integers, too
            return self.lists[index(which)]
        place = place_of(which, self.lists, self._places)
        if place is None:
            raise KeyError(which)
        return self.lists[place]

    @property
    def columns(self) -> list[str]:
        """The names of the scores, also of those that some lists alone have."""
        return list(dict.fromkeys(name for nbest in self.lists for name in nbest.columns))

    def write(self, spec: str | Path) -> int:
        """Writes the lists as `[FORMAT:]PATH` says, and returns how many; raises a RescoreError if they cannot be."""
        return formats.write_nbest(str(path_of(spec)), self.lists)

    def _table(self) -> Table:
        columns = [name for name in self.columns if name != "words"]
        rows = [
            [nbest.utt_id, rank, " ".join(hyp.words), *(hyp.scores.get(name) for name in columns)]
            for nbest in self.lists
            for rank, hyp in enumerate(nbest.hyps, start=1)
        ]
        return ["utt_id", "rank", "words", *columns], rows

    def _caption(self) -> str:
        return f"{len(self)} utterances, {sum(len(nbest.hyps) for nbest in self.lists)} hypotheses"


def read_nbest(spec: str | Path) -> Lists:
    """Reads N-best lists: `[FORMAT:]PATH`, as of the commands (docs/formats.md).

    Raises:
      RescoreError: the source is not what its format says; lattices.
    """
    return Lists(list(formats.read_nbest(str(path_of(spec)))))


def place_of(utt_id: object, items: Sequence[Any], places: dict[str, int]) -> int | None:
    """The first of the lists or lattices `items` that is of this utterance; None: there is none.

    Args:
      places: those of earlier calls by id, which may not hold any more; new ones are noted in it.
    """
    if not isinstance(utt_id, str):
        return None
    place = places.get(utt_id)
    if place is not None and place < len(items) and items[place].utt_id == utt_id:
        return place
    found: dict[str, int] = {}  # threads may be here at the same time
    for number, item in enumerate(items):
        found.setdefault(item.utt_id, number)
    places.update(found)
    return found.get(utt_id)


def _list_of(given: object) -> NbestList:
    expected = "expected rs.NbestList(utt_id, [rs.Hypothesis(words), ...])"
    if not isinstance(given, NbestList):
        raise UsageError(f"found {short(given)} among the lists, {expected}")
    checked_id(given.utt_id)
    if not isinstance(given.hyps, Sequence):
        raise UsageError(f"utterance {given.utt_id}: the hypotheses are {short(given.hyps)}, {expected}")
    for hyp in given.hyps:
        if not isinstance(hyp, Hypothesis):
            raise UsageError(f"utterance {given.utt_id}: found {short(hyp)} among the hypotheses, {expected}")
        if not isinstance(hyp.scores, Mapping):
            raise UsageError(
                f"utterance {given.utt_id}: the scores of a hypothesis are {short(hyp.scores)}, expected them by name: "
                "{'am': -1.5}"
            )
        if (name := next((name for name in hyp.scores if not isinstance(name, str)), None)) is not None:
            raise UsageError(f"utterance {given.utt_id}: a score is called {short(name)}, expected a string: 'am'")
    return given


def _with_tuples(nbest: NbestList) -> NbestList:
    """The list itself, if the words of its hypotheses and of its reference are tuples, or else one where they are."""
    if all(map(_is_tuple, (hyp.words for hyp in nbest.hyps))) and (nbest.ref is None or _is_tuple(nbest.ref)):
        return nbest
    named = [(f"utterance {nbest.utt_id}: hypothesis {rank}", hyp) for rank, hyp in enumerate(nbest.hyps, start=1)]
    hyps = [replace(hyp, words=words_of(hyp.words, what)) for what, hyp in named]
    ref = None if nbest.ref is None else words_of(nbest.ref, f"the reference of utterance {nbest.utt_id}")
    return replace(nbest, hyps=hyps, ref=ref)


def _is_tuple(words: object) -> bool:
    return isinstance(words, tuple) and _are_words(words)


def _are_words(words: tuple[object, ...]) -> bool:
    strings = [word for word in words if isinstance(word, str)]
    return len(strings) == len(words) and "" not in strings and not _BLANK.search("".join(strings))


def lists_of(given: Any, others: str = "") -> Lists:
    """`given`, if it is lists; a UsageError for anything else, which says what `others` the caller takes."""
    if isinstance(given, Lists):
        return given
    expected = f"expected N-best lists: rs.read_nbest(SPEC), or rs.Lists([...]){others}"
    raise UsageError(f"found a {type(given).__name__}, {expected}")


def checked_id(utt_id: object) -> str:
    """The id of an utterance; a UsageError for what is no string, which no file can hold and no other id equals."""
    if isinstance(utt_id, str):
        return utt_id
    raise UsageError(f"the utterance id {short(utt_id)} is a {type(utt_id).__name__}, expected a string: str(...)")


def path_of(given: str | Path) -> str | Path:
    """`given`, if it is a path or a string; a UsageError for anything else, such as several paths."""
    if isinstance(given, (str, PathLike)):
        return given
    raise UsageError(f"found {short(given)}, expected a path")


def words_of(words: Iterable[str], what: str) -> Words:
    """`words` as a tuple; a UsageError for what is none, no strings, or one, whose letters would count as words.

    Words that are empty or have a blank are refused, too: `"a  b\\n".split(" ")` has two that would count as errors.
    """
    if isinstance(words, str):
        raise UsageError(f"{what} is the string '{words}', expected a sequence of words: '...'.split()")
    if not isinstance(words, Iterable):
        raise UsageError(f"{what} is {short(words)}, expected a sequence of words: '...'.split()")
    found = tuple(words)
    if _are_words(found):
        return found
    word = next(word for word in found if not _are_words((word,)))
    expected = "words without blanks: '...'.split()" if isinstance(word, str) else "strings alone: tuple(map(str, ...))"
    raise UsageError(f"{what} has the word {short(word)}, expected {expected}")
