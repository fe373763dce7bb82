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
from rescore.tuning.quasi_newton import Function, _Searches, _update, minimise
from rescore.tuning.risk import SoftLists
from rescore.tuning.score_table import ScoreTable
from tests.rescore.tuning.plain_bfgs import plain_minimise
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


def at(problem: RiskProblem, point: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
    """The objective of the first part at one point."""
    values, slopes = problem.objective(point[None], np.zeros(1, dtype=np.int64), strength)
    return float(values[0]), slopes[0]


def fitted(problem: RiskProblem, strength: float, seed: int = 0) -> np.ndarray:
    """The first part's, from its starts."""
    return problem.fit(strength, problem.starts([np.random.default_rng(seed)]))[0]


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 7), st.integers(1, 4))
@budget(max_examples=60, deadline=None)
def test_expected_errors_agree_with_the_slow_reference_and_finite_differences(
    seed: int, utterances: int, most: int, columns: int
) -> None:
    lists = make_lists(seed, utterances, most, columns)
    rng = np.random.default_rng(seed + 1)
    scales, counted = 2.0 * rng.standard_normal((3, columns)), rng.integers(0, 2, (3, utterances)).astype(float)
    sums, gradients = lists.expected_errors(scales, counted)
    for point, some, total, gradient in zip(scales, counted, sums, gradients, strict=True):
        kept = np.flatnonzero(some)
        value, slope = slow_risk(lists.part(kept), point) if len(kept) else (0.0, [0.0] * columns)
        assert total == pytest.approx(value) and gradient == pytest.approx(slope)
        for k in range(columns):
            step = 1e-5 * np.eye(columns)[k]
            ends = lists.expected_errors(np.stack([point + step, point - step]), some)[0]
            assert gradient[k] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


def test_large_totals_are_no_overflow() -> None:
    lists = make_lists(0, 5, 6, 2)
    expected, gradient = lists.expected_errors(np.array([[1e6, -1e6]]))
    assert expected.tolist() == [lists.chosen_errors(np.array([1.0, -1.0])).sum()]
    assert np.isfinite(gradient).all()


def test_the_penalty_is_part_of_value_and_gradient() -> None:
    """All parameters but the first, the inverse temperature of the fixed scales, are drawn to 0."""
    problem = RiskProblem.of(make_table(20, 1), {"am": 1.0})
    point = np.array([2.0, 1.0, 0.5, 0.2, -1.0])
    plain, slope = at(problem, point, 0.0)
    value, with_penalty = at(problem, point, 0.1)
    assert value - plain == pytest.approx(0.05 * (point[1:] ** 2).sum() / problem.words[0])
    assert with_penalty - slope == pytest.approx([0.0, *(0.1 * point[1:] / problem.words[0])])
    for k in range(len(point)):
        step = 1e-6 * np.eye(len(point))[k]
        ends = [at(problem, point + sign * step, 0.1)[0] for sign in (1.0, -1.0)]
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
        scales.append(problem.scales(fitted(problem, 0.1), each.names)[0])
    assert scales[0] == pytest.approx(scales[1] * [1, 7, 1, 1, 1], rel=1e-4)


