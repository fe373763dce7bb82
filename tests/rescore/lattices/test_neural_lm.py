"""LMs over whole lattices against the scoring of all paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import ScoreError
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.neural_lm import LatticeLM
from rescore.lattices.paths import best_path, total_scores
from rescore.types import Lattice, Words
from tests.lm_zoo import zoo
from tests.rescore.lattices.test_paths import (
    SCALES,
    all_paths,
    assert_well_formed,
    best_by_words,
    lattices,
    make,
    path_words,
)

SYMBOLS = ("", "A", "B", "ZZZ")
NEW = {**SCALES, "one": 0.75, "two": 0.5}
LMS = {"one": zoo.neural("transfornn"), "two": zoo.neural("lookup")}


def sentence_scores(lm: Any, sentences: Sequence[Words]) -> dict[Words, float]:
    return dict(zip(sentences, (sum(row) for row in lm.score_words(sentences, max_unknown=None)), strict=True))


def full_totals(lattice: Lattice, lms: dict[str, Any]) -> dict[Words, float]:
    """The best total of every word sequence with the LMs' scores of the whole sentence: the slow way."""
    best = best_by_words(lattice)
    for name, lm in lms.items():
        for words, score in sentence_scores(lm, list(best)).items():
            best[words] += NEW[name] * score
    return best


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(lattices(SYMBOLS), min_size=1, max_size=3))
def test_without_merging_and_beam_every_path_gets_the_sentence_scores(group: list[Lattice]) -> None:
    group = [replace(lattice, utt_id=f"u{place}") for place, lattice in enumerate(group)]
    for lattice, result in zip(group, LatticeLM(LMS, NEW)(group), strict=True):
        assert_well_formed(result)
        paths = list(all_paths(result))
        words = [path_words(result, path) for path in paths]
        for name, lm in LMS.items():
            expected = sentence_scores(lm, list(dict.fromkeys(words)))
            for path, sequence in zip(paths, words, strict=True):
                assert result.scores[name][path].sum() == pytest.approx(expected[sequence], abs=1e-4)
        totals = full_totals(lattice, LMS)
        assert best_by_words(result, NEW) == pytest.approx(totals, abs=1e-3)
        nbest = exact_nbest(result, NEW, 3)
        assert [sum(NEW[k] * v for k, v in hyp.scores.items()) for hyp in nbest.hyps] == pytest.approx(
            sorted(totals.values(), reverse=True)[:3], abs=1e-3
        )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(lattices(SYMBOLS), st.integers(0, 2))
def test_with_merging_the_best_path_has_its_exact_scores(lattice: Lattice, context: int) -> None:
    """A merged history goes on as the best path into it, so that the best path's own history is never replaced."""
    lms = {"one": LMS["one"]}
    scales = {name: scale for name, scale in NEW.items() if name != "two"}
    (merged,) = LatticeLM(lms, scales, context=context)([lattice])
    assert_well_formed(merged)
    exact = full_totals(lattice, lms)
    best = best_path(merged, scales)
    assert best.scores["one"] == pytest.approx(sentence_scores(lms["one"], [best.words])[best.words], abs=1e-4)
    total = sum(scales[name] * value for name, value in best.scores.items())
    assert total == pytest.approx(exact[best.words], abs=1e-3) and total <= max(exact.values()) + 1e-3
    assert set(best_by_words(merged, scales)) == set(exact)


@settings(max_examples=40, deadline=None)
@given(lattices(SYMBOLS), st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([None, 1, 2]))
def test_a_beam_never_empties_the_lattice(lattice: Lattice, beam: float, most: int | None) -> None:
    plan = LatticeLM(LMS, NEW, beam=beam, most=most, proxies=("lm",))
    (pruned,) = plan([lattice])
    assert_well_formed(pruned)
    exact = full_totals(lattice, LMS)
    for words, total in best_by_words(pruned, NEW).items():
        assert total <= exact[words] + 1e-3


def test_a_wide_beam_is_exact() -> None:
    rng = np.random.default_rng(0)
    arcs = [
        (state, state + step, word, float(rng.normal()), float(rng.normal()))
        for state in range(8)
        for step in (1, 2)
        for word in ("A", "B", "C")
        if state + step <= 8
    ]
    lattice = make(arcs, 9)
    (exact,) = LatticeLM(LMS, NEW)([lattice])
    plan = LatticeLM(LMS, NEW, beam=30.0, proxies=("lm",))
    (wide,) = plan([lattice])
    assert best_path(wide, NEW).words == best_path(exact, NEW).words
    assert wide.num_arcs <= exact.num_arcs
    assert plan.evaluations > 0


def test_lattices_in_company_are_scored_as_alone() -> None:
    group = [make([(0, 1, "A", 0.0, 0.0), (1, 2, word, -1.0, 0.0)], 3) for word in ("A", "B", "C")]
    together = LatticeLM(LMS, NEW)(group)
    for lattice, result in zip(group, together, strict=True):
        (alone,) = LatticeLM(LMS, NEW)([lattice])
        for name in LMS:
            assert result.scores[name].tolist() == pytest.approx(alone.scores[name].tolist(), abs=1e-5)


def test_the_empty_sentence_of_a_single_state_ends() -> None:
    (found,) = LatticeLM(LMS, NEW)([make([], 1)])
    assert_well_formed(found)
    for name, lm in LMS.items():
        assert found.scores[name].tolist() == pytest.approx([sentence_scores(lm, [()])[()]], abs=1e-4)


def test_equal_histories_are_evaluated_once() -> None:
    lattice = make([(0, 1, "A", 0.0, 0.0), (0, 1, "B", 0.0, 0.0), (1, 2, "A", 0.0, 0.0), (1, 2, "B", 0.0, 0.0)], 3)
    plan = LatticeLM({"one": LMS["one"]}, {**SCALES, "one": 1.0})
    plan([lattice, replace(lattice, utt_id="again")])
    assert plan.evaluations == 1 + 2 + 4  # begin; one word; two words, for their ends


def test_bad_input() -> None:
    lattice = make([(0, 1, "A", 0.0, 0.0)], 2)
    with pytest.raises(ScoreError, match="has a score 'lm' already"):
        LatticeLM({"lm": LMS["one"]}, SCALES)([lattice])
    with pytest.raises(ScoreError, match="no scale for 'one'"):
        LatticeLM({"one": LMS["one"]}, SCALES)
    assert total_scores(lattice, SCALES).shape == (1,)
