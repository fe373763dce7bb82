"""Distances between the hypotheses of a list against those of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescore.evaluation.distances import nbest_expected_errors, pairwise_distances
from rescore.evaluation.wer import edit_distance

words = st.lists(st.sampled_from("ABCD"), max_size=12).map(tuple)


@given(st.lists(words, max_size=8), words, words)
def test_pairs(hyps: list[tuple[str, ...]], begin: tuple[str, ...], end: tuple[str, ...]) -> None:
    """With words that all begin and end with, which are cut off first."""
    whole = [begin + hyp + end for hyp in hyps]
    assert pairwise_distances(whole).tolist() == [[edit_distance(a, b) for b in whole] for a in whole]


@pytest.mark.parametrize("length", [63, 64, 65, 130])
def test_as_many_words_as_bits_and_more(length: int) -> None:
    first = tuple("ABCD"[i * i % 7 % 4] for i in range(length))
    hyps = [first, first[::-1], (*first[3:], "X", "A"), ("B", *first[:-2]), ()]
    assert pairwise_distances(hyps).tolist() == [[edit_distance(a, b) for b in hyps] for a in hyps]


@pytest.mark.parametrize("held", [1, 300, 1 << 22])
def test_lists_of_any_lengths_in_parts_of_any_size(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescore.evaluation.distances._HELD", held)
    rng = np.random.default_rng(1)
    for longest in (10, 70, 200, 300):
        hyps = [tuple(rng.choice(list("ABCDEFG"), rng.integers(0, longest)).tolist()) for _ in range(12)]
        assert pairwise_distances(hyps).tolist() == [[edit_distance(a, b) for b in hyps] for a in hyps]


def test_expected_errors_by_hand() -> None:
    """Posteriors 1/2, 1/4, 1/4; the last two are the same words."""
    hyps = [("A", "B"), ("A",), ("A",)]
    found = nbest_expected_errors(hyps, [0.6931471805599453, 0.0, 0.0], 1.0)
    assert found == pytest.approx([0.5, 0.5, 0.5])
