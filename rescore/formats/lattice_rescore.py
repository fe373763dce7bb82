"""The N-best lists of lattice-rescore (Li et al. 2021): lines `UTT-K score score ... | words`, with K from 0.

A file an utterance, in a folder of `*.nbest`, or any number of utterances in one file.  How the scores are called: the
option `scores=NAME,NAME,...`, or else `am`, `lm`, and from the third on `x3`, `x4`, ... (RNN-LMs, then attention
models).  They are natural logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from lm_zoo.reading import kaldi_fields
from rescore.errors import FormatError
from rescore.files import read_lines
from rescore.formats.common import Place, UniqueIds, make_list, named_columns, text_score
from rescore.types import Hypothesis, NbestList

_LINE = re.compile(r"(\S+)-(\d{1,9})\s([^|]*)\|(.*)", re.ASCII)
SUFFIXES = (".nbest", ".nbest.gz", ".nbest.xz")


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads a file, or the files of a folder in the order of their names."""
    files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES)) if path.is_dir() else [path]
    if not files:
        raise FormatError(path, f"no N-best list in this folder, expected files named *{', *'.join(SUFFIXES)}")
    unique, names = UniqueIds(), named_columns(path, options)
    for file in files:
        yield from _read_file(file, names, unique)


def _read_file(path: Path, names: tuple[str, ...], unique: UniqueIds) -> Iterator[NbestList]:
    current, hyps, first = "", list[Hypothesis](), 0
    for number, line in read_lines(path, ended=True):
        found = _LINE.fullmatch(line)
        if not found:
            raise FormatError(path, f"found '{line[:60]}', expected 'UTT-K score ... | words'", line=number)
        utt_id, rank = found[1], int(found[2])
        place = Place(path, number, utt_id)
        if utt_id != current:
            if hyps:
                yield make_list(current, hyps, None, Place(path, first, current))
            unique.add(utt_id, place, "; the lines of an utterance must stand together")
            current, hyps, first = utt_id, [], number
        if rank != len(hyps):
            raise place.format_error(f"hypothesis {rank}, expected {len(hyps)}: they are counted from 0 without a gap")
        hyps.append(Hypothesis(tuple(kaldi_fields(found[4])), _scores(kaldi_fields(found[3]), names, rank + 1, place)))
    if not hyps:
        raise FormatError(path, "empty file, expected a hypothesis a line: 'UTT-K score ... | words'")
    yield make_list(current, hyps, None, Place(path, first, current))


def _scores(fields: list[str], names: tuple[str, ...], rank: int, place: Place) -> dict[str, float]:
    names = names or ("am", "lm", *(f"x{k}" for k in range(3, len(fields) + 1)))[: len(fields)]
    if len(fields) != len(names) or not fields:
        what = f"{len(names)} ({', '.join(names)})" if names else "one at least"
        raise place.score_error(f"hypothesis {rank} has {len(fields)} scores, expected {what}")
    return {name: text_score(text, name, rank, place) for name, text in zip(names, fields, strict=True)}
