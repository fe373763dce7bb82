"""N-best lists as LMs are trained on them: what all other scores say of a hypothesis, and how many errors it has."""

from __future__ import annotations

from dataclasses import replace

from lm_zoo.text.lists import ErrorList
from rescore.console import remark, some_names
from rescore.errors import ReferencesError, WeightsError
from rescore.evaluation.wer import check_same_form, edit_distance
from rescore.formats import read_nbest
from rescore.formats.counting import nbest_with_progress
from rescore.types import NbestList, Weights, Words
from rescore.weights import decision_of, equal_weights
from rescore.workflows.combine import totals_of
from rescore.workflows.normalising import Normaliser


def weights_for(source: str, column: str, weights: Weights | None) -> tuple[Weights, float]:
    """The scales of all other scores than that of the LM to be trained, and its own, times the inverse temperature.

    Args:
      source: of the lists.
      column: of the LM.
      weights: None for scales of 1.
    Raises:
      WeightsError: no scale for the LM, or 0.
    """
    if weights is None:
        names = [name for name in next(read_nbest(source)).hyps[0].scores if name != column]
        equal = equal_weights(names)
        what = f"{', '.join(equal.scales)} and {column} count with scale 1"
        remark(f"no --weights: {what}; find better scales with: rescore tune")
        return equal, 1.0
    inverse = decision_of(weights)[1]
    scales = {name: inverse * scale for name, scale in weights.scales.items()}
    if column not in scales:
        found = ", ".join(scales)
        raise WeightsError(
            f"the weights have no scale for '{column}', the LM to be trained; found: {found}; name its column: "
            "--init COLUMN=NAME|DIR, or tune with it"
        )
    if not scales[column]:
        raise WeightsError(
            f"the weights have scale 0 for '{column}', the LM to be trained, by which it changes nothing; give it one: "
            f"rescore tune --fix {column}=0.5"
        )
    return Weights({name: scale for name, scale in scales.items() if name != column}, weights.info), scales[column]


def error_lists(source: str, references: dict[str, Words], weights: Weights, common: bool = False) -> list[ErrorList]:
    """The lists of a source, their other scores under the weights, and the errors of every hypothesis.

    With `common`, those that have no reference are left out, with a remark.

    Raises:
      ReferencesError: an utterance without a reference, or references in another form than the lists.
      ScoreError, WeightsError: a score that is missing, or not finite.
    """
    normaliser = Normaliser.of(weights)
    made, missing = list[ErrorList](), list[str]()
    refs, firsts = list[Words](), list[Words]()
    for nbest in nbest_with_progress(source, "reading lists"):
        if nbest.utt_id in references:
            refs.append(normaliser.words(references[nbest.utt_id]))
            firsts.append(normaliser.words(nbest.hyps[0].words))
            made.append(_error_list(nbest, refs[-1], weights, normaliser))
        else:
            missing.append(nbest.utt_id)
    if missing and common and made:
        remark(f"{source}: {len(missing)} utterances without a reference left out ({some_names(missing)})")
    elif missing:
        raise ReferencesError(f"{source}: {len(missing)} utterances have no reference ({some_names(missing)})")
    check_same_form(refs, firsts)
    return made


def _error_list(nbest: NbestList, ref: Words, weights: Weights, normaliser: Normaliser) -> ErrorList:
    counted = replace(nbest, hyps=[replace(hyp, words=normaliser.words(hyp.words)) for hyp in nbest.hyps])
    errors = [float(edit_distance(ref, hyp.words)) for hyp in counted.hyps]
    return ErrorList(nbest.utt_id, [hyp.words for hyp in nbest.hyps], totals_of(counted, weights), errors)
