"""Scales by exact line search, as `rescore tune` finds them, against grids of points a scale."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import click
import numpy as np
from measure import heading, measured, row

from rescore.tuning.score_table import ScoreTable
from rescore.tuning.tune import make_problem, percent, tune_errors

LMS = ("transfornn", "transformer", "bayesian", "lookup", "lstm")
REACH = 2.0  # largest scale of the grid, in the search's own unit: as much spread as `am` has


def make_table(utterances: int, hyps: int, columns: int, rng: np.random.Generator) -> ScoreTable:
    """Lists as of a recogniser with `columns` scores, `am`, `ngram`, `words` and LMs whose noise is partly the same.

    Every score falls with the errors; the LMs' also with the words, which the scale of `words` must make up for.
    """
    shape = (utterances, hyps)
    length = rng.integers(5, 36, (utterances, 1))
    difficulty = rng.beta(1.2, 5.0, (utterances, 1))
    errors = rng.binomial(length, difficulty, shape)
    words = np.maximum(length + rng.integers(-2, 3, shape) * (rng.random(shape) < 0.4), 1)
    shared = rng.standard_normal(shape)
    names = ["am", "ngram", "words", *LMS, *(f"lm{i}" for i in range(columns))][:columns]
    scores = []
    for k, name in enumerate(names):
        own = rng.standard_normal(shape)
        if name == "words":
            scores.append(words.astype(np.float64))
        elif name == "am":
            scores.append(-2.0 * errors + 6.0 * own)
        else:
            scores.append(-2.0 * errors - 4.0 * words + 4.0 * shared + (3.0 + 0.5 * k) * own)
    first = np.argsort(-(scores[0] + 0.4 * scores[min(1, columns - 1)]), axis=1, kind="stable")
    matrix = np.stack([np.take_along_axis(score, first, axis=1) for score in scores], axis=2)
    return ScoreTable(
        names=names,
        utt_ids=[f"u{u}" for u in range(utterances)],
        offsets=np.arange(0, utterances * hyps + 1, hyps),
        matrix=matrix.reshape(-1, columns),
        errors=np.take_along_axis(errors, first, axis=1).ravel(),
        ref_words=length[:, 0],
    )


@dataclass
class Grid:
    """The grid and its plain evaluation: one product of a matrix and a vector, the best of each list, a sum."""

    table: ScoreTable
    points: int

    def __post_init__(self) -> None:
        self.problem = make_problem(self.table, {"am": 1.0})
        self.errors = self.table.errors.reshape(len(self.table.utt_ids), -1)
        self.counted = 0

    def levels(self, column: int) -> np.ndarray:
        """The points of a scale, `(points,)`."""
        most = REACH * self.problem.unit[column]
        return np.linspace(-most if self.problem.low[column] < 0 else 0.0, most, self.points)

    def count(self, scales: np.ndarray) -> int:
        self.counted += 1
        best = (self.table.matrix @ scales).reshape(self.errors.shape).argmax(axis=1)
        return int(self.errors[np.arange(len(best)), best].sum())

    def best_of(self, candidates: list[np.ndarray]) -> np.ndarray:
        return candidates[int(np.argmin([self.count(scales) for scales in candidates]))]

    def moved(self, scales: np.ndarray, column: int) -> list[np.ndarray]:
        """The scales with every level of one column."""
        column_alone = np.eye(len(scales))[column]
        return [np.where(column_alone, level, scales) for level in self.levels(column)]

    def plane(self, columns: list[int]) -> np.ndarray:
        """The best of the whole grid of some columns, the others at 0."""
        candidates = [self.problem.start]
        for column in columns:
            candidates = [moved for scales in candidates for moved in self.moved(scales, column)]
        return self.best_of(candidates)

    def one_by_one(self) -> np.ndarray:
        """One scale after another at the best of its levels, until a round changes nothing."""
        scales, before = self.problem.start, None
        while before is None or (scales != before).any():
            before = scales
            for column in self.problem.free:
                scales = self.best_of([scales, *self.moved(scales, column)])
        return scales

    def drawn(self, seconds: float, rng: np.random.Generator) -> np.ndarray:
        """The best of random points of the whole grid, for so many CPU seconds."""
        begin, best, fewest = time.process_time(), self.problem.start, None
        while time.process_time() - begin < seconds:
            scales = self.problem.start.copy()
            scales[self.problem.free] = [rng.choice(self.levels(column)) for column in self.problem.free]
            errors = self.count(scales)
            if fewest is None or errors < fewest:
                best, fewest = scales, errors
        return best


def tuned(table: ScoreTable, fixed: dict[str, float], folds: int, seed: int) -> np.ndarray:
    weights, _ = tune_errors(table, {"am": 1.0, **fixed}, seed=seed, folds=folds)
    return np.array([weights.scales[name] for name in table.names])


def readable(seconds: float) -> str:
    """Seconds, or years where they are many."""
    years = seconds / (365.25 * 86400)
    return f"{seconds:.1f}" if years < 0.1 else f"{years:.1f} years"


@click.command()
@click.option("--utterances", default=10_000, show_default=True)
@click.option("--hyps", default=100, show_default=True, help="In each list.")
@click.option("--columns", default=8, show_default=True, type=click.IntRange(min=3), help="Scores.")
@click.option("--points", default=20, show_default=True, help="Of a scale in the grids.")
@click.option("--folds", default=5, show_default=True, help="Of the cross-validation; 0 leaves it out.")
@click.option("--seed", default=1, show_default=True)
def main(utterances: int, hyps: int, columns: int, points: int, folds: int, seed: int) -> None:
    """CPU seconds and WER of exact line search and of grids, on made-up lists; one scale of all is fixed.

    The time of the whole grid follows from the time of a point; all other rows are run.  `other set`: the same scales
    on lists made alike that nothing was tuned on.

    \b
    Example: OMP_NUM_THREADS=1 python benchmarks/tuning.py
    Example: python benchmarks/tuning.py --utterances 500 --columns 5 --folds 0
    """
    table, other = (make_table(utterances, hyps, columns, np.random.default_rng([seed, k])) for k in range(2))
    grid, elsewhere = Grid(table, points), Grid(other, points)
    words, two = table.total_words, table.names[1:3]
    held = dict.fromkeys(table.names[3:], 0.0)
    heading("", "scales", "points", "CPU s", "of line search", "peak MB", "WER %", "other set, WER %")

    def show(title: str, free: int, action: Callable[[], np.ndarray], base: float | None = None) -> float:
        grid.counted = 0
        scales, seconds, memory = measured(action)
        count = f"{grid.counted:,}" if grid.counted else ""
        rates = [percent(grid.count(scales), words), percent(elsewhere.count(scales), other.total_words)]
        row(title, free, count, f"{seconds:.1f}", f"{seconds / (base or seconds):.2f}", f"{memory:.0f}", *rates)
        return seconds

    free = columns - 1
    search = show("line search", free, partial(tuned, table, {}, 0, seed))
    if folds:
        show(f"line search, {folds}-fold cross-validation", free, partial(tuned, table, {}, folds, seed), search)
    begin = time.process_time()
    for _ in range(20):
        grid.count(grid.problem.unit)
    whole = (time.process_time() - begin) / 20 * points**free
    row("whole grid, extrapolated", free, f"{points**free:,}", readable(whole), f"{whole / search:,.0f}", "", "", "")
    show("grid, one scale after another", free, grid.one_by_one, search)
    show("random points of the grid", free, partial(grid.drawn, search, np.random.default_rng(seed)), search)
    plane = show(f"line search of {' and '.join(two)}", 2, partial(tuned, table, held, 0, seed))
    show(f"grid of {' and '.join(two)}", 2, partial(grid.plane, [1, 2]), plane)


if __name__ == "__main__":
    main()
