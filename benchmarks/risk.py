"""Scales of the fewest expected errors: all searches of a cross-validation side by side, and one after another."""

from __future__ import annotations

from functools import partial

import click
import numpy as np
from measure import heading, measured, row
from tuning import make_table

from rescore.tuning.folds import make_folds
from rescore.tuning.minimum_risk import RiskProblem
from rescore.tuning.selection import STRENGTHS, USUAL

STRENGTH = STRENGTHS[USUAL]
SIZES = (10, 100, 1_000, 10_000)  # utterances


def values(problem: RiskProblem, points: list[np.ndarray]) -> np.ndarray:
    """What is minimised, at a point for each part, `(parts,)`."""
    return problem.objective(np.stack(points), np.arange(len(points)), STRENGTH)[0]


def one_by_one(parts: list[RiskProblem], starts: list[list[np.ndarray]]) -> list[np.ndarray]:
    """The best of each part, from one starting point after another."""
    found = []
    for problem, points in zip(parts, starts, strict=True):
        fits = [problem.fit(STRENGTH, [[point]])[0] for point in points]
        found.append(min(fits, key=lambda fit, problem=problem: values(problem, [fit])[0]))  # type: ignore[misc]
    return found


@click.command()
@click.option("--hyps", default=20, show_default=True, help="In each list.")
@click.option("--columns", default=6, show_default=True, type=click.IntRange(min=3), help="Scores, one of them fixed.")
@click.option("--folds", default=10, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(hyps: int, columns: int, folds: int, seed: int) -> None:
    """CPU seconds of tuning on all folds but one, in turn, at one strength from five points each, on made-up lists.

    One after another: the lists of the other folds alone, from one point at a time, by the same search.

    \b
    Example: OMP_NUM_THREADS=1 python benchmarks/risk.py
    """
    heading(
        "utterances", "hypotheses", "one after another, CPU s", "side by side, CPU s", "ratio", "largest difference"
    )
    for size in SIZES:
        table = make_table(size, hyps, columns, np.random.default_rng(seed))
        whole, parts = RiskProblem.of(table, {"am": 1.0}), make_folds(table.utt_ids, table.ref_words, folds, seed)
        others = [parts.others(fold) for fold in range(len(parts))]
        together = whole.in_parts(others, table)
        alone = [whole.of_utterances(some, table.select(some)) for some in others]
        starts = together.starts([np.random.default_rng(fold) for fold in range(len(parts))])
        slow, seconds, _ = measured(partial(one_by_one, alone, starts))
        fast, sooner, _ = measured(partial(together.fit, STRENGTH, starts))
        apart = np.abs(values(together, fast) / values(together, slow) - 1.0).max()
        row(
            f"{size:,}",
            f"{size * hyps:,}",
            f"{seconds:.2f}",
            f"{sooner:.2f}",
            f"{seconds / sooner:.1f}",
            f"{apart:.0e}",
        )


if __name__ == "__main__":
    main()
