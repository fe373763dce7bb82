"""The n-gram pass against rescoring of all paths."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.base import WordLM
from lm_zoo.text.vocabulary import Vocabulary
from rescore.errors import ScoreError
from rescore.lattices.build import EPSILON, build_lattice
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.ngram_lm import SPARSE, _distinct, expand_ngram, ngram_nbest
from rescore.lattices.paths import total_scores
from rescore.lattices.posteriors import through_scores
from rescore.types import Lattice, Words
from tests.rescore.lattices.test_nbest import assert_is_exact
from tests.rescore.lattices.test_paths import (
    SCALES,
    all_paths,
    assert_well_formed,
    best_by_words,
    lattices,
    make,
    path_words,
)

ALL_SCALES = {**SCALES, "ngram": 0.75}

ARPA = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.25
-0.5\ta\t-0.125
-0.75\tb\t0
-1.5\t</s>

\\2-grams:
-0.25\t<s> a
-0.375\ta b
-0.625\tb </s>

\\end\\
"""


class ToyTrigram(WordLM):
    """Log-probs that are arbitrary but fixed; histories are the last two words; `c` is unknown."""

    def start(self) -> Words:
        return ("<s>",)

    def extend(self, state: Words, word: str) -> tuple[float, Words, bool]:
        return self._logprob(state, word), (*state, word)[-2:], word != "c"

    def end(self, state: Words) -> float:
        return self._logprob(state, "</s>")

    def knows(self, word: str) -> bool:
        return word != "c"

    def vocabularies(self) -> list[Vocabulary]:
        return []

    def score(self, words: Words) -> float:
        state, total = self.start(), 0.0
        for word in words:
            logprob, state, _ = self.extend(state, word)
            total += logprob
        return total + self.end(state)

    @staticmethod
    def _logprob(state: Words, word: str) -> float:
        return -(zlib.crc32(" ".join((*state, word)).encode()) % 64) / 8


