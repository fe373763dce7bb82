"""Exact N-best of lattices against the enumeration of all paths; normalised N-best lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import ScoreError
from rescore.lattices import nbest as nbest_module
from rescore.lattices.build import build_lattice
from rescore.lattices.determinised import Determinised, WordState
from rescore.lattices.epsilons import remove_epsilons
from rescore.lattices.nbest import exact_nbest, exact_paths
from rescore.text import TextNormalizer
from rescore.types import Hypothesis, Lattice, NbestList
from rescore.workflows.convert import normalize_nbest
from tests.rescore.lattices.test_paths import SCALES, best_by_words, lattices, make, score_sums


def assert_is_exact(nbest: NbestList, best: dict[tuple[str, ...], float], scales: dict[str, float], n: int) -> None:
    """`nbest` is what the best totals of all word sequences say, up to the order of ties."""
    words = [hyp.words for hyp in nbest.hyps]
    totals = [sum(scale * hyp.scores[name] for name, scale in scales.items()) for hyp in nbest.hyps]
    assert len(set(words)) == len(words) == min(n, len(best))
    assert totals == pytest.approx([best[sequence] for sequence in words])
    assert totals == pytest.approx(sorted(best.values(), reverse=True)[:n])
    assert all(hyp.scores["words"] == len(hyp.words) for hyp in nbest.hyps)


@settings(max_examples=60, deadline=None)
@given(lattices(), st.integers(1, 12))
def test_exact_nbest_is_the_enumeration(lattice: Lattice, n: int) -> None:
    nbest = exact_nbest(lattice, SCALES, n)
    assert nbest.utt_id == "utt"
    assert_is_exact(nbest, best_by_words(lattice), SCALES, n)
    sums = score_sums(lattice)
    assert all((h.words, round(h.scores["am"], 6), round(h.scores["lm"], 6)) in sums for h in nbest.hyps)


@settings(max_examples=60, deadline=None)
@given(lattices(symbols=("a", "b", "")), st.integers(1, 30))
def test_many_paths_for_each_word_sequence(lattice: Lattice, n: int) -> None:
    assert_is_exact(exact_nbest(lattice, SCALES, n), best_by_words(lattice), SCALES, n)


def test_the_best_path_of_a_word_sequence_gives_its_scores() -> None:
    lattice = make([(0, 1, "a", -5, -1), (0, 1, "a", -1, -9), (0, 1, "b", -3, -3)], 2)
    assert exact_nbest(lattice, {"am": 1.0}, 5).hyps == [
        Hypothesis(("a",), {"am": -1, "lm": -9, "words": 1}),
        Hypothesis(("b",), {"am": -3, "lm": -3, "words": 1}),
    ]
    assert exact_nbest(lattice, {"lm": 1.0}, 5).hyps[0].scores == {"am": -5, "lm": -1, "words": 1}


def test_the_empty_word_sequence_is_one() -> None:
    nbest = exact_nbest(make([(0, 1, "", -1, 0), (0, 1, "a", -2, 0)], 2), {"am": 1.0}, 3)
    assert [hyp.words for hyp in nbest.hyps] == [(), ("a",)]
    assert exact_nbest(make([], 1), {"am": 1.0}, 3).hyps == [Hypothesis((), {"am": 0, "lm": 0, "words": 0})]


@pytest.mark.parametrize("few", [1, nbest_module._FEW])
@settings(max_examples=100, deadline=None)
@given(lattices(symbols=("a", "b", "")), st.sampled_from([0.0, 0.25, 1.0]), st.integers(1, 30))
def test_ties(few: int, lattice: Lattice, less: float, n: int) -> None:
    """Many word sequences with the same total, also where arcs with the best paths through them come first."""
    lattice = replace(lattice, scores={name: np.floor(less * scores) for name, scores in lattice.scores.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nbest_module, "_FEW", few)
        found = exact_nbest(lattice, SCALES, n)
        assert exact_nbest(lattice, SCALES, n) == found
    assert_is_exact(found, best_by_words(lattice), SCALES, n)


def sausage(length: int, scores: np.ndarray) -> Lattice:
    """So many choices between two words, `scores` `(2 * length,)`."""
    src = np.repeat(np.arange(length), 2)
    labels = np.tile([1, 2], length)
    return build_lattice("utt", length + 1, src, src + 1, labels, {"am": scores}, ["", "a", "b"], 0, length)


def test_many_equally_good_word_sequences() -> None:
    """2^200 of them; no more branches are kept than asked for."""
    search = nbest_module._NbestSearch(sausage(200, np.zeros(400)), {"am": 1.0}, 3)
    found = list(search.run())
    assert [total for total, _ in found] == [0.0] * 3
    assert len({tuple(path) for _, path in found}) == 3


def test_what_follows_a_state_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[WordState] = []
    open_one = Determinised.open
    monkeypatch.setattr(Determinised, "open", lambda *args: (opened.append(args[1]), open_one(*args)))
    found = exact_nbest(sausage(50, -np.random.default_rng(0).random(100)), {"am": 1.0}, 100)
    assert len(found.hyps) == 100
    assert len(opened) == 51


def test_not_all_arcs_lose_their_epsilons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 states, each with a word or nothing to all later ones, some give the list."""
    src, dst = np.triu_indices(40, 1)
    dice = np.random.default_rng(0)
    am, labels = -dice.random(len(src)) * (dst - src), dice.integers(0, 3, len(src))
    lattice = build_lattice("utt", 40, src, dst, labels, {"am": am}, ["", "a", "b"], 0, 39)
    whole = exact_nbest(lattice, {"am": 1.0}, 2)
    monkeypatch.setattr(nbest_module, "_FEW", 100)
    assert exact_nbest(lattice, {"am": 1.0}, 2) == whole
    near, _ = exact_paths(lattice, {"am": 1.0}, 2)
    assert near.num_arcs < remove_epsilons(lattice, {"am": 1.0}).num_arcs / 2


