"""Scales that generalise: minimum risk, with strength, columns and decision chosen on utterances not tuned on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rescore.console import progress
from rescore.tuning.decisions import MIDDLE, CrossFit, Decider, inverses, totals
from rescore.tuning.folds import make_folds
from rescore.tuning.minimum_risk import RiskProblem
from rescore.tuning.score_table import ScoreTable
from rescore.tuning.selection import STRENGTHS, USUAL, Candidate, Selection, best_sharpness, compared
from rescore.weights import FIRST, MAP, MBR, WORDS_COLUMN

INNER = 10  # folds by which strength, columns and sharpness are chosen
WORTH = 0.01  # share of the errors; where a gain of more is a standard error away, there is nothing to rescore
WORSE = 0.977  # of two standard errors more than others; a loss that is less sure may be chance
LARGE = 200_000  # hypotheses; strength and columns of larger sets are chosen on a random sample


@dataclass
class HeldOut:
    """Errors without rescoring, and of rescoring on utterances that it was not tuned on; the same utterances.

    Attributes:
      first: errors of the first hypotheses of the lists.
      alone: of the highest totals of the fixed scales alone.
      rescored: of the tuned scales.
      words: of the references.
      p_first, p_alone: p-values, one-sided, of as large gains over the two by chance.
      at_most: errors fewer than `alone` by the gain and its standard error.
    """

    first: int
    alone: int
    rescored: int
    words: int
    p_first: float
    p_alone: float
    at_most: float

    @classmethod
    def of(cls, first: np.ndarray, alone: np.ndarray, rescored: np.ndarray, words: int) -> HeldOut:
        """From the errors of each utterance, `(utterances,)` each."""
        sums = [int(errors.sum()) for errors in (first, alone, rescored)]
        more, error = compared(rescored, alone)
        chances = by_chance(rescored, first), by_chance(rescored, alone)
        return cls(sums[0], sums[1], sums[2], words, *chances, error - more)

    @property
    def helps(self) -> bool:
        """Whether it may gain over the fixed scales alone, and is not clearly worse than the first hypotheses.

        A few utterances cannot prove a gain: there the scales, held strongly, gain more on average than they lose.
        The order of lists may be that of other scores, or of scales tuned elsewhere.
        """
        return self.at_most > WORTH * self.alone and self.p_first < WORSE


def by_chance(errors: np.ndarray, others: np.ndarray) -> float:
    """p-value, one-sided, of as many errors fewer than the others' on the same utterances, by their differences.

    Both are errors of each utterance, `(utterances,)`.
    """
    more, error = compared(errors, others)
    if not error:  # they are the same everywhere
        return 0.5
    return 0.5 * math.erfc(-more / (math.sqrt(2.0) * error))


@dataclass
class RiskTuned(Decider):
    """How scales were found; those of the fixed columns alone where tuned ones do not help.

    Attributes:
      strength: of the L2 penalty.
      chosen: columns used besides the fixed ones.
      in_folds: scales tuned without one fold, in turn, `(folds, columns)`; None without folds.
      held_out: None without folds.
    """

    strength: float = 0.0
    chosen: list[int] = field(default_factory=list)
    in_folds: np.ndarray | None = None
    held_out: HeldOut | None = None


def tune_risk(
    table: ScoreTable, fixed: Mapping[str, float], decision: str, folds: int, seed: int, select: bool = False
) -> RiskTuned:
    """Chooses the strength by cross-validation, tunes on everything, and checks that the first pass is beaten.

    Args:
      table: with distances.
      fixed: scales that stay, one of them other than 0.
      folds: without them (0 or 1) nothing is chosen: every column is used, at the usual strength.
      select: leave columns out that do not help by more than chance; see `checked_by_folds`.

    Lists without a score, for which the number of words alone is left, keep their first hypotheses.
    """
    problem = RiskProblem.of(table, fixed)
    if not problem.columns and {name for name, scale in fixed.items() if scale} == {WORDS_COLUMN}:
        return RiskTuned(np.array([fixed.get(name, 0.0) for name in table.names]), FIRST)
    rng = np.random.default_rng(seed)
    if folds < 2 or len(table.utt_ids) < 2 or not problem.columns:
        everything, none = tuple(range(len(problem.columns))), np.zeros(0)
        tuned = _fitted(problem, table, fixed, Candidate(everything, STRENGTHS[USUAL], [], none, none), decision, rng)
        return _sharpened(tuned, table, MIDDLE)
    sample, seen = _sample(table, problem, rng)
    parts = make_folds(sample.utt_ids, sample.ref_words, INNER, seed)
    candidate = Selection(seen, sample, parts, seed).run(select)
    tuned = _fitted(problem, table, fixed, candidate, decision, rng)
    return _checked(tuned, problem, sample, fixed, candidate)


def _sharpened(tuned: RiskTuned, table: ScoreTable, sharpness: int) -> RiskTuned:
    """With the inverse temperature of one of `SHARPNESS`, if minimum Bayes risk needs it."""
    if tuned.decision != MBR:
        return tuned
    inverse = inverses(totals(table, tuned.scales), table)[sharpness]
    return replace(tuned, inverse=float(f"{inverse:.4g}"))


def _sample(table: ScoreTable, problem: RiskProblem, rng: np.random.Generator) -> tuple[ScoreTable, RiskProblem]:
    """As many random utterances as hold `LARGE` hypotheses (two at least), and their problem, in the same columns."""
    count = max(2, LARGE * len(table.utt_ids) // len(table.matrix))
    if count >= len(table.utt_ids):
        return table, problem
    picked = np.sort(rng.choice(len(table.utt_ids), size=count, replace=False))
    sample = table.select(picked)
    return sample, problem.of_utterances(picked, sample)


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
    (drawn,) = kept.starts([rng])
    (point,) = kept.fit(candidate.strength, [[*candidate.points, *drawn]])
    scales, inverse = _scales(kept, point, table, fixed)
    short = np.array(
        [fixed[name] if name in fixed else float(f"{s:.4g}") for name, s in zip(table.names, scales, strict=True)]
    )
    return RiskTuned(short, decision, float(f"{inverse:.4g}"), candidate.strength, kept.columns)


def _scales(
    problem: RiskProblem, point: np.ndarray, table: ScoreTable, fixed: Mapping[str, float]
) -> tuple[np.ndarray, float]:
    """The scales of all columns of the table, `(columns,)`, and the inverse temperature."""
    scales, inverse = problem.scales(point, table.names)
    return scales + [fixed.get(name, 0.0) for name in table.names], inverse


def _checked(
    tuned: RiskTuned,
    problem: RiskProblem,
    table: ScoreTable,
    fixed: Mapping[str, float],
    candidate: Candidate,
) -> RiskTuned:
    """With the sharpness that is best for minimum Bayes risk, and kept only if it helps."""
    kept = problem.subset(candidate.places)
    in_folds = np.stack([_scales(kept, point, table, fixed)[0] for point in candidate.points])
    tuned = replace(tuned, in_folds=in_folds)
    sharpness = best_sharpness(candidate.by_risk)
    tuned = _sharpened(tuned, table, sharpness)
    errors = candidate.by_risk[sharpness] if tuned.decision == MBR else candidate.by_total
    return _kept_if_it_helps(tuned, errors, table, fixed)


def _kept_if_it_helps(tuned: RiskTuned, errors: np.ndarray, table: ScoreTable, fixed: Mapping[str, float]) -> RiskTuned:
    """With what it gains by its errors `(utterances,)` on utterances not tuned on; if nothing, without rescoring.

    What is left then needs no tuning: the first hypotheses, or the fixed scales alone where these have fewer errors, as
    in lists in no order, or with an LM as their only score.
    """
    alone = Decider(np.array([fixed.get(name, 0.0) for name in table.names]), FIRST)
    by_alone = replace(alone, decision=MAP).errors(table)
    held_out = HeldOut.of(alone.errors(table), by_alone, errors, table.total_words)
    tuned = replace(tuned, held_out=held_out)
    if held_out.helps:
        return tuned
    untuned = MAP if held_out.alone < held_out.first else FIRST
    return replace(tuned, decision=untuned, scales=alone.scales, chosen=[])


def checked_by_folds(tuned: RiskTuned, table: ScoreTable, fixed: Mapping[str, float], fits: CrossFit) -> RiskTuned:
    """Kept only if the folds of `cross_validated` speak for it, too; nothing more is asked of what was not kept before.

    Their utterances neither scales nor columns were chosen on; selected columns have the fewest errors on those that
    `tune_risk` checks by, of many sets of columns, and seem to help where none does.
    """
    if not fits.parts or (tuned.held_out is not None and not tuned.held_out.helps):
        return tuned
    return _kept_if_it_helps(tuned, fits.utterance_errors(table), table, fixed)


def cross_validated(
    table: ScoreTable, fixed: Mapping[str, float], decision: str, folds: int, seed: int, select: bool = False
) -> CrossFit:
    """Everything done anew without one fold, in turn; none of it where there is one fold."""
    parts = make_folds(table.utt_ids, table.ref_words, folds, seed)
    if len(parts) < 2:
        return CrossFit("no cross-validation")
    tuned = [
        tune_risk(table.select(parts.others(fold)), fixed, decision, folds, seed, select)
        for fold in progress(range(len(parts)), "cross-validation")
    ]
    how = (
        f"{parts.how}; each combined with scales tuned on the other {len(parts) - 1}, {_chosen_within(tuned)}; errors "
        "of all folds summed"
    )
    return CrossFit(how, parts.parts, list(tuned))


def _chosen_within(tuned: list[RiskTuned]) -> str:
    """By how many folds strength, columns and sharpness were chosen."""
    folds = sorted({0 if one.in_folds is None else len(one.in_folds) for one in tuned})
    if not folds[-1]:
        return "at the usual strength"
    most = f"up to {folds[-1]} folds" if len(folds) > 1 else f"{folds[0]} folds"
    return f"with what was chosen by a cross-validation of {most} within these"