class Backoff(ToyTrigram):
    """A random back-off trigram; states are no longer than the n-grams that there are; back-offs may be above 0."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        vocab = ("a", "b", "c", "</s>")  # in any case
        grams: list[Words] = [(word,) for word in vocab]
        grams += [(u, v) for u in ("<s>", *vocab[:-1]) for v in vocab if rng.random() < 0.6]
        grams += [(u, *gram) for u in ("<s>", *vocab[:-1]) for gram in grams[4:] if (u, gram[0]) in grams]
        self.logprobs = {gram: float(-rng.exponential(8.0)) for gram in grams if len(gram) < 3 or rng.random() < 0.4}
        self.contexts = {gram[:-1]: float(rng.normal(-1.0, 2.0)) for gram in self.logprobs if len(gram) > 1}

    def extend(self, state: Words, word: str) -> tuple[float, Words, bool]:
        longer = (*state, word.lower())[-2:]
        while longer and longer not in self.contexts:
            longer = longer[1:]
        return self._logprob(state, word.lower()), longer, True

    def _logprob(self, state: Words, word: str) -> float:  # type: ignore[override]
        if (*state, word) in self.logprobs:
            return self.logprobs[(*state, word)]
        return self.contexts.get(state, 0.0) + self._logprob(state[1:], word)


def rescored(
    lattice: Lattice, lm: ToyTrigram | None = None, scales: Mapping[str, float] = ALL_SCALES
) -> dict[Words, float]:
    """The best total of every word sequence with an LM: all paths, one by one."""
    own = total_scores(lattice, {key: scale for key, scale in scales.items() if key != "ngram"})
    best: dict[Words, float] = {}
    for path in all_paths(lattice):
        words = path_words(lattice, path)
        total = float(own[path].sum()) + scales["ngram"] * (lm or ToyTrigram()).score(words)
        best[words] = max(best.get(words, -np.inf), total)
    return best


@settings(max_examples=60, deadline=None)
@given(lattices(), st.integers(1, 20))
def test_expansion_is_rescoring_of_all_paths(lattice: Lattice, n: int) -> None:
    expanded = expand_ngram(lattice, ToyTrigram(), "ngram", ALL_SCALES)
    assert_well_formed(expanded)
    nbest = exact_nbest(expanded, ALL_SCALES, n)
    assert_is_exact(nbest, rescored(lattice), ALL_SCALES, n)
    assert all(hyp.scores["ngram"] == pytest.approx(ToyTrigram().score(hyp.words)) for hyp in nbest.hyps)
    assert expanded.counts["pruned_arcs"] == 0
    known = {lattice.symbols[label] for label in lattice.labels if label != EPSILON}
    assert expanded.counts["unknown_words"] == ("c" in known)


@settings(max_examples=100, deadline=None)
@given(
    lattices(symbols=("a", "b", "c", "")),
    st.integers(0, 10**6),
    st.sampled_from([4.0, 0.75, 0.0, -1.0]),
    st.sampled_from([0.0, 0.5, 3.0, 20.0, 1e9]),
)
def test_a_beam_keeps_all_that_is_within_it_and_nothing_else(
    lattice: Lattice, seed: int, lm_scale: float, beam: float
) -> None:
    lm, scales = Backoff(seed), {**SCALES, "ngram": lm_scale}
    exact, pruned = (expand_ngram(lattice, lm, "ngram", scales, width) for width in (None, beam))
    assert_well_formed(pruned)
    every = rescored(lattice, lm, scales)
    least = max(every.values()) - beam - 1e-6
    found = best_by_words(pruned, scales)
    assert {words for words, total in every.items() if total >= least + 2e-6} <= set(found)
    assert found == pytest.approx({words: every[words] for words in found})
    through = through_scores(pruned, total_scores(pruned, scales))
    assert (through >= least).all()
    assert pruned.counts["pruned_arcs"] == exact.num_arcs - pruned.num_arcs
    if beam == 1e9:
        assert found == pytest.approx(every) and pruned.counts == exact.counts


def test_a_beam_with_impossible_arcs() -> None:
    arcs = [(0, 1, "a", 0, 0), (0, 1, "b", -np.inf, 0), (1, 2, "a", -1, 0), (0, 2, "b", -np.inf, 0)]
    for beam in (0.0, 1e9):
        pruned = expand_ngram(make(arcs, 3), ToyTrigram(), "ngram", ALL_SCALES, beam)
        assert [path_words(pruned, path) for path in all_paths(pruned)] == [("a", "a")]
    with pytest.raises(ScoreError, match="every path has an arc with a score of -inf"):
        expand_ngram(make(arcs[1:2], 2), ToyTrigram(), "ngram", ALL_SCALES)


def test_what_the_beam_leaves_out_is_counted() -> None:
    arcs = [(0, 1, "a", 0, 0), (0, 1, "b", -50, 0), (1, 2, "a", 0, 0), (0, 2, "b", -70, 0)]
    exact = expand_ngram(make(arcs, 3), ToyTrigram(), "ngram", ALL_SCALES)
    pruned = expand_ngram(make(arcs, 3), ToyTrigram(), "ngram", ALL_SCALES, beam=20.0)
    assert (exact.num_states, exact.num_arcs) == (4, 5) and (pruned.num_states, pruned.num_arcs) == (3, 2)
    assert pruned.counts["pruned_arcs"] == 3
    assert [hyp.words for hyp in exact_nbest(pruned, ALL_SCALES, 5).hyps] == [("a", "a")]


@settings(max_examples=60, deadline=None)
@given(lattices(), st.integers(1, 10))
def test_the_beam_widens_until_there_are_n(lattice: Lattice, n: int) -> None:
    nbest, counts = ngram_nbest(lattice, ToyTrigram(), "ngram", ALL_SCALES, n, beam=0.5)
    assert_is_exact(nbest, rescored(lattice), ALL_SCALES, n)
    assert "pruned_arcs" in counts
    exact, _ = ngram_nbest(lattice, ToyTrigram(), "ngram", ALL_SCALES, n)
    assert_is_exact(exact, rescored(lattice), ALL_SCALES, n)


def test_the_beam_does_not_widen_for_what_is_impossible() -> None:
    lattice = make([(0, 1, "a", 0, 0), (0, 1, "b", -50, 0), (0, 1, "c", -np.inf, 0)], 2)
    nbest, counts = ngram_nbest(lattice, ToyTrigram(), "ngram", ALL_SCALES, 5, beam=1.0)
    assert [hyp.words for hyp in nbest.hyps] == [("a",), ("b",)]
    assert counts["pruned_arcs"] == 1 and counts["widened"] < 7
    dead_end = make([(0, 1, "a", 0, 0), (0, 2, "b", 0, 0), (1, 3, "a", 0, 0), (2, 3, "b", -np.inf, 0)], 4)
    nbest, counts = ngram_nbest(dead_end, ToyTrigram(), "ngram", ALL_SCALES, 5, beam=1.0)
    assert [hyp.words for hyp in nbest.hyps] == [("a", "a")] and counts["pruned_arcs"] == 2


@pytest.mark.parametrize("beam", [None, 5.0])
def test_the_empty_sentence_of_a_single_state_ends(beam: float | None) -> None:
    single = make([], 1)
    expanded = expand_ngram(single, ToyTrigram(), "ngram", ALL_SCALES, beam)
    assert_well_formed(expanded)
    assert best_by_words(expanded, ALL_SCALES) == pytest.approx(rescored(single))
    assert expanded.times is not None and expanded.times.tolist() == [0.0, 0.0]
    nbest, _ = ngram_nbest(single, ToyTrigram(), "ngram", ALL_SCALES, 3, beam)
    assert [(hyp.words, hyp.scores["ngram"]) for hyp in nbest.hyps] == [((), ToyTrigram().score(()))]


def test_names_that_do_not_fit() -> None:
    lattice = make([(0, 1, "a", 0, 0)], 2)
    with pytest.raises(ScoreError, match="has a score 'lm' already"):
        expand_ngram(lattice, ToyTrigram(), "lm", SCALES)
    with pytest.raises(ScoreError, match="no scale for 'ngram'"):
        expand_ngram(lattice, ToyTrigram(), "ngram", SCALES)


def test_kenlm(tmp_path: Path) -> None:
    """Golden values by hand from the ARPA above: log10 p(a b </s>) = -0.25 - 0.375 - 0.625, and so on."""
    pytest.importorskip("kenlm")
    from lm_zoo.ngram.kenlm_lm import NgramLM

    (tmp_path / "toy.arpa").write_text(ARPA)
    lm: WordLM = NgramLM(tmp_path / "toy.arpa")
    arcs = [(0, 1, "a", 0, 0), (0, 1, "x", 0, 0), (1, 2, "b", 0, 0), (0, 2, "", 0, 0), (1, 2, "a", 0, 0)]
    expanded = expand_ngram(make(arcs, 3), lm, "ngram", ALL_SCALES)
    found = {h.words: h.scores["ngram"] / math.log(10) for h in exact_nbest(expanded, ALL_SCALES, 10).hyps}
    assert found == pytest.approx(
        {
            ("a", "b"): -0.25 - 0.375 - 0.625,
            ("a", "a"): -0.25 - (0.125 + 0.5) - (0.125 + 1.5),
            ("x", "b"): -(0.25 + 1.0) - 0.75 - 0.625,
            ("x", "a"): -(0.25 + 1.0) - 0.5 - (0.125 + 1.5),
            (): -0.25 - 1.5,
        }
    )
    assert expanded.counts["unknown_words"] == 1


@pytest.mark.parametrize("size", [40, 10**5])
def test_keys_are_told_apart_by_a_table_or_by_sorting(size: int) -> None:
    keys = np.random.default_rng(1).integers(0, size, 100)
    present, place = _distinct(keys, size)
    assert present.tolist() == sorted(set(keys.tolist())) and (present[place] == keys).all()
    assert (size > SPARSE * len(keys)) == (size == 10**5)


class LastWord(WordLM):
    """A word's first letter is its kind; `b5` after `a5` costs 1, after any other word 2."""

    def start(self) -> str:
        return ""

    def extend(self, state: str, word: str) -> tuple[float, str, bool]:
        return (-1.0 if word[1:] == state[1:] else -2.0), word, True

    def end(self, state: str) -> float:
        return 0.0


