"""N-best lists from a source of lattices, on several processes, in the order of the source."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from lm_zoo.deadline import OutOfTime, timed
from lm_zoo.inference.limits import give_back
from lm_zoo.inference.viewed import ViewedNgram
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage
from rescore.errors import RescoreError
from rescore.formats import options_of, parse_spec, read_lattices
from rescore.formats.slf import lattice_files, read_lattice
from rescore.lattices.build import normalize_words
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.ngram_lm import ngram_nbest
from rescore.lattices.paths import best_path_words
from rescore.skipping import OnError, fail
from rescore.text import TextNormalizer
from rescore.types import Lattice, NbestList
from rescore.weights import default_scales
from rescore.workers import worker_pool
from rescore.workflows.seen import PATH_WORDS, UNKNOWN_WORDS, said_counts

NGRAM = "ngram"  # the n-gram's score
SEEN = "seen_lattices"  # count of lattices with words that the LM sees in another form

Found = tuple[NbestList, dict[str, int]]


@dataclass
class LatticeToNbest:
    """What is done with each lattice: normalise its words, n-gram pass, exact N-best.

    Attributes:
      n: hypotheses for each utterance.
      scales: scales by score name; those not given are the default ones, or with `weighted` 0.
      lm: the n-gram LM, or None for none.
      beam: of the search after the n-gram pass, which changes no list; None for none.
      max_unknown: the largest share of words on best paths that the n-gram may not know, for those who sum the counts.
    """

    n: int = 100
    scales: Mapping[str, float] = field(default_factory=dict)
    lm: ViewedNgram | None = None
    beam: float | None = None
    normalizer: TextNormalizer = field(default_factory=TextNormalizer)
    max_unknown: float = MOST_UNKNOWN
    weighted: bool = False

    def __call__(self, source: Path | Lattice) -> Found:
        """The N-best list of a lattice or SLF file, and the counts of what was left out (see `Lattice.counts`).

        Raises:
          VocabError: words of another case than the n-gram's.
        """
        lattice = read_lattice(source) if isinstance(source, Path) else source
        lattice = lattice if self.normalizer.is_identity else normalize_words(lattice, self.normalizer)
        default = {} if self.weighted else default_scales(lattice.scores, None if self.lm is None else NGRAM)
        scales = {**default, **self.scales}
        if self.lm is None:
            return exact_nbest(lattice, scales, self.n), lattice.counts
        coverage = Coverage(self.lm, NGRAM, 1.0)
        coverage.add(best_path_words(lattice, scales), f"LM '{NGRAM}', lattice '{lattice.utt_id}'")
        nbest, counts = ngram_nbest(lattice, self.lm, NGRAM, scales, self.n, self.beam)
        seen = any(self.lm.view.word(word) != (word,) for word in lattice.symbols if word)
        known = {PATH_WORDS: coverage.words, UNKNOWN_WORDS: coverage.unknown, **said_counts({NGRAM: self.lm.lm})}
        return nbest, {**counts, **known, SEEN: int(seen)}


def nbest_of_lattices(
    source: str | Sequence[Lattice], work: LatticeToNbest, jobs: int = 1, on_error: OnError = fail
) -> Generator[Found, None, None]:
    """N-best list and counts of every lattice, in order; a few lattices in memory at a time.

    Args:
      source: `FORMAT:PATH`, or the lattices themselves.
      jobs: processes; more than one only where processes can be forked, so that they share the LM's memory.
      on_error: gets the RescoreError that reading a lattice or `work` raises; if it returns, the next one follows.
    """
    sources = lattice_sources(source, on_error)[0] if isinstance(source, str) else source
    if jobs <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        return _serial(sources, work, on_error)
    return _parallel(sources, work, jobs, on_error)


def lattice_sources(spec: str, on_error: OnError = fail) -> tuple[Iterable[Path | Lattice], int | None]:
    """The lattices of `spec` and their number if it is known; SLF files by their paths, so that workers read them."""
    name, path = parse_spec(spec)
    if name == "slf" and not options_of(spec):
        files = lattice_files(path)
        return files, len(files)
    return read_lattices(spec, on_error), None


def _serial(sources: Iterable[Path | Lattice], work: LatticeToNbest, on_error: OnError) -> Generator[Found, None, None]:
    for source in sources:
        found = _tried(work, source)
        if isinstance(found, RescoreError):
            on_error(found)
        else:
            yield found


def _tried(work: LatticeToNbest, source: Path | Lattice) -> Found | RescoreError:
    try:
        with timed():
            return work(source)
    except RescoreError as error:
        return error.with_traceback(None)  # which holds all that was read
    except OutOfTime as error:
        problem = str(error)
    except MemoryError:
        problem = "memory does not suffice for it"
    give_back(collect=True)  # behind the error, which holds all that was there when it was raised
    return RescoreError(f"{source if isinstance(source, Path) else f'utterance {source.utt_id}'}: {problem}")


_work: LatticeToNbest | None = None  # set before the workers are forked, which inherit it


def _run(source: Path | Lattice) -> Found | RescoreError:
    assert _work is not None
    found = _tried(_work, source)
    return RescoreError(str(found)) if isinstance(found, RescoreError) else found  # not all subclasses can be pickled


def _parallel(
    sources: Iterable[Path | Lattice], work: LatticeToNbest, jobs: int, on_error: OnError
) -> Generator[Found, None, None]:
    global _work
    _work = work
    # Not multiprocessing.Pool.imap: it reads all sources ahead, waits for ever for a worker that was killed, and its
    # workers outlive a parent that was (`rescore.workers`).
    todo = iter(sources)
    with ExitStack() as stack:
        pool = stack.enter_context(worker_pool(jobs, "fork"))  # here, before the caller starts threads
        running: deque[Future[Found | RescoreError]] = deque(
            pool.submit(_run, source) for source in islice(todo, 2 * jobs)
        )
        workers = stack.pop_all()

    def results() -> Generator[Found, None, None]:
        with workers:
            while running:
                found = running.popleft().result()
                running.extend(pool.submit(_run, source) for source in islice(todo, 1))
                if isinstance(found, RescoreError):
                    on_error(found)
                else:
                    yield found

    return results()
