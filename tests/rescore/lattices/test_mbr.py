"""Minimum Bayes risk against the enumeration of all paths."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.evaluation.distances import nbest_expected_errors
from rescore.evaluation.wer import edit_distance
from rescore.lattices.mbr import MbrResult, _delete, _Recursion, _with_gaps, _without_overlaps, ctm_lines, mbr_decode
from rescore.lattices.paths import best_path, total_scores
from rescore.lattices.posteriors import checked_totals
from rescore.types import Lattice, Words
from tests.rescore.lattices.test_paths import SCALES, all_paths, lattices, make, path_words

AM = {"am": 1.0}
TIES = 1e-3  # what the cost that breaks ties may add


def distribution(lattice: Lattice, scales: dict[str, float]) -> dict[Words, float]:
    """The posterior of every word sequence."""
    totals = total_scores(lattice, scales)
    weights: dict[Words, float] = {}
    for path in all_paths(lattice):
        words = path_words(lattice, path)
        weights[words] = weights.get(words, 0.0) + math.exp(totals[path].sum())
    norm = sum(weights.values())
    return {words: weight / norm for words, weight in weights.items()}


def true_risk(lattice: Lattice, scales: dict[str, float], words: Words) -> float:
    return sum(p * edit_distance(words, other) for other, p in distribution(lattice, scales).items())


def expected_errors(lattice: Lattice, scales: dict[str, float], words: Words) -> float:
    """Expected number of errors of any `words` by the recursion."""
    recursion = _Recursion(lattice, checked_totals(lattice, scales))
    numbers = {lattice.symbols[label]: row for row, label in enumerate(recursion.labels)}
    hyp = [numbers.get(word, len(numbers)) for word in words]
    return float(recursion.distances(_with_gaps(np.array(hyp, dtype=np.int64)))[0][-1, -1])


def tree(sequences: list[tuple[tuple[str, ...], int]]) -> Lattice:
    """A lattice that has each word sequence, with its score, as a path of its own."""
    arcs, states = [], 1
    for words, score in sequences:
        inner = list(range(states, states + len(words) - 1))
        states += len(inner)
        ends = [0, *inner, -1]
        arcs += [
            (a, b, w, float(score) if a == 0 else 0.0, 0.0) for a, b, w in zip(ends, ends[1:], words, strict=False)
        ]
    return make([(a, states if b == -1 else b, w, am, lm) for a, b, w, am, lm in arcs], states + 1)


def slow_risk(lattice: Lattice, scales: dict[str, float], hyp: Words) -> float:
    """The recursion as it is written, state by state and place by place."""
    totals = total_scores(lattice, scales)
    alpha = [1.0] + [0.0] * (lattice.num_states - 1)
    for arc in range(lattice.num_arcs):
        alpha[lattice.dst[arc]] += alpha[lattice.src[arc]] * math.exp(totals[arc])
    errors = [[float(q) for q in range(len(hyp) + 1)]]
    for state in range(1, lattice.num_states):
        row = [0.0] * (len(hyp) + 1)
        for arc in np.flatnonzero(lattice.dst == state):
            before, word = errors[lattice.src[arc]], lattice.symbols[lattice.labels[arc]]
            inserted = 1.0 if word else 0.0
            share = alpha[lattice.src[arc]] * math.exp(totals[arc]) / alpha[state]
            last = before[0] + inserted
            row[0] += share * last
            for q, other in enumerate(hyp, start=1):
                last = min(before[q - 1] + (word != other), before[q] + inserted, last + 1)
                row[q] += share * last
        errors.append(row)
    return errors[-1][-1]


def check(result: MbrResult, lattice: Lattice) -> None:
    assert len(result.words) == len(result.confidences)
    assert all(0.0 < confidence <= 1.0 for confidence in result.confidences)
    for place in result.network:
        assert sum(p for _, p in place.words) == pytest.approx(1.0, abs=0.01)
        assert [p for _, p in place.words] == sorted((p for _, p in place.words), reverse=True)
    assert result.times is not None and lattice.times is not None
    flat = [time for pair in result.times for time in pair]
    assert flat == sorted(flat) and all(0 <= time <= lattice.times[-1] + 1e-9 for time in flat)
    lines = ctm_lines(result)
    assert [line.split()[4] for line in lines] == list(result.words)


@settings(max_examples=40, deadline=None)
@given(lattices(("", "a", "b", "c")), st.lists(st.sampled_from("abcx"), max_size=5).map(tuple))
def test_the_recursion(lattice: Lattice, words: Words) -> None:
    found = expected_errors(lattice, SCALES, words)
    assert found == pytest.approx(slow_risk(lattice, SCALES, words), abs=TIES)
    assert found >= true_risk(lattice, SCALES, words) - TIES


@settings(max_examples=40, deadline=None)
@given(lattices(("", "a", "b", "c")))
def test_no_worse_than_the_best_path(lattice: Lattice) -> None:
    result = mbr_decode(lattice, SCALES)
    check(result, lattice)
    assert result.risk == pytest.approx(expected_errors(lattice, SCALES, result.words))
    assert result.risk <= expected_errors(lattice, SCALES, best_path(lattice, SCALES).words) + TIES
    assert result.risk >= true_risk(lattice, SCALES, result.words) - TIES


sequences = st.lists(
    st.tuples(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple), st.integers(-3, 0)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=30, deadline=None)
@given(sequences)
def test_exact_where_one_path_leads_into_each_state(listed: list[tuple[tuple[str, ...], int]]) -> None:
    lattice = tree(listed)
    result = mbr_decode(lattice, AM)
    assert result.risk == pytest.approx(true_risk(lattice, AM, result.words), abs=TIES)
    assert result.risk <= true_risk(lattice, AM, best_path(lattice, AM).words) + TIES


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(-4, 0), min_size=1, max_size=3), min_size=1, max_size=4))
def test_sausages(slots: list[list[int]]) -> None:
    """With other words in each slot the answer is the likeliest word of each, which no sequence beats."""
    arcs = [(n, n + 1, f"{n}{'abc'[i]}", float(s), 0.0) for n, slot in enumerate(slots) for i, s in enumerate(slot)]
    lattice = make(arcs, len(slots) + 1)
    result = mbr_decode(lattice, AM)
    check(result, lattice)
    everything = [(*[f"{n}{'abc'[i]}" for i in range(len(slot))], "") for n, slot in enumerate(slots)]
    candidates = [tuple(filter(None, words)) for words in itertools.product(*everything)]
    assert result.risk == pytest.approx(min(true_risk(lattice, AM, words) for words in candidates), abs=TIES)
    assert len(result.network) == len(slots)
    for place, slot in zip(result.network, slots, strict=True):
        norm = sum(math.exp(score) for score in slot)
        expected = sorted((math.exp(score) / norm for score in slot), reverse=True)
        assert [p for _, p in place.words] == pytest.approx(expected)
    assert [place.begin for place in result.network] == pytest.approx(list(range(len(slots))))
    assert [place.end for place in result.network] == pytest.approx(list(range(1, len(slots) + 1)))


def test_words_that_the_best_path_does_not_have() -> None:
    """Two rarer paths agree on the second word, the best one stands alone: 0.4 / 0.3 / 0.3."""
    paths = [(("x", "y", "z"), 0.4), (("a", "b", "z"), 0.3), (("c", "b", "w"), 0.3)]
    lattice = tree([(words, 0) for words, _ in paths])
    lattice.scores["am"][lattice.src == 0] = [math.log(p) for _, p in paths]
    result = mbr_decode(lattice, AM)
    assert result.words == ("x", "b", "z")
    assert result.confidences == pytest.approx([0.4, 0.6, 0.7])
    assert result.risk == pytest.approx(0.4 * 1 + 0.3 * 1 + 0.3 * 2, abs=TIES)


def test_epsilons_single_states_and_impossible_arcs() -> None:
    lattice = make([(0, 1, "", 0, 0), (0, 1, "a", -math.inf, 0), (1, 2, "b", 0, 0)], 3)
    result = mbr_decode(lattice, AM)
    assert (result.words, result.confidences, result.risk) == (("b",), [1.0], pytest.approx(0.0))
    assert ctm_lines(result) == ["utt 1 1.000 1.000 b 1.0000"]
    single = mbr_decode(make([], 1), AM)
    assert (single.words, single.network, single.risk) == ((), [], 0.0)
    lattice.times = None
    assert mbr_decode(lattice, AM).times is None


@given(st.integers(1, 4), st.integers(1, 12), st.integers(0, 10**6))
def test_deleted_words_are_passed_on_as_one_by_one(arcs: int, places: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.random((arcs, places + 1)) * (rng.random((arcs, places + 1)) < rng.random())
    deleted = rng.random((arcs, places + 1)) < rng.random()
    deleted[:, 0] = False
    expected, moved = rows.copy(), np.zeros((arcs, places))
    for place in range(places, 0, -1):
        moved[:, place - 1] = gone = np.where(deleted[:, place], expected[:, place], 0.0)
        expected[:, place] -= gone
        expected[:, place - 1] += gone
    words, gone = _delete(rows, deleted)
    assert rows == pytest.approx(expected, abs=1e-14)
    assert gone == pytest.approx(moved[:, words], abs=1e-14)
    assert moved.sum() == pytest.approx(gone.sum()) and not (rows < 0).any()


def test_overlaps_meet_in_the_middle() -> None:
    assert _without_overlaps([0.0, 1.0, 1.2], [1.5, 2.0, 1.3]) == [(0.0, 1.25), (1.25, 1.6), (1.6, 1.6)]
    assert _without_overlaps([1.0, 0.0], [1.2, 0.5]) == [(1.0, 1.0), (1.0, 1.0)]


def test_of_alignments_of_equal_cost_the_one_with_words_in_places_wins() -> None:
    half = mbr_decode(make([(0, 2, "", -3, 0), (0, 1, "b", -1, 0), (1, 2, "", -2, 0)], 3), AM)
    assert [slot.words for slot in half.network] == [[("", pytest.approx(0.5)), ("b", pytest.approx(0.5))]]
    twice = make([(0, 2, "", 0, 0), (1, 2, "", -1, 0), (0, 1, "b", 0, 0), (1, 2, "b", 0, 0)], 3)
    assert mbr_decode(twice, AM).words == ("b",)


def test_words_that_are_as_probable_up_to_rounding_stay() -> None:
    more = math.log(6) + 1e-12  # however numpy rounds
    lattice = make([(0, 1, "w", math.log(8), 0), (0, 1, "b", math.log(2), 0), (0, 1, "b", more, 0)], 2)
    found = mbr_decode(lattice, AM)
    assert found.words == best_path(lattice, AM).words == ("w",)
    assert found.network[0].words[0] == ("b", pytest.approx(0.5)) and found.network[0].words[0][1] > 0.5


def test_a_place_that_may_be_empty_begins_and_ends_at_the_mean() -> None:
    """Half of the paths go on from `x` to `b` at once, at 1 s."""
    lattice = make([(0, 1, "x", 0, 0), (1, 2, "a", 0, 0), (2, 3, "b", 0, 0), (1, 3, "b", 0, 0)], 4)
    slot = next(slot for slot in mbr_decode(lattice, AM).network if ("a", 0.5) in slot.words)
    assert (slot.begin, slot.end) == pytest.approx((1.0, 1.5))


@settings(max_examples=30, deadline=None)
@given(sequences, st.floats(0.0, 3.0))
def test_nbest(listed: list[tuple[tuple[str, ...], int]], scale: float) -> None:
    hyps, totals = [words for words, _ in listed], [float(score) for _, score in listed]
    norm = sum(math.exp(scale * score) for score in totals)
    slow = [
        sum(
            math.exp(scale * score) / norm * edit_distance(words, other)
            for other, score in zip(hyps, totals, strict=True)
        )
        for words in hyps
    ]
    assert nbest_expected_errors(hyps, totals, scale) == pytest.approx(slow)
