"""Scores and errors of all hypotheses of a set as arrays: what tuning works on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rescore.errors import ScoreError
from rescore.evaluation.distances import pairwise_distances
from rescore.evaluation.wer import check_same_form, check_same_utterances, edit_distance
from rescore.text import short
from rescore.tuning.spread import deviation, spread
from rescore.types import LARGEST, NbestList, Words
from rescore.weights import check_same_scores, is_finite, with_words


@dataclass
class ScoreTable:
    """Hypotheses of all utterances one after another, in the order of their sources.

    Attributes:
      names: score names, one a column.
      utt_ids: one an utterance.
      offsets: int64 `(utterances + 1,)`; hypotheses `offsets[u]` to `offsets[u + 1] - 1` belong to utterance `u`.
      matrix: float64 `(hypotheses, columns)`, natural logs, unscaled.
      errors: int64 `(hypotheses,)`, word errors against the reference.
      ref_words: int64 `(utterances,)`.
      distances: word errors between the hypotheses of each utterance, `(hyps, hyps)` each, where they are asked for.
    """

    names: list[str]
    utt_ids: list[str]
    offsets: np.ndarray
    matrix: np.ndarray
    errors: np.ndarray
    ref_words: np.ndarray
    distances: list[np.ndarray] | None = None

    @property
    def total_words(self) -> int:
        return int(self.ref_words.sum())

    def spread(self) -> np.ndarray:
        """Standard deviation of each column within the lists, but for values far out, float64 `(columns,)`."""
        return spread(*self.listed())

    def listed(self) -> tuple[np.ndarray, np.ndarray]:
        """`matrix` and `offsets`."""
        return self.matrix, self.offsets

    def varies(self) -> np.ndarray:
        """Whether a column has different values within some list, bool `(columns,)`."""
        different: np.ndarray = deviation(*self.listed()) > 1e-12 * np.maximum(1.0, np.abs(self.matrix).max(axis=0))
        return different

    def oracle_errors(self) -> int:
        """Errors if the best hypothesis of every list were chosen."""
        return int(np.minimum.reduceat(self.errors, self.offsets[:-1]).sum())

    def select(self, utterances: np.ndarray) -> ScoreTable:
        """The table of some utterances, given by their indices."""
        rows = [np.arange(self.offsets[u], self.offsets[u + 1]) for u in utterances]
        picked = np.concatenate(rows)
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        return ScoreTable(
            self.names,
            [self.utt_ids[u] for u in utterances],
            offsets,
            self.matrix[picked],
            self.errors[picked],
            self.ref_words[utterances],
            None if self.distances is None else [self.distances[u] for u in utterances],
        )

    def first(self, n: int) -> ScoreTable:
        """The table of the first `n` hypotheses of each list."""
        lengths = np.minimum(np.diff(self.offsets), n)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        picked = np.repeat(self.offsets[:-1] - offsets[:-1], lengths) + np.arange(offsets[-1])
        distances = None if self.distances is None else [each[:n, :n] for each in self.distances]
        return replace(
            self, offsets=offsets, matrix=self.matrix[picked], errors=self.errors[picked], distances=distances
        )


def build_table(lists: Iterable[NbestList], refs: Mapping[str, Words], distances: bool = False) -> ScoreTable:
    """Collects the scores (with the column `words`) and counts the errors of every hypothesis.

    Args:
      distances: count the errors between the hypotheses of each list, too.
    Raises:
      ReferencesError: lists and references do not cover the same utterances.
      ScoreError: an empty list, an utterance that comes twice, a score missing somewhere, no number or too large.
    """
    names: list[str] = []
    rows: list[list[float]] = []
    errors: list[int] = []
    lengths: dict[str, int] = {}
    firsts: list[Words] = []
    between: list[np.ndarray] = []
    for nbest in lists:
        if nbest.utt_id in lengths:
            raise ScoreError(f"utterance {nbest.utt_id} occurs a second time in the scores")
        if not nbest.hyps:
            raise ScoreError(f"utterance {nbest.utt_id}: no hypothesis; every list needs at least one")
        names = names or list(with_words(nbest.hyps[0]))
        rows.extend(_score_rows(nbest, names, next(iter(lengths), nbest.utt_id)))
        errors.extend(_list_errors(nbest, refs.get(nbest.utt_id, ())))
        lengths[nbest.utt_id] = len(nbest.hyps)
        firsts.append(nbest.hyps[0].words)
        if distances:
            between.append(pairwise_distances([hyp.words for hyp in nbest.hyps]).astype(np.uint16))
    check_same_utterances(refs, lengths, "N-best lists")
    check_same_form(refs.values(), firsts)
    return ScoreTable(
        names=names,
        utt_ids=list(lengths),
        offsets=np.concatenate([[0], np.cumsum(list(lengths.values()))]).astype(np.int64),
        matrix=np.array(rows, dtype=np.float64),
        errors=np.array(errors, dtype=np.int64),
        ref_words=np.array([len(refs[utt_id]) for utt_id in lengths], dtype=np.int64),
        distances=between if distances else None,
    )


def _score_rows(nbest: NbestList, names: list[str], first: str) -> list[list[float]]:
    """The scores of all hypotheses, in the order of `names`, those of the utterance `first`."""
    rows = []
    for rank, hyp in enumerate(nbest.hyps, start=1):
        scores = with_words(hyp)
        what = f"utterance {nbest.utt_id}: hypothesis {rank}"
        check_same_scores(what, scores, f"utterance {first}", names)
        row = [_number(scores[name]) for name in names]
        for name, value in zip(names, row, strict=True):
            if not abs(value) <= LARGEST:
                raise ScoreError(
                    f"{what} has the score {name} = {short(scores[name])}; to tune, scores must be finite numbers from "
                    f"-{LARGEST:g} to {LARGEST:g}"
                )
        rows.append(row)
    return rows


def _number(score: Any) -> float:
    """The score; NaN for what is no finite number."""
    return float(score) if is_finite(score) else math.nan


def _list_errors(nbest: NbestList, ref: Words) -> list[int]:
    known: dict[Words, int] = {}
    for hyp in nbest.hyps:
        if hyp.words not in known:
            known[hyp.words] = edit_distance(ref, hyp.words)
    return [known[hyp.words] for hyp in nbest.hyps]
