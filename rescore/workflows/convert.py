"""From one source of N-best lists or lattices to another form, with counts of everything left out on the way."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lm_zoo.inference.viewed import ViewedNgram, view_of
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage, said
from rescore.console import progress, remark
from rescore.errors import UsageError
from rescore.formats import copy_lattices, is_lattice, read_lattices, read_nbest, write_lattices, write_nbest
from rescore.formats.common import OnError, fail, report_skipped
from rescore.lattices.build import normalize_words
from rescore.text import TextNormalizer
from rescore.types import Hypothesis, Lattice, NbestList, Words
from rescore.weights import default_scales, parse_scales
from rescore.workflows.lattice_nbest import (
    NGRAM,
    PATH_WORDS,
    SEEN,
    UNKNOWN_WORDS,
    LatticeToNbest,
    lattice_sources,
    nbest_of_lattices,
)

MOST_PATHS = 100  # hypotheses of a lattice, if nothing is said

_COUNTS = {
    SEEN: "lattices shown to the n-gram LM in the form of its own text; their words stay as they are written",
    "fewer": "utterances with fewer hypotheses than asked for: the lattice has no more word sequences",
    "duplicates": "hypotheses left out because normalisation made them equal to a better one",
    "cut": "hypotheses left out beyond the first {n}",
    "unread_fields": "links of HTK lattices with fields that are not read",
    "removed_arcs": "arcs of lattices left out because they are on no path from start to end",
    "pruned_arcs": "arcs that the beam of the n-gram pass left out of the search",
    "widened": "times that the beam of the n-gram pass was widened: too few hypotheses were left",
    "impossible_words": "words after a history that the n-gram LM gives a score of -inf; log p = -228 is taken",
}
_USELESS = (
    "The lattices have no LM score and no --ngram is given: hypotheses are ranked by acoustics alone, which is useless "
    "(long strings of short words win); give --ngram FILE"
)


def convert(
    source: str,
    target: str,
    normalizer: TextNormalizer,
    n: int | None = None,
    ngram: str | None = None,
    scales: Sequence[str] = (),
    beam: float | None = None,
    jobs: int | None = None,
    max_unknown: float = MOST_UNKNOWN,
    exact: bool = False,
) -> None:
    """N-best lists or lattices to a form that `target` can hold; see `rescore convert`.

    Raises:
      UsageError: an option that is not for what `source` and `target` hold.
    """
    if not is_lattice(source):
        if ngram or scales or beam or jobs:
            raise UsageError(f"--ngram, --scale, --beam and --jobs are for lattices; {source} holds N-best lists")
        nbest_to_nbest(source, target, normalizer, n)
    elif normalizer.pieces:
        raise UsageError(f"--pieces is for N-best lists; make them of {source} first: rescore lattice nbest")
    elif not is_lattice(target):
        if beam is not None and ngram is None:
            raise UsageError("--beam prunes the n-gram pass, so it needs --ngram FILE")
        from lm_zoo.registry import load_ngram

        lm = None
        if ngram is not None:
            lm = ViewedNgram(plain := load_ngram(ngram), view_of(plain, exact))
        work = LatticeToNbest(n or MOST_PATHS, parse_scales(scales), lm, beam, normalizer, max_unknown)
        lattices_to_nbest(source, target, work, jobs)
    elif n or ngram or scales or beam or jobs:
        raise UsageError(f"-n, --ngram, --scale, --beam and --jobs are for N-best lists; {target} holds lattices")
    else:
        lattices_to_lattices(source, target, normalizer)


def nbest_to_nbest(source: str, target: str, normalizer: TextNormalizer, n: int | None = None) -> None:
    """Writes the first `n` hypotheses of each list, None for all, with their words normalised."""
    counts: Counter[str] = Counter()

    def converted() -> Iterator[NbestList]:
        for before in progress(read_nbest(source), "converting"):
            nbest, duplicates = normalize_nbest(before, normalizer)
            counts["duplicates"] += duplicates
            counts["cut"] += len(nbest.hyps) - len(nbest.hyps[:n])
            nbest.hyps = nbest.hyps[:n]
            counts["hypotheses"] += len(nbest.hyps)
            yield nbest

    counts["utterances"] = write_nbest(target, converted())
    _report(counts, target, n)


def lattices_to_nbest(
    source: str, target: str, work: LatticeToNbest, jobs: int | None = None, on_error: OnError = fail
) -> None:
    """Writes the N best word sequences of lattices.

    Args:
      jobs: processes, None for one a core.
      on_error: as `rescore.workflows.lattice_nbest.nbest_of_lattices` has it.
    """
    jobs = jobs or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else jobs or 1
    _, total = lattice_sources(source)
    coverage = Coverage(work.lm, NGRAM, work.max_unknown) if work.lm is not None else None
    found = nbest_of_lattices(source, work, min(jobs, total or jobs), on_error)
    counts: Counter[str] = Counter()

    def converted() -> Iterator[NbestList]:
        for nbest, left_out in progress(found, "lattices", total):
            if not counts["hypotheses"] and work.lm is None and not _has_lm(nbest, work):
                remark(_USELESS)
            counts.update(left_out)
            if coverage is not None:
                coverage.count(left_out[PATH_WORDS], left_out[UNKNOWN_WORDS])
            counts["fewer"] += len(nbest.hyps) < work.n
            counts["hypotheses"] += len(nbest.hyps)
            yield nbest
        if coverage is not None:
            coverage.check()

    counts["utterances"] = write_nbest(target, converted())
    if coverage is not None:
        remark(f"{coverage.name}: {said(coverage, 'words on best paths')}, scored as <unk>")
    _report(counts, target, work.n, on_error)


def lattices_to_lattices(source: str, target: str, normalizer: TextNormalizer, on_error: OnError = fail) -> None:
    """Writes lattices with their words normalised, or, if words stay, as they are."""
    counts: Counter[str] = Counter()

    def converted() -> Iterator[Lattice]:
        for before in progress(read_lattices(source, on_error), "lattices"):
            lattice = normalize_words(before, normalizer)
            counts["removed_arcs"] += lattice.counts.get("removed_arcs", 0)
            yield lattice

    if normalizer.is_identity:
        counts["lattices"] = copy_lattices(source, target, on_error)
    else:
        counts["lattices"] = write_lattices(target, converted())
    _report(counts, target, on_error=on_error)


def _has_lm(nbest: NbestList, work: LatticeToNbest) -> bool:
    """Whether anything but acoustics, pronunciations and the number of words has ranked the list."""
    scales = {**default_scales(["lm", "graph"]), **work.scales}  # an only `score` may be acoustics
    return any(scales.get(name) for name in nbest.hyps[0].scores if name not in ("am", "pron", "words"))


def _report(counts: Counter[str], target: str, n: int | None = None, on_error: OnError = fail) -> None:
    """Remarks on what was written and what was left out."""
    if counts["lattices"]:
        remark(f"{counts['lattices']} lattices written to {target}")
    else:
        remark(f"{counts['utterances']} utterances, {counts['hypotheses']} hypotheses written to {target}")
    for name, what in _COUNTS.items():
        if counts[name]:
            remark(f"{counts[name]} {what.format(n=n)}")
    report_skipped(on_error)


def normalize_nbest(nbest: NbestList, normalizer: TextNormalizer) -> tuple[NbestList, int]:
    """The list with its words (and reference) normalised, and the number of hypotheses left out.

    Of hypotheses that have become the same words the first stays.  A score `words` is counted anew.
    """
    kept: dict[Words, Hypothesis] = {}
    for hyp in nbest.hyps:
        words = normalizer.words(hyp.words)
        again = {"words": float(len(words))} if "words" in hyp.scores else {}
        kept.setdefault(words, replace(hyp, words=words, scores={**hyp.scores, **again}))
    ref = None if nbest.ref is None else normalizer.words(nbest.ref)
    return replace(nbest, hyps=list(kept.values()), ref=ref), len(nbest.hyps) - len(kept)
