"""Error rates and comparisons of systems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path

from rescore.api.lists import lists_of, path_of
from rescore.api.numbers import number_from
from rescore.api.texts import OTHERS, Texts, hypotheses, references
from rescore.errors import UsageError
from rescore.evaluation.wer import (
    ErrorCounts,
    kaldi_lines,
    utterance_errors,
)
from rescore.shown import Shown, Table
from rescore.text import short
from rescore.types import Words
from rescore.workflows import compare as comparing
from rescore.workflows.compare_forms import flat_rows, signature
from rescore.workflows.normalising import Normaliser, normaliser_of_systems


@dataclass(repr=False)
class WordErrors(Shown):
    """Errors of a text; of a data frame, an utterance a row.

    Attributes:
      total: of all utterances; `total.wer`, `total.errors`, `total.ins`, ...
      utterances: of each utterance by its id.
      name: "WER" or "CER".
    """

    total: ErrorCounts
    utterances: dict[str, ErrorCounts] = field(default_factory=dict)
    name: str = "WER"

    @property
    def wer(self) -> float:
        """In percent; of characters, if these were counted."""
        return self.total.wer

    def _table(self) -> Table:
        rows = [
            [utt_id, counts.errors, counts.sub, counts.dele, counts.ins, counts.ref_words]
            for utt_id, counts in self.utterances.items()
        ]
        return ["utt_id", "errors", "sub", "del", "ins", "ref_words"], rows

    def _caption(self) -> str:
        return "; ".join(kaldi_lines(self.total, self.name))


def wer(ref: Texts, hyp: Texts, *, cer: bool = False, normalise: str | None = None) -> WordErrors:
    """Word error rate as Kaldi's compute-wer counts it, in all and of each utterance.

    Args:
      ref: references: a file of Kaldi text, words by utterance id, or lists that have references.
      hyp: hypotheses, the same; of N-best lists (in memory, or `FORMAT:PATH`) the first ones count.
      cer: count characters instead of words.
      normalise: name of a normaliser of both, "basic", "whisper-en" or "librispeech"; None: of a folder of
        `rescore combine` what it was combined with, else "none".
    Raises:
      RescoreError: the two have other utterances or another letter case; a string where words are wanted.
    """
    folders = {"hyp": str(hyp)} if isinstance(hyp, (str, Path)) else {}
    normaliser = normaliser_of_systems(folders, normalise, cer)
    errors = utterance_errors(normaliser.texts(references(ref)), normaliser.texts(hypotheses(hyp)))
    return WordErrors(sum(errors.values(), ErrorCounts()), errors, normaliser.rate)


@dataclass(repr=False)
class ComparisonTable(Shown, comparing.Comparison):
    """A table of systems; of a data frame, a system a row.

    Attributes:
      rows: of each system `name`, `counts` (`counts.wer`, `counts.errors`, ...), `interval` of the rate in percent,
        `relative` change in percent, `p_values` by the system compared with, `oracle_wer`, `tail`.
      against: the systems that the others are compared with.
      how: how it was made (test, samples, seed, hash of the references, ...).
    """

    def _table(self) -> Table:
        return flat_rows(self)

    def _shown(self) -> Table:
        heads, lines = comparing.cells(self)
        return heads, [list(line) for line in lines]

    def _caption(self) -> str:
        return f"{comparing.caption(self)}\n{signature(self)}"


def compare(
    ref: Texts,
    systems: Mapping[str, Texts],
    *,
    against: str | Sequence[str] | None = (),
    seed: int = 0,
    samples: int = 10_000,
    tail: str | Path | None = None,
    cer: bool = False,
    normalise: str | None = None,
) -> ComparisonTable:
    """A table of systems: WER, 95 % interval, change and significance (MAPSSWE) against the first, oracle of lists.

    Args:
      ref: as of `wer`.
      systems: name -> hypotheses, as of `wer`, or a folder of `rescore nbest` or `rescore combine`.
      against: p-values against these systems, or this one, too.
      seed, samples: of the bootstrap.
      tail: a file of `rescore count`: error rates on rare words too.
      cer: count characters instead of words.
      normalise: as of `wer`; None: what the systems that are folders of `rescore combine` were combined with.
    Raises:
      RescoreError: a system has other utterances than the references, or another letter case; systems without names.
    """
    seed, samples = number_from("seed", seed, 0, kind=Integral), number_from("samples", samples, 1, kind=Integral)
    if not isinstance(systems, Mapping):
        raise UsageError(f"systems are a {type(systems).__name__}, expected them by name: {{'name': lists, ...}}")
    if not systems:
        raise UsageError("no system to compare; expected at least one: {'name': lists}")
    folders = {name: str(source) for name, source in systems.items() if isinstance(source, (str, Path))}
    normaliser = normaliser_of_systems(folders, normalise, cer)

    def loaded(refs: Mapping[str, Words]) -> list[comparing.System]:
        return [_system(name, source, refs, normaliser) for name, source in systems.items()]

    found = comparing.compare_with(
        references(ref),
        Path(ref) if isinstance(ref, (str, Path)) else None,
        normaliser,
        loaded,
        _names(against),
        seed,
        samples,
        Path(path_of(tail)) if tail else None,
    )
    return ComparisonTable(found.rows, found.against, found.how)


def _names(against: str | Sequence[str] | None) -> Sequence[str]:
    names = [against] if isinstance(against, str) else [] if against is None else against
    if not isinstance(names, Iterable):
        raise UsageError(f"against is {short(against)}, expected the name of a system, or several")
    return list(names)


def _system(name: str, source: Texts, refs: Mapping[str, Words], normaliser: Normaliser) -> comparing.System:
    if isinstance(source, (str, Path)):
        return comparing.read_system(name, str(source), refs, normaliser)
    if not isinstance(source, Mapping):
        return comparing.system_of_lists(name, normaliser.lists(lists_of(source, OTHERS)), refs)
    return comparing.System(name, normaliser.texts(hypotheses(source)))
