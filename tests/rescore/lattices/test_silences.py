"""Times of words behind passes of LMs, against all paths of the lattices before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.base import WordLM
from rescore.lattices.build import EPSILON
from rescore.lattices.neural_lm import LatticeLM
from rescore.lattices.ngram_lm import expand_ngram
from rescore.lattices.paths import total_scores
from rescore.lattices.silences import with_silences
from rescore.types import Lattice
from rescore.workflows.lattice_rescore import LatticeRescoring
from tests.counting import count_paths
from tests.lm_zoo import zoo
from tests.rescore.lattices.test_alignments import aligned
from tests.rescore.lattices.test_ngram_lm import ALL_SCALES, ToyTrigram
from tests.rescore.lattices.test_paths import SCALES, all_paths, best_by_words, make, path_words

LM = zoo.neural("transfornn")


class Unigram(WordLM):
    """All words are as probable, and no history is another one."""

    def start(self) -> str:
        return ""

    def extend(self, state: str, word: str) -> tuple[float, str, bool]:
        return -1.0, state, True

    def end(self, state: str) -> float:
        return -1.0


def timed_paths(lattice: Lattice) -> set[tuple[object, ...]]:
    """The words of each path with their begins, ends and strings; the path's total and string."""
    totals, strings, times = total_scores(lattice, SCALES), lattice.alignments, lattice.times
    assert times is not None and lattice.word_ends is None

    def string(arc: int) -> tuple[int, ...]:
        return () if strings is None else strings.string(arc)

    found = set[tuple[object, ...]]()
    for path in all_paths(lattice):
        words = [arc for arc in path if lattice.labels[arc] != EPSILON]
        rows = [(lattice.symbols[lattice.labels[a]], times[lattice.src[a]], times[lattice.dst[a]]) for a in words]
        whole = sum((string(arc) for arc in path), ())
        found.add((*rows, *map(string, words), round(float(totals[path].sum()), 6), whole))
    return found


@settings(max_examples=100, deadline=None)
@given(aligned(), st.booleans(), st.sampled_from([None, 0, 1]))
def test_words_have_the_times_that_they_had(lattice: Lattice, strings: bool, context: int | None) -> None:
    lattice = lattice if strings else replace(lattice, alignments=None)
    before, best = timed_paths(lattice), best_by_words(lattice)
    ngram = expand_ngram(lattice, ToyTrigram(), "ngram", ALL_SCALES)
    (neural,) = LatticeLM({"nn": LM}, {**SCALES, "nn": 0.5}, context=context)([lattice])
    (both,) = LatticeLM({"nn": LM}, {**ALL_SCALES, "nn": 0.5}, context=context)([ngram])
    for found in (ngram, neural, both):
        after = with_silences(found)
        assert timed_paths(after) <= before
        assert best_by_words(after) == pytest.approx(best)
        assert count_paths(after) == count_paths(found)


def test_words_that_end_together_share_their_silence() -> None:
    lattice = make([(0, 1, "a", 0, 0), (0, 1, "b", 0, 0), (1, 2, "", 0, 0), (2, 3, "a", 0, 0)], 4)
    found = with_silences(expand_ngram(lattice, ToyTrigram(), "ngram", ALL_SCALES, beam=None))
    assert (found.labels == EPSILON).sum() == 2  # behind each history
    assert timed_paths(found) == timed_paths(lattice)
    forgetful = with_silences(expand_ngram(lattice, Unigram(), "ngram", ALL_SCALES, beam=None))
    assert (forgetful.labels == EPSILON).sum() == 1
    assert timed_paths(forgetful) == timed_paths(lattice)


def test_rescoring_gives_silences_back() -> None:
    lattice = make([(0, 1, "a", 0, 0), (1, 2, "", -1, -1), (2, 3, "b", 0, 0)], 4)
    (found,) = LatticeRescoring({**SCALES, "ngram": 1.0}, {}, ToyTrigram())([lattice])
    assert found.times is not None and found.times.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert found.scores["am"].tolist() == [-1.0, 0.0, 0.0] and found.scores["ngram"][1] == 0.0
    assert [path_words(found, path) for path in all_paths(found)] == [("a", "b")]


@pytest.mark.parametrize("times", [None, np.zeros(4)])
def test_lattices_without_times_have_no_silences(times: np.ndarray | None) -> None:
    lattice = make([(0, 1, "a", 0, 0), (1, 2, "", 0, 0), (2, 3, "b", 0, 0)], 4)
    found = with_silences(expand_ngram(replace(lattice, times=times), ToyTrigram(), "ngram", ALL_SCALES))
    assert found.num_arcs == 2 and found.word_ends is None
