"""SRILM's own N-best lists (nbest-format(5)): a file an utterance, `UTT.gz`, `UTT.score.gz`, ..., in a folder.

A file has one of three forms, which its first line tells:
  - `NBestList1.0`, then lines `(score) words`: one score, in bytelogs;
  - `NBestList2.0`, then lines `(score) word ( st: T et: T g: LM a: AM ) word ( ... ) ...`: the sums of the words are
    `lm` and `am`, in bytelogs.  A unit that begins before the word in front of it has ended is a phone or a state, and
    is left out, as SRILM does, and so is one that is named as a state (`iy-1`);
  - neither: lines `am lm words w1 w2 ...`, the first two of them log10 (natural logs with `base=e`).
A bytelog is log(x) / log(1.0001) / 1024.  All become natural logs.  A `<s>` in front and a `</s>` at the end, as
lattice-tool writes them, are no words.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from lm_zoo.reading import kaldi_fields, key_and_rest
from rescore.errors import UsageError
from rescore.files import read_lines
from rescore.formats.common import SCORE, Place, make_list, text_score, utterance_files, utterance_id
from rescore.types import Hypothesis, NbestList, Words

BYTELOG = 1024 / 10000.5  # natural log of one bytelog
BEGIN, END = "<s>", "</s>"
HEADERS = ("NBestList1.0", "NBestList2.0")
FIELDS = 11  # of a word: word ( st: T et: T g: LM a: AM )
_ENDINGS = re.compile(r"(\.gz|\.xz)?$")
_NAMES = ("st:", "et:", "g:", "a:")
_STATE = re.compile(r"-[0-9]$")  # of an HMM: Decipher's times do not always tell it from a word
_TOTAL = re.compile(r"\((-?\d+(?:\.\d+)?)\)")


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads the files of a folder in the order of the utterance ids, or a single file."""
    if "scores" in options:
        raise UsageError(f"{path}: scores= is for files of lines 'utt-k score... words'; here they have fixed names")
    missing = "no file in this folder, expected an N-best list of SRILM an utterance: UTT.gz"
    for file in utterance_files(path, Path.is_file, file_id, missing):
        yield _read_file(file, 1.0 if options.get("base") == "e" else math.log(10))


def file_id(path: Path) -> str:
    """The name of a file without `.gz`, `.xz`, `.score` and `.nbest`, as SRILM's scripts take it."""
    return _ENDINGS.sub("", path.name).removesuffix(".score").removesuffix(".nbest")


def _read_file(path: Path, unit: float) -> NbestList:
    utt_id = utterance_id(file_id(path), Place(path))
    lines = read_lines(path, ended=True)
    first = next(lines, None)
    header = key_and_rest(first[1])[0] if first else ""
    form = HEADERS.index(header) + 1 if header in HEADERS else 3
    if form == 3 and first:
        lines = itertools.chain([first], lines)
    hyps = []
    for rank, (number, line) in enumerate(lines, start=1):
        place, fields = Place(path, number, utt_id), kaldi_fields(line)
        if form == 3:
            hyps.append(_plain(fields, unit, rank, place))
        else:
            hyps.append((_total if form == 1 else _timed)(fields, rank, place))
    return make_list(utt_id, hyps, None, Place(path))


def without_tags(words: list[str]) -> Words:
    """The words without a begin and an end of sentence around them."""
    begin, end = words[:1] == [BEGIN], words[-1:] == [END]
    return tuple(words[begin : len(words) - end])


def _plain(fields: list[str], unit: float, rank: int, place: Place) -> Hypothesis:
    if len(fields) < 3:
        raise place.format_error(f"found '{' '.join(fields)}', expected 'am lm words w1 w2 ...' or a header NBestList")
    scores = {
        name: text_score(text, name, rank, place) * (unit if name != "words" else 1.0)
        for name, text in zip(("am", "lm", "words"), fields, strict=False)
    }
    return Hypothesis(without_tags(fields[3:]), scores)


def _total(fields: list[str], rank: int, place: Place) -> Hypothesis:
    found = _TOTAL.fullmatch(fields[0]) if fields else None
    if not found:
        raise place.format_error(f"found '{' '.join(fields)[:60]}', expected '(score) words'")
    return Hypothesis(without_tags(fields[1:]), {SCORE: text_score(found[1], SCORE, rank, place) * BYTELOG})


def _timed(fields: list[str], rank: int, place: Place) -> Hypothesis:
    total = _total(fields[:1], rank, place).scores[SCORE]
    words, sums, end = list[str](), {"am": 0.0, "lm": 0.0}, -1.0
    for at in range(1, len(fields), FIELDS):
        unit = fields[at : at + FIELDS]
        if len(unit) < FIELDS or [unit[1], *unit[2:10:2], unit[10]] != ["(", *_NAMES, ")"]:
            raise place.format_error(f"found '{' '.join(unit)}', expected 'word ( st: T et: T g: LM a: AM )'")
        begin, ends, lm, am = (
            text_score(text, name, rank, place) for text, name in zip(unit[3:10:2], _NAMES, strict=True)
        )
        if begin > end and not _STATE.search(unit[0]):
            words.append(unit[0])
            sums["am"], sums["lm"], end = sums["am"] + am * BYTELOG, sums["lm"] + lm * BYTELOG, ends
    return Hypothesis(without_tags(words), {SCORE: total, **sums})
