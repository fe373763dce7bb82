"""The whole of `rescore lattice rescore`: n-gram passes, pruning, and neural LMs over a stream of lattices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_zoo.base import LanguageModel, WordLM
from lm_zoo.identity import files_of_lm, lm_identity
from lm_zoo.inference.viewed import Reader, ViewedNgram, view_of
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage, taken_back
from lm_zoo.text.view import View
from rescore.console import progress, remark
from rescore.errors import ScoreError, UsageError
from rescore.formats.counting import count_lattices
from rescore.lattices.build import normalize_words
from rescore.lattices.log_zero import LOG_ZERO
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.ngram_lm import expand_ngram
from rescore.lattices.paths import best_path_words
from rescore.lattices.prune import prune_beam
from rescore.lattices.silences import with_silences
from rescore.sharing.parts import MAX_UNKNOWN
from rescore.sharing.shares import Sharing
from rescore.skipping import OnError, Skip
from rescore.text import TextNormalizer
from rescore.types import Lattice, NbestList, Weights
from rescore.weights import MBR, NGRAM, OLD_NGRAM, WORDS_COLUMN, decision_of, default_scales
from rescore.workers import kept
from rescore.workflows.columns import column_of, open_scorers
from rescore.workflows.combine import combine_list
from rescore.workflows.first_pass import usual_beams
from rescore.workflows.scored_by import in_plan
from rescore.workflows.seen import is_seen, said_counts, seen_counts, seen_lines
from rescore.workflows.streams import WRITERS, Job, lattice_groups, run_shared, through

if TYPE_CHECKING:  # an n-gram is not to load torch
    from rescore.lattices.neural_lm import LatticeLM

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
      asked: of the scales, those that must be of some score; others, as of a file, may be of scores that are not here.
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
    asked: Collection[str] = ()
    coverages: list[Coverage] = field(default_factory=list, init=False)
    views: dict[str, View] = field(default_factory=dict, init=False)
    counts: Counter[str] = field(default_factory=Counter, init=False)
    _said: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        _check_any(self.lms, self.ngram, self.old_ngram)
        for option, value in (("--beam", self.beam), ("--most", self.most)):
            if value is not None and not self.lms:
                raise UsageError(
                    f"{option} is for neural LMs (--lm), of which there is none; --ngram-beam cuts arcs here"
                )
        for name, option in ((NGRAM, "--ngram"), (OLD_NGRAM, "--old-ngram")):
            if name in self.lms:
                raise UsageError(
                    f"'{name}' is the score of {option}; give an n-gram LM with that option, or name this LM: "
                    "--lm NEWNAME=NAME|DIR (in Python {'NEWNAME': lm})"
                )
        lms = {**self.lms, **self.ngrams}
        missing = [name for name in lms if name not in self.scales]
        if missing:
            raise UsageError(
                f"no scale for {', '.join(missing)}; give one with --scale NAME=VALUE, or --weights FILE (in Python "
                "weights={'NAME': VALUE})"
            )
        self.views = {name: view_of(lm, self.exact) for name, lm in lms.items()}
        if self.lms:
            self._plan()  # refuses LMs that are for lists alone, before any lattice
        readers = {name: Reader(lm, self.views[name]) for name, lm in lms.items()}
        self.coverages = [Coverage(reader, name, self.max_unknown) for name, reader in readers.items()]

    @property
    def ngrams(self) -> dict[str, WordLM]:
        """Those that are there, by the names of their scores."""
        found = {NGRAM: self.ngram, OLD_NGRAM: self.old_ngram}
        return {name: lm for name, lm in found.items() if lm is not None}

    def __call__(self, lattices: Iterable[Lattice]) -> Iterator[Lattice]:
        """The lattices with every score by name, in the same order.

        Raises:
          VocabError: words that do not suit an LM (see `lm_zoo.text.coverage`).
        """
        items = iter(lattices)
        while group := list(islice(items, self.in_flight if self.lms else 1)):
            yield from self.rescored(group)
        self.check()

    def rescored(self, group: Sequence[Lattice]) -> list[Lattice]:
        """Lattices that the neural LMs go over together, with every score by name; what fails is not counted.

        Raises:
          ScoreError: a scale that is `asked` is of no score.  VocabError: as `__call__`.
        """
        for lattice in group:
            self._check_asked(lattice)
            self._say_what_counts_nothing(lattice)
        with self.counted_if_done():
            found = [self.prepare(lattice) for lattice in group]
            if self.lms:
                found = self._with_neural(found)
            found = [with_silences(lattice) for lattice in found]
            for lattice in found:
                self.counts.update(lattice.counts)
            self.counts.update(said_counts(self.ngrams))
        return found

    @contextmanager
    def counted_if_done(self) -> Iterator[None]:
        """What is counted in the block does not count if that ends by an error."""
        before = self.counts.copy()
        try:
            with taken_back(self.coverages, self.views.values()):
                yield
        except BaseException:
            self.counts = before
            raise

    def _say_what_counts_nothing(self, lattice: Lattice) -> None:
        """Once, of the recogniser's own LM; where a new n-gram takes its place, it is meant to."""
        idle = [name for name in default_scales(lattice.scores) if name not in self.scales]
        if idle and self.ngram is None and not self._said:
            self._said = True
            remark(
                f"the lattices' own score '{idle[0]}' has no scale and counts 0; give --scale {idle[0]}=VALUE "
                f"(in Python weights={{'{idle[0]}': VALUE}})"
            )

    def _check_asked(self, lattice: Lattice) -> None:
        known = [*lattice.scores, *self.ngrams, *self.lms, WORDS_COLUMN]
        unknown = [name for name in self.asked if name not in known]
        if unknown:
            raise ScoreError(f"lattice '{lattice.utt_id}' has no score '{unknown[0]}'; it has: {', '.join(known)}")

    def _with_neural(self, group: list[Lattice]) -> list[Lattice]:
        plan = self._plan()
        found = plan(group)
        self.counts["evaluations"] += plan.evaluations
        return found

    def _plan(self) -> LatticeLM:
        from rescore.lattices.neural_lm import LatticeLM

        ngrams = NGRAM, "lm", OLD_NGRAM
        return LatticeLM(self.lms, self.scales, self.context, self.beam, self.most, ngrams, self.views)

    def check(self) -> None:
        """Raises VocabError if too many of all words are unknown to an LM."""
        for coverage in self.coverages:
            coverage.check()

    def counted(self) -> Counter[str]:
        """All counts: those of `counts`, and what the LMs have seen (`seen_counts`)."""
        return Counter({**self.counts, **seen_counts(self.coverages, self.views)})

    def known_scales(self, lattice: Lattice) -> dict[str, float]:
        """The scales of the scores that the lattice has."""
        return {name: scale for name, scale in self.scales.items() if name in {*lattice.scores, "words"}}

    def prepare(self, lattice: Lattice) -> Lattice:
        """The passes of the n-grams; an n-gram stands for the neural LMs with their scales, the new one if it is there.

        An old one alone is taken out, and the neural LMs are not there yet.
        """
        if not self.normalizer.is_identity:
            lattice = normalize_words(lattice, self.normalizer)
        words = best_path_words(lattice, self.scales) if self.coverages else {}
        for coverage in self.coverages:
            coverage.add(words, f"LM '{coverage.name}', lattice '{lattice.utt_id}'")
        for view in self.views.values():
            view.count([word for word in lattice.symbols if word])
        ngrams = {OLD_NGRAM: self.old_ngram, NGRAM: self.ngram}
        passes = [(name, ViewedNgram(lm, self.views[name])) for name, lm in ngrams.items() if lm is not None]
        for left, (name, lm) in zip(reversed(range(len(passes))), passes, strict=True):
            beam = None if left else self.ngram_beam  # where the old LM is taken out, the new one is missed
            lattice = expand_ngram(lattice, lm, name, self._lent(lattice, name), beam)
            if name == OLD_NGRAM and self.scales[name] < 0:
                _check_takes_out(lattice)
        if self.ngram_beam is not None and not passes:
            lattice = prune_beam(lattice, self._lent(lattice, ""), self.ngram_beam)
        return lattice

    def _lent(self, lattice: Lattice, name: str) -> dict[str, float]:
        scales = {key: scale for key, scale in self.scales.items() if key in {*lattice.scores, name, "words"}}
        stand_in = OLD_NGRAM if self.ngram is None and self.old_ngram is not None else NGRAM
        if stand_in in scales:
            scales[stand_in] += sum(self.scales[lm] for lm in self.lms)
        return scales


