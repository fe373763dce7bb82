"""What all N-best formats need: one set of checks, one wording of their errors, files that are joined by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from traceback import clear_frames
from typing import IO, Protocol, TypeVar

from lm_zoo.inference.limits import give_back
from lm_zoo.reading import is_read_once, kaldi_fields, key_and_rest
from rescore.errors import FormatError, RescoreError, ScoreError, UsageError
from rescore.files import MARK, MARKED, read_lines
from rescore.skipping import OnError
from rescore.text import short
from rescore.types import LARGEST, Hypothesis, NbestList, Words
from rescore.weights import is_finite

SCORE = "score"  # the name of a recogniser's one combined score
AT_ONCE = 1 << 20  # bytes


@dataclass(frozen=True)
class Piece:
    """A file of a source, or a line of an index; what `rescore.formats.lattice_pieces` gives.

    Attributes:
      many: whether it may hold several utterances.
    """

    path: Path
    many: bool = False
    line: int | None = None
    text: str = ""


@dataclass(frozen=True)
class Place:
    """Where something was found, for messages."""

    path: Path
    line: int | None = None
    utt_id: str | None = None

    def format_error(self, problem: str) -> FormatError:
        return FormatError(self.path, self._utterance() + problem, line=self.line)

    def score_error(self, problem: str) -> ScoreError:
        where = f"{self.path}:{self.line}" if self.line is not None else f"{self.path}"
        return ScoreError(f"{where}: {self._utterance()}{problem}")

    def _utterance(self) -> str:
        return f"utterance {short(self.utt_id)}: " if self.utt_id is not None else ""


TOO_LARGE = "memory does not suffice for this lattice"


@contextmanager
def named_if_too_large(place: Place | None = None) -> Iterator[None]:
    """A lattice for which memory does not suffice is one that cannot be read: a FormatError names it.

    Without a place, it is a RescoreError for those who know it.
    """
    try:
        yield
    except MemoryError as error:
        clear_frames(error.__traceback__)  # they hold all that was read
        give_back(collect=True)
        raise (place.format_error(TOO_LARGE) if place else RescoreError(TOO_LARGE)) from None


class Utterance(Protocol):
    """A list, a lattice, or a record of one."""

    @property
    def utt_id(self) -> str: ...


U = TypeVar("U", bound=Utterance)
R = TypeVar("R")


def formed(items: Iterable[U], form: Callable[[U], R], path: Path, on_error: OnError) -> Iterator[R]:
    """What `form` makes of each utterance that is to be written to `path`.

    Args:
      on_error: gets the FormatError of one for which memory does not suffice; if it returns, the next one follows.
    """
    for item in items:
        try:
            made = form(item)
        except MemoryError:
            problem = Place(path, utt_id=item.utt_id).format_error("memory does not suffice to write it")
        else:
            yield made
            del made  # before the next one is there
            continue
        give_back(collect=True)  # behind the error, which holds all that was there when it was raised
        on_error(problem)


def encoded(text: str | bytes) -> bytes:
    """What is to be written of an utterance, for `put`; MemoryError if there is no room left to pack it."""
    data = text.encode() if isinstance(text, str) else text
    bytearray(min(len(data), 4 * AT_ONCE))  # behind this the utterance cannot be left out any more
    return data


def put(stream: IO[bytes], data: bytes) -> None:
    """Writes bytes a piece at a time, so that packing them takes little memory."""
    for begin in range(0, len(data), AT_ONCE):
        stream.write(memoryview(data)[begin : begin + AT_ONCE])


_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # and lone surrogates, which UTF-8 cannot write


def named_columns(path: Path, options: Mapping[str, str]) -> tuple[str, ...]:
    """The names in the option `scores=NAME,NAME,...`; none without it.

    Raises:
      UsageError: an empty name, or one that is there twice.
    """
    if "scores" not in options:
        return ()
    names = tuple(options["scores"].split(","))
    if "" in names or len(set(names)) < len(names):
        raise UsageError(f"{path}: scores is '{options['scores']}', expected different names with commas between them")
    return names


class UniqueIds:
    """Finds utterance ids that occur twice or begin with a byte order mark; holds every id seen."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def add(self, utt_id: str, place: Place, advice: str = "") -> None:
        if utt_id.startswith(MARK):
            raise place.format_error(MARKED)
        if utt_id in self._seen:
            raise place.format_error(f"this utterance id occurs a second time{advice}")
        self._seen.add(utt_id)


def utterance_files(
    path: Path, wanted: Callable[[Path], bool], file_id: Callable[[Path], str], missing: str
) -> list[Path]:
    """`path` itself, or of a folder, whose files are an utterance each, those that are `wanted`, by utterance id.

    Args:
      file_id: gives the utterance id that a file is named after.
      missing: what is said of a folder without such a file.
    Raises:
      FormatError: there is none, or two are of one utterance; nothing is there.
    """
    if not path.is_dir():
        if not path.exists() and not is_read_once(path):
            raise FormatError(path, "no such file")
        return [path]
    files = sorted(filter(wanted, path.iterdir()), key=file_id)
    if not files:
        raise FormatError(path, missing)
    for before, after in pairwise(files):
        if file_id(before) == file_id(after):
            raise FormatError(path, f"two files for utterance '{file_id(after)}': {before.name}, {after.name}")
    return files


