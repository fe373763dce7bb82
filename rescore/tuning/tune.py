"""Scales that minimise the WER of a development set: exact line searches from many starting points (Och 2003)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rescore import __version__
from rescore.console import progress, remark
from rescore.errors import ReferencesError, UsageError, WeightsError
from rescore.tuning.decisions import CrossFit, Decider, inverses, sharpness_errors, totals
from rescore.tuning.descent import LIMIT, Point, Problem, axis, point_at, rounded, search, steps_along, with_more
from rescore.tuning.folds import make_folds
from rescore.tuning.line_search import PaddedLists
from rescore.tuning.score_table import ScoreTable
from rescore.tuning.selection import best_sharpness
from rescore.tuning.spread import LARGEST_SCALE, say_far_out
from rescore.types import Weights
from rescore.weights import MAP, default_scales, is_signed, no_score

if TYPE_CHECKING:
    from rescore.tuning.lattice_line_search import LatticeTable

    Table = ScoreTable | LatticeTable
    Searched = PaddedLists | LatticeTable

SLACK = 0.001  # of the reference words: the wider flat region that is reported
FOLD_RESTARTS = 3


def tune_errors(
    table: Table,
    fixed: Mapping[str, float] | None = None,
    seed: int = 0,
    restarts: int = 10,
    folds: int = 5,
    decision: str = MAP,
) -> tuple[Weights, CrossFit]:
    """Finds the scales that give the fewest errors on `table`, and those of the folds of the cross-validation.

    Scales are kept at 0 or above, but for those of `rescore.weights.is_signed`.  Only ratios of scales matter, so one
    column is fixed: those of `fixed`, or `am` (the first column if there is none) at 1 where `fixed` names no scale
    other than 0.

    Args:
      fixed: scales that stay as they are.
      seed: of all random choices; the same seed gives the same scales.
      restarts: starting points besides the fixed scales alone; small sets get more.
      folds: of the cross-validation; 0 or 1 for none.
      decision: with `mbr`, the inverse temperature is that with the fewest errors by minimum Bayes risk.

    Raises:
      UsageError: numbers out of range.  WeightsError: `fixed` names a score that is not there.
      ReferencesError: no reference has a word.
    """
    if restarts < 1 or folds < 0:
        raise UsageError(f"restarts must be at least 1 and folds at least 0, found {restarts} and {folds}")
    if not table.total_words:
        raise ReferencesError("all references are empty: there is no word to count errors by; check them")
    scales = choose_fixed(table, fixed or {})
    problem = make_problem(table, scales)
    found = search(problem, np.random.default_rng(seed), with_more(problem, restarts), show=True)
    found = point_at(problem, rounded(problem, found))
    found.errors = problem.lists.count(found.scales)  # as `rescore combine` counts them, to the last digit
    decider = decided(table, found.scales, decision)
    words = table.total_words
    fits = cross_fit(table, scales, seed, min(restarts, FOLD_RESTARTS), folds, decision)
    info: dict[str, Any] = {
        "columns": table.names,
        "fixed": scales,
        **({} if decision == MAP else {"decision": decision, "inverse_temperature": decider.inverse}),
        **rates(table, decider, fits),
        "flat_region": flat_regions(problem, found, table.names, words),
        "seed": seed,
        "restarts": restarts,
        "version": __version__,
    }
    return Weights(final_scales(table, found.scales, scales), info), fits


def final_scales(table: Table, found: np.ndarray, fixed: Mapping[str, float]) -> dict[str, float]:
    """The scales found `(columns,)`, by name; what is the same within every list, and not fixed, changes no choice.

    In lists it has scale 0.  Lattices have no order of their own that this would leave: there it has the scale that it
    has without tuning, as it may differ in others.
    """
    scales = {name: float(scale) for name, scale in zip(table.names, found, strict=True)}
    usual = {} if isinstance(table, ScoreTable) else default_scales(table.names)
    for name in constant(table, fixed):
        scales[name] = usual.get(name, 0.0)
        remark(f"no list has different values of {name}: scale {scales[name]:g}")
    return scales


def constant(table: Table, fixed: Mapping[str, float]) -> list[str]:
    """The scores that are the same within every list, and have no fixed scale."""
    varies = zip(table.names, table.varies(), strict=True)
    return [name for name, different in varies if not different and name not in fixed]


def percent(errors: int, words: int) -> float:
    """Error rate in percent, to three digits."""
    return round(100.0 * errors / words, 3) if words else math.nan


def choose_fixed(table: Table, fixed: Mapping[str, float]) -> dict[str, float]:
    """The scales that stay: those given, and a reference column at 1 if none of them is other than 0.

    A remark names columns with values so far out that units do not go by them.

    Raises:
      WeightsError: one of them names a score that is not there.  UsageError: all are 0, or one is too large.
    """
    say_far_out(table)
    names = table.names
    unknown = [name for name in fixed if name not in names]
    if unknown:
        what, lattices = f"utterance {table.utt_ids[0]}", not isinstance(table, ScoreTable)
        raise WeightsError(no_score(what, unknown[0], names, "whose scale is to be fixed", lattices))
    for name, scale in fixed.items():
        if not abs(scale) <= LARGEST_SCALE:
            raise UsageError(
                f"the fixed scale of '{name}' is {scale:g}, expected one from -{LARGEST_SCALE:g} to {LARGEST_SCALE:g}; "
                "only ratios of scales matter: take smaller ones"
            )
    if any(fixed.values()):
        return dict(fixed)
    free = [name for name in names if name not in fixed]
    if not free:
        raise UsageError("every scale is fixed at 0: nothing is left to tell hypotheses apart")
    return {**fixed, "am" if "am" in free else free[0]: 1.0}


def make_problem(table: Table, fixed: Mapping[str, float]) -> Problem:
    """Units and limits of the search.  Columns that are constant within every list do not move."""
    spread = table.spread()
    start = np.array([fixed.get(name, 0.0) for name in table.names])
    reference = math.sqrt(float(((start * spread) ** 2).sum())) or 1.0
    varies = table.varies()
    free = np.array([k for k, name in enumerate(table.names) if name not in fixed and varies[k]], dtype=np.int64)
    unit = np.zeros(len(start))
    unit[free] = reference / spread[free]
    signed = np.array([is_signed(name) for name in table.names])
    return Problem(searched(table), free, start, unit, low=np.where(signed, -LIMIT * unit, 0.0), high=LIMIT * unit)


def searched(table: Table) -> Searched:
    """The table in the form that is searched."""
    return PaddedLists.from_table(table) if isinstance(table, ScoreTable) else table


def flat_regions(problem: Problem, found: Point, names: list[str], words: int) -> dict[str, dict[str, list[float]]]:
    """For each free scale, the interval with the fewest errors and that within 0.1 % absolute, the others held."""
    regions = {}
    for k in problem.free:
        steps = steps_along(problem, found, axis(problem, k))
        intervals = {}
        for title, most in (("same", found.errors), ("within_0.1", found.errors + SLACK * words)):
            ends = (found.scales[k] + t * problem.unit[k] for t in steps.region(0.0, most))
            intervals[title] = [float(f"{value:.4g}") for value in ends]
        regions[names[k]] = intervals
    return regions


def decided(table: Table, scales: np.ndarray, decision: str) -> Decider:
    """With `mbr`, at an inverse temperature of the fewest errors, or nearly so."""
    if decision == MAP:
        return Decider(scales, decision)
    lists = as_lists(table, scales)
    best = best_sharpness(sharpness_errors(lists, scales))
    return Decider(scales, decision, float(f"{inverses(totals(lists, scales), lists)[best]:.4g}"))


def as_lists(table: Table, scales: np.ndarray) -> ScoreTable:
    """The table itself, or of lattices their n best, with the distances that minimum Bayes risk needs."""
    if isinstance(table, ScoreTable):
        return table
    from rescore.tuning.lattice_lists import LatticeLists

    lists = LatticeLists(table)
    lists.add_best(scales)
    return lists.table(distances=True)


def rates(table: Table, decider: Decider, fits: CrossFit) -> dict[str, Any]:
    """WER on the set itself, of the best hypotheses, and where each fold is combined with the scales of the others."""
    errors, words = int(decider.errors(table).sum()), table.total_words
    return {
        "wer": percent(errors, words),
        "errors": errors,
        "oracle_wer": percent(table.oracle_errors(), words),
        "cv_wer": percent(fits.errors(table), words) if fits.parts else None,
        "cv_how": fits.how,
    }


def cross_fit(
    table: Table, fixed: Mapping[str, float], seed: int, restarts: int, folds: int, decision: str = MAP
) -> CrossFit:
    """Scales for each fold, tuned on the other folds' utterances."""
    parts = make_folds(table.utt_ids, table.ref_words, folds, seed)
    if len(parts) < 2:
        return CrossFit("no cross-validation")
    deciders = []
    for fold in progress(range(len(parts)), "cross-validation"):
        others = table.select(parts.others(fold))
        found = search(make_problem(others, fixed), np.random.default_rng([seed, fold]), restarts)
        deciders.append(decided(others, found.scales, decision))
    how = (
        f"{parts.how}; each combined with scales tuned on the other {len(parts) - 1} by the same search with "
        f"{restarts} restarts; errors of all folds summed"
    )
    return CrossFit(how, parts.parts, deciders)
