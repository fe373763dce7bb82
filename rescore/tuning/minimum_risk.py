"""Scales with the fewest expected errors: from many starting points, held near the fixed scales alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rescore.tuning.descent import LIMIT
from rescore.tuning.quasi_newton import minimise
from rescore.tuning.risk import SoftLists
from rescore.tuning.score_table import ScoreTable
from rescore.weights import SIGNED

DRAWN = 64  # random points that are looked at
STARTS = 4  # of these, from which the search descends
SHARPEST = 30.0  # largest inverse temperature of a start, in units


@dataclass
class RiskProblem:
    """What is minimised, in units: every column divided by its standard deviation within the lists.

    Attributes:
      lists: the fixed scores, summed under their scales, first; then the columns that move.
      columns: which columns of the table move.
      unit: what a parameter is multiplied by to be the scale of its column, `(1 + moving,)`.
      low: bounds of the parameters, `(1 + moving,)`.
      words: reference words.
    """

    lists: SoftLists
    columns: list[int]
    unit: np.ndarray
    low: np.ndarray
    words: int

    @classmethod
    def of(cls, table: ScoreTable, fixed: Mapping[str, float]) -> RiskProblem:
        """All columns that are not fixed and have different values in some list move."""
        varies = table.varies()
        columns = [k for k, name in enumerate(table.names) if name not in fixed and varies[k]]
        start = np.array([fixed.get(name, 0.0) for name in table.names])
        scores = np.concatenate([(table.matrix @ start)[:, None], table.matrix[:, columns]], axis=1)
        lists = SoftLists(scores, table.errors, table.offsets)
        spread = lists.spread()
        unit = 1.0 / np.where(spread > 0, spread, 1.0)
        lists.scores *= unit
        low = np.array([0.0, *(-np.inf if table.names[k] in SIGNED else 0.0 for k in columns)])
        return cls(lists, columns, unit, low, max(1, table.total_words))

    def part(self, utterances: np.ndarray, table: ScoreTable) -> RiskProblem:
        """The problem of some utterances in the same units."""
        return replace(self, lists=self.lists.part(utterances), words=max(1, int(table.ref_words[utterances].sum())))

    def subset(self, chosen: Sequence[int]) -> RiskProblem:
        """Only some of the columns that move, given by their places in `columns`."""
        kept = [0, *(1 + place for place in chosen)]
        lists = replace(self.lists, scores=np.ascontiguousarray(self.lists.scores[:, kept]))
        columns = [self.columns[place] for place in chosen]
        return replace(self, lists=lists, columns=columns, unit=self.unit[kept], low=self.low[kept])

    def objective(self, point: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
        """Expected errors a word plus `strength / 2` times the squares of all parameters but the first; gradient."""
        expected, slope = self.lists.expected_errors(point)
        moved = np.concatenate([[0.0], point[1:]])
        value = float(expected.sum()) / self.words + 0.5 * strength * float(moved @ moved)
        return value, slope / self.words + strength * moved

    def fit(self, strength: float, starts: Iterable[np.ndarray]) -> np.ndarray:
        """The best of the local minima below some points `(1 + moving,)`."""
        found = [minimise(lambda point: self.objective(point, strength), start, self.low) for start in starts]
        return min(found, key=lambda result: result[1])[0]

    def starts(self, rng: np.random.Generator) -> list[np.ndarray]:
        """The fixed scales alone, and the best of random points."""
        shape = (DRAWN, len(self.low))
        drawn = np.abs(rng.standard_normal(shape))
        drawn *= np.where(np.isinf(self.low), rng.choice([-1.0, 1.0], size=shape), 1.0)
        drawn *= (SHARPEST ** rng.uniform(0.0, 1.0, DRAWN) / np.linalg.norm(drawn, axis=1))[:, None]
        values = [self.objective(point, 0.0)[0] for point in drawn]
        alone = np.zeros(len(self.low))
        alone[0] = 1.0
        return [alone, *drawn[np.argsort(values, kind="stable")[:STARTS]]]

    def scales(self, point: np.ndarray) -> tuple[np.ndarray, float]:
        """The scales of the columns that move, `(moving,)`, where the fixed ones are as given; inverse temperature."""
        sharp = max(float(point[0]), float(np.abs(point[1:]).max(initial=0.0)) / LIMIT, 1e-6)
        inverse = sharp * self.unit[0]
        return point[1:] * self.unit[1:] / inverse, inverse