def utterance_id(value: object, place: Place, what: str = "utterance id") -> str:
    """`value` if it can be an utterance id: a string that is not empty and has no white space or control character."""
    if not isinstance(value, str) or kaldi_fields(value) != [value] or _CONTROL.search(value):
        problem = f"{what} {short(value)}, expected a string without white space and control characters"
        raise place.format_error(problem)
    return value


def id_of_json(value: object, place: Place, what: str = "utterance id") -> str:
    """As `utterance_id`, of JSON, where an id may be an integer (the rows of a data set)."""
    return utterance_id(str(value) if type(value) is int else value, place, what)


def finite_score(value: object, name: str, rank: int, place: Place) -> float:
    """The number `value` as a float, of at most `LARGEST`; `rank` counts hypotheses from 1."""
    if value is None:
        raise place.score_error(f"hypothesis {rank} has no score '{name}'")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST:
        return float(value)
    wanted = f"expected a finite number from -{LARGEST:g} to {LARGEST:g}"
    raise place.score_error(f"hypothesis {rank} has score '{name}' {short(value)}, {wanted}")


def text_score(text: str | None, name: str, rank: int, place: Place) -> float:
    """As `finite_score`, of a number as text; None or no text is a missing score."""
    try:
        return finite_score(float(text) if text else None, name, rank, place)
    except ValueError:
        return finite_score(text, name, rank, place)


def make_list(utt_id: str, hyps: list[Hypothesis], ref: Words | None, place: Place) -> NbestList:
    """An N-best list whose hypotheses all have the same score names, and of which there is one at least."""
    if not hyps:
        raise place.format_error("no hypotheses, expected at least one (which may be empty)")
    names = hyps[0].scores.keys()
    for rank, hyp in enumerate(hyps, start=1):
        if hyp.scores.keys() != names:
            raise _uneven(rank, hyp.scores, hyps[0].scores, place)
    return NbestList(utt_id, hyps, ref)


def _uneven(rank: int, scores: Mapping[str, float], first: Mapping[str, float], place: Place) -> ScoreError:
    missing = [name for name in first if name not in scores]
    if missing:
        has = ", ".join(first)
        return place.score_error(f"hypothesis {rank} has no score '{missing[0]}'; hypothesis 1 has {has}")
    extra = next(name for name in scores if name not in first)
    has = ", ".join(first) or "none"
    return place.score_error(f"hypothesis {rank} has a score '{extra}' that hypothesis 1 does not have; it has {has}")


class CountedErrors:
    """An `OnError` that counts what it hands on."""

    def __init__(self, on_error: OnError) -> None:
        self.count = 0
        self._on_error = on_error

    def __call__(self, error: RescoreError) -> None:
        self._on_error(error)
        self.count += 1


class Checked:
    """Passes `lists` on to a writer as long as they can be written: unique ids, hypotheses, finite scores, same names.

    Iterating raises FormatError or ScoreError at the first list that cannot, and if there is no list at all, or none
    that is not among the `left_out` by then.  `references` counts those that had one.
    """

    def __init__(self, path: Path, lists: Iterable[NbestList], left_out: CountedErrors) -> None:
        self._path, self._lists, self._left_out = path, lists, left_out
        self.references = 0

    def __iter__(self) -> Iterator[NbestList]:
        unique = UniqueIds()
        count = 0
        for count, nbest in enumerate(self._lists, start=1):  # noqa: B007
            place = Place(self._path, utt_id=nbest.utt_id)
            unique.add(utterance_id(nbest.utt_id, place), place)
            make_list(nbest.utt_id, nbest.hyps, nbest.ref, place)
            for rank, hyp in enumerate(nbest.hyps, start=1):
                for name, value in hyp.scores.items():
                    if not is_finite(value) or abs(float(value)) > LARGEST:
                        finite_score(value, name, rank, place)
            self.references += nbest.ref is not None
            yield nbest
        if count == self._left_out.count:
            raise FormatError(self._path, "no utterance to write")


def join_words(words: Words, place: Place) -> str:
    """The words with single spaces between them.

    Raises:
      FormatError: a word is empty or has white space in it, so that it would not read back the same.
    """
    text = " ".join(words)
    if kaldi_fields(text) != list(words):
        bad = next(word for word in words if kaldi_fields(word) != [word])
        raise place.format_error(f"word {bad!r} is empty or has white space in it")
    return text


def single_score(nbest: NbestList, options: Mapping[str, str], place: Place) -> list[float]:
    """The scores to write into a format that holds one score a hypothesis.

    That is the one called as the option `score` says, or the only one that there is.
    """
    names = list(nbest.hyps[0].scores)
    name = options.get("score", names[0] if len(names) == 1 else None)
    if name is None:
        has = ", ".join(names) or "none"
        raise place.score_error(f"the format holds one score a hypothesis; here are: {has}; say which: PATH?score=NAME")
    if name not in names:
        raise place.score_error(f"no score '{name}'; there are: {', '.join(names) or 'none'}")
    return [float(hyp.scores[name]) for hyp in nbest.hyps]


