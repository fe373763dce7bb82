"""Lattices in OpenFst's text form (AT&T), as Kaldi's text tables hold them: a line `utt-id`, the arcs, a blank line.

An arc is `src dst word [weight]` or `src dst in out [weight]`, where `out` is the word; a final state is `state
[weight]`; the first line's state is the start. A weight is a cost, a score `score` when it is negated; or two of them
with a comma, as Kaldi has them, the scores `graph` and `am`; a string of transition ids may follow (`1.5,20.25,7_7_9`).
Of these the states have times, a frame each (see `rescore.formats.frames`).
Arcs and final states of infinite cost, as fstprint has them of states that lead nowhere, are left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from lm_zoo.inference.limits import give_back
from lm_zoo.reading import is_read_once, kaldi_fields
from rescore.console import remark
from rescore.errors import FormatError, RescoreError, UsageError
from rescore.files import atomic_binary, read_lines, whole_number
from rescore.formats.common import SCORE, TOO_LARGE, Place, UniqueIds, encoded, formed, named_if_too_large, put
from rescore.formats.frames import frame_times, given_shift, say_lost_shift, shift_of, usual_shift
from rescore.formats.symbols import IDS, NUMBERS_WRITTEN, SymbolTable, are_ids, is_id, read_symbols, table_for
from rescore.lattices.build import EPSILON, build_lattice, with_an_arc
from rescore.skipping import OnError, fail
from rescore.types import Alignments, Lattice

EPSILONS = frozenset(("<eps>", "<epsilon>", "-"))  # and 0 where words are numbers
_KALDI = ("graph", "am")
_BAD_WEIGHTS = ("badnumber", "nan")  # as OpenFst and others write what is no number
_STRING = re.compile(r"(\d{1,9}(_\d{1,9})*)?")


@dataclass
class _Entry:
    """The lines of one lattice; `line` is that of its key."""

    utt_id: str
    line: int
    rows: list[list[str]] = field(default_factory=list)


def read_lattices(path: Path, options: Mapping[str, str], on_error: OnError = fail) -> Iterator[Lattice]:
    """All lattices of a file.

    Options: `words` (words.txt, if words are numbers in the file; "ids" if these are words), `frame_shift` (seconds for
    each transition id; else as `usual_shift`).

    Raises:
      UsageError: all words of the first lattice are numbers, and there is no table for them (see `table_for`).
    """
    words = options.get("words")
    table = None if words is None or words == IDS else read_symbols(words)
    undecided = words is None  # whether words are numbers
    shift = given_shift(options)
    unique = UniqueIds()
    empty = True
    for entry in _entries(path, on_error):
        empty = False
        place = Place(path, entry.line, entry.utt_id)
        unique.add(entry.utt_id, place)
        try:
            with named_if_too_large():
                lattice = _to_lattice(entry, table)
            if undecided and lattice.symbols[1:]:
                undecided = False
                if are_ids(lattice.symbols[1:]):
                    table = table_for(path, None)
                    lattice = _to_lattice(entry, table)
            if lattice.alignments is not None:
                shift = shift or usual_shift(path)
                lattice.times = frame_times(lattice, shift)
            yield lattice
        except UsageError:
            raise  # no table of words: not for `on_error`
        except RescoreError as error:
            on_error(place.format_error(str(error)))
    if empty:
        raise FormatError(path, "no lattice in it, expected a line 'utt-id', arcs, and a blank line")


def _entries(path: Path, on_error: OnError) -> Iterator[_Entry]:
    """The lattices' lines; where no id stands before them, `on_error` gets that, and they are passed over.

    It also gets the last lattice's if no blank line follows, as in a file that was cut off, what keeps the rest of a
    file from being read, and the want of memory for the lines of one; the file is then read once more, up to there.
    """
    begin: int | None = 0
    while begin is not None:
        begin = yield from _entries_behind(path, begin, on_error)


def _entries_behind(path: Path, begin: int, on_error: OnError) -> Generator[_Entry, None, int | None]:
    """The lattices behind the line `begin`, of one that was left out if not 0.

    Returns:
      a line of the next one that is left out; None at the end of the file.
    """
    entry: _Entry | None = None
    number, passing = begin, begin > 0
    lines = _lines_behind(path, begin, on_error)  # named: closing it takes memory, too
    try:
        for number, line in lines:
            fields = kaldi_fields(line)
            if entry is None and fields:
                if len(fields) == 1 and not passing:
                    entry = _Entry(fields[0], number)
                elif not passing:
                    on_error(FormatError(path, f"found '{line[:60]}', expected an utterance id alone", line=number))
                    passing = True
            elif passing:
                passing = False
            elif entry is not None and fields:
                entry.rows.append(fields)
            elif entry is not None and number < 0:
                place = Place(path, entry.line, entry.utt_id)
                problem = "the file ends within this lattice, without a blank line behind it (add one, if it is whole)"
                cut_off = place.format_error(problem)
                cut_off.uncounted = True
                on_error(cut_off)
            elif entry is not None:
                yield entry
                entry = None
        return None
    except MemoryError:
        if entry is None:
            raise
        entry.rows.clear()  # first: all else takes memory
        if is_read_once(path):
            raise
        place, entry = Place(path, entry.line, entry.utt_id), None
    give_back(collect=True)
    on_error(place.format_error(TOO_LARGE))
    return number


def _lines_behind(path: Path, begin: int, on_error: OnError) -> Iterator[tuple[int, str]]:
    """The lines behind the line `begin`, each with its number, and the end, `(-1, "")`.

    `on_error` gets the damage of a packed file, or text that is no UTF-8; there the lines end, without `(-1, "")`.
    """
    number = begin
    try:
        for number, line in islice(read_lines(path), begin, None):
            yield number, line
    except FormatError as error:
        if number == 0:
            raise  # nothing of it can be read: it is no damage
        error.uncounted = True
        on_error(error)
    else:
        yield -1, ""


def _to_lattice(entry: _Entry, table: SymbolTable | None) -> Lattice:
    rows = entry.rows
    if not rows:
        raise RescoreError("an empty lattice: no arcs, no final state")
    label_at = 3 if any(len(row) == 5 for row in rows) or _unweighted_transducer(rows) else 2
    arcs = [row for row in rows if len(row) > 2]
    ends = [row for row in rows if len(row) <= 2]
    for row in arcs:
        if len(row) not in (label_at + 1, label_at + 2):
            raise RescoreError(f"found '{' '.join(row)}', expected {label_at + 1} or {label_at + 2} fields")
    src = [_state(row[0]) for row in arcs]
    dst = [_state(row[1]) for row in arcs]
    final = max(*src, *dst, *(_state(row[0]) for row in ends), 0) + 1
    weights = [row[label_at + 1] if len(row) > label_at + 1 else "0" for row in arcs]
    weights += [row[1] if len(row) == 2 else "0" for row in ends]
    words = [*(row[label_at] for row in arcs), *("<eps>" for _ in ends)]
    labels, symbols = _labels(words, table)
    scores, strings = _scores(weights), _strings(weights)
    sources = np.array([*src, *(_state(row[0]) for row in ends)], dtype=np.int64)
    targets = np.array([*dst, *(final for _ in ends)], dtype=np.int64)
    start = _state(rows[0][0])
    arcs_of = sources, targets, labels, scores, symbols
    lattice = build_lattice(entry.utt_id, final + 1, *arcs_of, start, final, alignments=strings, possible=True)
    lattice.counts["removed_states"] = len(np.union1d(sources, targets)) - lattice.num_states  # numbers may have gaps
    return lattice


def _unweighted_transducer(rows: list[list[str]]) -> bool:
    """Whether four fields are two labels without weights: more of the fourth are words than surely weights.

    Numbers that are the same in both places, several times, are two labels, too (fstprint's unweighted acceptors).
    """
    fourth = [row[3] for row in rows if len(row) == 4]
    if len(fourth) > 1 and all(is_id(row[3]) and row[2] == row[3] for row in rows if len(row) == 4):
        return True
    weights = sum(_is_weight(text) and re.search("[.,eE]", text) is not None for text in fourth)
    words = sum(not (_is_weight(text) or text.lower().lstrip("-") in _BAD_WEIGHTS) for text in fourth)
    return words > weights


def _is_weight(text: str) -> bool:
    parts = text.split(",")
    try:
        return len(parts) <= 3 and all(float(part) == float(part) for part in parts[:2]) and _is_string(parts[2:])
    except ValueError:
        return False


def _is_string(rest: list[str]) -> bool:
    """Whether what follows graph and acoustic cost is nothing or ids joined by `_`."""
    return not rest or _STRING.fullmatch(rest[0]) is not None


def _strings(weights: list[str]) -> Alignments | None:
    """The transition ids in weights, None if no weight has such a part."""
    parts = [weight.split(",") for weight in weights]
    if not any(len(part) == 3 for part in parts):
        return None
    ids = [part[2].split("_") if len(part) == 3 and part[2] else [] for part in parts]
    flat = np.array([int(number) for string in ids for number in string], dtype=np.int32)
    return Alignments.of_lengths(flat, np.array([len(string) for string in ids], dtype=np.int64))


def _state(text: str) -> int:
    state = whole_number(text)
    if state is None:
        raise RescoreError(f"found '{text[:40]}', expected the number of a state")
    return state


def _labels(words: list[str], table: SymbolTable | None) -> tuple[np.ndarray, list[str]]:
    if table is not None:
        for word in words:
            if word != "<eps>" and not is_id(word):
                raise RescoreError(f"found '{word}', expected the number of a word; words.txt is not needed for words")
        ids = np.array([0 if word == "<eps>" else int(word) for word in words], dtype=np.int64)
        try:
            return table.compact(ids)
        except KeyError as error:
            raise RescoreError(error.args[0]) from None
    silent = _silent(words)
    numbers = {"": EPSILON}
    labels = [EPSILON if word in silent else numbers.setdefault(word, len(numbers)) for word in words]
    return np.array(labels, dtype=np.int32), list(numbers)


def _scores(weights: list[str]) -> dict[str, np.ndarray]:
    bad = next((weight for weight in weights if not _is_weight(weight)), None)
    pairs = any("," in weight for weight in weights)
    names = _KALDI if pairs else (SCORE,)
    parts = [["0"] * len(names) if weight == "0" else weight.split(",") for weight in weights]
    bad = bad or next((w for w, part in zip(weights, parts, strict=True) if len(part) < len(names)), None)
    if bad is not None:
        raise RescoreError(f"weight '{bad[:40]}', expected {'two numbers with a comma' if pairs else 'a number'}")
    values = np.array([[float(number) for number in part[: len(names)]] for part in parts]).reshape(-1, len(names))
    if not (values > -np.inf).all():
        raise RescoreError("a weight is minus infinity, expected a cost")
    return {name: 0.0 - values[:, column] for column, name in enumerate(names)}


def write_lattices(
    path: Path, lattices: Iterable[Lattice], options: Mapping[str, str], on_error: OnError = fail
) -> int:
    """Writes acceptors; option `words` writes words as numbers, `score` says which score becomes the weight.

    Without `score`: the only one there is, or `graph,am` (and transition ids) where these are all there are.
    `on_error` as for `formed`.
    """
    told = options.get("words")
    table = None if told is None or told == IDS else read_symbols(told)
    count = 0
    first = list[str]()  # words of the first lattice that has any

    def form(lattice: Lattice) -> bytes:
        lattice = with_an_arc(lattice)  # whose weight tells which scores it has
        place = Place(path, utt_id=lattice.utt_id)
        names = _names(lattice, options, place)
        words = _words(lattice, table, place)
        first.extend([] if first else _used(lattice))
        weights = _weights(lattice, names)
        if count == 0 and names == _KALDI:
            say_lost_shift(path, shift_of(lattice))
        lines = [lattice.utt_id]
        ends = zip(lattice.src.tolist(), lattice.dst.tolist(), lattice.labels.tolist(), weights, strict=True)
        lines.extend(f"{src}\t{dst}\t{words[label]}\t{weight}" for src, dst, label, weight in ends)
        return encoded("\n".join([*lines, str(lattice.num_states - 1)]) + "\n\n")

    with atomic_binary(path) as stream:
        for text in formed(lattices, form, path, on_error):
            put(stream, text)
            count += 1
    if told is None and first and are_ids(first):
        remark(f"{path}: {NUMBERS_WRITTEN}")
    return count


def _weights(lattice: Lattice, names: Sequence[str]) -> list[str]:
    """Costs of the arcs, with their strings where Kaldi has place for them."""
    columns = [list(map(repr, (0.0 - lattice.scores[name]).tolist())) for name in names]
    if lattice.alignments is not None and names == _KALDI:
        strings = map(lattice.alignments.string, range(lattice.num_arcs))
        columns.append(["_".join(map(str, string)) for string in strings])
    return [",".join(row) for row in zip(*columns, strict=True)]


def _used(lattice: Lattice) -> list[str]:
    return [lattice.symbols[label] for label in np.unique(lattice.labels).tolist() if label != EPSILON]


def _words(lattice: Lattice, table: SymbolTable | None, place: Place) -> list[str]:
    """What is written for each label.

    Raises:
      FormatError: a word that is not in the table, or without a table, one that would be read back as none or several.
    """
    if table is not None:
        try:
            return list(map(str, table.to_ids(np.arange(len(lattice.symbols)), lattice.symbols).tolist()))
        except KeyError as error:
            raise place.format_error(error.args[0]) from None
    used = _used(lattice)
    silent = _silent(used)
    for word in used:
        if word in silent or kaldi_fields(word) != [word]:
            problem = f"word '{word}' would be read back as {'no word' if word in silent else 'none or several'}"
            raise place.format_error(f"{problem}; give a table in which it has a number: PATH?words=words.txt")
    return [word if label else "<eps>" for label, word in enumerate(lattice.symbols)]


def _silent(words: Sequence[str]) -> frozenset[str]:
    """What stands for no word where these are the words and epsilons of a lattice."""
    return EPSILONS | {"0"} if all(word.isdigit() for word in words if word not in EPSILONS) else EPSILONS


def _names(lattice: Lattice, options: Mapping[str, str], place: Place) -> tuple[str, ...]:
    has = ", ".join(lattice.scores) or "none"
    if "score" in options:
        if options["score"] not in lattice.scores:
            raise place.score_error(f"no score '{options['score']}'; there are: {has}")
        return (options["score"],)
    if set(lattice.scores) == set(_KALDI):
        return _KALDI
    if len(lattice.scores) != 1:
        raise place.score_error(f"the format holds one score; here are: {has}; say which: PATH?score=NAME")
    return tuple(lattice.scores)
