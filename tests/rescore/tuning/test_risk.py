"""Expected errors and their gradients against slow references, the minimiser, and scales that minimise the risk."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from rescore.tuning.descent import LIMIT
from rescore.tuning.minimum_risk import RiskProblem
from rescore.tuning.quasi_newton import _updated, minimise
from rescore.tuning.risk import SoftLists
from rescore.tuning.score_table import ScoreTable
from tests.rescore.tuning.test_tune import make_table


def make_lists(seed: int, utterances: int, most: int, columns: int) -> SoftLists:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, most + 1, utterances)
    hyps = int(lengths.sum())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return SoftLists(rng.standard_normal((hyps, columns)), rng.integers(0, 9, hyps), offsets)


def slow_risk(lists: SoftLists, scales: np.ndarray) -> tuple[float, list[float]]:
    """Sum over lists of `sum_i p_i e_i` and of `sum_i p_i (e_i - sum_j p_j e_j) x_i`, one number after another."""
    value, gradient = 0.0, [0.0] * len(scales)
    for begin, end in itertools.pairwise(lists.offsets.tolist()):
        rows, errors = lists.scores[begin:end].tolist(), lists.errors[begin:end].tolist()
        masses = [math.exp(sum(s * x for s, x in zip(scales, row, strict=True))) for row in rows]
        posteriors = [mass / sum(masses) for mass in masses]
        expected = sum(p * e for p, e in zip(posteriors, errors, strict=True))
        value += expected
        for p, e, row in zip(posteriors, errors, rows, strict=True):
            gradient = [g + p * (e - expected) * x for g, x in zip(gradient, row, strict=True)]
    return value, gradient


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 7), st.integers(1, 4))
@budget(max_examples=60, deadline=None)
def test_expected_errors_agree_with_the_slow_reference_and_finite_differences(
    seed: int, utterances: int, most: int, columns: int
) -> None:
    lists = make_lists(seed, utterances, most, columns)
    scales = 2.0 * np.random.default_rng(seed + 1).standard_normal(columns)
    expected, gradient = lists.expected_errors(scales)
    value, slope = slow_risk(lists, scales)
    assert expected.sum() == pytest.approx(value) and gradient == pytest.approx(slope)
    for k in range(columns):
        step = 1e-5 * np.eye(columns)[k]
        ends = [lists.expected_errors(scales + sign * step)[0].sum() for sign in (1.0, -1.0)]
        assert gradient[k] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


def test_large_totals_are_no_overflow() -> None:
    lists = make_lists(0, 5, 6, 2)
    expected, gradient = lists.expected_errors(np.array([1e6, -1e6]))
    assert expected.tolist() == lists.chosen_errors(np.array([1.0, -1.0])).tolist()
    assert np.isfinite(gradient).all()


def test_the_penalty_is_part_of_value_and_gradient() -> None:
    """All parameters but the first, the inverse temperature of the fixed scales, are drawn to 0."""
    problem = RiskProblem.of(make_table(20, 1), {"am": 1.0})
    point = np.array([2.0, 1.0, 0.5, 0.2, -1.0])
    plain, slope = problem.objective(point, 0.0)
    value, with_penalty = problem.objective(point, 0.1)
    assert value - plain == pytest.approx(0.05 * (point[1:] ** 2).sum() / problem.words)
    assert with_penalty - slope == pytest.approx([0.0, *(0.1 * point[1:] / problem.words)])
    for k in range(len(point)):
        step = 1e-6 * np.eye(len(point))[k]
        ends = [problem.objective(point + sign * step, 0.1)[0] for sign in (1.0, -1.0)]
        assert with_penalty[k] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)


def test_units_change_no_scale() -> None:
    """A column times 7 has a seventh of the scale."""
    table = make_table(30, 2)
    again = ScoreTable(
        table.names, table.utt_ids, table.offsets, table.matrix * [1, 7, 1, 1, 1], table.errors, table.ref_words
    )
    scales = []
    for each in (table, again):
        problem = RiskProblem.of(each, {"am": 1.0})
        scales.append(problem.scales(problem.fit(0.1, problem.starts(np.random.default_rng(0))), each.names)[0])
    assert scales[0] == pytest.approx(scales[1] * [1, 7, 1, 1, 1], rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_the_minimiser_finds_the_bounded_minimum_of_a_bowl(seed: int) -> None:
    """Against projected gradient steps, of which very many are taken."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((4, 4))
    bowl, middle = root @ root.T + 0.1 * np.eye(4), rng.standard_normal(4)
    low = np.array([0.0, 0.0, -np.inf, 0.0])

    def function(point: np.ndarray) -> tuple[float, np.ndarray]:
        away = point - middle
        return float(0.5 * away @ bowl @ away), bowl @ away

    slow = np.maximum(middle, low)
    for _ in range(20_000):
        slow = np.maximum(slow - function(slow)[1] / np.linalg.norm(bowl, 2), low)
    found, value = minimise(function, np.ones(4), low, tolerance=1e-14)
    assert (found >= low).all() and found == pytest.approx(slow, abs=1e-4)
    assert value == pytest.approx(function(slow)[0], abs=1e-8)