def test_pairs_beyond_int32() -> None:
    """As many states side by side as histories lead to them: the numbers of all pairs are beyond 2 ** 31."""
    many = 47_000
    assert many * many > 1 << 31
    middle, ends = np.arange(1, many + 1), np.zeros(many, dtype=np.int64)
    words = ["", *(f"{kind}{number}" for kind in "ab" for number in range(many))]
    src, dst = np.append(ends, middle), np.append(middle, ends + many + 1)
    labels, scores = np.arange(1, 2 * many + 1), {"am": np.zeros(2 * many)}
    lattice = build_lattice("u", many + 2, src, dst, labels, scores, words, 0, many + 1)
    expanded = expand_ngram(lattice, LastWord(), "ngram", {"am": 1.0, "ngram": 1.0})
    assert (expanded.src == src).all() and (expanded.dst == dst).all()
    assert expanded.scores["ngram"].tolist() == [-2.0] * many + [-1.0] * many


def test_the_beam_of_the_ngram_pass_widens_for_lists() -> None:
    lattice = make([(0, 1, "a", 0, 0), (0, 1, "b", -50, 0), (0, 1, "c", -90, 0)], 2)
    nbest, counts = ngram_nbest(lattice, ToyTrigram(), "ngram", ALL_SCALES, 3, beam=0.0)
    assert len(nbest.hyps) == 3 and counts["widened"] == 3  # 0, 1, to `b` at 48, 97


def test_the_beam_keeps_what_rounding_puts_outside() -> None:
    lattice = make([(0, 2, "a", 0, 0), (0, 1, "b", -0.1, 0), (1, 2, "c", -0.2, 0)], 3)
    assert expand_ngram(lattice, LastWord(), "ngram", {"am": 1.0, "ngram": 0.0}, beam=0.3).num_arcs == 3


def test_a_beam_of_0_widens_at_once() -> None:
    lattice = make([(0, 1, "a", 0, 0), (0, 1, "b", -0.5, 0)], 2)
    nbest, counts = ngram_nbest(lattice, LastWord(), "ngram", {"am": 1.0, "ngram": 1.0}, 2, beam=0.0)
    assert len(nbest.hyps) == 2 and counts["widened"] == 1


@pytest.mark.parametrize("far", [1e30, 6e99])
def test_the_beam_reaches_scores_that_are_far_away(far: float) -> None:
    """It was doubled a thousand times, and the lattice searched at each."""
    ways = [(0, 1, "a", 0, 0), (0, 1, "b", -far, 0), (0, 1, "c", -1.5 * far, 0), (1, 2, "c", 0, 0)]
    for n, words in ((2, ["a c", "b c"]), (5, ["a c", "b c", "c c"])):
        nbest, counts = ngram_nbest(make(ways, 3), ToyTrigram(), "ngram", ALL_SCALES, n, beam=1.0)
        assert [" ".join(hyp.words) for hyp in nbest.hyps] == words
        assert counts["widened"] <= 4
