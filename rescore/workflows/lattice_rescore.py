"""The whole of `rescore lattice rescore`: n-gram passes, pruning, and neural LMs over a stream of lattices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from lm_zoo.base import LanguageModel, WordLM
from lm_zoo.inference.viewed import Reader, ViewedNgram, view_of
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage, said
from lm_zoo.text.view import View
from rescore.console import remark
from rescore.errors import UsageError
from rescore.lattices.build import normalize_words
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.neural_lm import LatticeLM
from rescore.lattices.ngram_lm import expand_ngram
from rescore.lattices.paths import best_path_words
from rescore.lattices.prune import prune_beam
from rescore.text import TextNormalizer
from rescore.types import Lattice, NbestList, Weights
from rescore.weights import MBR, decision_of, default_scales, load_weights, parse_scales
from rescore.workflows.combine import combine_list
from rescore.workflows.scoring import open_scorers

NGRAM, OLD = "ngram", "old-ngram"  # names of the n-grams' scores
_SAID = {
    "impossible_words": "words with an LM score of -inf (log p = -228 is taken)",
}


@dataclass
class LatticeRescoring:
    """What is done with each lattice.

    First the old LM's n-gram and the new one are put over the whole lattice, exactly; arcs whose best path is then more
    than `ngram_beam` below the best of all are cut, and no others; last the neural LMs go over what is left (see
    `rescore.lattices.neural_lm.LatticeLM`, whose `beam` goes by estimates and may lose the best path).

    Attributes:
      scales: scales of all scores, the new ones and `words` among them; the old n-gram's is minus that of the score
        that it is part of (`graph`, `lm`), if it is to be taken out.
      lms: name of the score -> LM.
      ngram, old_ngram: n-gram LMs.
      context, beam, most: as in LatticeLM.
      in_flight: lattices that the neural LMs go over together.
      max_unknown: the largest share of words on best paths that an LM may not know.
      exact: LMs see the words as they are written, and refuse those of another case than their text's.
      counts: what was left out so far, summed over the lattices, and `evaluations` of the LMs.
    """

    scales: Mapping[str, float]
    lms: Mapping[str, LanguageModel] = field(default_factory=dict)
    ngram: WordLM | None = None
    old_ngram: WordLM | None = None
    context: int | None = 3
    ngram_beam: float | None = None
    beam: float | None = None
    most: int | None = None
    in_flight: int = 16
    normalizer: TextNormalizer = field(default_factory=TextNormalizer)
    max_unknown: float = MOST_UNKNOWN
    exact: bool = False
    coverages: list[Coverage] = field(default_factory=list, init=False)
    views: dict[str, View] = field(default_factory=dict, init=False)
    counts: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        if not self.lms and self.ngram is None and self.old_ngram is None:
            raise UsageError("no LM given; use --lm NAME|DIR or --ngram FILE (rescore lms lists the names)")
        for name, option in ((NGRAM, "--ngram"), (OLD, "--old-ngram")):
            if name in self.lms:
                raise UsageError(
                    f"'{name}' is the score of {option}; give an n-gram LM with that option, or name this LM: "
                    "--lm NEWNAME=NAME|DIR"
                )
        ngrams = {NGRAM: self.ngram, OLD: self.old_ngram}
        lms = {**self.lms, **{name: lm for name, lm in ngrams.items() if lm is not None}}
        missing = [name for name in lms if name not in self.scales]
        if missing:
            raise UsageError(f"no scale for {', '.join(missing)}; give one with --scale NAME=VALUE, or --weights FILE")
        self.views = {name: view_of(lm, self.exact) for name, lm in lms.items()}
        readers = {name: Reader(lm, self.views[name]) for name, lm in lms.items()}
        self.coverages = [Coverage(reader, name, self.max_unknown) for name, reader in readers.items()]

    def __call__(self, lattices: Iterable[Lattice]) -> Iterator[Lattice]:
        """The lattices with every score by name, in the same order.

        Raises:
          VocabError: words that do not suit an LM (see `lm_zoo.text.coverage`).
        """
        prepared = map(self.prepare, lattices)
        while group := list(islice(prepared, self.in_flight if self.lms else 1)):
            if self.lms:
                plan = LatticeLM(
                    self.lms,
                    self.known_scales(group[0]) | self._new_scales(),
                    self.context,
                    self.beam,
                    self.most,
                    self._proxy(group),
                    self.views,
                )
                group = plan(group)
                self.counts["evaluations"] += plan.evaluations
            for lattice in group:
                self.counts.update(lattice.counts)
                yield lattice
        for coverage in self.coverages:
            coverage.check()

    def known_scales(self, lattice: Lattice) -> dict[str, float]:
        """The scales of the scores that the lattice has."""
        return {name: scale for name, scale in self.scales.items() if name in {*lattice.scores, "words"}}

    def _new_scales(self) -> dict[str, float]:
        return {name: self.scales[name] for name in self.lms}

    def _proxy(self, group: list[Lattice]) -> str | None:
        """The score that stands for the neural LMs where they have not been yet."""
        return next((name for name in (NGRAM, "lm", OLD) if name in group[0].scores), None)

    def prepare(self, lattice: Lattice) -> Lattice:
        """The passes of the n-grams, with the neural LMs' scales lent to the new one while it stands for them."""
        if not self.normalizer.is_identity:
            lattice = normalize_words(lattice, self.normalizer)
        words = best_path_words(lattice, self.scales) if self.coverages else {}
        for coverage in self.coverages:
            coverage.add(words, f"LM '{coverage.name}', lattice '{lattice.utt_id}'")
        for view in self.views.values():
            view.count([word for word in lattice.symbols if word])
        ngrams = {OLD: self.old_ngram, NGRAM: self.ngram}
        passes = [(name, ViewedNgram(lm, self.views[name])) for name, lm in ngrams.items() if lm is not None]
        for left, (name, lm) in zip(reversed(range(len(passes))), passes, strict=True):
            beam = None if left else self.ngram_beam  # where the old LM is taken out, the new one is missed
            lattice = expand_ngram(lattice, lm, name, self._lent(lattice, name), beam)
        if self.ngram_beam is not None and not passes:
            lattice = prune_beam(lattice, self._lent(lattice, ""), self.ngram_beam)
        return lattice

    def _lent(self, lattice: Lattice, name: str) -> dict[str, float]:
        scales = {key: scale for key, scale in self.scales.items() if key in {*lattice.scores, name, "words"}}
        if NGRAM in scales:
            scales[NGRAM] += sum(self.scales[lm] for lm in self.lms)
        return scales