def test_a_slope_that_hardly_changes_says_nothing_of_the_valley() -> None:
    assert _updated(None, np.ones(2), np.full(2, 1e-170)) is None
    with np.errstate(all="raise", under="ignore"):
        assert _updated(None, np.full(2, 1e-156), np.full(2, 1e-155)) is None, "1 / curvature is infinite"
        assert np.array_equal(_updated(np.eye(2), np.full(2, 1e-156), np.full(2, 1e-155)), np.eye(2))


def test_the_minimiser_follows_a_curved_valley() -> None:
    def function(point: np.ndarray) -> tuple[float, np.ndarray]:
        x, y = point
        return float((1 - x) ** 2 + 100 * (y - x * x) ** 2), np.array(
            [-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)]
        )

    found, _ = minimise(function, np.array([-1.2, 1.0]), np.full(2, -np.inf), tolerance=0.0)
    assert found == pytest.approx([1.0, 1.0], abs=1e-5)


def test_fits_end_below_every_start_and_random_points() -> None:
    problem = RiskProblem.of(make_table(40, 3), {"am": 1.0})
    rng = np.random.default_rng(0)
    starts = problem.starts(rng)
    found = problem.objective(problem.fit(1.0, starts), 1.0)[0]
    others = [*starts, *np.abs(rng.standard_normal((200, len(problem.low))))]
    assert found <= min(problem.objective(point, 1.0)[0] for point in others)


def test_a_strong_penalty_leaves_the_fixed_scales_alone() -> None:
    table = make_table(40, 4)
    problem = RiskProblem.of(table, {"am": 1.0})
    scales, inverse = problem.scales(problem.fit(1e9, problem.starts(np.random.default_rng(0))), table.names)
    assert np.abs(scales * table.spread()).max() < 1e-3 * table.spread()[0] and inverse > 0


def test_scales_stay_in_their_limits_where_the_fixed_score_is_of_no_use() -> None:
    table = make_table(40, 5)
    problem = RiskProblem.of(table, {"noise": 1.0})
    scales, inverse = problem.scales(problem.fit(1.0, problem.starts(np.random.default_rng(0))), table.names)
    assert np.isfinite(scales).all() and inverse > 0
    assert np.abs(scales[problem.columns] / problem.unit[1:]).max() <= 1.001 * LIMIT / problem.unit[0]


def with_probabilities(table: ScoreTable, shift: float) -> ScoreTable:
    """`am` as log-probabilities of a list's hypotheses that sum to 1 (`shift` 0), `lm1` of 5 nats a word."""
    matrix = table.matrix.copy()
    lists = SoftLists.of(table)
    am, words = table.names.index("am"), table.names.index("words")
    matrix[:, am] = np.log(lists.softmax(0.1 * matrix[:, am])) + shift
    matrix[:, table.names.index("lm1")] -= 5.0 * matrix[:, words]
    return ScoreTable(table.names, table.utt_ids, table.offsets, matrix, table.errors, table.ref_words)


def test_beside_probabilities_of_words_an_lm_comes_with_a_word_reward() -> None:
    table = with_probabilities(make_table(40, 6), 0.0)
    problem = RiskProblem.of(table, {"am": 1.0})
    lm, words = table.names.index("lm1"), table.names.index("words")
    point = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
    scales, _ = problem.scales(point, table.names)
    assert scales[words] == pytest.approx(-scales[lm] * table.matrix[:, lm].sum() / table.matrix[:, words].sum())
    assert scales[words] > 4.0 * scales[lm] > 0
    other, inverse = problem.scales(np.array([2.0, 1.0, 0.5, 0.2, -1.0]), table.names)
    totals = inverse * table.matrix @ np.add(other, [1.0, 0.0, 0.0, 0.0, 0.0])
    assert totals == pytest.approx(problem.lists.scores @ [2.0, 1.0, 0.5, 0.2, -1.0])


@pytest.mark.parametrize("shift", [-1000.0, 10.0])
def test_beside_other_scores_it_does_not(shift: float) -> None:
    """Likelihoods of the sound are far below any probability of words, or above."""
    assert not RiskProblem.of(with_probabilities(make_table(40, 6), shift), {"am": 1.0}).rewards.any()


def test_of_equal_totals_the_first_is_chosen() -> None:
    lists = SoftLists(np.zeros((5, 1)), np.arange(5), np.array([0, 2, 5]))
    assert lists.chosen(np.array([1.0, 1.0, 0.0, 3.0, 3.0])).tolist() == [0, 3]
