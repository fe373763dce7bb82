"""Scales that generalise: minimum risk, with strength, columns and decision chosen on utterances not tuned on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rescore.console import progress
from rescore.tuning.decisions import SHARPNESS, CrossFit, Decider, best_sharpness, inverses, sharpness_errors, totals
from rescore.tuning.folds import Folds, make_folds
from rescore.tuning.minimum_risk import RiskProblem
from rescore.tuning.score_table import ScoreTable
from rescore.tuning.selection import Candidate, Selection, compared
from rescore.weights import FIRST, MBR

CHANCE = 0.16  # one-sided, one standard error; what is less sure to beat the first pass is not used
UNCHECKED = 1e-5  # strength where there are no folds to choose it by
LARGE = 200_000  # hypotheses; strength and columns of larger sets are chosen on a random sample


@dataclass
class FirstPass:
    """What the first hypotheses of the lists make of errors, and rescoring of utterances that it was not tuned on.

    Attributes:
      errors, rescored: on the same utterances, of `words` words.
      p_value: of as large a gain by chance, one-sided, by the differences of the utterances.
    """

    errors: int
    rescored: int
    words: int
    p_value: float


@dataclass
class RiskTuned(Decider):
    """How scales were found; those of the fixed columns alone where rescoring does not help.

    Attributes:
      strength: of the L2 penalty.
      chosen: columns used besides the fixed ones.
      in_folds: scales tuned without one fold, in turn, `(folds, columns)`; None without folds.
      first_pass: None without folds.
    """

    strength: float = 0.0
    chosen: list[int] = field(default_factory=list)
    in_folds: np.ndarray | None = None
    first_pass: FirstPass | None = None


def tune_risk(table: ScoreTable, fixed: Mapping[str, float], decision: str, folds: int, seed: int) -> RiskTuned:
    """Chooses strength and columns by cross-validation, tunes on everything, and checks that the first pass is beaten.

    Args:
      fixed: scales that stay, one of them other than 0.
      folds: without them (0 or 1) every column is used, at a strength of `UNCHECKED`.
    """
    problem = RiskProblem.of(table, fixed)
    parts = make_folds(table.utt_ids, table.ref_words, folds, seed)
    rng = np.random.default_rng(seed)
    if len(parts) < 2 or not problem.columns:
        everything = tuple(range(len(problem.columns)))
        candidate = Candidate(everything, UNCHECKED, [], np.zeros(0))
        return _fitted(problem, table, fixed, candidate, decision, rng)
    sample = _sample(table, rng)
    if sample is not table:
        parts = make_folds(sample.utt_ids, sample.ref_words, folds, seed)
    candidate = Selection(RiskProblem.of(sample, fixed), sample, parts, seed).run()
    tuned = _fitted(problem, table, fixed, candidate, decision, rng)
    return _checked(tuned, problem, sample, fixed, candidate, parts)


def _sample(table: ScoreTable, rng: np.random.Generator) -> ScoreTable:
    count = max(1, LARGE * len(table.utt_ids) // len(table.matrix))
    if count >= len(table.utt_ids):
        return table
    return table.select(np.sort(rng.choice(len(table.utt_ids), size=count, replace=False)))


def _fitted(
    problem: RiskProblem,
    table: ScoreTable,
    fixed: Mapping[str, float],
    candidate: Candidate,
    decision: str,
    rng: np.random.Generator,
) -> RiskTuned:
    """Tuned on all utterances with the columns and the strength of a candidate."""
    kept = problem.subset(candidate.places)
    point = kept.fit(candidate.strength, [*candidate.points, *kept.starts(rng)])
    scales, inverse = _scales(kept, point, table, fixed)
    short = np.array([float(f"{scale:.4g}") for scale in scales])
    return RiskTuned(short, decision, float(f"{inverse:.4g}"), candidate.strength, kept.columns)


def _scales(
    problem: RiskProblem, point: np.ndarray, table: ScoreTable, fixed: Mapping[str, float]
) -> tuple[np.ndarray, float]:
    """The scales of all columns of the table, `(columns,)`, and the inverse temperature."""
    scales = np.array([fixed.get(name, 0.0) for name in table.names])
    scales[problem.columns], inverse = problem.scales(point)
    return scales, inverse


def _checked(
    tuned: RiskTuned,
    problem: RiskProblem,
    table: ScoreTable,
    fixed: Mapping[str, float],
    candidate: Candidate,
    folds: Folds,
) -> RiskTuned:
    """With the sharpness that is best for minimum Bayes risk, and kept only if the first pass is beaten."""
    kept = problem.subset(candidate.places)
    in_folds = np.stack([_scales(kept, point, table, fixed)[0] for point in candidate.points])
    tuned = replace(tuned, in_folds=in_folds)
    errors = candidate.errors
    if tuned.decision == MBR:
        by_sharpness = np.empty((len(SHARPNESS), len(table.utt_ids)), dtype=np.int64)
        for scales, part in zip(in_folds, folds.parts, strict=True):
            by_sharpness[:, part] = sharpness_errors(table.select(part), scales)
        best = best_sharpness(by_sharpness.sum(axis=1))
        errors = by_sharpness[best]
        inverse = inverses(totals(table, tuned.scales), table)[best]
        tuned = replace(tuned, inverse=float(f"{inverse:.4g}"))
    first = table.errors[table.offsets[:-1]]
    more, error = compared(errors, first)
    p_value = 0.5 * math.erfc(-more / (math.sqrt(2.0) * error)) if error else float(more >= 0)
    tuned = replace(tuned, first_pass=FirstPass(int(first.sum()), int(errors.sum()), table.total_words, p_value))
    if p_value < CHANCE:
        return tuned
    alone = np.array([fixed.get(name, 0.0) for name in table.names])
    return replace(tuned, decision=FIRST, scales=alone, chosen=[])


def cross_validated(table: ScoreTable, fixed: Mapping[str, float], decision: str, folds: int, seed: int) -> CrossFit:
    """Everything done anew without one fold, in turn; none of it where there is one fold."""
    parts = make_folds(table.utt_ids, table.ref_words, folds, seed)
    if len(parts) < 2:
        return CrossFit("no cross-validation")
    tuned = [
        tune_risk(table.select(parts.others(fold)), fixed, decision, folds, seed)
        for fold in progress(range(len(parts)), "cross-validation")
    ]
    how = (
        f"{parts.how}; each combined with scales for which strength, columns and decision were chosen and tuned on the "
        f"other {len(parts) - 1} alone; errors of all folds summed"
    )
    return CrossFit(how, parts.parts, list(tuned))
