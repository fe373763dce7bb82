"""ESPnet's N-best: folders `1best_recog`, `2best_recog`, ..., each with a line `utt-id ...` an utterance in its files.

Read are `text` and `score` (a number, or `tensor(-7.1)` as ESPnet prints it).  An utterance may have fewer hypotheses
than there are folders.  The `text` files must be in one order, as ESPnet writes and sorts them; `score` is joined by
utterance.  `output.JOB` folders (of ESPnet's `logdir`) are read in the order of their numbers.  Written are `text` and
`score`; `token` and `token_int` would need the recogniser's tokens.

ESPnet 1 writes all into one file, `data.json`: see `rescore.formats.espnet1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from lm_zoo.reading import kaldi_fields
from rescore.errors import FormatError
from rescore.files import atomic_folder, atomic_text, read_lines
from rescore.formats import espnet1
from rescore.formats.common import (
    SCORE,
    KeyedFile,
    Place,
    UniqueIds,
    join_words,
    make_list,
    numbered_folders,
    plain_or_packed,
    single_score,
    split_line,
    text_score,
)
from rescore.types import Hypothesis, NbestList

_TENSOR = re.compile(r"tensor\(([^,)]*)(?:,.*)?\)")


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads the folders; the score is called as the option `score` says."""
    if path.is_file():
        yield from espnet1.read(path, options)
        return
    if not path.is_dir():
        raise FormatError(path, "no such folder, expected one with 1best_recog, 2best_recog, ...")
    unique = UniqueIds()
    for folder in _folders(path):
        yield from _read_folder(folder, options.get("score", SCORE), unique)


def _folders(path: Path) -> list[Path]:
    if (path / "1best_recog").is_dir():
        return [path]
    for parent in (path, path / "logdir"):
        folders = numbered_folders(parent, "output.") if parent.is_dir() else []
        if folders:
            return folders
    raise FormatError(path, "neither 1best_recog nor output.JOB in this folder")


class _Rank:
    """The hypotheses of one rank: the next line of `text`, and `score` by utterance."""

    def __init__(self, folder: Path, rank: int, name: str) -> None:
        self.rank, self.name = rank, name
        self.text, score = (plain_or_packed(folder / file) for file in ("text", "score"))
        if self.text is None or score is None:
            missing = "text" if self.text is None else "score"
            raise FormatError(folder, f"no file '{missing}', expected 'text' and 'score'")
        self.scores = KeyedFile(score)
        self._lines = read_lines(self.text, ended=True)
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


def _read_folder(folder: Path, name: str, unique: UniqueIds) -> Iterator[NbestList]:
    ranks = [_Rank(child, rank, name) for rank, child in enumerate(_rank_folders(folder), start=1)]
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
    count = 0
    with atomic_folder(path) as temporary, ExitStack() as stack:
        ranks: list[tuple[IO[str], IO[str]]] = []
        for nbest in lists:
            place = Place(path, utt_id=nbest.utt_id)
            scores = single_score(nbest, options, place)
            while len(ranks) < len(nbest.hyps):
                folder = temporary / f"{len(ranks) + 1}best_recog"
                text, score = (stack.enter_context(atomic_text(folder / file)) for file in ("text", "score"))
                ranks.append((text, score))
            for (text, score), hyp, value in zip(ranks, nbest.hyps, scores, strict=False):
                text.write(f"{nbest.utt_id} {join_words(hyp.words, place)}\n")
                score.write(f"{nbest.utt_id} {value!r}\n")
            count += 1
    return count
