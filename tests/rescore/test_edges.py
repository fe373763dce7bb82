"""What is said of ties, of impossible scores, and of lists with one, empty or equal hypotheses (docs/concepts.md)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from rescore.errors import FormatError, ScoreError
from rescore.evaluation.distances import nbest_expected_errors
from rescore.formats import read_nbest
from rescore.lattices.paths import best_path
from rescore.types import Hypothesis, Lattice, NbestList, Weights
from rescore.weights import for_mbr
from rescore.workflows.combine import combine_list
from rescore.workflows.normalising import Normaliser
from tests.lm_zoo import zoo

AM = Weights({"am": 1.0})


def listed(*hyps: tuple[str, float]) -> NbestList:
    return NbestList("u", [Hypothesis(tuple(words.split()), {"am": score}) for words, score in hyps])


def texts(nbest: NbestList) -> list[str]:
    return [" ".join(hyp.words) for hyp in nbest.hyps]


def test_of_equal_totals_the_earlier_hypothesis_stays_before() -> None:
    nbest = listed(("A", -1.0), ("B", -1.0), ("C", -2.0), ("D", -1.0))
    assert texts(combine_list(nbest, AM)) == ["A", "B", "D", "C"]
    assert texts(combine_list(nbest, Weights({"am": 0.0}))) == ["A", "B", "C", "D"]
    assert texts(combine_list(nbest, for_mbr(AM, 1.0))) == ["A", "B", "D", "C"]


def test_of_equal_paths_the_first_arc_is_taken() -> None:
    ends = np.array([0, 0], dtype=np.int32), np.array([1, 1], dtype=np.int32)
    lattice = Lattice("u", 2, *ends, np.array([2, 1], dtype=np.int32), {"am": np.zeros(2)}, ["", "A", "B"])
    assert best_path(lattice, {"am": 1.0}).words == ("B",)


@pytest.mark.parametrize("score", [-math.inf, math.inf, math.nan])
def test_scores_that_are_not_finite_are_refused(score: float, tmp_path: Path) -> None:
    with pytest.raises(ScoreError, match=r"utterance u: hypothesis 1 has the score am = .*; scores must be finite"):
        combine_list(listed(("A", score), ("B", score)), AM)
    (tmp_path / "a.jsonl").write_text('{"utt_id": "u", "hyps": [{"words": "A", "scores": {"am": -Infinity}}]}\n')
    with pytest.raises(ScoreError, match="expected a finite number"):
        list(read_nbest(f"jsonl:{tmp_path / 'a.jsonl'}"))


def test_lists_of_one_and_of_none(tmp_path: Path) -> None:
    for mbr in (None, 1.0):
        assert texts(combine_list(listed(("A", -1e300)), for_mbr(AM, mbr))) == ["A"]
    with pytest.raises(ScoreError, match="utterance u: no hypothesis; every list needs at least one"):
        combine_list(NbestList("u", []), AM)
    (tmp_path / "a.jsonl").write_text('{"utt_id": "u", "hyps": []}\n')
    with pytest.raises(FormatError, match="no hypotheses, expected at least one"):
        list(read_nbest(f"jsonl:{tmp_path / 'a.jsonl'}"))


def test_an_empty_hypothesis_is_one_like_others() -> None:
    """It may win; an LM scores the end of the sentence behind its begin."""
    assert texts(combine_list(listed(("A", -2.0), ("", -1.0)), AM)) == ["", "A"]
    assert texts(combine_list(listed(("", -2.0), ("", -1.0)), Weights({"am": 1.0, "words": 5.0}))) == ["", ""]
    lm = zoo.neural("lstm")
    (ended,) = lm.score_words([[]])
    assert len(ended) == 1 and lm.score_sentences([[]]) == pytest.approx([float(ended[0])], abs=1e-5)


def test_equal_hypotheses_stay_and_add_up_in_posteriors() -> None:
    nbest = listed(("A B", -1.0), ("C D", -1.2), ("C D", -1.2))
    assert texts(combine_list(nbest, AM)) == ["A B", "C D", "C D"]
    assert texts(combine_list(nbest, for_mbr(AM, 1.0))) == ["C D", "C D", "A B"]
    errors = nbest_expected_errors([hyp.words for hyp in nbest.hyps], [-1.0, -1.2, -1.2], 1.0)
    assert errors[1] == errors[2] < errors[0]
    merged, _ = Normaliser("basic").merge(nbest)
    assert texts(merged) == ["a b", "c d"] and merged.hyps[1].scores["am"] == pytest.approx(-1.2 + math.log(2))
