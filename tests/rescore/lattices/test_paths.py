"""Lattice algebra against the enumeration of all paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import RescoreError, ScoreError
from rescore.lattices.build import EPSILON, build_lattice, normalize_words
from rescore.lattices.epsilons import remove_epsilons
from rescore.lattices.paths import (
    arc_ranges,
    backward_scores,
    best_path,
    best_path_words,
    independent_blocks,
    total_scores,
)
from rescore.text import TextNormalizer
from rescore.types import Lattice, Words
from tests.counting import count_paths

SYMBOLS = ["", "a", "b", "c", "d-e", "."]
SCALES = {"am": 1.0, "lm": 0.5, "words": 0.25}


def make(arcs: list[tuple[int, int, str, float, float]], num_states: int, start: int = 0, final: int = -1) -> Lattice:
    """A lattice of arcs `(src, dst, word, am, lm)`."""
    src, dst, words, am, lm = (list(column) for column in zip(*arcs, strict=True)) if arcs else ([], [], [], [], [])
    symbols = ["", *sorted(set(words) - {""})]
    return build_lattice(
        "utt",
        num_states,
        np.array(src, dtype=np.int64),
        np.array(dst, dtype=np.int64),
        np.array([symbols.index(word) for word in words], dtype=np.int64),
        {"am": np.array(am, dtype=float), "lm": np.array(lm, dtype=float)},
        symbols,
        start,
        final % num_states,
        times=np.arange(num_states, dtype=float),
    )


@st.composite
def lattices(draw: st.DrawFn, symbols: tuple[str, ...] = tuple(SYMBOLS)) -> Lattice:
    """Small random lattices, many with parallel arcs, epsilons, ties, and states off every path."""
    num_states = draw(st.integers(2, 6))
    score = st.integers(-8, 2).map(float)
    arc = st.tuples(
        st.integers(0, num_states - 2), st.integers(1, num_states - 1), st.sampled_from(symbols), score, score
    ).filter(lambda a: a[0] < a[1])
    arcs = draw(st.lists(arc, max_size=12))
    return make([*arcs, (0, num_states - 1, draw(st.sampled_from(symbols)), draw(score), draw(score))], num_states)


def all_paths(lattice: Lattice, state: int = 0) -> Iterator[list[int]]:
    """The arcs of every path, by recursion."""
    if state == lattice.num_states - 1:
        yield []
    for arc in np.flatnonzero(lattice.src == state).tolist():
        for rest in all_paths(lattice, int(lattice.dst[arc])):
            yield [arc, *rest]


def path_words(lattice: Lattice, path: list[int]) -> Words:
    return tuple(lattice.symbols[lattice.labels[arc]] for arc in path if lattice.labels[arc] != EPSILON)


def best_by_words(lattice: Lattice, scales: Mapping[str, float] = SCALES) -> dict[Words, float]:
    """The best total of every word sequence."""
    totals = total_scores(lattice, scales)
    best: dict[Words, float] = {}
    for path in all_paths(lattice):
        words = path_words(lattice, path)
        best[words] = max(best.get(words, -np.inf), float(totals[path].sum()))
    return best


def score_sums(lattice: Lattice) -> set[tuple[object, ...]]:
    """Words and score sums of every path."""
    columns = [lattice.scores[name] for name in sorted(lattice.scores)]
    return {
        (path_words(lattice, path), *(round(float(column[path].sum()), 6) for column in columns))
        for path in all_paths(lattice)
    }


def assert_well_formed(lattice: Lattice) -> None:
    assert (lattice.src < lattice.dst).all()
    assert (np.diff(lattice.src) >= 0).all()
    assert set(range(lattice.num_states - 1)) == set(lattice.src.tolist())
    assert set(range(1, lattice.num_states)) == set(lattice.dst.tolist())
    assert lattice.symbols[0] == "" and all(len(column) == lattice.num_arcs for column in lattice.scores.values())
    assert lattice.times is None or len(lattice.times) == lattice.num_states


@settings(max_examples=60, deadline=None)
@given(lattices(), st.randoms(use_true_random=False))
def test_build_does_not_depend_on_the_numbering(lattice: Lattice, random) -> None:
    assert_well_formed(lattice)
    number = list(range(lattice.num_states))
    random.shuffle(number)
    order = random.sample(range(lattice.num_arcs), lattice.num_arcs)
    shuffled = build_lattice(
        "utt",
        lattice.num_states,
        np.array(number)[lattice.src[order]],
        np.array(number)[lattice.dst[order]],
        lattice.labels[order],
        {name: column[order] for name, column in lattice.scores.items()},
        lattice.symbols,
        start=number[0],
        final=number[-1],
    )
    assert_well_formed(shuffled)
    assert score_sums(shuffled) == score_sums(lattice)


def longest(lattice: Lattice) -> int:
    """Arcs on the longest path."""
    return max(map(len, all_paths(lattice)))


@settings(max_examples=60, deadline=None)
@given(lattices(), st.randoms(use_true_random=False))
def test_states_are_numbered_by_levels(lattice: Lattice, random) -> None:
    """Whatever the topological numbering: passes over all states have no more steps than the longest path has arcs."""
    number, ready = np.zeros(lattice.num_states, dtype=np.int64), [0]
    waiting = np.bincount(lattice.dst, minlength=lattice.num_states)
    for place in range(lattice.num_states):
        state = ready.pop(random.randrange(len(ready)))
        number[state] = place
        for target in lattice.dst[lattice.src == state]:
            waiting[target] -= 1
            ready += [target] if waiting[target] == 0 else []
    columns = number[lattice.src], number[lattice.dst], lattice.labels, lattice.scores, lattice.symbols
    again = build_lattice("utt", lattice.num_states, *columns, 0, lattice.num_states - 1)
    assert_well_formed(again)
    assert score_sums(again) == score_sums(lattice)
    assert len(independent_blocks(again, arc_ranges(again))) == longest(again) + 1


def test_paths_that_were_numbered_one_after_the_other() -> None:
    paths, words = 20, 10
    inner = 1 + np.arange(paths * (words - 1)).reshape(paths, -1)
    arcs = [pair for path in inner.tolist() for pair in pairwise([0, *path, inner.max() + 1])]
    lattice = make([(src, dst, "a", -1.0, 0.0) for src, dst in arcs], inner.max() + 2)
    assert independent_blocks(lattice, arc_ranges(lattice)) == [0, *range(1, inner.max() + 2, paths)]
    assert best_path(lattice, {"am": 1.0}).words == ("a",) * words
    assert lattice.times is not None and lattice.times[1 : paths + 1].tolist() == inner[:, 0].tolist()


def test_states_off_every_path_are_removed_and_counted() -> None:
    lattice = make([(0, 3, "a", 1, 0), (0, 1, "b", 2, 0), (2, 3, "c", 3, 0), (3, 1, "d", 4, 0)], 4, final=3)
    assert lattice.num_states == 2
    assert lattice.counts == {"removed_states": 2, "removed_arcs": 3}
    assert best_path(lattice, {"am": 1.0}).words == ("a",)
    assert lattice.times is not None and lattice.times.tolist() == [0.0, 3.0]


def test_states_with_large_numbers_keep_their_times() -> None:
    lattice = make([(0, 70, "a", 1, 0), (70, 99, "b", 2, 0), (70, 98, "c", 3, 0)], 100)
    assert lattice.times is not None and lattice.times.tolist() == [0.0, 70.0, 99.0]


def test_impossible_arcs_are_counted_where_they_are_removed() -> None:
    src, labels = np.array([0, 0, 1, 1]), np.array([1, 2, 1, 2])
    scores = {"am": np.array([-1.0, -np.inf, -2.0, -np.inf])}
    words = ["", "a", "b"]
    lattice = build_lattice("utt", 3, src, src + 1, labels, scores, words, 0, 2, possible=True)
    assert lattice.num_arcs == 2 and lattice.counts == {"removed_states": 0, "removed_arcs": 2}


def test_words_of_the_best_path() -> None:
    lattice = make([(0, 1, "a", -1, -9), (0, 1, "b", -3, 0), (1, 2, "b", 0, 0)], 3)
    assert best_path_words(lattice, {"am": 1.0, "other": 5.0}) == {"a": 1, "b": 1}
    assert best_path_words(lattice, {"other": 5.0}) == {"b": 2}  # all scores by 1


def test_cycles_are_refused() -> None:
    for arcs in (
        [(0, 1, "a", 0, 0), (1, 2, "a", 0, 0), (2, 1, "b", 0, 0), (2, 3, "c", 0, 0)],
        [(0, 1, "a", 0, 0), (1, 1, "a", 0, 0), (1, 3, "c", 0, 0)],
        [(0, 1, "a", 0, 0), (1, 0, "a", 0, 0), (1, 3, "c", 0, 0)],
        [(0, 3, "a", 0, 0), (3, 0, "a", 0, 0)],
    ):
        with pytest.raises(RescoreError, match="has a cycle"):
            make(arcs, 4)


def test_no_path_is_refused() -> None:
    with pytest.raises(RescoreError, match="no path from start node 0 to end node 2"):
        make([(0, 1, "a", 0, 0)], 3)


def test_a_single_state_is_the_empty_sentence() -> None:
    lattice = make([], 1)
    assert best_path(lattice, SCALES).words == ()
    assert best_path(lattice, SCALES).scores == {"am": 0.0, "lm": 0.0, "words": 0.0}
    assert count_paths(lattice) == 1
    assert remove_epsilons(lattice, SCALES).num_states == 1


@settings(max_examples=60, deadline=None)
@given(lattices())
def test_best_path_backward_scores_and_count(lattice: Lattice) -> None:
    totals = total_scores(lattice, SCALES)
    paths = list(all_paths(lattice))
    assert count_paths(lattice) == len(paths)
    hyp = best_path(lattice, SCALES)
    best = max(float(totals[path].sum()) for path in paths)
    assert sum(scale * hyp.scores[name] for name, scale in SCALES.items()) == pytest.approx(best)
    assert len(hyp.words) == hyp.scores["words"]
    for state, score in enumerate(backward_scores(lattice, totals)):
        assert score == pytest.approx(max(float(totals[path].sum()) for path in all_paths(lattice, state)))


def test_an_unknown_scale_names_the_known_scores() -> None:
    lattice = make([(0, 1, "a", -2, -3)], 2)
    with pytest.raises(ScoreError, match="lattice 'utt' has no score 'nn'; it has: am, lm, words"):
        total_scores(lattice, {"nn": 1.0})
    assert total_scores(lattice, {"am": 0.0, "words": 5.0}).tolist() == [5.0]


@settings(max_examples=60, deadline=None)
@given(lattices())
def test_remove_epsilons_keeps_the_best_path_of_every_word_sequence(lattice: Lattice) -> None:
    removed = remove_epsilons(lattice, SCALES)
    assert_well_formed(removed)
    assert not ((removed.labels == EPSILON) & (removed.src != 0)).any()
    assert best_by_words(removed) == pytest.approx(best_by_words(lattice))
    assert score_sums(removed) <= score_sums(lattice)
    assert removed.counts == lattice.counts


@settings(max_examples=60, deadline=None)
@given(lattices())
def test_normalize_words(lattice: Lattice) -> None:
    normalizer = TextNormalizer(case="upper", delete=".", split="-")
    normal = normalize_words(lattice, normalizer)
    assert_well_formed(normal)
    expected = {(normalizer.words(words), *sums) for words, *sums in score_sums(lattice)}
    assert score_sums(normal) == expected
    assert count_paths(normal) == count_paths(lattice)


def test_words_that_normalise_to_the_same_share_a_label() -> None:
    lattice = make([(0, 1, "u.s.", -1, 0), (0, 1, "us", -2, 0)], 2)
    normal = normalize_words(lattice, TextNormalizer(case="upper", delete="."))
    assert normal.symbols == ["", "US"]
    assert best_by_words(normal, {"am": 1.0}) == {("US",): -1.0}


def test_split_words_share_the_time_of_their_arc() -> None:
    normal = normalize_words(make([(0, 1, "a-b-c", -1, -2)], 2), TextNormalizer(split="-"))
    assert normal.times is not None and normal.times.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert normal.scores["am"].tolist() == [-1, 0, 0]
