"""Scales found on a development set, and applied to lists."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING

from rescore.api.lattices import Lattices
from rescore.api.lists import Lists, lists_of
from rescore.api.numbers import number_from
from rescore.api.texts import Texts, references
from rescore.api.weights import AnyWeights, TunedWeights, weights_of
from rescore.errors import UsageError
from rescore.text import short
from rescore.weights import checked_scales

if TYPE_CHECKING:
    from rescore.tuning.tune import Table
    from rescore.types import Words
    from rescore.workflows.normalising import Normaliser


def tune(
    dev: Lists | Lattices,
    ref: Texts | None = None,
    *,
    fix: Mapping[str, float] | None = None,
    seed: int = 0,
    restarts: int = 10,
    folds: int = 5,
    objective: str = "risk",
    decision: str | None = None,
    cer: bool = False,
    normalise: str = "none",
) -> TunedWeights:
    """Finds the scales of all columns, and of the number of words, that minimise the error rate of a development set.

    Args:
      dev: lists, or lattices, over all of whose paths is searched.
      ref: references; None: those of the lists.
      fix: scales that stay as they are, by column.
      seed: of all random choices.
      restarts: starting points of the search, with the objective "errors".
      folds: of the cross-validation; 0 for none.
      objective: "risk", expected errors, which generalises; or "errors", those of the set, exactly.
      decision: for what `combine` will do with the weights: "map", the highest total, or "mbr", minimum Bayes risk;
        None: "mbr" for "risk" over lists, else "map".
      cer: count errors of characters, and as `words` those of lists that do not have it, as `combine` then does.
        Lattices are searched, and decoded with minimum Bayes risk, by words all the same.
      normalise: "basic", "whisper-en" or "librispeech", for references and hypotheses; of lists, hypotheses that become
        equal are one, in `combine`, too; of lattices, each word by itself, for the errors alone.
    Raises:
      RescoreError: an argument of another kind; lists and references that do not suit each other.
    """
    from rescore.tuning.settings import DECIDED, OBJECTIVES, Settings, usual_decision
    from rescore.tuning.settings import tune as tuned_table
    from rescore.workflows.normalising import KEY, RATE, Normaliser

    if not isinstance(dev, (Lists, Lattices)):
        raise UsageError(
            f"dev is a {type(dev).__name__}, expected N-best lists or lattices: rs.read_nbest(SPEC), "
            "rs.read_lattices(SPEC)"
        )
    decision = decision or usual_decision(objective, isinstance(dev, Lattices))
    if objective not in OBJECTIVES or decision not in DECIDED:
        raise UsageError(
            f"objective {objective!r}, decision {decision!r}; expected one of {', '.join(OBJECTIVES)} and one of "
            f"{', '.join(DECIDED)}"
        )
    lowest = (("seed", seed, 0), ("restarts", restarts, 1), ("folds", folds, 0))
    numbers = [number_from(name, value, low, kind=Integral) for name, value, low in lowest]
    settings = Settings(_fixed(fix), objective, decision, *numbers)
    normaliser = Normaliser(normalise, cer)
    refs = normaliser.texts(references(ref if ref is not None else _lists(dev)))
    table = _table(dev, refs, normaliser, settings.needs_distances)
    weights, _ = tuned_table(table, settings)
    return TunedWeights(weights.scales, {KEY: normalise, RATE: normaliser.rate, **weights.info})


def _table(dev: Lists | Lattices, refs: dict[str, Words], normaliser: Normaliser, with_distances: bool) -> Table:
    """What is searched: of lists under the normaliser, or of lattices as they are."""
    if isinstance(dev, Lattices):
        from rescore.tuning.lattice_line_search import lattice_table

        return lattice_table(dev, refs, normaliser.form)
    from rescore.tuning.score_table import build_table

    table = build_table(normaliser.lists(dev), refs, with_distances)
    normaliser.say()
    return table


def _fixed(fix: Mapping[str, float] | None) -> dict[str, float]:
    if fix is not None and not isinstance(fix, Mapping):
        raise UsageError(f"fix is {short(fix)}, expected scales by name, as in {{'lm': 0.5}}")
    return checked_scales(dict(fix), "fix") if fix else {}


def _lists(dev: Lists | Lattices) -> Lists:
    if isinstance(dev, Lists):
        return dev
    raise UsageError("lattices have no references of their own: tune(lattices, ref)")


def combine(
    nbest: Lists, weights: AnyWeights, mbr: float | None = None, normalise: str | None = None, *, cer: bool = False
) -> Lists:
    """The lists with their hypotheses in the order of their totals, best first; all scores are kept.

    Weights that were tuned for minimum Bayes risk are used so.

    Args:
      weights: of `tune`, scales by column, or a file of `rescore tune`.
      mbr: order by expected errors, whatever the weights say; posteriors are the softmax of `mbr` times the totals.
      normalise: name of a normaliser, by which hypotheses that become equal are one; None: that of the weights.
      cer: count as if every character were a word, whatever the weights were tuned for.
    Raises:
      RescoreError: a scale whose score is not there, a score that is missing or not finite, an empty list, an
        utterance that comes twice.
    """
    from rescore.weights import for_mbr
    from rescore.workflows.combine import decide, each_once
    from rescore.workflows.normalising import Normaliser, under_weights

    if mbr is not None and (isinstance(mbr, bool) or not isinstance(mbr, Real)):
        raise UsageError(f"mbr is {short(mbr)}, expected a number above 0")
    used = for_mbr(under_weights(weights_of(weights), normalise, "weights", cer), mbr)
    normaliser = Normaliser.of(used)
    combined = Lists([decide(each, used, normaliser)[0] for each in each_once(lists_of(nbest))])
    normaliser.say()
    return combined
