"""Scales by name: files of them, and totals of scores under them."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from lm_zoo.reading import read_json
from rescore.console import remark
from rescore.errors import FormatError, ScoreError, UsageError, WeightsError
from rescore.files import atomic_text
from rescore.text import short
from rescore.types import Hypothesis, Weights

WORDS_COLUMN = "words"
NGRAM = "ngram"  # the column of --ngram
INTERNAL_LM = "ilm"  # a recogniser's own LM, which is taken out of its score by a negative scale
OLD_NGRAM = "old-ngram"  # the column of --old-ngram, which is taken out of the lattices' LM score in the same way
TAKEN_OUT = (INTERNAL_LM, OLD_NGRAM)
UNCERTAINTY = "-uncertainty"  # behind an LM's column: how much draws of its weights disagree, of which less is better
SIGNED = (WORDS_COLUMN, *TAKEN_OUT)  # columns whose scales may be negative, beside those of UNCERTAINTY
MAP, MBR, FIRST = DECISIONS = ("map", "mbr", "first")  # highest total; fewest expected errors; no rescoring
MIXTURE = "linear interpolation a word, by EM"  # said in the files of mixtures
TUNE = "`rescore tune`"
LM_WEIGHT = 10.0  # of an LM's score, where acoustics count 1: Kaldi's --lmwt


def load_weights(path: str | Path) -> Weights:
    """Reads `{"scales": {NAME: VALUE, ...}, "info": {...}}` (`info` may be missing).

    Raises:
      FormatError: no such file, or not JSON.
      WeightsError: JSON, but not weights: no scales, or a scale that is no finite number, or those of a mixture.
    """
    weights = _read(path, TUNE)
    if weights.info.get("what") == MIXTURE:
        raise WeightsError(
            f"{path}: a mixture of LMs by words (rescore ppl --save-mix), not scales of scores as written by {TUNE}; "
            "it goes with --mix"
        )
    return weights


def load_mixture(path: str | Path, columns: Collection[str]) -> dict[str, float]:
    """Interpolation weights by column, as `rescore ppl --save-mix` writes them: none below 0, their sum 1.

    Raises:
      FormatError: no such file, or not JSON, or other numbers.
      WeightsError: JSON, but not weights.
      UsageError: they are those of other LMs than `columns`.
    """
    mixture = _read(path, "`rescore ppl --save-mix`").scales
    if set(mixture) != set(columns):
        raise UsageError(f"{path} mixes {', '.join(mixture)}, but the LMs given are {', '.join(columns)}")
    if any(value < 0 for value in mixture.values()) or abs(sum(mixture.values()) - 1.0) > 1e-3:
        raise FormatError(path, f"interpolation weights must be >= 0 and sum to 1, found {mixture}")
    return mixture


def _read(path: str | Path, writer: str) -> Weights:
    """What `writer` wrote."""
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise FormatError(path, f"no such file; {writer} writes one") from None
    except IsADirectoryError:
        raise FormatError(path, f"is a folder, expected a weights file as written by {writer}") from None
    except OSError as error:
        raise FormatError(path, f"cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise FormatError(path, f"not JSON ({error}); expected weights as written by {writer}") from None
    if not isinstance(content, dict) or "scales" not in content:
        raise WeightsError(f'{path}: no "scales" in it; expected {{"scales": {{"am": 1.0, ...}}, "info": {{}}}}')
    info = content.get("info", {})
    if not isinstance(info, dict):
        raise WeightsError(f'{path}: "info" is not an object; expected {{"scales": {{...}}, "info": {{...}}}}')
    try:
        json.dumps(info, allow_nan=False)
    except ValueError:
        raise WeightsError(f'{path}: "info" has a number that is not finite; tune again') from None
    return Weights(checked_scales(content["scales"], str(path)), info)


def checked_scales(scales: Any, where: str) -> dict[str, float]:
    if not isinstance(scales, Mapping) or not scales:
        raise WeightsError(f'{where}: "scales" must name at least one score, as in {{"am": 1.0, "lm": 0.5}}')
    for name, value in scales.items():
        if not isinstance(name, str):
            raise WeightsError(f"{where}: a scale is called {short(name)}, expected the name of a score, such as 'am'")
        number = isinstance(value, Real) and not isinstance(value, bool)  # those of numpy, too
        if not number or not _is_finite(value):
            raise WeightsError(
                f"{where}: the scale of '{name}' is {short(value)}, expected a finite number; tune again"
            )
    return {name: float(value) for name, value in scales.items()}


def _is_finite(number: Any) -> bool:
    """Whether it is as a float; numpy 2 compares its numbers in their own precision, which may have no larger ones."""
    try:
        return math.isfinite(number)
    except OverflowError:  # of a whole number
        return False


def save_weights(path: str | Path, weights: Weights) -> None:
    """Writes weights so that `load_weights` gives them back exactly.

    Raises:
      WeightsError: no scale, or one that is not finite; in the info something else than JSON has.
    """
    scales = checked_scales(weights.scales, "weights to save")
    try:
        text = weights_json(Weights(scales, weights.info))
    except (TypeError, ValueError) as error:
        raise WeightsError(f'weights to save: "info" has what JSON cannot hold ({error})') from None
    with atomic_text(path) as stream:
        stream.write(text)


def weights_json(weights: Weights) -> str:
    content = {"scales": weights.scales, "info": weights.info}
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def decision_of(weights: Weights, where: object = "weights") -> tuple[str, float]:
    """The decision that weights were tuned for, `map` where they do not say, and their inverse temperature (else 1).

    Raises:
      WeightsError: there is no such decision, or no such temperature.
    """
    decision, inverse = weights.info.get("decision", MAP), weights.info.get("inverse_temperature", 1.0)
    if decision not in DECISIONS:
        raise WeightsError(f"{where}: the decision is {short(decision)}; expected one of {', '.join(DECISIONS)}")
    number = isinstance(inverse, (int, float)) and not isinstance(inverse, bool)
    if not number or not (inverse > 0.0 and _is_finite(inverse)):
        raise WeightsError(f"{where}: inverse_temperature is {short(inverse)}, expected a number above 0; tune again")
    return str(decision), float(inverse)


def for_mbr(weights: Weights, inverse: float | None, where: object = "weights") -> Weights:
    """The weights for minimum Bayes risk at another inverse temperature; None: for the decision they name.

    Raises:
      UsageError: it is no number above 0.  WeightsError: as `decision_of`.
    """
    tuned = decision_of(weights, where)
    if inverse is None:
        return weights
    if not (inverse > 0.0 and _is_finite(inverse)):
        raise UsageError(f"minimum Bayes risk at {inverse} times the totals; expected a finite number above 0")
    if "decision" in weights.info and tuned != (MBR, inverse):
        decision = f"{MBR} at {tuned[1]:g}" if tuned[0] == MBR else tuned[0]
        remark(f"{where}: tuned for the decision {decision}, but combined for {MBR} at {inverse:g}")
    return Weights(weights.scales, {**weights.info, "decision": MBR, "inverse_temperature": float(inverse)})


def parse_scales(options: Iterable[str]) -> dict[str, float]:
    """Parses `("lm=0.5", "words=2")`; 0.0 is a scale.

    Raises:
      UsageError: not `NAME=VALUE`, not a finite number, or a name given twice.
    """
    scales: dict[str, float] = {}
    for option in options:
        name, equals, text = option.rpartition("=")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not equals or not name or not math.isfinite(value):
            raise UsageError(f"'{option}' is no scale; expected NAME=VALUE with a finite number, as in lm=0.5")
        if name in scales:
            raise UsageError(f"the scale of '{name}' is given twice")
        scales[name] = value
    return scales


def given_weights(weights_file: str | Path | None, scales: Collection[str]) -> Weights | None:
    """The weights of --weights or of --scale; None where neither is given.

    Raises:
      UsageError: both are given, or as `parse_scales`; also raises as `load_weights`.
    """
    if weights_file and scales:
        raise UsageError("give either --weights FILE or --scale NAME=VALUE, not both")
    if weights_file:
        return load_weights(weights_file)
    return Weights(parse_scales(scales)) if scales else None


def default_scales(names: Collection[str], ngram: str | None = None) -> dict[str, float]:
    """The scales of scores of lattices that the user gave none: 1 for acoustics, LM_WEIGHT for an LM, else none at all.

    Two commands have others.  `rescore nbest`, which cannot know the LMs among the columns it is given, counts every
    one alike (`equal_weights`).  `rescore lattice best-path` counts all that is no acoustics as Kaldi's graph cost,
    pronunciations and an only `score` too (`rescore.lattices.best_path.kaldi_scales`, at LM_WEIGHT).

    Args:
      names: the scores that are there.
      ngram: the name of an n-gram LM's score, which stands for that of the recogniser's own LM.
    """
    lms = [name for name in ("lm", "graph") if name in names] if ngram is None else [ngram]
    return {**{name: 1.0 for name in ("am", "score") if name in names}, **dict.fromkeys(lms, LM_WEIGHT)}


def is_signed(name: str) -> bool:
    """Whether the scale of a column may be negative."""
    return name in SIGNED or name.endswith(UNCERTAINTY)


def equal_weights(names: Iterable[str]) -> Weights:
    """1 for every score; LMs that are to be taken out, of which other scores have too much already, have none.

    Nor has an uncertainty, of which more is worse.
    """
    scales = {name: 1.0 for name in names if name not in TAKEN_OUT and not name.endswith(UNCERTAINTY)}
    return Weights(scales, {"how": "no weights given: every scale is 1"})


def is_finite(value: Any) -> bool:
    """Whether a score is a number, and finite; in Python it may be anything."""
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def total(scores: Mapping[str, float], scales: Mapping[str, float]) -> float:
    """`sum_k scales[k] * scores[k]` in the order of `scales`; every scale but 0 needs its score (KeyError)."""
    return sum((scale * scores[name] for name, scale in scales.items() if scale != 0.0), 0.0)


def no_score(what: str, name: str, found: Iterable[str], wanted: str, lattices: bool = False) -> str:
    """What every command says of a score that is missing.

    Args:
      what: the utterance that has none, or a hypothesis of it.
      found: the scores that it has.
      wanted: what needs it, "which ...".
      lattices: they are lattices' scores.
    """
    inputs, command = ("lattices", "rescore lattice rescore") if lattices else ("lists", "rescore nbest")
    if name in ("am", "score", INTERNAL_LM):
        advice = f"it is a recogniser's own: take the {inputs} as the recogniser wrote them, with all scores"
    else:
        python = f"lattices.rescore({{'{name}': lm}}, ...)" if lattices else f"rs.score(lists, {{'{name}': lm}})"
        option = "--ngram FILE" if name == NGRAM else f"--lm {name}=NAME|DIR"
        advice = f"{command} {option} adds it (in Python {python})"
    return f"{what} has no score '{name}', {wanted}; found: {', '.join(found) or 'none'}; {advice}"


def check_same_scores(
    what: str, found: Collection[str], first: str, names: Collection[str], lattices: bool = False
) -> None:
    """Refuses scores that are not those of the first utterance, whichever of the two lacks one.

    Args:
      what, first: what has the scores `found`, and what has `names`.
    Raises:
      ScoreError: as `no_score`.
    """
    for one, has, other, others in ((what, found, first, names), (first, names, what, found)):
        missing = [name for name in others if name not in has]
        if missing:
            raise ScoreError(no_score(one, missing[0], has, f"which {other} has", lattices))


def with_words(hyp: Hypothesis) -> dict[str, float]:
    """The scores of a hypothesis, with the column `words` (number of words) if it is not there yet."""
    if WORDS_COLUMN in hyp.scores:
        return hyp.scores
    return {**hyp.scores, WORDS_COLUMN: float(len(hyp.words))}
