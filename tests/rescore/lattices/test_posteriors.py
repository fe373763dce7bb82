"""Posteriors and pruning against the enumeration of all paths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import ScoreError
from rescore.lattices.paths import backward_scores, best_path, forward_scores, total_scores
from rescore.lattices.posteriors import arc_posteriors, posterior_lines
from rescore.lattices.prune import prune_beam, prune_density, prune_posterior
from rescore.types import Alignments, Lattice
from tests.rescore.lattices.test_paths import (
    SCALES,
    all_paths,
    assert_well_formed,
    lattices,
    make,
    path_words,
    score_sums,
)


def path_totals(lattice: Lattice) -> list[tuple[list[int], float]]:
    totals = total_scores(lattice, SCALES)
    return [(path, float(totals[path].sum())) for path in all_paths(lattice)]


def assert_best_path_stays(pruned: Lattice, lattice: Lattice) -> None:
    assert_well_formed(pruned)
    assert score_sums(pruned) <= score_sums(lattice)
    best = max(total for _, total in path_totals(lattice))
    assert max(total for _, total in path_totals(pruned)) == pytest.approx(best)
    assert pruned.counts.get("pruned_arcs", 0) == lattice.num_arcs - pruned.num_arcs
    assert pruned.counts.get("pruned_states", 0) == lattice.num_states - pruned.num_states


def arcs_within(lattice: Lattice, beam: float) -> int:
    """Number of arcs on some path at most `beam` below the best."""
    paths = path_totals(lattice)
    best = max(total for _, total in paths)
    return len({arc for path, total in paths if total >= best - beam - 1e-6 for arc in path})


@settings(max_examples=40, deadline=None)
@given(lattices())
def test_forward_and_backward(lattice: Lattice) -> None:
    totals = total_scores(lattice, SCALES)
    for combine, reduce in ((np.maximum, max), (np.logaddexp, np.logaddexp.reduce)):
        whole = reduce([total for _, total in path_totals(lattice)])
        forward = forward_scores(lattice, totals, combine)
        backward = backward_scores(lattice, totals, combine)
        assert backward[0] == pytest.approx(whole) == forward[-1]
        for state in range(lattice.num_states):
            onward = [float(totals[path].sum()) for path in all_paths(lattice, state)]
            assert backward[state] == pytest.approx(reduce(onward))
    both = np.stack([totals, 2 * totals], axis=1)
    assert forward_scores(lattice, both)[:, 1] == pytest.approx(forward_scores(lattice, 2 * totals))
    assert backward_scores(lattice, both)[:, 1] == pytest.approx(backward_scores(lattice, 2 * totals))


@settings(max_examples=40, deadline=None)
@given(lattices())
def test_posteriors(lattice: Lattice) -> None:
    paths = path_totals(lattice)
    norm = sum(math.exp(total) for _, total in paths)
    expected = np.zeros(lattice.num_arcs)
    words: dict[str, float] = {}
    for path, total in paths:
        expected[path] += math.exp(total) / norm
        for word in path_words(lattice, path):
            words[word] = words.get(word, 0.0) + math.exp(total) / norm
    assert arc_posteriors(lattice, SCALES) == pytest.approx(expected)
    lattice.times = None
    lines = [line.split() for line in posterior_lines(lattice, SCALES, 0.0)]
    assert {line[4]: float(line[3]) for line in lines} == pytest.approx(words, abs=1e-5)
    assert all(line[:3] == ["utt", "-", "-"] for line in lines)


def test_lines_add_arcs_of_one_word_and_time() -> None:
    lattice = make([(0, 1, "a", 0, 0), (0, 1, "a", 0, 1), (0, 1, "b", 0, 2), (1, 2, "", 0, 0), (1, 2, "a", 0, 0)], 3)
    expected = ["utt 0.000 1.000 0.66667 a", "utt 0.000 1.000 0.33333 b", "utt 1.000 1.000 0.50000 a"]
    assert posterior_lines(lattice, {"am": 1.0}, 0.0) == expected
    assert posterior_lines(lattice, {"am": 1.0}, 0.4) == [expected[0], expected[2]]


def test_pruning_keeps_what_stands_on_the_arcs() -> None:
    lattice = make([(0, 1, "a", 0, 0), (0, 1, "b", -9, 0), (1, 2, "c", 0, 0)], 3)
    lattice.alignments = Alignments.of_lengths(np.arange(6), np.array([3, 2, 1]))
    pruned = prune_beam(lattice, {"am": 1.0}, 1.0)
    assert pruned.alignments is not None
    assert [pruned.alignments.string(arc) for arc in range(2)] == [(0, 1, 2), (5,)]


@settings(max_examples=40, deadline=None)
@given(lattices(), st.integers(0, 12))
def test_beam(lattice: Lattice, beam: int) -> None:
    pruned = prune_beam(lattice, SCALES, beam)
    assert_best_path_stays(pruned, lattice)
    assert pruned.num_arcs == arcs_within(lattice, beam)


@settings(max_examples=40, deadline=None)
@given(lattices(), st.sampled_from([0.0, 0.01, 0.3, 0.9, 1.1]))
def test_posterior_threshold(lattice: Lattice, threshold: float) -> None:
    pruned = prune_posterior(lattice, SCALES, threshold)
    assert_best_path_stays(pruned, lattice)
    posteriors = arc_posteriors(lattice, SCALES)
    best = np.zeros(lattice.num_arcs, dtype=bool)
    best[max(path_totals(lattice), key=lambda item: item[1])[0]] = True
    likely = posteriors >= threshold
    assert pruned.num_arcs <= (likely | best).sum() or threshold > 0.5  # of equal best paths another may stay
    if threshold == 0.0:
        assert pruned is lattice


@settings(max_examples=40, deadline=None)
@given(lattices(), st.integers(0, 12), st.sampled_from(["second", "word"]))
def test_density(lattice: Lattice, density: int, unit: str) -> None:
    pruned = prune_density(lattice, SCALES, density, unit)
    assert_best_path_stays(pruned, lattice)
    assert lattice.times is not None
    words = max(1, len(best_path(lattice, SCALES).words))
    most = density * (words if unit == "word" else float(lattice.times[-1] - lattice.times[0]))
    assert pruned.num_arcs <= max(most, len(max(all_paths(pruned), key=len)), arcs_within(lattice, 0.0))
    kept = {round(total, 6) for _, total in path_totals(pruned)}
    beams = [beam for beam in np.arange(0, 60, 0.25) if arcs_within(lattice, beam) == pruned.num_arcs]
    assert beams or kept == {round(max(total for _, total in path_totals(lattice)), 6)}
    if pruned.num_arcs < lattice.num_arcs and beams:  # one step wider would be too many
        wider = next((arcs for b in np.arange(0, 60, 0.25) if (arcs := arcs_within(lattice, b)) > pruned.num_arcs), 0)
        assert wider > most


def test_density_counts_words_and_seconds() -> None:
    arcs = [(0, 1, "a", 0, 0), (0, 1, "b", -1, 0), (1, 2, "c", 0, 0), (1, 2, "d", -2, 0), (1, 2, "e", -3, 0)]
    lattice = make(arcs, 3)
    scales = {"am": 1.0}
    assert prune_density(lattice, scales, 2.0, "word").num_arcs == 4
    assert prune_density(lattice, scales, 1.5, "second").num_arcs == 3
    assert prune_density(lattice, scales, 0.1, "second").num_arcs == 2
    lattice.times = np.array([0.4, 0.5, 0.7])
    assert prune_density(lattice, scales, 10.0, "second").num_arcs == 3  # 2.9999999999999996 in floats
    assert prune_density(lattice, scales, 9.99, "second").num_arcs == 2
    lattice.times = np.array([0.0, 0.5, 100.0])
    assert prune_density(lattice, scales, 1e308, "second") is lattice
    lattice.times = None
    with pytest.raises(ScoreError, match="lattice 'utt' has no times; give the density a word"):
        prune_density(lattice, scales, 1.5, "second")


def test_density_of_a_best_path_without_a_word_is_that_of_one() -> None:
    lattice = make([(0, 1, "", 0, 0), (0, 1, "a", -1, 0), (0, 1, "b", -2, 0)], 2)
    assert prune_density(lattice, {"am": 1.0}, 2.0, "word").num_arcs == 2


def test_a_beam_keeps_what_rounding_puts_outside() -> None:
    lattice = make([(0, 2, "a", 0, 0), (0, 1, "b", -0.1, 0), (1, 2, "c", -0.2, 0)], 3)
    assert -0.1 - 0.2 < -0.3
    assert prune_beam(lattice, {"am": 1.0}, 0.3) is lattice


def test_impossible_arcs() -> None:
    lattice = make([(0, 1, "a", -math.inf, 0), (0, 1, "b", -1, 0), (1, 2, "c", 0, 0)], 3)
    assert arc_posteriors(lattice, {"am": 1.0}).tolist() == [0.0, 1.0, 1.0]
    assert prune_beam(lattice, {"am": 1.0}, 100.0).num_arcs == 2
    assert prune_density(lattice, {"am": 1.0}, 2.5, "second").num_arcs == 2 + 1  # nothing to leave out
    more = make([(0, 1, "a", -math.inf, 0), (0, 1, "b", -1, 0), (0, 1, "d", -2, 0), (1, 2, "c", 0, 0)], 3)
    assert prune_density(more, {"am": 1.0}, 1.5, "second").num_arcs == 3  # the fourth is impossible
    assert prune_posterior(lattice, {"am": 1.0}, 0.0).num_arcs == 2
    assert arc_posteriors(lattice, {"am": 0.0}).tolist() == [0.5, 0.5, 1.0]
    lattice.scores["am"][1] = -math.inf
    with pytest.raises(ScoreError, match="lattice 'utt': every path has an arc with a score of -inf"):
        arc_posteriors(lattice, {"am": 1.0})
    lattice.scores["am"][1] = math.nan
    with pytest.raises(ScoreError, match=r"lattice 'utt': arc 1 has a total of nan \(am = nan, lm = 0.0\)"):
        prune_beam(lattice, {"am": 1.0}, 1.0)


def test_a_single_state() -> None:
    lattice = make([], 1)
    assert arc_posteriors(lattice, SCALES).tolist() == []
    assert prune_beam(lattice, SCALES, 1.0) is lattice
    assert prune_posterior(lattice, SCALES, 1.0) is lattice
    assert prune_density(lattice, SCALES, 1.0, "word") is lattice