@dataclass(frozen=True)
class LatticeRequest:
    """What `rescore lattice rescore` is asked for.

    Attributes:
      source, target: `[FORMAT:]PATH`.
      lms, ngram, old_ngram: names or files.
      settings: of `LatticeRescoring`, but for scales and LMs.
      n: hypotheses, to write N-best lists; None writes lattices.
    """

    source: str
    target: str
    lms: tuple[str, ...]
    ngram: str | None
    old_ngram: str | None
    weights: Weights
    settings: Mapping[str, Any]
    n: int | None = None
    dtype: str = "float32"
    device: str = "cpu"

    def open(self) -> LatticeDoer:
        """With its LMs loaded."""
        from lm_zoo.registry import load_ngram

        lms = open_scorers(self.lms, None, self.dtype, self.device) if self.lms else []
        ngrams = (self.ngram, self.old_ngram)
        new, old = (kept((name, "n-gram"), partial(load_ngram, name)) if name else None for name in ngrams)
        scales = {**default_scales(["am", "score"]), **self.weights.scales}  # every LM needs a scale of the user's
        work = LatticeRescoring(scales, {each.column: each.lm for each in lms}, new, old, **self.settings)
        return LatticeDoer(self, work)

    def job(self, skip: bool) -> Job:
        """As work that is shared out."""
        given = {**dict(map(column_of, self.lms)), NGRAM: self.ngram, OLD_NGRAM: self.old_ngram}
        plan = {
            **in_plan({name: lm_identity(lm) for name, lm in given.items() if lm}),
            "weights": [self.weights.scales, self.weights.info],
            "settings": {name: str(value) for name, value in self.settings.items() if name != "max_unknown"},
            MAX_UNKNOWN: self.settings.get("max_unknown", MOST_UNKNOWN),
            "--dtype": self.dtype,
            "--device": self.device,
        }
        results = "lists" if self.n else "lattices"
        return Job("lattice rescore", self.source, self.target, results, plan, self.open, self.n, skip)


