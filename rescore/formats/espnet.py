"""ESPnet's N-best: folders `1best_recog`, `2best_recog`, ..., each with a line `utt-id ...` an utterance in its files.

Read are `text` and `score` (a number, or `tensor(-7.1)` as ESPnet prints it).  An utterance may have fewer hypotheses
than there are folders.  The `text` files must be in one order, as ESPnet writes and sorts them; `score` is joined by
utterance.  `output.JOB` folders (of ESPnet's `logdir`, none missing) are read in the order of their numbers.  Where
there is `text_nospecial` (of ESPnet's `s2t_inference`, OWSM), it is read in place of `text`, whose tokens for language,
task and times are no words.  Written are `text` and `score`; `token` and `token_int` would need the recogniser's
tokens.

ESPnet 1 writes all into one file, `data.json`: see `rescore.formats.espnet1`.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from lm_zoo.files import append_line
from lm_zoo.reading import kaldi_fields
from rescore.console import remark_on_source
from rescore.errors import FormatError
from rescore.files import atomic_folder, read_lines
from rescore.formats import espnet1
from rescore.formats.common import (
    SCORE,
    KeyedFile,
    Place,
    UniqueIds,
    join_words,
    make_list,
    of_jobs,
    plain_or_packed,
    single_score,
    split_line,
    text_score,
)
from rescore.types import Hypothesis, NbestList

_LINES = 1 << 19  # of all files together that are held
_OTHERS = 256  # files that may be open besides
_BYTES = 1 << 24  # likewise, before they are written; about
_Lines = Callable[[Path], Iterator[tuple[int, str]]]
_SPOKEN = "text_nospecial"  # the words alone
_TENSOR = re.compile(r"tensor\(([^,)]*)(?:,.*)?\)")


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads the folders; the score is called as the option `score` says."""
    if path.is_file():
        yield from espnet1.read(path, options)
        return
    if not path.is_dir():
        raise FormatError(path, "no such folder, expected one with 1best_recog, 2best_recog, ...")
    unique, folders = UniqueIds(), _folders(path)
    if plain_or_packed(folders[0] / "1best_recog" / _SPOKEN):
        remark_on_source(f"{path}: words are those of {_SPOKEN}; text has tokens of language, task and times, too")
    for folder in folders:
        yield from _read_folder(folder, options.get("score", SCORE), unique)


def _folders(path: Path) -> list[Path]:
    if (path / "1best_recog").is_dir():
        return [path]
    for parent in (path, path / "logdir"):
        folders = of_jobs(parent, "output.{}", r"output\.(\d+)") if parent.is_dir() else []
        if folders:
            return folders
    problem = "neither 1best_recog nor output.JOB in this folder"
    raise FormatError(path, f"{problem} or its logdir; expected that of one set, of an inference with --nbest 10")


class _Rank:
    """The hypotheses of one rank: the next line of `text`, and `score` by utterance."""

    def __init__(self, folder: Path, rank: int, name: str, lines: _Lines) -> None:
        self.rank, self.name = rank, name
        spoken, text, score = (plain_or_packed(folder / file) for file in (_SPOKEN, "text", "score"))
        self.text = spoken or text
        if self.text is None or score is None:
            missing = "text" if self.text is None else "score"
            raise FormatError(folder, f"no file '{missing}', expected 'text' and 'score'")
        self.scores = KeyedFile(score, lines(score))
        self._lines = lines(self.text)
        self.line, self.utt_id, self.words = 0, "", ""
        self.advance()

    def advance(self) -> None:
        """To the next line; an empty `utt_id` is the end."""
        assert self.text is not None
        self.line, line = next(self._lines, (self.line, None))
        self.utt_id, self.words = ("", "") if line is None else split_line(self.text, self.line, line)

    def place(self) -> Place:
        assert self.text is not None
        return Place(self.text, self.line, self.utt_id)

    def take(self) -> Hypothesis:
        """The hypothesis of the current line."""
        found = self.scores.take(self.utt_id)
        if found is None:
            raise self.place().score_error(f"hypothesis {self.rank} has no score: no line in {self.scores.path}")
        place = Place(self.scores.path, found[0], self.utt_id)
        tensor = _TENSOR.fullmatch(found[1])
        score = text_score(tensor[1] if tensor else found[1], self.name, self.rank, place)
        words = tuple(kaldi_fields(self.words))
        self.advance()
        return Hypothesis(words, {self.name: score})


