"""From one source of N-best lists or lattices to another form, with counts of everything left out on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from lm_zoo.identity import lm_identity
from lm_zoo.inference.viewed import ViewedNgram, view_of
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage, said
from rescore.console import progress, remark
from rescore.errors import UsageError
from rescore.formats import can_copy, copy_lattices, is_lattice, read_lattices, write_lattices, write_nbest
from rescore.formats.counting import count
from rescore.lattices.build import normalize_words
from rescore.sharing.parts import MAX_UNKNOWN
from rescore.sharing.shares import Sharing
from rescore.skipping import OnError, Skip
from rescore.text import TextNormalizer
from rescore.types import Hypothesis, Lattice, NbestList, Words
from rescore.weights import WORDS_COLUMN, default_scales
from rescore.workers import cores, kept
from rescore.workflows.lattice_nbest import (
    NGRAM,
    SEEN,
    Found,
    LatticeToNbest,
    lattice_sources,
    nbest_of_lattices,
)
from rescore.workflows.seen import PATH_WORDS, UNKNOWN_WORDS, TextCounts, said_lines
from rescore.workflows.streams import LISTS_A_PART, WRITERS, Doer, Job, lattice_groups, list_groups, run_shared, through

LATTICES_A_PART = 16
USELESS, IDLE = "useless", "idle\t"  # counts of lists that acoustics alone rank; NAME behind it: with a score unused
MOST_PATHS = 100  # hypotheses of a lattice, if nothing is said

_COUNTS = {
    SEEN: "lattices shown to the n-gram LM in the form of its own text; their words stay as they are written",
    "fewer": "utterances with fewer hypotheses than asked for: the lattice has no more word sequences",
    "duplicates": "hypotheses left out because normalisation made them equal to a better one",
    "cut": "hypotheses left out beyond the first {n}",
    "unread_fields": "links or nodes of HTK lattices with fields that are not read",
    "removed_arcs": "arcs of lattices left out: on no path from start to end, or impossible by a score",
    "pruned_arcs": "arcs that the beam of the n-gram pass left out of the search",
    "widened": "times that the beam of the n-gram pass was widened: too few hypotheses were left",
    "impossible_words": "words after a history that the n-gram LM gives a score of -inf; log p = -228 is taken",
}
_USELESS = (
    "The lattices have no LM score, and hypotheses are ranked by acoustics alone: right for an end-to-end recogniser "
    "(--scale am=1, or score=1 where that is its name, says so), useless for others (long strings of short words win; "
    "rescore convert --ngram FILE)"
)


@dataclass(frozen=True)
class ConvertRequest:
    """What `rescore convert` is asked for; names as of its options.

    Attributes:
      exact: the n-gram LM sees words as they are written.
    """

    source: str
    target: str
    normalizer: TextNormalizer
    n: int | None = None
    ngram: str | None = None
    scales: Mapping[str, float] = field(default_factory=dict)
    beam: float | None = None
    max_unknown: float = MOST_UNKNOWN
    exact: bool = False
    weighted: bool = False

    @property
    def of_lattices(self) -> bool:
        return bool(self.ngram or self.scales or self.beam)

    @property
    def paths(self) -> int:
        """Hypotheses taken from a lattice."""
        return self.n or MOST_PATHS

    def work(self) -> LatticeToNbest:
        """With its LM loaded."""
        from lm_zoo.registry import load_ngram

        lm = None
        if self.ngram is not None:
            plain = kept((self.ngram, "n-gram"), partial(load_ngram, self.ngram))
            lm = ViewedNgram(plain, view_of(plain, self.exact))
        options = lm, self.beam, self.normalizer, self.max_unknown, self.weighted
        return LatticeToNbest(self.paths, self.scales, *options)

    def job(self, command: str, open_: Callable[[], Doer], results: str, skip: bool = False) -> Job:
        """As work that is shared out."""
        plan = {
            "--ngram": self.ngram and lm_identity(self.ngram),
            "scales": [dict(self.scales), self.weighted],
            "--beam": self.beam,
            "words": str(self.normalizer),
            MAX_UNKNOWN: self.max_unknown,
            "--text-view": "exact" if self.exact else "lm",
        }
        n = self.paths if is_lattice(self.source) else self.n
        return Job(command, self.source, self.target, results, plan, open_, n, skip)


def convert(request: ConvertRequest, jobs: int | None, on_error: OnError, sharing: Sharing) -> None:
    """N-best lists or lattices to a form that `target` can hold; see `rescore convert`.

    Args:
      jobs: processes for lattices; None for one a core.
      on_error: gets the error of a list or lattice that cannot be read or done; if it returns, the next one follows.
    Raises:
      UsageError: an option that is not for what `source` and `target` hold.
    """
    source, target, more = request.source, request.target, request.of_lattices or jobs
    if not is_lattice(source):
        if more:
            raise UsageError(f"--ngram, --scale, --beam and --jobs are for lattices; {source} holds N-best lists")
        skip = isinstance(on_error, Skip)
        run(request.job("convert", partial(ListDoer, request), "lists", skip), sharing, on_error)
    elif request.normalizer.pieces:
        raise UsageError(f"--pieces is for N-best lists; make them of {source} first: rescore lattice nbest")
    elif not is_lattice(target):
        if request.beam is not None and request.ngram is None:
            raise UsageError("--beam prunes the n-gram pass, so it needs --ngram FILE")
        lattices_to_nbest("convert", request, jobs, on_error, sharing)
    elif request.n or more:
        raise UsageError(f"-n, --ngram, --scale, --beam and --jobs are for N-best lists; {target} holds lattices")
    else:
        lattices_to_lattices(source, target, request.normalizer, on_error, sharing)


@dataclass
class ListDoer:
    """Keeps the first `n` hypotheses of each list, None for all, with their words normalised."""

    request: ConvertRequest
    counts: Counter[str] = field(default_factory=Counter)
    size: int = LISTS_A_PART
    said: Sequence[str] = ()

    @property
    def source(self) -> str:
        return self.request.source

    def groups(self, on_error: OnError) -> Iterator[Iterable[NbestList]]:
        return list_groups(self.source, on_error)

    def __call__(self, items: list[NbestList]) -> list[NbestList]:
        return [self._converted(nbest) for nbest in items]

    def _converted(self, before: NbestList) -> NbestList:
        nbest, duplicates = normalize_nbest(before, self.request.normalizer)
        self.counts["duplicates"] += duplicates
        self.counts["cut"] += len(nbest.hyps) - len(nbest.hyps[: self.request.n])
        nbest.hyps = nbest.hyps[: self.request.n]
        self.counts["hypotheses"] += len(nbest.hyps)
        return nbest

    def counted(self) -> Counter[str]:
        return self.counts.copy()

    def check(self) -> None:
        """All lists make sense."""


@dataclass
class PathsDoer:
    """Takes the N best word sequences of lattices."""

    source: str
    work: LatticeToNbest
    counts: Counter[str] = field(default_factory=Counter)
    size: int = LATTICES_A_PART
    said: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.coverage = Coverage(self.work.lm, NGRAM, self.work.max_unknown) if self.work.lm is not None else None

    def groups(self, on_error: OnError) -> Iterator[Iterable[Lattice]]:
        return lattice_groups(self.source, self.size, on_error)

    def __call__(self, items: list[Lattice]) -> list[NbestList]:
        found = [self.work(lattice) for lattice in items]  # all of them, as what fails is done again in halves
        return list(map(self.take, found))

    def take(self, found: Found) -> NbestList:
        """Counts what was found of a lattice, and gives the list."""
        nbest, left_out = found
        self.counts[USELESS] += self.work.lm is None and not _is_ranked(nbest, self.work)
        self.counts.update(IDLE + name for name in _idle(nbest, self.work))
        self.counts.update(left_out)
        if self.coverage is not None:
            self.coverage.count(left_out[PATH_WORDS], left_out[UNKNOWN_WORDS])
        self.counts["fewer"] += len(nbest.hyps) < self.work.n
        self.counts["hypotheses"] += len(nbest.hyps)
        return nbest

    def counted(self) -> Counter[str]:
        return self.counts.copy()

    def check(self) -> None:
        if self.coverage is not None:
            self.coverage.check()


@dataclass
class WordsDoer:
    """Gives lattices with their words normalised."""

    source: str
    normalizer: TextNormalizer
    counts: Counter[str] = field(default_factory=Counter)
    size: int = LATTICES_A_PART
    said: Sequence[str] = ()

    def groups(self, on_error: OnError) -> Iterator[Iterable[Lattice]]:
        return lattice_groups(self.source, self.size, on_error)

    def __call__(self, items: list[Lattice]) -> list[Lattice]:
        return list(counted_left_out([normalize_words(lattice, self.normalizer) for lattice in items], self.counts))

    def counted(self) -> Counter[str]:
        return self.counts.copy()

    def check(self) -> None:
        """All lattices make sense."""


def lattices_to_nbest(
    command: str, request: ConvertRequest, jobs: int | None, on_error: OnError, sharing: Sharing
) -> None:
    """Writes the N best word sequences of lattices.

    Args:
      command: whose name the shares have.
      jobs: processes of this one, None for one a core.
      on_error: as `rescore.workflows.lattice_nbest.nbest_of_lattices` has it.
    """
    if not sharing.alone:
        if jobs is not None:
            raise UsageError("--jobs is for a command that is not shared out; with --executor: --workers")
        open_ = partial(_open_paths, request)
        run_shared(request.job(command, open_, "lists", isinstance(on_error, Skip)), sharing)
        return
    jobs = jobs or cores()
    _, total = lattice_sources(request.source)
    doer = _open_paths(request)
    found = nbest_of_lattices(request.source, doer.work, min(jobs, total or jobs), on_error)

    def converted() -> Iterator[NbestList]:
        for one in progress(found, "lattices", total):
            nbest = doer.take(one)
            if len(nbest.hyps) == doer.counts["hypotheses"]:  # the first one
                _say_ranking(doer.counts)
            yield nbest
        doer.check()

    with closing(found):  # ends its processes at once, also where the target cannot be written
        written = write_nbest(request.target, converted(), on_error)
    unsaid = {name: count for name, count in doer.counted().items() if name != USELESS and not name.startswith(IDLE)}
    say_converted(Counter(unsaid), written, request.target, doer.work.n)


def _open_paths(request: ConvertRequest) -> PathsDoer:
    return PathsDoer(request.source, request.work())


def lattices_to_lattices(
    source: str, target: str, normalizer: TextNormalizer, on_error: OnError, sharing: Sharing
) -> None:
    """Writes lattices with their words normalised, or, if words stay, as they are."""
    if normalizer.is_identity and sharing.alone:
        counts = Counter[str]()
        if can_copy(source, target):
            total = copy_lattices(source, target, on_error)
        else:
            total = write_lattices(target, counted_left_out(read_lattices(source, on_error), counts), on_error)
        say_converted(counts, total, target)
        return
    if normalizer.is_identity and can_copy(source, target):
        raise UsageError(f"{source} is copied as it is, which one process does: leave --split and --executor out")
    open_ = partial(WordsDoer, source, normalizer)
    plan, skip = {"words": str(normalizer)}, isinstance(on_error, Skip)
    run(Job("convert", source, target, "lattices", plan, open_, skip=skip), sharing, on_error)


def counted_left_out(lattices: Iterable[Lattice], counts: Counter[str]) -> Iterator[Lattice]:
    """The lattices; counts what was left out in reading them."""
    for lattice in lattices:
        counts.update({name: lattice.counts.get(name, 0) for name in ("removed_arcs", "unread_fields")})
        yield lattice


def run(job: Job, sharing: Sharing, on_error: OnError) -> None:
    """Does a work, shared out or alone."""
    if not sharing.alone:
        run_shared(job, sharing)
        return
    doer = job.open()
    found = progress(through(doer, on_error), "converting", count(job.source))
    total = WRITERS[job.results](job.target, found, on_error)
    say_converted(doer.counted(), total, job.target, job.n)


def _is_ranked(nbest: NbestList, work: LatticeToNbest) -> bool:
    """Whether anything but acoustics, pronunciations and the number of words has ranked the list, or is asked to."""
    if work.scales.get("am"):
        return True
    scales = {**default_scales(["lm", "graph"]), **work.scales}  # an only `score` may be acoustics
    return any(scales.get(name) for name in nbest.hyps[0].scores if name not in ("am", "pron", "words"))


def _idle(nbest: NbestList, work: LatticeToNbest) -> list[str]:
    """The scores that have no scale; with weights, and of an LM that the n-gram stands for, they are meant to."""
    replaced = () if work.lm is None else ("lm", "graph", "posterior")
    scales = {*work.scales, *default_scales(nbest.columns), *replaced, NGRAM, WORDS_COLUMN}
    return [] if work.weighted else [name for name in nbest.columns if name not in scales]


def _say_ranking(counts: Counter[str]) -> None:
    """Remarks on lists that are not ranked by all that their lattices have."""
    if counts[USELESS]:
        remark(_USELESS)
    if idle := [name.removeprefix(IDLE) for name in counts if name.startswith(IDLE)]:
        remark(f"scores of the lattices that have no scale and count nothing: {', '.join(idle)} (--scale NAME=VALUE)")


def say_converted(counts: Counter[str], total: int, target: str, n: int | None = None) -> None:
    """Remarks on what was written and what was left out."""
    if is_lattice(target):
        remark(f"{total} lattices written to {target}")
    else:
        remark(f"{total} utterances, {counts['hypotheses']} hypotheses written to {target}")
    _say_ranking(counts)
    if PATH_WORDS in counts:
        found = TextCounts(counts[PATH_WORDS], counts[UNKNOWN_WORDS])
        remark(f"{NGRAM}: {said(found, 'words on best paths')}, scored as <unk>")
        for line in said_lines(counts):
            remark(line)
    say_left_out(counts, n)


def say_left_out(counts: Counter[str], n: int | None = None) -> None:
    """Remarks on what was left out on the way."""
    for name, what in _COUNTS.items():
        if counts[name]:
            remark(f"{counts[name]} {what.format(n=n)}")


def normalize_nbest(nbest: NbestList, normalizer: TextNormalizer) -> tuple[NbestList, int]:
    """The list with its words (and reference) normalised, and the number of hypotheses left out.

    Of hypotheses that have become the same words the first stays.  A score `words` is counted anew.  Where words stay
    as they are, so does the list.
    """
    if normalizer.is_identity:
        return replace(nbest), 0
    kept: dict[Words, Hypothesis] = {}
    for hyp in nbest.hyps:
        words = normalizer.words(hyp.words)
        again = {"words": float(len(words))} if "words" in hyp.scores else {}
        kept.setdefault(words, replace(hyp, words=words, scores={**hyp.scores, **again}))
    ref = None if nbest.ref is None else normalizer.words(nbest.ref)
    return replace(nbest, hyps=list(kept.values()), ref=ref), len(nbest.hyps) - len(kept)
