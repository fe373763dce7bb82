"""MAPSSWE and the bootstrap: hand-made values, slow references, and calibration where there is no difference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import ReferencesError
from rescore.evaluation.significance import Mapsswe, bootstrap_wer, error_positions, mapsswe, segment_differences
from rescore.evaluation.wer import edit_distance
from rescore.types import Words

words = st.lists(st.sampled_from("ABCD"), max_size=10).map(tuple)


def places(text: str) -> np.ndarray:
    """`"c c e c+2"`: a reference word right, wrong, or right with two words inserted behind it."""
    result = [0]
    for part in text.split():
        word, _, inserted = part.partition("+")
        result += [int(word == "e"), int(inserted or 0)]
    return np.array(result)


def slow_segments(a: np.ndarray, b: np.ndarray, min_correct: int = 2) -> list[int]:
    """Cuts the sequence of (word or gap) at every end of a stretch of correct words, drops pieces without error."""
    marks = ["E" if a[i] or b[i] else ("c" if i % 2 else "") for i in range(len(a))]
    pieces: list[list[int]] = [[]]
    for i, mark in enumerate(marks):
        pieces[-1].append(i)
        tail = "".join(marks[j] for j in pieces[-1])
        if mark == "c" and tail.endswith("c" * min_correct):
            pieces.append([])
    return [int((a[p] - b[p]).sum()) for p in pieces if any(marks[i] == "E" for i in p)]


@given(words, words)
@settings(max_examples=200, deadline=None)
def test_error_positions_sum_to_the_edit_distance(ref: Words, hyp: Words) -> None:
    found = error_positions(ref, hyp)
    assert found.shape == (2 * len(ref) + 1,)
    assert found.sum() == edit_distance(ref, hyp)
    assert found[1::2].max(initial=0) <= 1


def test_error_positions_by_hand() -> None:
    assert error_positions(("A", "B", "C"), ("A", "X", "C", "D", "E")).tolist() == [0, 0, 0, 1, 0, 0, 2]
    assert error_positions((), ("A",)).tolist() == [1]


def test_segments_by_hand() -> None:
    a = places("c e c c e e c c c")
    b = places("c c c c e c c c e")
    # |c e c c| e e c c| c e|: A has 1, 2, 0 errors, B has 0, 1, 1
    assert segment_differences(a, b) == [1, 1, -1]
    assert segment_differences(a, b, min_correct=1) == [1, 1, -1]
    assert segment_differences(places("e c e"), places("c c c")) == [2]  # one correct word ends no segment
    assert segment_differences(places("e c e"), places("c c c"), min_correct=1) == [1, 1]
    assert segment_differences(places("e c+1 c c"), places("c c c c")) == [2]  # nor do two around an insertion
    assert segment_differences(places("c c c"), places("c c c")) == []
    assert segment_differences(np.array([2]), np.array([0])) == [2]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=41), st.integers(1, 3))
@settings(max_examples=300, deadline=None)
def test_segments_agree_with_the_slow_reference(pairs: list[tuple[int, int]], min_correct: int) -> None:
    pairs = pairs if len(pairs) % 2 else pairs[1:] or [(0, 0)]
    a, b = (np.array([pair[k] if i % 2 == 0 else min(pair[k], 1) for i, pair in enumerate(pairs)]) for k in (0, 1))
    found = segment_differences(a, b, min_correct)
    assert found == slow_segments(a, b, min_correct)
    assert sum(found) == a.sum() - b.sum()


def test_mapsswe_by_hand() -> None:
    # Differences 1, 2, -1, 1, 2: mean 1, variance (0 + 1 + 4 + 0 + 1) / 4 = 1.5, z = 1 / sqrt(1.5 / 5) = 1.825742;
    # two-sided p = 0.067889 (normal table).
    a = [np.array([d]) for d in (1, 2, 0, 1, 2)]
    b = [np.array([d]) for d in (0, 0, 1, 0, 0)]
    found = mapsswe(a, b)
    assert found.segments == 5
    assert (found.mean, found.std) == pytest.approx((1.0, math.sqrt(1.5)))
    assert found.z == pytest.approx(1.825742, abs=1e-6)
    assert found.p_value == pytest.approx(0.067889, abs=1e-6)
    other = mapsswe(b, a)
    assert (other.z, other.p_value) == (-found.z, found.p_value)


def test_mapsswe_without_any_difference_or_variance() -> None:
    zero = [places("c c c")] * 4
    assert mapsswe(zero, zero) == Mapsswe(segments=0, mean=0.0, std=0.0, z=0.0, p_value=1.0)
    wrong = [places("c e c")] * 4
    assert mapsswe(wrong, wrong).p_value == 1.0
    assert mapsswe(wrong, zero).z == pytest.approx(2.0)  # sqrt(4), not sc_stats' 0


def test_mapsswe_wants_the_same_references() -> None:
    with pytest.raises(ReferencesError, match="same references"):
        mapsswe([places("c c")], [places("c")])


def test_mapsswe_is_calibrated_where_both_systems_are_equally_good() -> None:
    rng = np.random.default_rng(3)
    p_values = []
    for _ in range(400):
        hard = rng.random((60, 31)) * (np.arange(31) % 2)  # only words, no insertions
        a, b = (list((0.6 * hard + 0.4 * rng.random(hard.shape) * (hard > 0) > 0.75).astype(int)) for _ in range(2))
        p_values.append(mapsswe(a, b).p_value)
    below = [float(np.mean(np.array(p_values) < level)) for level in (0.05, 0.2, 0.5)]
    assert below == pytest.approx([0.05, 0.2, 0.5], abs=0.05)
    assert below[0] < 0.09


def slow_bootstrap(errors: np.ndarray, ref_words: np.ndarray, seed: int, samples: int) -> list[float]:
    """Draws utterances one by one, as Bisani and Ney describe it."""
    rng = np.random.default_rng(seed)
    rates = []
    for _ in range(samples):
        drawn = rng.integers(0, len(errors), len(errors))
        rates.append(100.0 * errors[drawn].sum() / ref_words[drawn].sum())
    return [float(end) for end in np.percentile(rates, [2.5, 97.5])]


def test_bootstrap_agrees_with_the_slow_reference() -> None:
    rng = np.random.default_rng(0)
    ref_words = rng.integers(5, 30, 80)
    errors = rng.binomial(ref_words, 0.2)
    fast = bootstrap_wer(errors, ref_words, seed=1)
    assert fast == pytest.approx(slow_bootstrap(errors, ref_words, 2, 10_000), abs=0.12)
    assert fast[0] < 100 * errors.sum() / ref_words.sum() < fast[1]
    assert bootstrap_wer(errors, ref_words, seed=1).tolist() == fast.tolist()


def test_bootstrap_of_several_systems_draws_the_same_utterances() -> None:
    rng = np.random.default_rng(0)
    ref_words = rng.integers(5, 30, 50)
    errors = rng.binomial(ref_words, 0.2, size=(2, 50))
    both = bootstrap_wer(errors, ref_words, samples=500)
    assert both.shape == (2, 2)
    assert both[1].tolist() == bootstrap_wer(errors[1], ref_words, samples=500).tolist()


def test_bootstrap_of_large_sets_agrees_with_that_of_utterances(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ref_words = rng.integers(0, 12, 700)
    errors = rng.binomial(ref_words, 0.3, size=(2, 700))
    one_by_one = bootstrap_wer(errors, ref_words, seed=1)
    monkeypatch.setattr("rescore.evaluation.significance.MANY", 100)
    by_kind = bootstrap_wer(errors, ref_words, seed=1)
    assert by_kind.tolist() != one_by_one.tolist()
    assert by_kind == pytest.approx(one_by_one, abs=0.12)
    assert by_kind[0] == pytest.approx(slow_bootstrap(errors[0], ref_words, 2, 10_000), abs=0.12)
    assert by_kind[1].tolist() == bootstrap_wer(errors[1], ref_words, seed=1).tolist()


def test_bootstrap_by_hand() -> None:
    # One utterance can be drawn in one way only; two with 0 and 1 errors of 10 words give 0, 5 or 10 %.
    assert bootstrap_wer(np.array([3]), np.array([12])).tolist() == [25.0, 25.0]
    assert bootstrap_wer(np.array([0, 2]), np.array([10, 10])).tolist() == [0.0, 20.0]
    # Of an empty reference and another one, a quarter of all draws has no word.
    assert bootstrap_wer(np.array([0, 2]), np.array([0, 10])).tolist() == [0.0, 20.0]
    assert bootstrap_wer(np.array([3, 2]), np.array([0, 10])).tolist() == [20.0, 600.0]  # insertions, over one word
    with pytest.raises(ReferencesError, match="no word"):
        bootstrap_wer(np.array([0]), np.array([0]))


def test_bootstrap_covers_the_true_rate() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        ref_words = rng.integers(5, 30, 100)
        low, high = bootstrap_wer(rng.binomial(ref_words, 0.25), ref_words, samples=300)
        covered += low <= 25.0 <= high
    assert 0.90 <= covered / 200 <= 0.99