def _lines_of(files: int) -> _Lines:
    """How each of so many files is read: as they are open all together, or if these are too many, a batch at a time."""
    if files + _OTHERS < os.sysconf("SC_OPEN_MAX"):
        return partial(read_lines, ended=True)
    return partial(_in_batches, size=max(1, _LINES // files))


def _in_batches(path: Path, size: int) -> Iterator[tuple[int, str]]:
    """The lines of a file, which is open only while so many of them are read."""
    begin = 0
    while batch := list(islice(read_lines(path, ended=True), begin, begin + size)):
        yield from batch
        begin += len(batch)


def _read_folder(folder: Path, name: str, unique: UniqueIds) -> Iterator[NbestList]:
    folders = _rank_folders(folder)
    lines = _lines_of(2 * len(folders))
    ranks = [_Rank(child, rank, name, lines) for rank, child in enumerate(folders, start=1)]
    first = ranks[0]
    if not first.utt_id:
        raise FormatError(first.place().path, "empty file, expected 'utt-id words' a line")
    while first.utt_id:
        utt_id, place = first.utt_id, first.place()
        unique.add(utt_id, place)
        having = [rank for rank in ranks if rank.utt_id == utt_id]
        if having[-1].rank != len(having):
            missing = next(rank for rank in ranks if rank not in having)
            raise (
                having[-1]
                .place()
                .format_error(f"hypothesis {having[-1].rank} is here, {missing.rank} is not (sort the files?)")
            )
        yield make_list(utt_id, [rank.take() for rank in having], None, place)
    for rank in ranks:
        if rank.utt_id:
            problem = f"not where {first.place().path} has it (order, twice, or not at all); sort the files"
            raise rank.place().format_error(problem)
        rank.scores.finish(rank.place().path)


def _rank_folders(folder: Path) -> list[Path]:
    """`1best_recog`, `2best_recog`, ..., none missing."""
    numbers = [re.fullmatch(r"(\d+)best_recog", child.name) for child in folder.iterdir()]
    ranks = sorted(int(number[1]) for number in numbers if number)
    if not ranks or ranks != list(range(1, len(ranks) + 1)):
        found = f"{len(ranks)} folders up to {ranks[-1]}best_recog" if ranks else "none"
        raise FormatError(folder, f"{found}, expected 1best_recog, 2best_recog, ... without a gap")
    return [folder / f"{rank}best_recog" for rank in ranks]


def write(path: Path, lists: Iterable[NbestList], options: Mapping[str, str]) -> int:
    """Writes as many folders as the longest list has hypotheses; see `single_score` for which score."""
    count = size = 0
    lines: defaultdict[str, list[str]] = defaultdict(list)  # of each file, for more files than can be open together
    with atomic_folder(path) as temporary:
        for nbest in lists:
            place = Place(path, utt_id=nbest.utt_id)
            scores = single_score(nbest, options, place)
            for rank, (hyp, value) in enumerate(zip(nbest.hyps, scores, strict=True), start=1):
                text, score = f"{nbest.utt_id} {join_words(hyp.words, place)}", f"{nbest.utt_id} {value!r}"
                lines[f"{rank}best_recog/text"].append(text)
                lines[f"{rank}best_recog/score"].append(score)
                size += len(text) + len(score)
            count += 1
            if size > _BYTES:
                _append(temporary, lines)
                size = 0
        _append(temporary, lines)
    return count


def _append(folder: Path, lines: dict[str, list[str]]) -> None:
    """Appends lines to the files of a folder, and forgets them."""
    for name, added in lines.items():
        (folder / name).parent.mkdir(exist_ok=True)
        append_line(folder / name, "\n".join(added))
    lines.clear()