def bowls(seed: int, searches: int) -> tuple[Function, np.ndarray]:
    """Each search has a bowl of its own; all of them, and their second derivatives."""
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((searches, 4, 4))
    steepness, middles = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(4), rng.standard_normal((searches, 4))

    def function(points: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        away = points - middles[which]
        slopes = np.einsum("kij,kj->ki", steepness[which], away)
        return 0.5 * (away * slopes).sum(axis=1), slopes

    return function, steepness


@pytest.mark.parametrize("seed", range(5))
def test_the_minimiser_finds_the_bounded_minima_of_bowls(seed: int) -> None:
    """Against projected gradient steps, of which very many are taken."""
    function, bowl = bowls(seed, 3)
    low = np.array([0.0, 0.0, -np.inf, 0.0])
    found, values = minimise(function, np.ones((3, 4)), low, tolerance=1e-14)
    slow, steepest = np.maximum(np.ones((3, 4)), low), np.linalg.norm(bowl, 2, axis=(1, 2))[:, None]
    for _ in range(20_000):
        slow = np.maximum(slow - function(slow, np.arange(3))[1] / steepest, low)
    assert (found >= low).all() and found == pytest.approx(slow, abs=1e-4)
    assert values == pytest.approx(function(slow, np.arange(3))[0], abs=1e-8)


def test_searches_side_by_side_are_those_alone() -> None:
    function, _ = bowls(0, 7)
    starts, low = np.random.default_rng(1).standard_normal((7, 4)), np.array([0.0, 0.0, -np.inf, 0.0])
    found, values = minimise(function, starts, low)
    for k in range(7):
        alone, value = minimise(lambda points, which, k=k: function(points, which + k), starts[k : k + 1], low)  # type: ignore[misc]
        assert np.array_equal(alone[0], found[k]) and value[0] == values[k]


@pytest.mark.parametrize("strength", [6.0, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_the_minimiser_and_the_plain_one_end_in_the_same_minima(seed: int, strength: float) -> None:
    problem = RiskProblem.of(make_table(30, seed), {"am": 1.0})
    starts = np.stack(problem.starts([np.random.default_rng(seed)])[0])
    none = np.zeros(len(starts), dtype=np.int64)
    found, values = minimise(
        lambda points, which: problem.objective(points, none[which], strength), starts, problem.low
    )
    plain = [plain_minimise(lambda some: at(problem, some, strength), start, problem.low, 1e-8) for start in starts]
    assert values == pytest.approx([value for _, value in plain], rel=1e-4)
    best, (point, value) = values.argmin(), min(plain, key=lambda each: each[1])
    assert values[best] == pytest.approx(value, rel=1e-7) and found[best] == pytest.approx(point, rel=1e-3, abs=1e-3)


def test_steps_grow_where_the_slope_hardly_changes() -> None:
    """By 2, from that of the steepest descent or of the inverse before; infinite numbers stay out."""
    step = np.array([[1.0, 1.0], [1e-156, 1e-156], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    change = np.array([[1e-170] * 2, [1e-155] * 2, [-1.0] * 2, [2.0] * 2, [2.0] * 2])
    searches = _Searches.at(np.zeros((5, 2)), np.zeros(5), -2.0 * step)
    with np.errstate(all="ignore"):
        _update(searches, step, change, np.array([True, True, True, True, False]))
    assert searches.known.tolist() == [True, True, True, True, False]
    assert searches.inverse[:3] == pytest.approx(np.tile(np.eye(2), (3, 1, 1)))
    assert searches.inverse[3] @ change[3] == pytest.approx(step[3]) and not searches.inverse[4].any()
    before = searches.inverse[3].copy()
    with np.errstate(all="ignore"):
        _update(searches, step, -change, np.array([False, False, False, True, False]))
    assert searches.inverse[3] == pytest.approx(2.0 * before)


def test_a_plateau_is_left_in_few_steps() -> None:
    """`1 / (1 + exp(x))`, from where its slope is but exp(-12): with steps as long as the slope, 160,000 of them."""
    calls = 0

    def function(points: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal calls
        calls += 1
        values = 1.0 / (1.0 + np.exp(points[:, 0]))
        return values, (-values * (1.0 - values))[:, None]

    _, values = minimise(function, np.array([[-12.0]]), np.full(1, -np.inf), tolerance=0.0)
    assert values[0] < 1e-3 and calls < 100


def test_the_minimiser_follows_a_curved_valley() -> None:
    def function(points: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = points.T
        slopes = [-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)]
        return (1 - x) ** 2 + 100 * (y - x * x) ** 2, np.stack(slopes, axis=1)

    found, _ = minimise(function, np.array([[-1.2, 1.0]]), np.full(2, -np.inf), tolerance=0.0)
    assert found[0] == pytest.approx([1.0, 1.0], abs=1e-5)


def test_fits_end_below_every_start_and_random_points() -> None:
    problem = RiskProblem.of(make_table(40, 3), {"am": 1.0})
    rng = np.random.default_rng(0)
    (starts,) = problem.starts([rng])
    found = at(problem, problem.fit(1.0, [starts])[0], 1.0)[0]
    others = [*starts, *np.abs(rng.standard_normal((200, len(problem.low))))]
    assert found <= min(at(problem, point, 1.0)[0] for point in others)


def test_parts_are_problems_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same units: as of lists that hold the utterances of a part alone; whatever is looked at together."""
    table = make_table(40, 7)
    whole, parts = RiskProblem.of(table, {"am": 1.0}), [np.arange(0, 40, 2), np.arange(5, 30)]
    side_by_side = whole.in_parts(parts, table)
    starts = side_by_side.starts([np.random.default_rng(k) for k in range(2)])
    found = side_by_side.fit(0.5, starts)
    monkeypatch.setattr("rescore.tuning.minimum_risk.AT_ONCE", 1)
    assert np.stack(side_by_side.fit(0.5, starts)) == pytest.approx(np.stack(found), rel=1e-5, abs=1e-5)
    for k, part in enumerate(parts):
        alone = whole.of_utterances(part, table.select(part))
        assert np.array_equal(alone.starts([np.random.default_rng(k)])[0], starts[k])
        assert alone.words == side_by_side.words[k] == table.ref_words[part].sum()
        point = alone.fit(0.5, [starts[k]])[0]
        assert point == pytest.approx(found[k], rel=1e-5, abs=1e-5)


def test_a_strong_penalty_leaves_the_fixed_scales_alone() -> None:
    table = make_table(40, 4)
    problem = RiskProblem.of(table, {"am": 1.0})
    scales, inverse = problem.scales(fitted(problem, 1e9), table.names)
    assert np.abs(scales * table.spread()).max() < 1e-3 * table.spread()[0] and inverse > 0


def test_scales_stay_in_their_limits_where_the_fixed_score_is_of_no_use() -> None:
    table = make_table(40, 5)
    problem = RiskProblem.of(table, {"noise": 1.0})
    scales, inverse = problem.scales(fitted(problem, 1.0), table.names)
    assert np.isfinite(scales).all() and inverse > 0
    assert np.abs(scales[problem.columns] / problem.unit[1:]).max() <= 1.001 * LIMIT / problem.unit[0]


def with_probabilities(table: ScoreTable, shift: float) -> ScoreTable:
    """`am` as log-probabilities of a list's hypotheses that sum to 1 (`shift` 0), `lm1` of 5 nats a word."""
    matrix = table.matrix.copy()
    lists = SoftLists.of(table)
    am, words = table.names.index("am"), table.names.index("words")
    matrix[:, am] = np.log(lists.softmax(0.1 * matrix[None, :, am])[0]) + shift
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
