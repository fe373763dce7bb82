"""SRILM's PFSG lattices (pfsg-format(5)): a file an utterance, words on nodes.

    name NAME
    nodes N W1 ... WN
    initial I
    final F
    transitions T
    FROM TO COST
    ...

A word belongs to the transitions that end at its node, `NULL`, `<s>` and `</s>` are none; COST is 10000.5 times the
natural log of a probability (SRILM's lattices: of all its scores), which becomes the score `score`.  Grammars within a
grammar are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lm_zoo.reading import kaldi_fields
from rescore.errors import FormatError, RescoreError
from rescore.files import read_lines, whole_number
from rescore.formats.common import SCORE, Place, named_if_too_large, utterance_files, utterance_id
from rescore.lattices.build import EPSILON, build_lattice
from rescore.skipping import OnError, fail
from rescore.types import Lattice

SUFFIXES = (".pfsg", ".pfsg.gz", ".pfsg.xz")
UNIT = 10000.5
NULL = "NULL"
SILENT = (NULL, "<s>", "</s>")  # the tags are those of -print-sent-tags


@dataclass
class _Pfsg:
    """What a file says; `ends` and `costs` are those of the transitions."""

    words: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)  # initial, final, transitions
    ends: list[tuple[int, int]] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)


def read_lattices(path: Path, options: Mapping[str, str], on_error: OnError = fail) -> Iterator[Lattice]:
    """Reads a file, or the files of a folder in the order of the utterance ids, which are the names of the files.

    Args:
      on_error: gets the error of a lattice that cannot be read; if it returns, the next one is read.
    """
    missing = f"no lattice in this folder, expected files named *{', *'.join(SUFFIXES)}"
    for file in utterance_files(path, lambda file: file.name.endswith(SUFFIXES), _file_id, missing):
        try:
            with named_if_too_large(Place(file)):
                lattice = read_lattice(file)
        except RescoreError as error:
            on_error(error)
        else:
            yield lattice


def _file_id(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".pfsg")


def read_lattice(path: Path) -> Lattice:
    """One file as a lattice with the score `score`.

    Raises:
      FormatError: a line that is none of the format, a node that is not there, fewer transitions than stated, a cost
        that is no finite number, two grammars in a file, cycles, no complete path.
    """
    pfsg = _parse(path)
    src, dst = (np.array([pair[side] for pair in pfsg.ends], dtype=np.int64) for side in (0, 1))
    costs, start, states = list(pfsg.costs), pfsg.numbers["initial"], len(pfsg.words)
    if pfsg.words[start] not in SILENT or not pfsg.ends:  # the first word stands on no transition: it gets one
        src, dst = np.append(src, states), np.append(dst, start)
        costs, start, states = [*costs, 0.0], states, states + 1
    symbols = {"": EPSILON}
    ids = [EPSILON if word in SILENT else symbols.setdefault(word, len(symbols)) for word in pfsg.words]
    labels = np.array(ids, dtype=np.int32)[dst]
    scores = {SCORE: np.array(costs) / UNIT}
    utt_id = utterance_id(_file_id(path), Place(path))
    try:
        return build_lattice(utt_id, states, src, dst, labels, scores, list(symbols), start, pfsg.numbers["final"])
    except RescoreError as error:
        raise FormatError(path, str(error)) from None


def _parse(path: Path) -> _Pfsg:
    pfsg, named = _Pfsg(), False
    for number, line in read_lines(path, ended=True):
        fields, place = kaldi_fields(line), Place(path, number)
        if not fields:
            continue
        if fields[0] == "name" and len(fields) == 2:
            if named:
                raise place.format_error("a second grammar in the file, which is not read; expand it before")
            named = True
        elif fields[0] == "nodes" and len(fields) > 2:
            pfsg.words = fields[2:]
            if fields[1] != str(len(pfsg.words)):
                raise place.format_error(f"{fields[1]} nodes are stated, found {len(pfsg.words)} words")
        elif fields[0] in ("initial", "final", "transitions") and len(fields) == 2:
            pfsg.numbers[fields[0]] = _number(fields[1], place)
        elif len(fields) == 3 and "transitions" in pfsg.numbers:
            pfsg.ends.append((_node(fields[0], pfsg, place), _node(fields[1], pfsg, place)))
            pfsg.costs.append(_cost(fields[2], place))
        else:
            raise place.format_error(f"found '{line[:60]}', expected a PFSG: name, nodes, initial, final, transitions")
    _check(pfsg, path)
    return pfsg


def _check(pfsg: _Pfsg, path: Path) -> None:
    missing = [name for name in ("initial", "final", "transitions") if name not in pfsg.numbers]
    if missing or not pfsg.words:
        raise FormatError(path, f"no line '{(missing or ['nodes'])[0]}', expected a PFSG of SRILM")
    stated, found = pfsg.numbers["transitions"], len(pfsg.ends)
    if stated != found:
        raise FormatError(path, f"{stated} transitions are stated, found {found}; the file is incomplete")
    for name in ("initial", "final"):
        if pfsg.numbers[name] >= len(pfsg.words):
            raise FormatError(path, f"{name} is {pfsg.numbers[name]}, but there are {len(pfsg.words)} nodes, from 0")


def _number(text: str, place: Place) -> int:
    number = whole_number(text)
    if number is None:
        raise place.format_error(f"found '{text[:30]}', expected a whole number from 0")
    return number


def _node(text: str, pfsg: _Pfsg, place: Place) -> int:
    node = _number(text, place)
    if node >= len(pfsg.words):
        raise place.format_error(f"node {node}, but there are {len(pfsg.words)} nodes, from 0")
    return node


def _cost(text: str, place: Place) -> float:
    try:
        cost = float(text)
    except ValueError:
        cost = np.nan
    if not np.isfinite(cost):
        raise place.format_error(f"found the cost '{text[:30]}', expected a finite number")
    return cost
