"""Which hypothesis of each list is chosen: the one of the highest total, or that of the fewest expected errors.

Over lattices: the best path, or minimum Bayes risk decoding (`rescore.lattices.mbr`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rescore.tuning.risk import SoftLists
from rescore.tuning.score_table import ScoreTable
from rescore.types import Weights
from rescore.weights import FIRST, MBR, decision_of

if TYPE_CHECKING:
    from rescore.tuning.lattice_line_search import LatticeTable
    from rescore.types import Words

    Table = ScoreTable | LatticeTable

SHARPNESS = 2.0 ** np.arange(1.0, 7.5, 0.5)  # inverse temperatures times the standard deviation of the totals in lists
MIDDLE = 4  # of these: 8, where nothing else is known; next to it, one is as good as the other


@dataclass
class Decider:
    """Scales, and the decision that they are for.

    Attributes:
      scales: of all columns, `(columns,)`.
      decision: `map`, `mbr`, or `first` to keep the first hypotheses (of lattices: those of the scales).
      inverse: inverse temperature: posteriors are the softmax of this times the totals.
    """

    scales: np.ndarray
    decision: str
    inverse: float = 1.0

    def errors(self, table: Table) -> np.ndarray:
        """Errors of each utterance, int64 `(utterances,)`."""
        if isinstance(table, ScoreTable):
            return np.asarray(table.errors[self.rows(table)])
        if self.decision != MBR:
            return table.chosen_errors(table.totals(self.scales))
        return np.array([u.errors_of(words) for u, words in zip(table.utterances, self.words(table), strict=True)])

    def rows(self, table: ScoreTable) -> np.ndarray:
        """The chosen hypotheses of lists, `(utterances,)`, as `rescore combine` chooses them."""
        if self.decision == FIRST:
            return table.offsets[:-1]
        found = totals(table, self.scales)
        if self.decision != MBR:
            return SoftLists.of(table).chosen(found)
        return decide_mbr(table, found, np.array([self.inverse]))[0]

    def words(self, table: LatticeTable) -> list[Words]:
        """The words of each lattice."""
        from rescore.lattices.mbr import mbr_decode
        from rescore.lattices.paths import best_path

        factor = self.inverse if self.decision == MBR else 1.0
        scales = dict(zip(table.names, (factor * self.scales).tolist(), strict=True))
        lattices = [utterance.lattice for utterance in table.utterances]
        if self.decision == MBR:
            return [mbr_decode(lattice, scales).words for lattice in lattices]
        return [best_path(lattice, scales).words for lattice in lattices]


def decider_of(weights: Weights) -> Decider:
    """Of weights whose scales are in the order of the columns.  Raises WeightsError as `decision_of`."""
    return Decider(np.array(list(weights.scales.values())), *decision_of(weights))


@dataclass
class CrossFit:
    """Scales for each fold, tuned on the others.

    Attributes:
      how: a sentence on the folds.
      parts: the utterances of each fold, indices.
      deciders: one a fold.
    """

    how: str
    parts: list[np.ndarray] = field(default_factory=list)
    deciders: list[Decider] = field(default_factory=list)

    def errors(self, table: Table) -> int:
        """Errors of all folds, each under the scales of the others."""
        return int(self.utterance_errors(table).sum())

    def utterance_errors(self, table: Table) -> np.ndarray:
        """Those of each utterance, int64 `(utterances,)`; there must be folds."""
        result = np.zeros(len(table.utt_ids), dtype=np.int64)
        for part, decider in zip(self.parts, self.deciders, strict=True):
            result[part] = decider.errors(table.select(part))
        return result


def totals(table: ScoreTable, scales: np.ndarray) -> np.ndarray:
    """Totals of all hypotheses, `(hyps,)`; sums in the order of the columns, as `rescore.weights.total` does."""
    result = np.zeros(len(table.matrix))
    for scale, column in zip(scales, table.matrix.T, strict=True):
        if scale != 0.0:  # adding 0 changes nothing
            result += scale * column
    return result


def decide_mbr(table: ScoreTable, totals: np.ndarray, inverses: np.ndarray) -> np.ndarray:
    """The hypotheses of the fewest expected errors (of equals, that of the highest total, then the first).

    Args:
      totals: `(hyps,)`.
      inverses: inverse temperatures, `(points,)`.

    Returns:
      `(points, utterances)`.
    """
    assert table.distances is not None
    chosen = np.empty((len(inverses), len(table.utt_ids)), dtype=np.int64)
    for u, (begin, distances) in enumerate(zip(table.offsets.tolist(), table.distances, strict=False)):
        scores = totals[begin : table.offsets[u + 1]]
        posteriors = np.exp(np.outer(scores - scores.max(), inverses))
        expected = (distances @ (posteriors / posteriors.sum(axis=0))).round(9)
        chosen[:, u] = begin + np.where(expected == expected.min(axis=0), scores[:, None], -np.inf).argmax(axis=0)
    return chosen


def sharpness_errors(table: ScoreTable, scales: np.ndarray) -> np.ndarray:
    """Errors of each utterance by minimum Bayes risk at each of `SHARPNESS`, `(points, utterances)`."""
    found = totals(table, scales)
    return table.errors[decide_mbr(table, found, inverses(found, table))]


def inverses(totals: np.ndarray, table: ScoreTable) -> np.ndarray:
    """The inverse temperatures of `SHARPNESS` for some totals `(hyps,)`."""
    return SHARPNESS / (SoftLists.of(table).spread_of(totals) or 1.0)
