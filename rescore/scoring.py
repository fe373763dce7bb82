"""Scoring N-best lists with LMs: one new column a model, many lists at a time, resumable.

Scoring never sees a reference.  A column is the natural-log probability of the whole sentence, its end included.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_zoo.base import check_case
from lm_zoo.registry import HUGGING_FACE
from rescore.combine import SCORES_FILE
from rescore.errors import ScoreError, UsageError
from rescore.formats import read_nbest, write_nbest
from rescore.types import Hypothesis, NbestList, Words

BATCH_WORDS = 60_000
PARTS = ".parts"


@dataclass
class Scorer:
    """An LM and the name of its column, with a count of the words that it does not know.

    Attributes:
      lm: anything of the zoo.
      words, unknown: hypothesis words scored so far, and those of them that the LM scored as `<unk>`.
    """

    column: str
    lm: Any
    words: int = 0
    unknown: int = 0
    _known: dict[str, bool] = field(default_factory=dict)

    @property
    def is_pseudo(self) -> bool:
        """Whether the column is a pseudo-log-likelihood (masked LMs): of use for N-best lists alone."""
        return getattr(self.lm, "pseudo_likelihood", False)

    @property
    def columns(self) -> list[str]:
        """The columns that this LM writes: its own, and `NAME-uncertainty` if it gives one."""
        return [self.column, f"{self.column}-uncertainty"][: 1 + getattr(self.lm, "with_uncertainty", False)]

    def word_columns(self, lists: list[NbestList]) -> dict[str, list[list[float]]]:
        """The values a word (the last one is the sentence end) of every hypothesis of the lists, by column."""
        for nbest in lists:
            for hyp in nbest.hyps:
                self._count(nbest.utt_id, hyp.words)
        sentences = [hyp.words for nbest in lists for hyp in nbest.hyps]
        if len(self.columns) == 1:
            return {self.column: self.lm.score_hypotheses(sentences)}
        return dict(zip(self.columns, self.lm.score_with_uncertainty(sentences), strict=True))

    def _count(self, utt_id: str, words: Words) -> None:
        self.words += len(words)
        for word in words:
            known = self._known.get(word)
            if known is None:
                check_case(self.lm.vocab, (word,), f"LM '{self.column}', utterance {utt_id}")
                known = self._known[word] = self.lm.knows(word)
            self.unknown += not known


def open_scorers(names: Iterable[str], ngram: str | None, dtype: str = "float32") -> list[Scorer]:
    """Loads the LMs of `--lm [COLUMN=]NAME|DIR`, their products in `dtype`, and `--ngram FILE` (column `ngram`).

    Raises:
      UsageError: two LMs with the same column name, or none at all.
    """
    from lm_zoo.precision import ready
    from lm_zoo.registry import load, load_ngram

    wanted = [(*_named(name), load) for name in names]
    if ngram is not None:
        wanted.append(("ngram", ngram, load_ngram))
    if not wanted:
        raise UsageError("no LM given; use --lm NAME|DIR or --ngram FILE (rescore lms lists the names)")
    columns = [column for column, _, _ in wanted]
    for column in columns:
        if columns.count(column) > 1:
            raise UsageError(f"two LMs would write the column '{column}'; name one of them: --lm NEWNAME=FOLDER")
    return [Scorer(column, ready(loader(name), dtype)) for column, name, loader in wanted]


def _named(option: str) -> tuple[str, str]:
    """`COLUMN=NAME`, or the last part of the name without its suffixes, without `hf:` and `?OPTIONS`."""
    column, equals, name = option.partition("=")
    if equals and column and "/" not in column and "?" not in column:
        return column, name
    path = option.partition("?")[0]
    for prefix in HUGGING_FACE:
        path = path.removeprefix(f"{prefix}:")
    base = os.path.basename(os.path.normpath(path))
    for suffix in (".gz", ".arpa", ".bin", ".binary", ".klm", ".mmap"):
        base = base.removesuffix(suffix)
    return base, option


def score_batch(batch: list[NbestList], scorers: list[Scorer], mix: dict[str, float] | None = None) -> list[NbestList]:
    """Adds one column a scorer to every hypothesis, and the column `mix` if interpolation weights are given.

    Args:
      mix: column -> weight of a linear interpolation word by word; the weights sum to 1.
    Raises:
      ScoreError: a column that the lists already have, or a score that is not finite.
    """
    columns = [column for scorer in scorers for column in scorer.columns] + (["mix"] if mix else [])
    for nbest in batch:
        _check_free(nbest, columns)
    by_column = {name: rows for scorer in scorers for name, rows in scorer.word_columns(batch).items()}
    new = {column: [sum(scores) for scores in rows] for column, rows in by_column.items()}
    if mix:
        new["mix"] = _mixed(by_column, mix)
    rows = iter(range(sum(len(nbest.hyps) for nbest in batch)))
    return [
        NbestList(nbest.utt_id, [_with_columns(nbest.utt_id, hyp, new, next(rows)) for hyp in nbest.hyps], nbest.ref)
        for nbest in batch
    ]


def _with_columns(utt_id: str, hyp: Hypothesis, new: dict[str, list[float]], row: int) -> Hypothesis:
    scores = {column: values[row] for column, values in new.items()}
    for column, value in scores.items():
        if not math.isfinite(value):
            raise ScoreError(f"utterance {utt_id}: the LM '{column}' gave {value} to '{' '.join(hyp.words)}'")
    return Hypothesis(hyp.words, {**hyp.scores, **scores})


def _mixed(by_column: dict[str, list[list[float]]], mix: dict[str, float]) -> list[float]:
    import numpy as np

    from lm_zoo.interpolation import interpolate

    weights = np.array(list(mix.values()))
    rows = zip(*(by_column[column] for column in mix), strict=True)
    return [float(interpolate(np.array(scores), weights).sum()) for scores in rows]


def _check_free(nbest: NbestList, columns: list[str]) -> None:
    for hyp in nbest.hyps:
        for column in columns:
            if column in hyp.scores:
                raise ScoreError(
                    f"utterance {nbest.utt_id}: there is a score '{column}' already and it is not overwritten; "
                    "give the new column another name: --lm NEWNAME=NAME|DIR"
                )


def _batches(lists: Iterable[NbestList]) -> Iterator[list[NbestList]]:
    batch: list[NbestList] = []
    words = 0
    for nbest in lists:
        batch.append(nbest)
        words += sum(len(hyp.words) + 1 for hyp in nbest.hyps)
        if words >= BATCH_WORDS:
            yield batch
            batch, words = [], 0
    if batch:
        yield batch


def write_scores(
    lists: Iterable[NbestList],
    scorers: list[Scorer],
    out: Path,
    plan: dict[str, Any],
    mix: dict[str, float] | None = None,
) -> tuple[int, int]:
    """Scores a stream of lists into `out/scores.jsonl.gz`; goes on where a stopped run of the same plan left off.

    Each batch is kept in a part of its own until all are there.

    Args:
      plan: what is scored with what; parts left by another plan are thrown away.
    Returns:
      utterances in all, and those taken over from the stopped run.
    Raises:
      ScoreError: no utterance at all.
    """
    folder = out / PARTS
    _keep_parts_of(folder, plan)
    parts, kept, total = [], 0, 0
    for number, batch in enumerate(_batches(lists)):
        part = folder / f"{number:06d}.jsonl"
        if part.exists():
            kept += len(batch)
        else:
            write_nbest(f"jsonl:{part}", score_batch(batch, scorers, mix))
        parts.append(part)
        total += len(batch)
    if not total:
        raise ScoreError("there is no utterance to score; the N-best source is empty")
    written = (nbest for part in parts for nbest in read_nbest(f"jsonl:{part}"))
    write_nbest(f"jsonl:{out / SCORES_FILE}", written)
    shutil.rmtree(folder)
    return total, kept


def _keep_parts_of(folder: Path, plan: dict[str, Any]) -> None:
    """Makes the folder of the parts; empties it unless it is of this very plan."""
    path, text = folder / "plan.json", json.dumps(plan, sort_keys=True)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
