"""What `rescore tune` can be told, and tuning by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rescore import __version__
from rescore.console import remark
from rescore.errors import ReferencesError, UsageError
from rescore.tuning.decisions import CrossFit, Decider
from rescore.tuning.risk_tune import RiskTuned, by_chance, checked_by_folds, cross_validated, tune_risk
from rescore.tuning.score_table import ScoreTable
from rescore.tuning.tune import choose_fixed, constant, final_scales, percent, rates, tune_errors
from rescore.types import Weights
from rescore.weights import FIRST, MAP, MBR

if TYPE_CHECKING:
    from rescore.tuning.tune import Table

ERRORS, RISK = OBJECTIVES = ("errors", "risk")
FEW = 20  # utterances; of fewer nothing is certain
DECIDED = (MAP, MBR)  # by which scales can be used; `first` is found


def usual_decision(objective: str, lattices: bool) -> str:
    """Expected errors of lists go with minimum Bayes risk, errors and whole lattices with the highest totals."""
    return MBR if objective == RISK and not lattices else MAP


@dataclass(frozen=True)
class Settings:
    """How to tune; all but `fixed` are also said in the info of the weights.

    Raises UsageError for a seed below 0, and for `select` without `risk` or without folds.

    Attributes:
      fixed: scales that stay as they are.
      objective: `errors`, the exact line search, or `risk`, expected errors.
      decision: `map` or `mbr`, by which the scales will be used (see `usual_decision`).
      restarts: of `errors`.
      folds: of the cross-validation; 0 or 1 for none.
      select: of `risk`, leave columns out that do not help by more than chance.
    """

    fixed: Mapping[str, float]
    objective: str = ERRORS
    decision: str = MAP
    seed: int = 0
    restarts: int = 10
    folds: int = 5
    select: bool = False

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"the seed is {self.seed}, expected 0 or more")
        if self.select and self.objective != RISK:
            raise UsageError(f"columns are selected with objective {RISK} alone, found {self.objective}: leave out one")
        if self.select and self.folds < 2:
            raise UsageError(f"columns are selected by folds, of which there must be two at least, found {self.folds}")

    @property
    def needs_distances(self) -> bool:
        """Whether errors between the hypotheses of a list are asked for."""
        return (self.objective, self.decision) != (ERRORS, MAP)


def tune(table: Table, settings: Settings) -> tuple[Weights, CrossFit]:
    """The scales, and those of the folds of the cross-validation (see `tune_errors` and `tune_risk`).

    Args:
      table: lists need their distances, but for `errors` with `map`.

    Raises:
      UsageError: numbers out of range.  WeightsError: `fixed` names a score that is not there.
      ReferencesError: no reference has a word.
    """
    s = settings
    if len(table.utt_ids) < FEW:
        remark(f"utterances to tune on: {len(table.utt_ids)}: of so few, scales and rates are hardly more than chance")
    if s.decision == MBR and not isinstance(table, ScoreTable) and table.is_formed:
        found = "of what it finds, errors are counted of characters, or of normalised words"
        remark(f"minimum Bayes risk over lattices decodes by words as they are written; {found}")
    if s.objective == ERRORS:
        return tune_errors(table, s.fixed, s.seed, s.restarts, s.folds, s.decision)
    if s.folds < 0:
        raise UsageError(f"folds must be at least 0, found {s.folds}")
    if not table.total_words:
        raise ReferencesError("all references are empty: there is no word to count errors by; check them")
    fixed = choose_fixed(table, s.fixed)
    if isinstance(table, ScoreTable):
        tuned = tune_risk(table, fixed, s.decision, s.folds, s.seed, s.select)
        fits = cross_validated(table, fixed, s.decision, s.folds, s.seed, s.select)
        tuned = checked_by_folds(tuned, table, fixed, fits) if s.select else tuned
    else:
        from rescore.tuning.lattice_lists import tune_lattice_risk

        tuned, fits = tune_lattice_risk(table, fixed, s.decision, s.folds, s.seed, s.select)
    return Weights(final_scales(table, tuned.scales, fixed), _info(table, tuned, fits, fixed, s)), fits


def _info(
    table: Table, tuned: RiskTuned, fits: CrossFit, fixed: Mapping[str, float], settings: Settings
) -> dict[str, Any]:
    names = table.names
    same = constant(table, fixed)
    chosen = [names[k] for k in tuned.chosen if tuned.scales[k] != 0.0]
    idle = [name for name, scale in zip(names, tuned.scales, strict=True) if scale == 0.0]
    info: dict[str, Any] = {
        "objective": settings.objective,
        "decision": tuned.decision,
        "inverse_temperature": tuned.inverse,
        "strength": tuned.strength,
        "columns": names,
        "fixed": dict(fixed),
        "chosen": chosen,
        "left_out": [name for name in idle if name not in (*fixed, *same)],
        **rates(table, tuned, fits),
        "fold_scales": _intervals(names, tuned),
        "seed": settings.seed,
        "folds": settings.folds,
        "select": settings.select,
        "version": __version__,
    }
    if tuned.held_out:
        held_out = tuned.held_out
        info["held_out"] = {
            "alone_wer": percent(held_out.alone, held_out.words),
            "rescored_wer": percent(held_out.rescored, held_out.words),
            "p_alone": float(f"{held_out.p_alone:.3g}"),
            "kept": held_out.helps,
        }
        if isinstance(table, ScoreTable):  # lattices have no first hypotheses
            first = {"first_wer": percent(held_out.first, held_out.words), "p_first": float(f"{held_out.p_first:.3g}")}
            info["held_out"].update(first)
    if isinstance(table, ScoreTable) and fits.parts:
        firsts = Decider(np.zeros(len(names)), FIRST).errors(table)
        info["cv_p_first"] = float(f"{by_chance(fits.utterance_errors(table), firsts):.3g}")
    return info


def _intervals(names: list[str], tuned: RiskTuned) -> dict[str, list[float]]:
    """The smallest and the largest scale of each chosen column among those tuned without one fold."""
    if tuned.in_folds is None:
        return {}
    low, high = tuned.in_folds.min(axis=0), tuned.in_folds.max(axis=0)
    return {names[k]: [float(f"{low[k]:.4g}"), float(f"{high[k]:.4g}")] for k in tuned.chosen}
