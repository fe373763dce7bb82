"""How strongly to hold scales near the fixed ones, and which columns to use: by utterances that were not tuned on.

Columns are taken one after another, each time the one that helps most (forward selection), and of all sets met the
smallest counts that is not clearly worse than the best (the one-standard-error rule of L. Breiman, J. Friedman,
R. Olshen and C. Stone, "Classification and Regression Trees", 1984, with the standard error of the difference).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rescore.tuning.folds import Folds
from rescore.tuning.minimum_risk import RiskProblem
from rescore.tuning.score_table import ScoreTable

STRENGTHS = (1e-2, 1e-3, 1e-4, 3e-5, 1e-5, 1e-6)
PATIENCE = 2  # columns that may be taken without a gain
NEW = 0.3  # parameter of a column just taken, where the search begins, as a share of the length of the others


@dataclass
class Candidate:
    """A set of columns at a strength, tuned on all folds but one, in turn.

    Attributes:
      places: of the columns, in `RiskProblem.columns`.
      points: the parameters for each fold.
      errors: of each utterance at the parameters of the other folds, int64 `(utterances,)`.
    """

    places: tuple[int, ...]
    strength: float
    points: list[np.ndarray]
    errors: np.ndarray

    @property
    def total(self) -> int:
        return int(self.errors.sum())


@dataclass
class Selection:
    """A problem with its table and folds, and the search for columns in it."""

    problem: RiskProblem
    table: ScoreTable
    folds: Folds
    seed: int

    def run(self) -> Candidate:
        """The strength by all columns, then the columns at that strength."""
        everything = tuple(range(len(self.problem.columns)))
        strength = fewest(list(self.strengths(everything))).strength
        return smallest(list(self.forward(strength)))

    def strengths(self, places: tuple[int, ...]) -> Iterator[Candidate]:
        """One candidate for each strength, from strong to weak; each goes on from the points of the one before."""
        starts = drawn = self._drawn(places)
        for strength in STRENGTHS:
            found = self.candidate(places, strength, starts)
            yield found
            starts = [[point, *some] for point, some in zip(found.points, drawn, strict=True)]

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
        points, errors = [], np.zeros(len(self.table.utt_ids), dtype=np.int64)
        for fold, part in enumerate(self.folds.parts):
            others = self._part(problem, fold)
            points.append(others.fit(strength, starts[fold]))
            errors[part] = problem.lists.part(part).chosen_errors(points[-1])
        return Candidate(places, strength, points, errors)

    def _part(self, problem: RiskProblem, fold: int) -> RiskProblem:
        return problem.part(self.folds.others(fold), self.table)

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
        problem = self.problem.subset(places)
        return [
            self._part(problem, fold).starts(np.random.default_rng([self.seed, fold]))
            for fold in range(len(self.folds))
        ]


def fewest(candidates: Sequence[Candidate]) -> Candidate:
    """The one with the fewest errors, the first of equals."""
    return min(candidates, key=lambda candidate: candidate.total)


def smallest(path: Sequence[Candidate]) -> Candidate:
    """The first of a path of growing sets that is no more than one standard error worse than the best."""
    best = fewest(path)
    for candidate in path:
        more, error = compared(candidate.errors, best.errors)
        if more <= error:
            return candidate
    return best


def compared(errors: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """How many more errors the first has on the same utterances, `(utterances,)` each, and its standard error."""
    more = (errors - others).astype(np.float64)
    spread = more.std(ddof=1) if len(more) > 1 else 0.0
    return float(more.sum()), float(spread * np.sqrt(len(more)))
