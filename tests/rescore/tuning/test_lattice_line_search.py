"""Line search over lattices against the lists of all their paths."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import ReferencesError, ScoreError
from rescore.evaluation.wer import edit_distance
from rescore.lattices.batched_paths import Forest
from rescore.lattices.paths import best_arcs, best_path, total_scores
from rescore.tuning.lattice_line_search import envelopes, lattice_table
from rescore.tuning.line_search import error_steps
from rescore.types import Lattice, Words
from tests.rescore.lattices.test_paths import all_paths, lattices, make, path_words

refs = st.lists(st.sampled_from(["a", "b", "c", "x"]), max_size=5).map(tuple)
ends = st.tuples(st.floats(-3, -0.1), st.floats(0.1, 3))


def lines(lattice: Lattice, scales: dict[str, float], along: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Totals and slopes of all paths."""
    base, slope = total_scores(lattice, scales), total_scores(lattice, along)
    paths = list(all_paths(lattice))
    return np.array([base[path].sum() for path in paths]), np.array([slope[path].sum() for path in paths])


def padded(rows: list) -> np.ndarray:  # type: ignore[type-arg]
    """Rows filled with their first value, as `PaddedLists` does."""
    width = max(map(len, rows))
    return np.stack([np.append(row, [row[0]] * (width - len(row))) for row in rows])


@settings(max_examples=60, deadline=None)
@given(st.lists(lattices(), min_size=1, max_size=3), ends)
def test_envelopes(items: list[Lattice], span: tuple[float, float]) -> None:
    low, high = span
    base, slope = (np.concatenate([lattice.scores[name] for lattice in items]) for name in ("am", "lm"))
    forest = Forest(items)
    found = envelopes(forest, base, slope, low, high)
    for lattice, start, (crossings, paths) in zip(items, forest.bounds, found, strict=False):
        every = [[start + arc for arc in path] for path in all_paths(lattice)]
        edges = [low, *crossings, high]
        assert edges == sorted(edges)
        slopes = [slope[path].sum() for path in paths]
        assert all(before < after for before, after in itertools.pairwise(slopes))
        for path, (begin, end) in zip(paths, itertools.pairwise(edges), strict=True):
            assert path.tolist() in every
            for t in (begin, 0.5 * (begin + end), end):
                totals = base + t * slope
                assert totals[path].sum() == pytest.approx(max(totals[other].sum() for other in every))


@settings(max_examples=40, deadline=None)
@given(st.lists(lattices(), min_size=1, max_size=4))
def test_best_paths_of_a_forest_are_those_of_its_lattices(items: list[Lattice]) -> None:
    """The first of equal paths too, as `best_arcs` gives it."""
    names = ["am", "lm"]
    totals = np.concatenate([np.stack([lattice.scores[name] for name in names], axis=1) for lattice in items])
    forest = Forest(items)
    for point, paths in zip(totals.T, forest.paths(totals), strict=True):
        for number, (lattice, path) in enumerate(zip(items, paths, strict=True)):
            own = slice(forest.bounds[number], forest.bounds[number + 1])
            assert (path - forest.bounds[number]).tolist() == best_arcs(lattice, point[own])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(lattices(), refs), min_size=1, max_size=3), ends)
def test_agrees_with_line_search_over_all_paths(items: list[tuple[Lattice, Words]], span: tuple[float, float]) -> None:
    """Scores get fractions so that no two different paths are equal all along; ties there may go either way."""
    scales, along = {"am": 1.0, "lm": 0.7, "words": 0.3}, {"am": 0.2, "lm": 1.0, "words": -0.5}
    rng = np.random.default_rng(0)
    for number, (lattice, _) in enumerate(items):
        lattice.utt_id = f"u{number}"
        lattice.scores = {name: column + rng.random(len(column)) for name, column in lattice.scores.items()}
    table = lattice_table([lattice for lattice, _ in items], {lattice.utt_id: ref for lattice, ref in items})
    assert table.names == ["am", "lm", "words"]
    place, way = (np.array([which[name] for name in table.names]) for which in (scales, along))
    steps = table.steps(table.totals(place), table.totals(way), *span)
    every = [lines(lattice, scales, along) for lattice, _ in items]
    errors = [[edit_distance(ref, path_words(lattice, p)) for p in all_paths(lattice)] for lattice, ref in items]
    base, slope = padded([bases for bases, _ in every]), padded([slopes for _, slopes in every])
    expected = error_steps(base, slope, padded(errors).astype(np.int64), *span)
    assert steps.errors.tolist() == expected.errors.tolist()
    assert steps.edges == pytest.approx(expected.edges)
    points = np.stack([place, place + 0.5 * way, way])
    slow = []
    for point in points.tolist():
        named = dict(zip(table.names, point, strict=True))
        slow.append(sum(edit_distance(ref, best_path(lattice, named).words) for lattice, ref in items))
    assert table.count_all(points).tolist() == slow == [table.count(point) for point in points]
    assert table.oracle_errors() == sum(min(row) for row in errors)
    assert table.select(np.array([len(items) - 1])).utt_ids == [items[-1][0].utt_id]


def test_rounding_is_no_difference() -> None:
    """A score that is the same on all paths, but for rounding, beside a lattice where it is 0."""
    one, two, three = -1000000.1, -0.7, -3000000.3
    arcs = [(0, 1, "A", 0.0, one), (1, 3, "B", 0.0, two), (3, 5, "C", 0.0, three)]
    arcs += [(0, 2, "A", -1.0, three), (2, 4, "C", 0.0, two), (4, 5, "B", 0.0, one)]
    lattice, silence = make(arcs, 6), replace(make([(0, 1, "A", 0, 0)], 2), utt_id="v")
    table = lattice_table([lattice, silence], {"utt": ("A", "B", "C"), "v": ()})
    table.count_all(np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]))
    sums = {path.scores[1] for path in table.utterances[0].met.values()}
    assert len(sums) == 2 and max(sums) - min(sums) < 1e-8
    assert table.varies().tolist() == [True, False, False]


def test_bad_lattices() -> None:
    """What lattices of one set must have in common."""
    good, bad = make([(0, 1, "A", 0, 0)], 2), make([(0, 1, "A", 0, -np.inf)], 2)
    with pytest.raises(ScoreError, match="utterance utt occurs a second time"):
        lattice_table([good, good], {"utt": ("A",)})
    with pytest.raises(ReferencesError, match="no lattices"):
        lattice_table([good], {"utt": ("A",), "other": ()})
    with pytest.raises(ScoreError, match="lattice 'utt': the score lm of arc 0 is not finite; rescore lattice prune"):
        lattice_table([bad], {"utt": ("A",)})
    with pytest.raises(ScoreError, match=r"the score lm of arc 0 is -1e\+160; to tune, scores must be from -1e\+100"):
        lattice_table([replace(good, scores={**good.scores, "lm": np.array([-1e160])})], {"utt": ("A",)})
    other = replace(good, utt_id="v", scores={"am": np.zeros(1)})
    with pytest.raises(ScoreError, match="'v' has no score 'lm', which lattice 'utt' has; found: am; rescore lattice"):
        lattice_table([good, other], {"utt": ("A",), "v": ()})