@dataclass
class LatticeDoer:
    """Rescores the lattices of a request; see `rescore.workflows.streams.Doer`."""

    request: LatticeRequest
    work: LatticeRescoring
    said: Sequence[str] = ()

    @property
    def source(self) -> str:
        return self.request.source

    @property
    def size(self) -> int:
        return self.work.in_flight

    def groups(self, on_error: OnError) -> Iterator[Iterable[Lattice]]:
        return lattice_groups(self.request.source, self.size, on_error)

    def __call__(self, items: list[Lattice]) -> Sequence[Lattice | NbestList]:
        with self.work.counted_if_done():
            rescored = self.work.rescored(items)
            if not self.request.n:
                return rescored
            lists = (exact_nbest(lattice, self.work.known_scales(lattice), self.request.n) for lattice in rescored)
            return [_in_order(nbest, self.request.weights) for nbest in lists]

    def counted(self) -> Counter[str]:
        return self.work.counted()

    def check(self) -> None:
        self.work.check()


def rescore_lattices(
    request: LatticeRequest, on_error: OnError, sharing: Sharing, max_memory: int | None = None
) -> None:
    """Rescores lattices into lattices, or into N-best lists; see `rescore lattice rescore`.

    Raises:
      UsageError: no LM, no scale for one of them, or contradicting options.
    """
    if not sharing.alone:
        run_shared(request.job(isinstance(on_error, Skip)), sharing, max_memory)
        return
    doer = request.open()
    results = progress(through(doer, on_error), "lattices", count_lattices(doer.source))
    total = WRITERS["lists" if request.n else "lattices"](request.target, results, on_error)
    say_rescored(doer.counted(), total, request.target, request.n)


