"""Lattices with methods: thin ones over `rescore.lattices`, for one lattice or all of a set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from lm_zoo.text.coverage import MOST_UNKNOWN
from rescore import formats, types
from rescore.api.language_models import by_column
from rescore.api.lists import Lists, path_of, place_of, words_of
from rescore.api.numbers import limit, number_from
from rescore.api.texts import Texts, references
from rescore.api.weights import AnyWeights, scales_of, weights_of
from rescore.console import remark
from rescore.errors import UsageError
from rescore.evaluation.wer import ErrorCounts, check_same_utterances, units
from rescore.shown import Shown, Table
from rescore.skipping import Skip, fail
from rescore.text import short
from rescore.types import Hypothesis, NbestList, Words
from rescore.weights import default_scales

if TYPE_CHECKING:
    import torch

    from rescore.api.language_models import LMs
    from rescore.lattices.mbr import MbrResult
    from rescore.lattices.oracle import Oracle

_HEADS = ["utt_id", "states", "arcs", "scores"]


def _sharpness(value: Any, weights: AnyWeights | None) -> float:
    """What totals are multiplied by before they are posteriors; None: as the commands do, see `posterior_scale_of`."""
    from rescore.lattices.posteriors import posterior_scale_of

    if value is None:
        return posterior_scale_of(None if weights is None else weights_of(weights))
    factor: float = number_from("posterior_scale", value, 0)
    if not factor:
        raise UsageError("posterior_scale is 0, expected a number above 0")
    return factor


class Lattice(Shown, types.Lattice):
    """A lattice, see `rescore.types.Lattice`; shown and as a data frame, one row.

    Scales (`weights`) are those of `tune`, a mapping by score name, or a file of `rescore tune`; without any, acoustics
    count 1 and the recogniser's LM 10 (`rescore.weights.default_scales`).
    """

    @staticmethod
    def read(spec: str | Path, utt_id: str | None = None, words: str | Path | None = None) -> Lattice:
        """The lattice of an utterance, or the first one; `spec` and `words` as of `read_lattices`."""
        for lattice in _stream(spec, words, "stop"):
            if utt_id in (None, lattice.utt_id):
                return lattice
        raise UsageError(f"no lattice '{utt_id}' in {spec}" if utt_id else f"no lattice in {spec}")

    @staticmethod
    def of(lattice: types.Lattice) -> Lattice:
        """The same arrays, with these methods."""
        return lattice if isinstance(lattice, Lattice) else Lattice(**vars(lattice))

    def best_path(self, weights: AnyWeights | None = None) -> Hypothesis:
        """Words and scores of the path with the highest total."""
        from rescore.lattices.paths import best_path

        return best_path(self, self._scales(weights))

    def nbest(self, n: int = 100, weights: AnyWeights | None = None) -> NbestList:
        """The exact `n` best different word sequences, best first; fewer, if the lattice has no more.

        Raises:
          RescoreError: `n` is no whole number from 1, or a scale of a score that the lattice has not.
        """
        from rescore.lattices.nbest import exact_nbest

        return exact_nbest(self, self._scales(weights), number_from("n", n, 1, kind=Integral))

    def oracle(self, ref: Sequence[str], *, cer: bool = False) -> Oracle:
        """The path with the fewest errors against the words `ref`: its words, scores and errors.

        With `cer`, that with the fewest wrong characters, and its characters.
        """
        from rescore.lattices.oracle import as_characters, oracle

        words = words_of(ref, f"the reference of utterance {self.utt_id}")
        return oracle(as_characters(self) if cer else self, units(words, cer))

    def prune(
        self,
        beam: float | None = None,
        posterior: float | None = None,
        arcs_per_word: float | None = None,
        weights: AnyWeights | None = None,
        posterior_scale: float | None = None,
    ) -> Lattice:
        """A smaller lattice; the best path stays.  Of several limits one after the other is applied.

        Args:
          beam: arcs go whose best path is so much below the best of all, in units of the total.
          posterior: arcs go that are less probable, 0 to 1.
          arcs_per_word: the best arcs stay, at most so many for each word of the best path.
          posterior_scale: as of `mbr`, for `posterior`.
        Raises:
          RescoreError: no limit, one that is out of its range, or `posterior_scale` without `posterior`.
        """
        from rescore.lattices.prune import Limits

        if beam is posterior is arcs_per_word is None:
            raise UsageError("give a limit: beam, posterior or arcs_per_word")
        if posterior_scale is not None and posterior is None:
            raise UsageError("posterior_scale is for posterior; leave it out, or give that")
        limits = Limits(
            limit("beam", beam),
            limit("posterior", posterior, 1),
            _sharpness(posterior_scale, weights),
            None,
            limit("arcs_per_word", arcs_per_word),
        )
        return Lattice.of(limits.apply(self, self._scales(weights)))

    def mbr(self, weights: AnyWeights | None = None, posterior_scale: float | None = None) -> MbrResult:
        """The words with the fewest expected errors, their confidences, and the confusion network.

        Args:
          posterior_scale: the probability of a path is in proportion to the exponential of this times its total; None:
            what the weights were tuned with, or 0.1.
        """
        from rescore.lattices.mbr import mbr_decode

        factor = _sharpness(posterior_scale, weights)
        return mbr_decode(self, {name: factor * scale for name, scale in self._scales(weights).items()})

    def dot(self, weights: AnyWeights | None = None, max_arcs: int = 200) -> str:
        """Source for graphviz, the best path in bold."""
        from rescore.lattices.draw import lattice_dot

        return lattice_dot(self, self._scales(weights), number_from("max_arcs", max_arcs, 0, kind=Integral))

    def _table(self) -> Table:
        return _HEADS, [self._row()]

    def _row(self) -> list[object]:
        return [self.utt_id, self.num_states, self.num_arcs, ", ".join(self.scores)]

    def _scales(self, weights: AnyWeights | None) -> dict[str, float]:
        return default_scales(self.scores) if weights is None else scales_of(weights)


@dataclass(repr=False)
class Lattices(Shown):
    """Lattices, an utterance each; of a data frame, a lattice a row.  Methods of all as those of one `Lattice`.

    One lattice is rescored and written as `Lattices([lattice])`; `mbr` and `dot` are of one alone.

    Raises:
      UsageError: what is no lattice.
    """

    lattices: Sequence[Lattice]
    _places: dict[str, int] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.lattices, Iterable):  # an Fsa of k2 is not, though Python would ask it for items
            found = f"lattices are a {type(self.lattices).__name__}"
            raise UsageError(f"{found}, expected a sequence of them: {_how(self.lattices)}")
        self.lattices = [_lattice_of(lattice) for lattice in self.lattices]

    def __len__(self) -> int:
        return len(self.lattices)

    def __iter__(self) -> Iterator[Lattice]:
        return iter(self.lattices)

    def __contains__(self, which: object) -> bool:
        """Whether there is a lattice of this utterance id, or this lattice."""
        if isinstance(which, str):
            return place_of(which, self.lattices, self._places) is not None
        return any(which is each for each in self.lattices)

    @overload
    def __getitem__(self, which: SupportsIndex | str) -> Lattice: ...
    @overload
    def __getitem__(self, which: slice) -> Lattices: ...
    def __getitem__(self, which: SupportsIndex | str | slice) -> Lattice | Lattices:
        """A lattice by its place or its utterance id; or some of them."""
        if isinstance(which, slice):
            return Lattices(self.lattices[which])
        if isinstance(which, SupportsIndex):
            return self.lattices[index(which)]
        place = place_of(which, self.lattices, self._places)
        if place is None:
            raise KeyError(which)
        return self.lattices[place]

    def best_path(self, weights: AnyWeights | None = None) -> dict[str, Words]:
        """The words of each best path by utterance id: a text for `wer` and `compare`."""
        return {lattice.utt_id: lattice.best_path(weights).words for lattice in self}

    def nbest(self, n: int = 100, weights: AnyWeights | None = None) -> Lists:
        """The exact `n` best different word sequences of each lattice, best first."""
        return Lists([lattice.nbest(n, weights) for lattice in self])

    def oracle(self, ref: Texts, *, cer: bool = False) -> ErrorCounts:
        """The errors of the best paths that there are, summed; `.wer` is in percent.  With `cer`, of characters."""
        refs = references(ref)
        check_same_utterances(refs, [lattice.utt_id for lattice in self], "lattices")
        return sum((lattice.oracle(refs[lattice.utt_id], cer=cer).counts for lattice in self), ErrorCounts())

    def prune(
        self,
        beam: float | None = None,
        posterior: float | None = None,
        arcs_per_word: float | None = None,
        weights: AnyWeights | None = None,
        posterior_scale: float | None = None,
    ) -> Lattices:
        """Smaller lattices; arguments and errors as of `Lattice.prune`."""
        return Lattices(
            [lattice.prune(beam, posterior, arcs_per_word, weights, posterior_scale) for lattice in self.lattices]
        )

    def rescore(
        self,
        lms: LMs = (),
        weights: AnyWeights | None = None,
        *,
        ngram: str | Path | None = None,
        old_ngram: str | Path | None = None,
        context: int | None = 3,
        ngram_beam: float | None = None,
        beam: float | None = None,
        dtype: str | None = None,
        device: str | torch.device | None = None,
        max_unknown: float = MOST_UNKNOWN,
    ) -> Lattices:
        """LMs over whole lattices, every score by name; see `rescore lattice rescore`, whose options these are.

        Args:
          weights: a scale for each LM and each score that takes part; acoustics (`am`, `score`) count 1 unless they
            say otherwise.
          dtype, device, max_unknown: as of `score`.
          context: histories that share so many last words are merged; None merges nothing.
          ngram_beam, beam: None for the usual ones where neural LMs take part, with a remark; without a `context`, for
            none.
        Raises:
          RescoreError: no LM, no scale for one of them, a scale of no score, or a number that is out of its range.
          LMError: text that does not suit an LM.
        """
        from lm_zoo.registry import load_ngram
        from rescore.workflows.columns import prepared_scorer
        from rescore.workflows.lattice_rescore import LatticeRescoring, with_beams
        from rescore.workflows.seen import seen_lines

        number_from("max_unknown", max_unknown, 0, 1)
        settings = {
            "context": limit("context", context, kind=Integral),
            "ngram_beam": limit("ngram_beam", ngram_beam),
            "beam": limit("beam", beam),
        }
        given = by_column(lms, dtype, device) if lms else {}
        scorers = [prepared_scorer(column, lm, dtype, device, max_unknown) for column, lm in given.items()]
        scales = {**default_scales(["am", "score"]), **({} if weights is None else scales_of(weights))}
        asked = tuple(weights) if isinstance(weights, Mapping) else ()
        work = LatticeRescoring(
            scales,
            {scorer.column: scorer.lm for scorer in scorers},
            None if ngram is None else load_ngram(str(path_of(ngram))),
            None if old_ngram is None else load_ngram(str(path_of(old_ngram))),
            max_unknown=max_unknown,
            asked=asked,
            **with_beams(settings, scales, list(given)),
        )
        found = Lattices([Lattice.of(lattice) for lattice in work(self.lattices)])
        for line in seen_lines(work.counted(), "words on best paths", "lattices", all_known=False):
            remark(line)
        return found

    def write(self, spec: str | Path) -> int:
        """Writes the lattices as `[FORMAT:]PATH` says, and returns how many; a RescoreError if they cannot be."""
        return formats.write_lattices(str(path_of(spec)), self.lattices)

    def _table(self) -> Table:
        return _HEADS, [each._row() for each in self]

    def _caption(self) -> str:
        return f"{len(self)} lattices, {sum(lattice.num_arcs for lattice in self)} arcs"


def read_lattices(spec: str | Path, words: str | Path | None = None, on_error: str = "stop") -> Lattices:
    """Reads lattices into memory: `[FORMAT:]PATH`, as of the commands (docs/formats.md).

    Args:
      words: `words.txt`, for formats that hold numbers of words; default: its usual places.
      on_error: of a lattice that cannot be read: "stop", or "skip" it and say so.
    Raises:
      RescoreError: the source is not what its format says; N-best lists.
    """
    return Lattices(list(_stream(spec, words, on_error)))


def _lattice_of(given: object) -> Lattice:
    if isinstance(given, types.Lattice):
        return Lattice.of(given)
    raise UsageError(f"found {short(given)} among the lattices, expected rs.Lattice: {_how(given)}")


def _how(given: object) -> str:
    """How lattices come to be; those of k2 in memory (Fsa, FsaVec) have an `as_dict`."""
    if hasattr(given, "as_dict"):
        return "rs.Lattices(rescore.formats.k2.to_lattices(FSAS, UTT_IDS, TABLE)), see docs/lattices.md"
    return "rs.read_lattices(SPEC)"


def _stream(spec: str | Path, words: str | Path | None, on_error: str) -> Iterator[Lattice]:
    if on_error not in ("stop", "skip"):
        raise UsageError(f"on_error is '{on_error}', expected stop or skip")
    policy = Skip() if on_error == "skip" else fail
    for lattice in formats.read_lattices(formats.with_option(str(path_of(spec)), "words", words), policy):
        yield Lattice.of(lattice)
    if isinstance(policy, Skip) and policy.count:
        remark(f"{policy.count} lattices skipped because of errors")
