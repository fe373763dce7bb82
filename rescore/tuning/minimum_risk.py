"""Scales with the fewest expected errors: from many starting points, held near the fixed scales alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rescore.tuning.descent import LIMIT
from rescore.tuning.quasi_newton import minimise
from rescore.tuning.risk import SoftLists
from rescore.tuning.score_table import ScoreTable
from rescore.tuning.spread import far_out
from rescore.weights import WORDS_COLUMN, is_signed

DRAWN = 64  # random points that are looked at
STARTS = 4  # of these, from which the search descends
LEAST_PROBABLE = -1.0  # log-probability a word of all hypotheses of a list, below which it is no probability of words
ROUNDING = 1e-3  # that the sum of the probabilities of a list may be above 1, in logs
LEAST = 1e-6  # inverse temperature, in units
AT_ONCE = 2**16  # hypotheses, times points that are looked at together: in the cache, and many enough
IDLE = 1e-6  # times the fixed scores, in units: a scale that is smaller is none
SHARPEST = 30.0  # largest inverse temperature of a start, in units


@dataclass
class RiskProblem:
    """What is minimised, in units: every column divided by its standard deviation within the lists.

    Attributes:
      lists: the fixed scores, summed under their scales, first; then the columns that move.
      columns: which columns of the table move.
      unit: what a parameter is multiplied by to be the scale of its column, `(1 + moving,)`.
      rewards: word reward that comes with a scale of 1, `(1 + moving,)`; see `length_neutral`.
      low: bounds of the parameters, `(1 + moving,)`.
      counted: 1 for the utterances of each part, 0 for the others, `(parts, utterances)`; a part is a problem of its
        own, such as all utterances without a fold.  There is one of everything, see `in_parts`.
      words: reference words of each part, at least 1, `(parts,)`.
    """

    lists: SoftLists
    columns: list[int]
    unit: np.ndarray
    rewards: np.ndarray
    low: np.ndarray
    counted: np.ndarray
    words: np.ndarray

    @classmethod
    def of(cls, table: ScoreTable, fixed: Mapping[str, float]) -> RiskProblem:
        """All columns that are not fixed and have different values in some list move."""
        varies = table.varies()
        columns = [k for k, name in enumerate(table.names) if name not in fixed and varies[k]]
        start = np.array([fixed.get(name, 0.0) for name in table.names])
        scores = np.concatenate([(table.matrix @ start)[:, None], table.matrix[:, columns]], axis=1)
        rewards = length_neutral(table, scores, columns)
        scores += rewards * table.matrix[:, [table.names.index(WORDS_COLUMN)]] if rewards.any() else 0.0
        lists = SoftLists(scores, table.errors, table.offsets)
        spread = lists.spread()
        unit = 1.0 / np.where(spread > 0, spread, 1.0)
        lists.scores *= unit
        low = np.array([0.0, *(-np.inf if is_signed(table.names[k]) else 0.0 for k in columns)])
        return cls(lists, columns, unit, rewards, low, *_counted([np.arange(len(table.utt_ids))], table))

    def of_utterances(self, utterances: np.ndarray, table: ScoreTable) -> RiskProblem:
        """The problem of some utterances in the same units; `table`: theirs."""
        counted, words = _counted([np.arange(len(utterances))], table)
        return replace(self, lists=self.lists.part(utterances), counted=counted, words=words)

    def in_parts(self, parts: Sequence[np.ndarray], table: ScoreTable) -> RiskProblem:
        """The problems of several sets of utterances, given by their indices, side by side; `table`: of all of them."""
        counted, words = _counted(parts, table)
        return replace(self, counted=counted, words=words)

    def subset(self, chosen: Sequence[int]) -> RiskProblem:
        """Only some of the columns that move, given by their places in `columns`."""
        kept = [0, *(1 + place for place in chosen)]
        lists = replace(self.lists, scores=np.ascontiguousarray(self.lists.scores[:, kept]))
        columns = [self.columns[place] for place in chosen]
        return replace(
            self, lists=lists, columns=columns, unit=self.unit[kept], rewards=self.rewards[kept], low=self.low[kept]
        )

    def objective(self, points: np.ndarray, parts: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
        """Expected errors plus `strength / 2` times the squares of all parameters but the first, a word; gradients.

        Args:
          points: `(points, 1 + moving)`.
          parts: of which part each is, int64 `(points,)`.

        Returns:
          `(points,)` and `(points, 1 + moving)`.
        """
        values, slopes = np.empty(len(points)), np.empty(points.shape)
        together = max(1, AT_ONCE // len(self.lists.errors))
        for begin in range(0, len(points), together):
            some = slice(begin, begin + together)
            values[some], slopes[some] = self.lists.expected_errors(points[some], self.counted[parts[some]])
        moved = points.copy()
        moved[:, 0] = 0.0
        words = self.words[parts]
        values += 0.5 * strength * (moved * moved).sum(axis=1)
        return values / words, (slopes + strength * moved) / words[:, None]

    def fit(self, strength: float, starts: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """For each part the best of the local minima below some points `(1 + moving,)`.

        No scale of it is larger than is searched, and none is but nearly 0.
        """
        parts = np.repeat(np.arange(len(starts)), [len(some) for some in starts])
        points = np.array([point for some in starts for point in some])
        found, values = minimise(lambda some, which: self.objective(some, parts[which], strength), points, self.low)
        fits = []
        for part in range(len(starts)):
            rows = np.flatnonzero(parts == part)
            point = found[rows[values[rows].argmin()]]
            point[0] = max(point[0], np.abs(point[1:]).max(initial=0.0) / LIMIT, LEAST)
            point[1:][np.abs(point[1:]) < IDLE * point[0]] = 0.0
            fits.append(point)
        return fits

    def starts(self, rngs: Sequence[np.random.Generator]) -> list[list[np.ndarray]]:
        """For each part, by a generator of its own, the fixed scales alone, and the best of random points."""
        drawn = [self._drawn(rng) for rng in rngs]
        parts = np.repeat(np.arange(len(rngs)), DRAWN)
        values = self.objective(np.concatenate(drawn), parts, 0.0)[0].reshape(-1, DRAWN)
        best = np.argsort(values, axis=1, kind="stable")[:, :STARTS]
        return [[self.alone(), *points[order]] for points, order in zip(drawn, best, strict=True)]

    def _drawn(self, rng: np.random.Generator) -> np.ndarray:
        """`(DRAWN, 1 + moving)`."""
        shape = (DRAWN, len(self.low))
        drawn = np.abs(rng.standard_normal(shape))
        drawn *= np.where(np.isinf(self.low), rng.choice([-1.0, 1.0], size=shape), 1.0)
        drawn *= (SHARPEST ** rng.uniform(0.0, 1.0, DRAWN) / np.linalg.norm(drawn, axis=1))[:, None]
        return drawn

    def alone(self) -> np.ndarray:
        """The fixed scales alone, `(1 + moving,)`."""
        point = np.zeros(len(self.low))
        point[0] = 1.0
        return point

    def scales(self, point: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, float]:
        """The scales of all columns of the table, 0 for the fixed ones, `(columns,)`; inverse temperature."""
        inverse = float(point[0] * self.unit[0])
        scales = np.zeros(len(names))
        moving = point[1:] * self.unit[1:] / inverse
        scales[self.columns] = moving
        if self.rewards.any():
            scales[names.index(WORDS_COLUMN)] += moving @ self.rewards[1:]
        return scales, inverse


def _counted(parts: Sequence[np.ndarray], table: ScoreTable) -> tuple[np.ndarray, np.ndarray]:
    """`RiskProblem.counted` and `words` for sets of utterances."""
    counted = np.zeros((len(parts), len(table.utt_ids)))
    for row, part in zip(counted, parts, strict=True):
        row[part] = 1.0
    return counted, np.maximum(1.0, counted @ table.ref_words)


def length_neutral(table: ScoreTable, scores: np.ndarray, columns: Sequence[int]) -> np.ndarray:
    """The word rewards that make up for the lengths that LMs prefer, `(1 + moving,)`; all 0 where that is not wanted.

    A recogniser that gives the probability of the words themselves knows how long the utterance is; an LM beside it
    would, without a reward, prefer hypotheses that were cut off, which a small set may have none of.  So the scale of
    a score comes with the reward of its mean a word, and 0 is held to be the reward beyond that.  A likelihood of the
    sound, as of a hybrid system, needs the lengths that the LM prefers: there nothing is made up for.

    Args:
      scores: the fixed scores first, then the columns that move, `(hyps, 1 + moving)`.
    """
    none = np.zeros(1 + len(columns))
    if WORDS_COLUMN not in (table.names[k] for k in columns):
        return none
    words = table.matrix[:, table.names.index(WORDS_COLUMN)]
    first = table.offsets[:-1]
    highest = np.maximum.reduceat(scores[:, 0], first)
    mass = highest + np.log(np.add.reduceat(np.exp(scores[:, 0] - np.repeat(highest, np.diff(table.offsets))), first))
    known = words[first] > 0
    if mass.max() > ROUNDING or not known.any() or np.median(mass[known] / words[first][known]) < LEAST_PROBABLE:
        return none
    means = [0.0 if table.names[k] == WORDS_COLUMN else _mean_a_word(table, k, words) for k in columns]
    return np.array([0.0, *(-mean for mean in means)])


def _mean_a_word(table: ScoreTable, k: int, words: np.ndarray) -> float:
    """The mean of a column a word, but for values far out; `words`: `(hyps,)`."""
    usual = ~far_out(table.matrix[:, k], table.offsets)
    return float(table.matrix[usual, k].sum()) / float(words[usual].sum() or 1.0)
