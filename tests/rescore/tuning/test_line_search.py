"""Line search against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from rescore.tuning import line_search
from rescore.tuning.line_search import PaddedLists, Steps, contenders, merge_steps, walk_envelopes
from tests.rescore.tuning.test_tune import make_table, slow_errors


def error_steps(base: np.ndarray, slope: np.ndarray, errors: np.ndarray, low: float, high: float) -> Steps:
    """Along all lines, as of few, and along those that are on top somewhere, as of many: the same steps."""
    found = []
    for few in (0, base.size):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(line_search, "FEW", few)
            found.append(line_search.error_steps(base, slope, errors, low, high))
    assert found[0].edges.tolist() == found[1].edges.tolist() and found[0].errors.tolist() == found[1].errors.tolist()
    return found[0]


def check_steps(steps: Steps, base: np.ndarray, slope: np.ndarray, errors: np.ndarray) -> None:
    """Compares the steps with the errors counted in the middle of each piece and at both its ends."""
    rows = np.arange(len(base))
    assert (np.diff(steps.edges) > 0).all()
    for piece, (begin, end) in enumerate(itertools.pairwise(steps.edges)):
        for part in (0.001, 0.31, 0.5, 0.999):
            t = begin + part * (end - begin)
            totals = base + t * slope
            best = totals.argmax(axis=1)
            runner_up = np.partition(totals, -2, axis=1)[:, -2] if totals.shape[1] > 1 else totals[:, 0] - 1
            if (totals[rows, best] - runner_up > 1e-9).all():  # no tie, which rounding could break either way
                assert errors[rows, best].sum() == steps.errors[piece]


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 7), st.booleans())
@budget(max_examples=100, deadline=None)
def test_line_search_agrees_with_brute_force(seed: int, utterances: int, hyps: int, whole: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = (utterances, hyps)
    base = rng.integers(-6, 7, shape).astype(float) if whole else rng.standard_normal(shape)
    slope = rng.integers(-3, 4, shape).astype(float) if whole else rng.standard_normal(shape)
    errors = rng.integers(0, 5, shape)
    steps = error_steps(base, slope, errors, -3.3, 4.1)
    assert steps.edges[0] == -3.3 and steps.edges[-1] == 4.1
    check_steps(steps, base, slope, errors)


def test_line_search_by_hand() -> None:
    # Lines 0, t - 1, 2 t - 4 with 3, 1, 2 errors: crossings at 1 and 3.  A second list changes from 0 to 1 errors at 2.
    base, slope = np.array([[0.0, -1.0, -4.0], [0.0, -2.0, -9.0]]), np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 0.0]])
    steps = error_steps(base, slope, np.array([[3, 1, 2], [0, 1, 7]]), -10.0, 10.0)
    assert steps.edges.tolist() == [-10.0, 1.0, 2.0, 3.0, 10.0]
    assert steps.errors.tolist() == [3, 1, 2, 3]
    assert steps.best() == (1, 1.0, 2.0)
    assert steps.region(1.5, 2) == (1.0, 3.0)
    assert steps.region(5.0, 2) == (5.0, 5.0)


def test_of_equal_pieces_the_widest_is_taken_and_steps_that_cancel_are_none() -> None:
    assert Steps(np.array([0.0, 1.0, 2.0, 4.0, 5.0]), np.array([1, 2, 1, 3])).best() == (1, 2.0, 4.0)
    base, slope = np.array([[0.0, -1.0], [0.0, -1.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    steps = error_steps(base, slope, np.array([[1, 0], [0, 1]]), 0.0, 2.0)
    assert steps.edges.tolist() == [0.0, 2.0] and steps.errors.tolist() == [1]


def test_blocks_of_lists_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    base, slope = rng.standard_normal((2, 30, 6))
    errors = rng.integers(0, 9, (30, 6))
    whole = error_steps(base, slope, errors, -5.0, 5.0)
    monkeypatch.setattr("rescore.tuning.line_search.CHUNK", 13)
    blocks = error_steps(base, slope, errors, -5.0, 5.0)
    assert blocks.edges.tolist() == whole.edges.tolist() and blocks.errors.tolist() == whole.errors.tolist()


def slow_steps(base: np.ndarray, slope: np.ndarray, errors: np.ndarray, low: float, high: float) -> Steps:
    """Walks along the envelopes of all lines, one list after another."""
    walks = [walk_envelopes(*(rows[u : u + 1] for rows in (base, slope, errors)), low, high) for u in range(len(base))]
    places, changes = ([part for walk in walks for part in walk[k]] for k in (1, 2))
    start = sum(walk[0] for walk in walks)
    return merge_steps(start, np.concatenate([[], *places]), np.concatenate([[], *changes]), low, high)


@pytest.mark.parametrize("ends", [(-4.0, 5.0), (0.0, 3.0), (-50.0, -1.0)])
def test_lines_left_out_are_nowhere_highest(ends: tuple[float, float]) -> None:
    rng = np.random.default_rng(1)
    base, slope = rng.standard_normal((2, 80, 60))
    slope[:, 30] = slope[:, 7]  # parallel lines, and equal ones
    base[:40, 50], slope[:40, 50] = base[:40, 20], slope[:40, 20]
    errors = rng.integers(0, 9, base.shape)
    kept = contenders(base, slope, *ends)
    assert len(kept) < 0.3 * base.size and (np.diff(kept) > 0).all()
    for t in np.linspace(*ends, 300):
        assert np.isin(np.arange(80) * 60 + (base + t * slope).argmax(axis=1), kept).all()
    fast, slow = error_steps(base, slope, errors, *ends), slow_steps(base, slope, errors, *ends)
    assert fast.edges.tolist() == slow.edges.tolist() and fast.errors.tolist() == slow.errors.tolist()


def test_counting_agrees_with_the_slow_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    lists = PaddedLists.from_table(table)
    rng = np.random.default_rng(1)
    points = [rng.standard_normal(len(table.names)) * rng.integers(0, 2, len(table.names)) for _ in range(50)]
    points = [point if point[0] else point + 1 for point in points]  # no ties
    slow = [slow_errors(table, point) for point in points]
    assert [lists.count(point) for point in points] == slow
    monkeypatch.setattr("rescore.tuning.line_search.BATCH", 5000)
    assert lists.count_all(np.stack(points)).tolist() == slow
    assert [int(lists.chosen_errors(lists.totals(point)).sum()) for point in points] == slow
    assert lists.totals(points[0]) == pytest.approx(np.tensordot(points[0], lists.scores, 1))