def test_more_sequences_than_could_be_enumerated() -> None:
    """A chain of 200 choices between three words, with 4^200 paths; the n best are known by hand."""
    length = 200
    src = np.repeat(np.arange(length), 4)
    gap = np.tile([0.0, -1e6, -1e6, -2e6], length)
    gap[[4 * 10 + 1, 4 * 150 + 2]] = [-3.0, -5.0]
    labels = np.tile([1, 2, 3, 1], length)  # the last, worse arc has the same word as the first
    lattice = build_lattice("utt", length + 1, src, src + 1, labels, {"am": gap}, ["", "a", "b", "c"], 0, length)
    nbest = exact_nbest(lattice, {"am": 1.0}, 4)
    assert [hyp.scores["am"] for hyp in nbest.hyps] == [0.0, -3.0, -5.0, -8.0]
    assert [(hyp.words[10], hyp.words[150]) for hyp in nbest.hyps] == [("a", "a"), ("b", "a"), ("a", "c"), ("b", "c")]


def test_bad_arguments() -> None:
    lattice = make([(0, 1, "a", -5, -1)], 2)
    with pytest.raises(ValueError, match="expected at least 1"):
        exact_nbest(lattice, SCALES, 0)
    with pytest.raises(ScoreError, match="no score 'nn'"):
        exact_nbest(lattice, {"nn": 1.0}, 1)


def test_normalize_nbest_keeps_the_first_of_equals() -> None:
    hyps = [
        Hypothesis(("U.S.", "made"), {"am": -1.0, "words": 2.0}),
        Hypothesis(("us-made",), {"am": -2.0, "words": 1.0}),
        Hypothesis(("us", "mad"), {"am": -3.0}),
    ]
    nbest, duplicates = normalize_nbest(NbestList("u", hyps, ("US-made",)), TextNormalizer("lower", ".", "-"))
    assert duplicates == 1
    assert nbest.ref == ("us", "made")
    assert [(hyp.words, hyp.scores) for hyp in nbest.hyps] == [
        (("us", "made"), {"am": -1.0, "words": 2.0}),
        (("us", "mad"), {"am": -3.0}),
    ]
    split, _ = normalize_nbest(NbestList("u", hyps[1:2]), TextNormalizer(split="-"))
    assert split.hyps[0].scores == {"am": -2.0, "words": 2.0}


def test_impossible_paths_are_left_out_and_what_is_no_number_is_said() -> None:
    arcs = [(0, 1, "a", 0, 0), (0, 1, "b", -np.inf, 0), (1, 2, "a", -1, 0), (1, 2, "", -2, 0), (0, 2, "c", -np.inf, 0)]
    for n in (1, 2, 9):
        found = exact_nbest(make(arcs, 3), SCALES, n)
        assert [hyp.words for hyp in found.hyps] == [("a", "a"), ("a",)][:n]
    with pytest.raises(ScoreError, match="lattice 'utt': every path has an arc with a score of -inf"):
        exact_nbest(make([(0, 1, "b", -np.inf, 0)], 2), SCALES, 3)
    for bad in (np.nan, np.inf):
        with pytest.raises(ScoreError, match=f"lattice 'utt': arc 1 has a total of {bad}"):
            exact_nbest(make([(0, 1, "a", 0, 0), (0, 1, "b", bad, 0)], 2), SCALES, 3)
