"""Scales found on a development set, and applied to lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rescore.api.lattices import Lattices
from rescore.api.lists import Lists
from rescore.api.texts import Texts, references
from rescore.api.weights import AnyWeights, TunedWeights, scales_of
from rescore.errors import UsageError
from rescore.types import Weights

if TYPE_CHECKING:
    from rescore.tuning.tune import Table


def tune(
    dev: Lists | Lattices,
    ref: Texts | None = None,
    *,
    fix: Mapping[str, float] | None = None,
    seed: int = 0,
    restarts: int = 10,
    folds: int = 5,
) -> TunedWeights:
    """Finds the scales of all columns, and of the number of words, that minimise the WER of a development set.

    Args:
      dev: lists, or lattices, over all of whose paths is searched.
      ref: references; None: those of the lists.
      fix: scales that stay as they are.
      seed, restarts, folds: as of `rescore tune`.
    Raises:
      RescoreError: lists and references do not suit each other; see `rescore tune`.
    """
    from rescore.tuning.tune import tune_table

    refs = references(ref if ref is not None else _lists(dev))
    table: Table
    if isinstance(dev, Lists):
        from rescore.tuning.score_table import build_table

        table = build_table(dev, refs)
    else:
        from rescore.tuning.lattice_line_search import lattice_table

        table = lattice_table(dev, refs)
    weights = tune_table(table, fix, seed=seed, restarts=restarts, folds=folds)
    return TunedWeights(weights.scales, weights.info)


def _lists(dev: Lists | Lattices) -> Lists:
    if isinstance(dev, Lists):
        return dev
    raise UsageError("lattices have no references of their own: tune(lattices, ref)")


def combine(nbest: Lists, weights: AnyWeights, mbr: float | None = None) -> Lists:
    """The lists with their hypotheses in the order of their totals, best first; all scores are kept.

    Args:
      weights: of `tune`, scales by column, or a file of `rescore tune`.
      mbr: order by expected errors instead; posteriors are the softmax of `mbr` times the totals.
    Raises:
      RescoreError: a scale whose score is not there, a score that is missing or not finite, an empty list.
    """
    from rescore.workflows.combine import combine_list

    used = Weights(scales_of(weights))
    return Lists([combine_list(each, used, mbr) for each in nbest])
