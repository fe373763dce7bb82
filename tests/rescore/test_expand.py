"""The n-gram pass against rescoring of all paths."""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import ScoreError
from rescore.expand import WordLM, expand_ngram, ngram_nbest
from rescore.lattice import EPSILON, total_scores
from rescore.nbest import exact_nbest
from rescore.types import Lattice, Words
from tests.rescore.test_lattice import SCALES, all_paths, assert_well_formed, lattices, make, path_words
from tests.rescore.test_nbest import assert_is_exact

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


class ToyTrigram:
    """Log-probs that are arbitrary but fixed; histories are the last two words; `c` is unknown."""

    def start(self) -> Words:
        return ("<s>",)

    def extend(self, state: Words, word: str) -> tuple[float, Words, bool]:
        return self._logprob(state, word), (*state, word)[-2:], word != "c"

    def end(self, state: Words) -> float:
        return self._logprob(state, "</s>")

    def knows(self, word: str) -> bool:
        return word != "c"

    def score(self, words: Words) -> float:
        state, total = self.start(), 0.0
        for word in words:
            logprob, state, _ = self.extend(state, word)
            total += logprob
        return total + self.end(state)

    @staticmethod
    def _logprob(state: Words, word: str) -> float:
        return -(zlib.crc32(" ".join((*state, word)).encode()) % 64) / 8


def rescored(lattice: Lattice) -> dict[Words, float]:
    """The best total of every word sequence with the toy LM: all paths, one by one."""
    own = total_scores(lattice, SCALES)
    best: dict[Words, float] = {}
    for path in all_paths(lattice):
        words = path_words(lattice, path)
        total = float(own[path].sum()) + ALL_SCALES["ngram"] * ToyTrigram().score(words)
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


@settings(max_examples=60, deadline=None)
@given(lattices(symbols=("a", "b", "c", "")), st.sampled_from([0.0, 0.5, 3.0, 20.0, 1e9]))
def test_beam(lattice: Lattice, beam: float) -> None:
    exact = expand_ngram(lattice, ToyTrigram(), "ngram", ALL_SCALES)
    pruned = expand_ngram(lattice, ToyTrigram(), "ngram", ALL_SCALES, beam)
    assert_well_formed(pruned)
    best = rescored(lattice)
    found = {hyp.words: hyp.scores["ngram"] for hyp in exact_nbest(pruned, ALL_SCALES, 1000).hyps}
    assert found and set(found) <= set(best)
    assert all(score == pytest.approx(ToyTrigram().score(words)) for words, score in found.items())
    assert pruned.num_states <= exact.num_states
    within = {words for words, total in best.items() if total >= max(best.values()) - beam}
    if pruned.counts["pruned_arcs"] == 0:
        assert within <= set(found)
    if beam == 1e9:
        assert pruned.counts == exact.counts
        assert set(found) == set(best)


def test_what_the_beam_leaves_out_is_counted() -> None:
    arcs = [(0, 1, "a", 0, 0), (0, 1, "b", -50, 0), (1, 2, "a", 0, 0), (0, 2, "b", -70, 0)]
    exact = expand_ngram(make(arcs, 3), ToyTrigram(), "ngram", ALL_SCALES)
    pruned = expand_ngram(make(arcs, 3), ToyTrigram(), "ngram", ALL_SCALES, beam=20.0)
    assert exact.num_states == 4 and pruned.num_states == 3
    assert pruned.counts["pruned_arcs"] == 2
    assert [hyp.words for hyp in exact_nbest(pruned, ALL_SCALES, 5).hyps] == [("a", "a")]


@settings(max_examples=60, deadline=None)
@given(lattices(), st.integers(1, 10))
def test_the_beam_widens_until_there_are_n(lattice: Lattice, n: int) -> None:
    nbest, counts = ngram_nbest(lattice, ToyTrigram(), "ngram", ALL_SCALES, n, beam=0.5)
    assert len(nbest.hyps) == min(n, len(rescored(lattice)))
    assert "pruned_arcs" in counts
    exact, _ = ngram_nbest(lattice, ToyTrigram(), "ngram", ALL_SCALES, n)
    assert_is_exact(exact, rescored(lattice), ALL_SCALES, n)


def test_names_that_do_not_fit() -> None:
    lattice = make([(0, 1, "a", 0, 0)], 2)
    with pytest.raises(ScoreError, match="has a score 'lm' already"):
        expand_ngram(lattice, ToyTrigram(), "lm", SCALES)
    with pytest.raises(ScoreError, match="no scale for 'ngram'"):
        expand_ngram(lattice, ToyTrigram(), "ngram", SCALES)


def test_kenlm(tmp_path: Path) -> None:
    """Golden values by hand from the ARPA above: log10 p(a b </s>) = -0.25 - 0.375 - 0.625, and so on."""
    pytest.importorskip("kenlm")
    from lm_zoo.ngram import NgramLM

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