def _check_takes_out(lattice: Lattice) -> None:
    """Raises ScoreError where the old LM has no probability: without it such a word would be the best of all."""
    impossible = np.flatnonzero(lattice.scores[OLD_NGRAM] <= LOG_ZERO)
    if len(impossible):
        word = lattice.symbols[lattice.labels[impossible[0]]] or "the sentence end"
        raise ScoreError(
            f"lattice '{lattice.utt_id}': --old-ngram has no probability for '{word}' there, so that "
            "it cannot be taken out; is it the LM that the lattices were made with?"
        )


def say_rescored(counts: Counter[str], total: int, target: str, n: int | None) -> None:
    """Remarks on what was written, and on what LMs did not know."""
    remark(f"{total} lattices rescored, written to {target}")
    for line in seen_lines(counts, "words on best paths", "lattices"):
        remark(line)
    for name, count in sorted(counts.items()):
        if count and name != "unknown_words" and not is_seen(name):
            remark(f"{_SAID.get(name, name.replace('_', ' '))}: {count}")


def check_there(lms: Sequence[str], ngram: str | None, old_ngram: str | None) -> None:
    """Before a search for scales.  Raises a UsageError where there is no LM, a ModelError where one is not there."""
    _check_any(lms, ngram, old_ngram)
    for name in (*(column_of(lm)[1] for lm in lms), *filter(None, (ngram, old_ngram))):
        files_of_lm(name)


def _check_any(lms: Collection[str], *ngrams: WordLM | str | None) -> None:
    if not lms and all(ngram is None for ngram in ngrams):
        raise UsageError(
            "no LM given; use --lm NAME|DIR or --ngram FILE (in Python lms or ngram; rescore lms lists names)"
        )


def new_scores(lms: Sequence[str], ngram: str | None) -> list[str]:
    """The names of the scores that new LMs write."""
    return [*([NGRAM] if ngram else []), *(column_of(name)[0] for name in lms)]


def with_beams(settings: Mapping[str, Any], scales: Mapping[str, float], lms: Sequence[str]) -> dict[str, Any]:
    """The settings of `LatticeRescoring` with the usual beams where neural LMs have none, and a remark on them.

    Where `context` is None, all is to be exact, and no beam is added.
    """
    missing = [name for name in ("ngram_beam", "beam") if settings[name] is None]
    if not lms or settings["context"] is None or not missing:
        return dict(settings)
    beams = dict(zip(("ngram_beam", "beam"), usual_beams(scales, lms), strict=True))
    chosen = {name: beams[name] for name in missing}
    listed = " ".join(f"--{name.replace('_', '-')} {beam:.6g}" for name, beam in chosen.items())
    remark(f"{listed}: the usual width, by the LM's scale (--exact, in Python context=None: no beam)")
    return {**settings, **chosen}


def _in_order(nbest: NbestList, weights: Weights) -> NbestList:
    """As it is, or by expected errors for weights that were tuned for minimum Bayes risk."""
    if decision_of(weights)[0] != MBR:
        return nbest
    known = {name: scale for name, scale in weights.scales.items() if name in nbest.hyps[0].scores}
    return combine_list(nbest, Weights(known, weights.info))