_KEY = re.compile(r"(.+)-([0-9]{1,9})")


def split_key(key: str, place: Place) -> tuple[str, int]:
    """`(utterance id, k)` of a key `utt-k` with k from 1."""
    found = _KEY.fullmatch(key)
    if not found or int(found[2]) < 1:
        raise place.format_error(f"key {short(key)}, expected 'utt-k' with k from 1{_other_format(found)}")
    return found[1], int(found[2])


def _other_format(found: re.Match[str] | None) -> str:
    return " (from 0: if ' | ' stands before the words, it is lattice-rescore:PATH)" if found else ""


def split_line(path: Path, number: int, line: str) -> tuple[str, str]:
    """`(key, rest)` of a line `key rest`; the rest may be empty."""
    key, rest = key_and_rest(line)
    if not key:
        raise FormatError(path, "empty line, expected 'key ...'", line=number)
    return key, rest


@dataclass(frozen=True)
class KeyLine:
    """A line `utt-k rest` of a file that holds one hypothesis a line."""

    line: int
    key: str
    rest: str


def read_groups(path: Path, unique: UniqueIds) -> Iterator[tuple[str, list[KeyLine]]]:
    """`(utterance id, its lines)` of a file of lines `utt-k rest`, in file order.

    Raises:
      FormatError: an empty file or line, a key that is not `utt-k` or occurs twice, an utterance in two places.
    """
    current, group, ranks = "", list[KeyLine](), set[int]()
    for number, line in read_lines(path, ended=True):
        key, rest = split_line(path, number, line)
        utt_id, rank = split_key(key, Place(path, number))
        if group and utt_id != current:
            yield current, group
        if not group or utt_id != current:
            unique.add(utt_id, Place(path, number, utt_id), "; the lines of an utterance must stand together")
            current, group, ranks = utt_id, [], set()
        if rank in ranks:
            raise FormatError(path, f"key '{key}' occurs a second time", line=number)
        ranks.add(rank)
        group.append(KeyLine(number, key, rest))
    if not group:
        raise FormatError(path, "empty file, expected a hypothesis a line: 'utt-k ...'")
    yield current, group


class KeyedFile:
    """A file of lines `key value` that is asked for its keys one after the other.

    Lines are read on only until the key is found; what is read over is kept for later.  So memory stays constant
    where keys are asked for in the order of the file, and any other order works too.

    `lines` are its lines with their numbers, where they are not read in the usual way.
    """

    def __init__(self, path: Path, lines: Iterator[tuple[int, str]] | None = None) -> None:
        self.path = path
        self._lines = read_lines(path, ended=True) if lines is None else lines
        self._pending: dict[str, tuple[int, str]] = {}

    def take(self, key: str) -> tuple[int, str] | None:
        """`(line number, value)` of `key`, or None if the file does not have it (any more)."""
        if key in self._pending:
            return self._pending.pop(key)
        for number, line in self._lines:
            found, value = split_line(self.path, number, line)
            if found == key:
                return number, value
            if found in self._pending:
                raise FormatError(self.path, f"key '{found}' occurs a second time", line=number)
            self._pending[found] = (number, value)
        return None

    def finish(self, other: Path) -> None:
        """Raises FormatError if lines are left, which `other` has no hypothesis for."""
        for number, line in self._lines:
            self._pending.setdefault(split_line(self.path, number, line)[0], (number, ""))
            break
        for key, (number, _) in self._pending.items():
            raise FormatError(self.path, f"key '{key}' is not in {other}, or occurs a second time", line=number)


def of_jobs(path: Path, name: str, pattern: str, jobs: int = 0) -> list[Path]:
    """The files or folders of `path`, one of each job, in the order of their numbers; none where there is none.

    Args:
      name: of a job's, its number as `{}`, for messages.
      pattern: regular expression of the names; its first group is the number, from 1.
      jobs: how many there should be at least, if it is known.
    Raises:
      FormatError: one of a job is missing, or there are two of one job.
    """
    found: dict[int, Path] = {}
    for child in sorted(path.iterdir()):
        if match := re.fullmatch(pattern, child.name):
            other = found.setdefault(int(match[1]), child)
            if other != child:
                raise FormatError(path, f"two of one job: {other.name} and {child.name}; move one of them away")
    last = max([jobs, *found]) if found else 0
    missing = next((job for job in range(1, last + 1) if job not in found), None)
    if missing is not None:
        expected = f"{name.format(1)} to {name.format(last)}, of all jobs"
        raise FormatError(path, f"{name.format(missing)} is missing, expected {expected}")
    return [found[job] for job in sorted(found)]


def plain_or_packed(path: Path) -> Path | None:
    """`path` or `path.gz`, whichever exists."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None
