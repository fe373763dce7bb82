"""Lines `utt-k score... words`, the columns of SRILM's n-best lists (nbest-format(5)) behind a key.

How many scores there are: the option `scores=NAME,NAME,...` says so and names them.  Without it, they are the numbers
that lead every line of the first utterance, three at most, as in SRILM: three are `am`, `lm`, `words`, two are `am`,
`lm`, one is `score`.  (Lists whose words may be numbers need the option.)  Scores are natural logs; with `base=10` they
are log10, as SRILM writes them, but for `words`, which is a count.

SRILM's own files, without a key, in a folder or with a header `NBestList`: see `rescore.formats.srilm_folder`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lm_zoo.reading import kaldi_fields, key_and_rest
from rescore.errors import UsageError
from rescore.files import atomic_text, read_lines
from rescore.formats import srilm_folder
from rescore.formats.common import (
    SCORE,
    KeyLine,
    Place,
    UniqueIds,
    join_words,
    make_list,
    named_columns,
    read_groups,
    text_score,
)
from rescore.types import Hypothesis, NbestList

_COLUMNS = {1: (SCORE,), 2: ("am", "lm"), 3: ("am", "lm", "words")}
_NUMBER = re.compile(  # nan: a bad score, no word
    r"[-+]?(\d+(\.\d*)?([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|nan|inf)", re.ASCII
)


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads such lines, or SRILM's own files."""
    unit = _unit(path, options)
    if path.is_dir() or _has_header(path):
        yield from srilm_folder.read(path, options)
        return
    names = named_columns(path, options)
    for utt_id, lines in read_groups(path, UniqueIds()):
        names = names or _guessed_columns(path, utt_id, lines)
        hyps = [
            _hypothesis(line.rest, names, unit, rank, Place(path, line.line, utt_id))
            for rank, line in enumerate(lines, start=1)
        ]
        yield make_list(utt_id, hyps, None, Place(path, lines[0].line, utt_id))


def _has_header(path: Path) -> bool:
    """Whether it is one of SRILM's own files; of a pipe, which has no second reading, that is not asked."""
    return path.is_file() and next(read_lines(path), (0, ""))[1].startswith(srilm_folder.HEADERS)


def _unit(path: Path, options: Mapping[str, str]) -> float:
    """The natural log of the base of the logs in the file."""
    base = options.get("base")
    if base not in (None, "e", "10"):
        raise UsageError(f"{path}: base is '{base}', expected e or 10")
    return math.log(10) if base == "10" else 1.0


def _guessed_columns(path: Path, utt_id: str, lines: list[KeyLine]) -> tuple[str, ...]:
    numbers = min(len(list(itertools.takewhile(_NUMBER.fullmatch, kaldi_fields(line.rest)[:3]))) for line in lines)
    if not numbers:
        first = next(line for line in lines if not _NUMBER.fullmatch(key_and_rest(line.rest)[0]))
        raise Place(path, first.line, utt_id).score_error("no score behind the key, expected 'utt-k score... words'")
    return _COLUMNS[numbers]


def _hypothesis(rest: str, names: tuple[str, ...], unit: float, rank: int, place: Place) -> Hypothesis:
    fields = kaldi_fields(rest)
    texts = fields[: len(names)] + [None] * (len(names) - len(fields))
    scores = {
        name: text_score(text, name, rank, place) * (unit if name != "words" else 1.0)
        for name, text in zip(names, texts, strict=True)
    }
    return Hypothesis(tuple(fields[len(names) :]), scores)


def write(path: Path, lists: Iterable[NbestList], options: Mapping[str, str]) -> int:
    """Writes the columns that the option `scores` names, or all if they are those that are read without it."""
    unit = _unit(path, options)
    chosen = named_columns(path, options)
    count = 0
    with atomic_text(path) as stream:
        for nbest in lists:
            place = Place(path, utt_id=nbest.utt_id)
            names = chosen or _default_columns(nbest, place)
            missing = [name for name in names if name not in nbest.hyps[0].scores]
            if missing:
                has = ", ".join(nbest.hyps[0].scores) or "none"
                raise place.score_error(f"no score '{missing[0]}'; there are: {has}")
            chosen = names
            for rank, hyp in enumerate(nbest.hyps, start=1):
                values = (float(hyp.scores[name]) / (unit if name != "words" else 1.0) for name in names)
                fields = (f"{nbest.utt_id}-{rank}", *map(repr, values), join_words(hyp.words, place))
                stream.write(" ".join(fields).rstrip(" ") + "\n")
            count += 1
    return count


def _default_columns(nbest: NbestList, place: Place) -> tuple[str, ...]:
    names = set(nbest.hyps[0].scores)
    for columns in _COLUMNS.values():
        if names == set(columns):
            if len(columns) < 3 and all(_NUMBER.fullmatch((*hyp.words, "")[0]) for hyp in nbest.hyps):
                problem = f"words that look like scores; write and read with srilm:PATH?scores={','.join(columns)}"
                raise place.format_error(problem)
            return columns
    has = ", ".join(nbest.hyps[0].scores) or "none"
    raise place.score_error(f"scores are: {has}; say which columns to write: srilm:PATH?scores=NAME,NAME")
