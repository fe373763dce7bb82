"""Expected word errors under the softmax of the totals, and their gradients: what `--objective risk` minimises.

F. J. Och, "Minimum error rate training in statistical machine translation", ACL 2003 (the smoothed count, eq. 8), and
D. A. Smith and J. Eisner, "Minimum risk annealing for training log-linear models", COLING/ACL 2006.  A hypothesis has
the posterior `exp(total)` over the sum of its list; the inverse temperature is in the scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rescore.tuning.score_table import ScoreTable
from rescore.tuning.spread import spread


@dataclass
class SoftLists:
    """Lists one after another, as in a ScoreTable, and what softmaxes over them need.

    Attributes:
      scores: float64 `(hyps, columns)`.
      errors: `(hyps,)`.
      offsets: int64 `(utterances + 1,)`.
    """

    scores: np.ndarray
    errors: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, table: ScoreTable) -> SoftLists:
        return cls(table.matrix, table.errors, table.offsets)

    @cached_property
    def rows(self) -> np.ndarray:
        """The utterance of each hypothesis, `(hyps,)`."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sums over each list, of `(points, hyps)`, `(points, utterances)`."""
        result: np.ndarray = np.add.reduceat(values, self.offsets[:-1], axis=1)
        return result

    def of_hyps(self, values: np.ndarray) -> np.ndarray:
        """For each hypothesis what its list has, of `(points, utterances)`, `(points, hyps)`."""
        return np.take(values, self.rows, axis=1)

    def softmax(self, totals: np.ndarray, counted: np.ndarray | float = 1.0) -> np.ndarray:
        """Of each list, `(points, hyps)` to `(points, hyps)`; 0 in lists that are not `counted`, see there."""
        shares = totals - self.of_hyps(np.maximum.reduceat(totals, self.offsets[:-1], axis=1))
        np.exp(shares, out=shares)
        shares *= self.of_hyps(counted / self.sums(shares))
        return shares

    def expected_errors(self, scales: np.ndarray, counted: np.ndarray | float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the expected errors of all lists, `(points,)`, and their gradients, `(points, columns)`.

        Args:
          scales: `(points, columns)`.
          counted: 1 for the lists that are summed at a point, 0 for the others, `(points, utterances)`.
        """
        posteriors = self.softmax(scales @ self.scores.T, counted)
        expected = self.sums(posteriors * self.errors)
        more = self.errors - self.of_hyps(expected)
        more *= posteriors
        return expected.sum(axis=1), more @ self.scores

    def spread(self) -> np.ndarray:
        """Standard deviation of each column within the lists, but for values far out, float64 `(columns,)`."""
        return spread(self.scores, self.offsets)

    def spread_of(self, values: np.ndarray) -> float:
        """The same of other values `(hyps,)`."""
        return float(SoftLists(values[:, None], self.errors, self.offsets).spread()[0])

    def part(self, utterances: np.ndarray) -> SoftLists:
        """The lists of some utterances, given by their indices."""
        lengths = np.diff(self.offsets)[utterances]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        picked = np.repeat(self.offsets[utterances] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return SoftLists(self.scores[picked], self.errors[picked], offsets)

    def chosen(self, totals: np.ndarray) -> np.ndarray:
        """The hypothesis with the highest total (the first of equals) of each list, `(utterances,)`."""
        highest = np.flatnonzero(totals >= np.maximum.reduceat(totals, self.offsets[:-1])[self.rows])
        return highest[np.unique(self.rows[highest], return_index=True)[1]]

    def chosen_errors(self, scales: np.ndarray) -> np.ndarray:
        """Errors of the hypotheses with the highest totals, `(utterances,)`."""
        return self.errors[self.chosen(self.scores @ scales)]
