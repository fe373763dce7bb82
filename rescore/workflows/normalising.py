"""References and hypotheses in one form before they are compared: normalised, or taken apart to characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lm_zoo.reading import kaldi_fields
from lm_zoo.text.normalise import NORMALISERS, normalise
from rescore.console import remark
from rescore.errors import UsageError, WeightsError
from rescore.evaluation.wer import split_characters
from rescore.types import Hypothesis, NbestList, Weights, Words
from rescore.weights import is_finite, load_weights

ACOUSTICS = "am"  # the score that is a log-probability of a writing, so that those of several writings can be summed
KEY = "normalise"  # of the info in weights, and of what a comparison says on how it was made
RATE = "rate"  # of the same: by which errors are counted
WER, CER = RATES = ("WER", "CER")
WEIGHTS_FILE = "weights.json"  # what `rescore combine` leaves beside its lists


class Normaliser:
    """A normaliser by its name, and counts of the hypotheses that it made equal to others of their list.

    With `cer`, texts and hypotheses are characters in place of words, whose number is the score `words` of hypotheses
    that do not have it.
    """

    def __init__(self, name: str = "none", cer: bool = False) -> None:
        self.name, self.cer = name, cer
        self._normalise = normalise(name)
        self._lists = self._hyps = self._equal = self._unsummed = 0

    @classmethod
    def of(cls, weights: Weights, where: object = "weights", cer: bool = False) -> Normaliser:
        """That under which weights were tuned; raises WeightsError as `normaliser_of` and `rate_of`.

        Args:
          cer: of characters, whatever the weights were tuned for.
        """
        return cls(normaliser_of(weights, where), rate_of(weights, where) == CER or cer)

    @property
    def rate(self) -> str:
        return CER if self.cer else WER

    def words(self, words: Words) -> Words:
        """The words of a text after normalising, or their characters."""
        return split_characters(self._plain(words)) if self.cer else self._plain(words)

    def _plain(self, words: Words) -> Words:
        return words if self.name == "none" else tuple(kaldi_fields(self._normalise(" ".join(words))))

    def texts(self, texts: Mapping[str, Words]) -> dict[str, Words]:
        """The same of every utterance."""
        return {utt_id: self.words(words) for utt_id, words in texts.items()}

    def merge(self, nbest: NbestList) -> tuple[NbestList, list[Words]]:
        """The list in normalised words with equal hypotheses as one, and how each that is left was written.

        Of hypotheses that become equal, the most probable one stays (by `am`; the first without it), at the place of
        the first; its `am` becomes the log of their probabilities' sum, its other scores stay as they are.  `none` of
        words changes nothing.
        """
        if self.name == "none" and not self.cer:
            return nbest, [hyp.words for hyp in nbest.hyps]
        groups: dict[Words, list[Hypothesis]] = {}
        for hyp in nbest.hyps:
            groups.setdefault(self.words(hyp.words), []).append(hyp)
        self._lists += 1
        self._hyps += len(nbest.hyps)
        self._equal += len(nbest.hyps) - len(groups)
        chosen = {words: self._one(group) for words, group in groups.items()}
        hyps = [replace(hyp, words=words) for words, hyp in chosen.items()]
        return replace(nbest, hyps=hyps), [hyp.words for hyp in chosen.values()]

    def lists(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        """The lists in normalised words."""
        return (self.merge(nbest)[0] for nbest in lists)

    @property
    def form(self) -> Callable[[str], Words] | None:
        """What a word of a lattice becomes by itself; None where all stay as they are."""
        return None if self.name == "none" and not self.cer else lambda word: self.words((word,))

    def say(self) -> None:
        """A remark on the hypotheses that became equal, for the end."""
        if not self._equal:
            return
        how = "am is the log of their summed probabilities, other scores are those of the most probable one"
        if self._unsummed:
            how = "the scores are those of the first one, as there is no am to be summed"
        form = ", ".join([self.name] * (self.name != "none") + ["characters"] * self.cer)
        remark(f"{form}: {self._equal} of {self._hyps} hypotheses became equal to another of their list; {how}")

    def _one(self, group: Sequence[Hypothesis]) -> Hypothesis:
        if len(group) == 1:
            return group[0]
        if not all(ACOUSTICS in hyp.scores for hyp in group):
            self._unsummed += 1
            return group[0]
        unusual = next((hyp for hyp in group if not is_finite(hyp.scores[ACOUSTICS])), None)
        if unusual is not None:  # whoever needs the score refuses it
            return unusual
        best = max(group, key=lambda hyp: hyp.scores[ACOUSTICS])
        return replace(best, scores={**best.scores, ACOUSTICS: log_sum([hyp.scores[ACOUSTICS] for hyp in group])})


def log_sum(values: Sequence[float]) -> float:
    """`log sum exp(values)`; not a number if one of them is not finite."""
    if not all(map(math.isfinite, values)):
        return math.nan
    most = max(values)
    return most + math.log(math.fsum(math.exp(value - most) for value in values))


def normaliser_of(weights: Weights, where: object) -> str:
    """The name of the normaliser under which weights were tuned.

    Raises:
      WeightsError: they name one that there is not.
    """
    name = weights.info.get(KEY, "none")
    if name not in NORMALISERS:
        raise WeightsError(f"{where}: '{KEY}' in \"info\" is {name!r}; expected one of {', '.join(NORMALISERS)}")
    return str(name)


def rate_of(weights: Weights, where: object) -> str:
    """By which error rate weights were tuned, `WER` or `CER`.  Raises WeightsError: they name another one."""
    rate = weights.info.get(RATE, WER)
    if rate not in RATES:
        raise WeightsError(f"{where}: '{RATE}' in \"info\" is {rate!r}; expected one of {', '.join(RATES)}")
    return str(rate)


def under_weights(weights: Weights, wanted: str | None, where: object, cer: bool = False) -> Weights:
    """The weights with the normaliser that is wanted in their info; None: with what they say themselves.

    Args:
      cer: also with characters in place of words.
    Raises:
      WeightsError: as `normaliser_of` and `rate_of`.
    """
    tuned, rate = normaliser_of(weights, where), rate_of(weights, where)
    if cer:
        if rate != CER and RATE in weights.info:
            remark(f"{where}: tuned for words, but combined for characters")
        weights = Weights(weights.scales, {**weights.info, RATE: CER})
    if wanted is None:
        return weights
    if wanted != tuned and KEY in weights.info:
        remark(f"{where}: tuned with the normaliser {tuned}, but combined with {wanted}")
    return Weights(weights.scales, {**weights.info, KEY: wanted})


def normaliser_of_systems(systems: Mapping[str, str], name: str | None = None, cer: bool = False) -> Normaliser:
    """What systems (name -> source) are compared in, with a remark where they were tuned for something else.

    Args:
      name: of the normaliser; None: that which they were combined with.
      cer: compare characters.
    Raises:
      UsageError: they were combined with different normalisers, and `name` is None.
    """
    files = {system: Path(spec) / WEIGHTS_FILE for system, spec in systems.items()}
    weights = {system: load_weights(file) for system, file in files.items() if file.is_file()}
    for system, each in weights.items():
        if not cer and rate_of(each, files[system]) == CER:
            remark(f"'{system}' was tuned for characters; --cer (in Python cer=True) counts them")
    if name is None:
        name = _one_name({system: normaliser_of(each, files[system]) for system, each in weights.items()})
    return Normaliser(name, cer)


def _one_name(names: Mapping[str, str]) -> str:
    """The normaliser by which systems were combined, or "none"."""
    found = {system: name for system, name in names.items() if name != "none"}
    if len(set(found.values())) > 1:
        said = ", ".join(f"{system} with {name}" for system, name in found.items())
        raise UsageError(
            f"the systems were combined with different normalisers: {said}; choose one with --normalise NAME "
            "(in Python normalise=NAME)"
        )
    if not found:
        return "none"
    system, name = next(iter(found.items()))
    remark(
        f"all texts normalised by {name}, with which '{system}' was combined (--normalise none, in Python "
        "normalise='none': as they are)"
    )
    return name