def rescore_lattices(
    lattices: Iterable[Lattice],
    target: str,
    lms: Sequence[str],
    ngram: str | None,
    old_ngram: str | None,
    weights_file: Path | None,
    scales: Sequence[str],
    settings: Mapping[str, Any],
    n: int | None,
    dtype: str = "float32",
    device: str = "cpu",
) -> None:
    """Rescores a stream of lattices into lattices, or with `n` into N-best lists; see `rescore lattice rescore`.

    Raises:
      UsageError: no LM, no scale for one of them, or contradicting options.
    """
    from lm_zoo.registry import load_ngram
    from rescore.formats import write_lattices, write_nbest

    if weights_file and scales:
        raise UsageError("give either --weights FILE or --scale NAME=VALUE, not both")
    weights = load_weights(weights_file) if weights_file else Weights(parse_scales(scales))
    decision_of(weights, weights_file)
    neural = {scorer.column: scorer.lm for scorer in open_scorers(lms, None, dtype, device)} if lms else {}
    new, old = (load_ngram(name) if name else None for name in (ngram, old_ngram))
    acoustics = default_scales(["am"])  # every LM needs a scale of the user's
    work = LatticeRescoring({**acoustics, **weights.scales}, neural, new, old, **settings)
    rescored = work(lattices)
    if n:
        lists = (exact_nbest(lattice, work.known_scales(lattice), n) for lattice in rescored)
        total = write_nbest(target, (_in_order(nbest, weights) for nbest in lists))
    else:
        total = write_lattices(target, rescored)
    remark(f"{total} lattices rescored, written to {target}")
    for coverage in work.coverages:
        remark(f"{coverage.name}: {said(coverage, 'words on best paths')}, scored as <unk>")
        if shown := work.views[coverage.name].said("lattices"):
            remark(f"{coverage.name}: {shown}")
    for name, count in sorted(work.counts.items() - {("unknown_words", work.counts["unknown_words"])}):
        remark(f"{_SAID.get(name, name.replace('_', ' '))}: {count}")


def _in_order(nbest: NbestList, weights: Weights) -> NbestList:
    """As it is, or by expected errors for weights that were tuned for minimum Bayes risk."""
    if decision_of(weights)[0] != MBR:
        return nbest
    known = {name: scale for name, scale in weights.scales.items() if name in nbest.hyps[0].scores}
    return combine_list(nbest, Weights(known, weights.info))
