"""How strongly to hold scales near the fixed ones, and which columns to use: by utterances that were not tuned on.

The more the utterances not tuned on speak for the other scores, the weaker scales are held near the fixed ones:
strongly if there are no fewer errors than by the fixed ones alone, weakly if there are fewer by more than a standard
error.  Other strengths, and another sharpness than the usual one, are taken if they are better still by two: of many
that are tried on a small set, the best is luck.  Candidates are compared by their errors under minimum Bayes risk,
whichever decision is wanted: these change less with the draw of the utterances than those of the highest totals.

If columns are to be selected, they are taken one after another, each time the one that helps most (forward selection),
and of all sets met the smallest counts that is not clearly worse than the best (the one-standard-error rule of
L. Breiman, J. Friedman, R. Olshen and C. Stone, "Classification and Regression Trees", 1984, with the standard error of
the difference).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rescore.tuning.decisions import MIDDLE, SHARPNESS, decide_mbr
from rescore.tuning.folds import Folds
from rescore.tuning.minimum_risk import RiskProblem
from rescore.tuning.score_table import ScoreTable

STRENGTHS = (6.0, 2.0, 0.6, 0.2, 0.06)  # at 2, a parameter of 1 costs as much as an error
STRONG, USUAL, WEAK = 1, 2, 3  # of these
CLEARLY = 2.0  # standard errors by which another must be better than what is usual
PATIENCE = 2  # columns that may be taken without a gain
NEW = 0.3  # parameter of a column just taken, where the search begins, as a share of the length of the others


@dataclass
class Candidate:
    """A set of columns at a strength, tuned on all folds but one, in turn.

    Attributes:
      places: of the columns, in `RiskProblem.columns`.
      points: the parameters for each fold.
      by_total: errors of each utterance at the parameters of the other folds, int64 `(utterances,)`.
      by_risk: the same by minimum Bayes risk at each of `SHARPNESS`, `(sharpnesses, utterances)`.
    """

    places: tuple[int, ...]
    strength: float
    points: list[np.ndarray]
    by_total: np.ndarray
    by_risk: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        """By which candidates are compared, int64 `(utterances,)`."""
        result: np.ndarray = self.by_risk[MIDDLE]
        return result

    @property
    def total(self) -> int:
        return int(self.errors.sum())


class Selection:
    """A problem with its table and folds, and the search for a strength and for columns in it."""

    def __init__(self, problem: RiskProblem, table: ScoreTable, folds: Folds, seed: int) -> None:
        self.problem = problem.in_parts([folds.others(fold) for fold in range(len(folds))], table)
        self.table, self.folds, self.seed = table, folds, seed
        self.held_out = [table.select(part) for part in folds.parts]

    def run(self, select: bool) -> Candidate:
        """The strength by all columns; with `select`, the columns at that strength."""
        everything = tuple(range(len(self.problem.columns)))
        best = usual(list(self.strengths(everything)), self.problem.lists.chosen_errors(self.problem.alone()))
        return smallest(list(self.forward(best.strength))) if select else best

    def strengths(self, places: tuple[int, ...]) -> Iterator[Candidate]:
        """One candidate for each strength, from strong to weak; each goes on from the points of the one before."""
        starts = drawn = self._drawn(places)
        for strength in STRENGTHS:
            found = self.candidate(places, strength, starts)
            yield found
            starts = [[point, *some[:2]] for point, some in zip(found.points, drawn, strict=True)]

    def forward(self, strength: float) -> Iterator[Candidate]:
        """The best set of one column, the best of those with one more, and so on, until more columns do not help."""
        best: Candidate | None = None
        taken, idle = None, 0
        while idle < PATIENCE and (taken is None or len(taken.places) < len(self.problem.columns)):
            found = [self._with(taken, place, strength) for place in self._left(taken)]
            taken = fewest(found)
            yield taken
            idle = 0 if best is None or taken.total < best.total else idle + 1
            best = taken if idle == 0 else best

    def candidate(self, places: tuple[int, ...], strength: float, starts: list[list[np.ndarray]]) -> Candidate:
        """Tunes on all folds but one, in turn, from some points each, and counts the errors on that one."""
        problem = self.problem.subset(places)
        points = problem.fit(strength, starts)
        utterances = len(self.table.utt_ids)
        by_total, by_risk = np.empty(utterances, dtype=np.int64), np.empty((len(SHARPNESS), utterances), dtype=np.int64)
        for fold, (point, part, held_out) in enumerate(zip(points, self.folds.parts, self.held_out, strict=True)):
            others, these = (problem.lists.part(some) for some in (self.folds.others(fold), part))
            sharp = SHARPNESS / (others.spread_of(others.scores @ point) or 1.0)
            by_total[part] = these.chosen_errors(point)
            by_risk[:, part] = held_out.errors[decide_mbr(held_out, these.scores @ point, sharp)]
        return Candidate(places, strength, points, by_total, by_risk)

    def _left(self, taken: Candidate | None) -> list[int]:
        used = taken.places if taken else ()
        return [place for place in range(len(self.problem.columns)) if place not in used]

    def _with(self, taken: Candidate | None, place: int, strength: float) -> Candidate:
        """One more column; the search begins where the others were, without it and with some of it."""
        if taken is None:
            return self.candidate((place,), strength, self._drawn((place,)))
        places = tuple(sorted((*taken.places, place)))
        new = 1 + places.index(place)
        starts = [
            [np.insert(point, new, share * np.linalg.norm(point[1:])) for share in (0.0, NEW)] for point in taken.points
        ]
        return self.candidate(places, strength, starts)

    def _drawn(self, places: tuple[int, ...]) -> list[list[np.ndarray]]:
        """Starting points for each fold."""
        rngs = [np.random.default_rng([self.seed, fold]) for fold in range(len(self.folds))]
        return self.problem.subset(places).starts(rngs)


def fewest(candidates: Sequence[Candidate]) -> Candidate:
    """The one with the fewest errors, the first of equals."""
    return min(candidates, key=lambda candidate: candidate.total)


def usual(path: Sequence[Candidate], alone: np.ndarray) -> Candidate:
    """Of candidates at `STRENGTHS`, the one next to what the gain asks for that is not clearly worse than the best.

    Args:
      alone: errors of the fixed scales alone, `(utterances,)`.
    """
    more, error = compared(alone, path[USUAL].errors)
    place = STRONG if more <= 0 else WEAK if more > error else USUAL
    return path[_nearest([candidate.errors for candidate in path], place)]


def smallest(path: Sequence[Candidate]) -> Candidate:
    """The first of a path of growing sets that is no more than one standard error worse than the best."""
    best = fewest(path)
    for candidate in path:
        more, error = compared(candidate.errors, best.errors)
        if more <= error:
            return candidate
    return best


def best_sharpness(errors: np.ndarray) -> int:
    """The one of `SHARPNESS` next to the middle that is not clearly worse than the best.

    Args:
      errors: `(sharpnesses, utterances)`.
    """
    return _nearest(list(errors), MIDDLE)


def _nearest(errors: Sequence[np.ndarray], usual: int) -> int:
    """The place next to the usual one whose errors `(utterances,)` are not clearly worse than the best ones."""
    best = int(np.argmin([each.sum() for each in errors]))
    for place in sorted(range(len(errors)), key=lambda place: abs(place - usual)):
        more, error = compared(errors[place], errors[best])
        if more <= CLEARLY * error:
            return place
    return best


def compared(errors: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """How many more errors the first has on the same utterances, `(utterances,)` each, and its standard error.

    Where all utterances differ by the same, which of a few proves little, the error is that of a mean of 0.
    """
    more = (errors - others).astype(np.float64)
    spread = more.std(ddof=1) if len(more) > 1 else 0.0
    spread = spread or np.sqrt((more**2).mean())
    return float(more.sum()), float(spread * np.sqrt(len(more)))
