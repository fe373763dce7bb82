"""What is no list, score, column or share is one clear error, with a normaliser as without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rescore as rs
from tests.lm_zoo import zoo


def lists(score: Any = -1.0, hyps: Any = None) -> rs.Lists:
    """An utterance of two hypotheses that are one without case; the first has the score."""
    made = [rs.Hypothesis(("A",), {"am": score}), rs.Hypothesis(("a",), {"am": -1.0})]
    return rs.Lists([rs.NbestList("u", made if hyps is None else hyps, ("a",))])


@pytest.mark.parametrize("score", [None, "-1", float("nan")])
def test_a_score_that_is_no_number_where_hypotheses_become_equal(score: Any) -> None:
    with pytest.raises(rs.RescoreError, match="hypothesis 1 has the score am = "):
        rs.combine(lists(score), {"am": 1.0}, normalise="basic")
    assert rs.compare(lists(), {"a": lists(score)}, normalise="basic").rows[0].counts.errors == 0


@pytest.mark.parametrize("value", [np.arange(2), float("inf")])
def test_info_that_is_no_json_is_not_saved(value: Any, tmp_path: Path) -> None:
    weights = rs.tune(lists(), folds=0, normalise="basic")
    weights.info["seeds"] = value
    with pytest.raises(rs.RescoreError, match='weights to save: "info" has what JSON cannot hold'):
        weights.save(tmp_path / "weights.json")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: rs.combine(lists("-1"), {"am": 1.0}), "hypothesis 1 has the score am = '-1'; scores must be finite"),
        (lambda: rs.tune(lists("-1")), "hypothesis 1 has the score am = '-1'; to tune, scores must be finite"),
        (
            lambda: rs.wer({"u": ["a", "", "b"]}, {"u": ("a", "b")}),
            "u has the word '', expected words without blanks",
        ),
        (lambda: rs.wer({"u": ("a", "b")}, {"u": ("a b",)}), "hypothesis of utterance u has the word 'a b', expected"),
        (
            lambda: lists(hyps=[rs.Hypothesis(("",), {"am": -1.0})]),
            "utterance u: hypothesis 1 has the word '', expected",
        ),
        (lambda: lists(hyps=7), "utterance u: the hypotheses are 7, expected rs.NbestList"),
        (lambda: lists(hyps=[rs.Hypothesis(("A",), None)]), "utterance u: the scores of a hypothesis are None"),  # type: ignore[arg-type]
        (lambda: rs.score(lists(), {5: zoo.neural("lstm")}), "an LM's column is 5, expected a name"),  # type: ignore[dict-item]
        (lambda: rs.score(lists(), {"": zoo.neural("lstm")}), "an LM's column is '', expected a name"),
        (lambda: rs.score(lists(), "lstm", max_unknown="all"), "max_unknown is 'all', expected a number from 0 to 1"),  # type: ignore[arg-type]
        (lambda: rs.score(lists(), "lstm", max_unknown=5), "max_unknown is 5, expected a number from 0 to 1"),
        (lambda: rs.Lattices([]).rescore("lstm", max_unknown=-1), "max_unknown is -1, expected a number from 0 to 1"),
    ],
)
def test_what_is_not_as_expected_is_one_error(work: Callable[[], object], message: str) -> None:
    with pytest.raises(rs.RescoreError, match=message):
        work()
