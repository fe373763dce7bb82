"""Default scales, and the decision that weights are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rescore.errors import FormatError, ScoreError, UsageError, WeightsError
from rescore.types import Weights
from rescore.weights import (
    LM_WEIGHT,
    check_same_scores,
    decision_of,
    default_scales,
    equal_weights,
    given_weights,
    load_mixture,
    load_weights,
    no_score,
    total,
)


def test_default_scales() -> None:
    assert LM_WEIGHT == 10.0
    assert default_scales({"pron", "words", "lm", "am"}) == {"am": 1.0, "lm": 10.0}
    assert default_scales(["graph", "am"]) == {"am": 1.0, "graph": 10.0}
    assert default_scales(["graph", "am"], ngram="ngram") == {"am": 1.0, "ngram": 10.0}
    assert default_scales(["score"]) == {"score": 1.0}
    assert default_scales([]) == {}


def test_equal_weights() -> None:
    assert equal_weights(["am", "words"]).scales == {"am": 1.0, "words": 1.0}
    assert equal_weights(["am", "ilm", "lm", "lm-uncertainty"]).scales == {"am": 1.0, "lm": 1.0}


def test_given_weights() -> None:
    assert given_weights(None, ()) is None
    weights = given_weights(None, ["am=1", "lm=0.5"])
    assert weights is not None and weights.scales == {"am": 1.0, "lm": 0.5}
    with pytest.raises(UsageError, match="either --weights FILE or --scale"):
        given_weights("weights.json", ["am=1"])


def test_a_file_with_a_scale_twice(tmp_path: Path) -> None:
    """The last one counted, where --scale given twice is refused."""
    (tmp_path / "w.json").write_text('{"scales": {"am": 1, "lm": 5, "am": 2}}')
    with pytest.raises(FormatError, match=r"w.json: not JSON \('am' is given more than once\); expected weights as"):
        load_weights(tmp_path / "w.json")


@pytest.mark.parametrize("text", ['{"a": 0.5, "b": 0.49}', '{"a": 1.5, "b": -0.5}', '{"a": 0.5, "b": 0.51}'])
def test_weights_of_a_mixture_sum_to_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "mix.json").write_text(f'{{"scales": {text}}}')
    with pytest.raises(FormatError, match="interpolation weights must be >= 0 and sum to 1"):
        load_mixture(tmp_path / "mix.json", ["a", "b"])
    (tmp_path / "mix.json").write_text('{"scales": {"a": 0.3333, "b": 0.6666}}')
    assert load_mixture(tmp_path / "mix.json", ["b", "a"]) == {"a": 0.3333, "b": 0.6666}


def test_a_scale_of_zero_needs_no_score() -> None:
    assert total({"am": -2.0}, {"am": 0.5, "lm": 0.0}) == -1.0
    with pytest.raises(KeyError):
        total({"am": -2.0}, {"lm": 0.5})


def test_decisions() -> None:
    assert decision_of(Weights({"am": 1.0})) == ("map", 1.0)
    assert decision_of(Weights({"am": 1.0}, {"decision": "mbr", "inverse_temperature": 0.3})) == ("mbr", 0.3)
    assert decision_of(Weights({"am": 1.0}, {"decision": "first"})) == ("first", 1.0)


@pytest.mark.parametrize(
    ("name", "lattices", "advice"),
    [
        ("nn", False, "rescore nbest --lm nn=NAME|DIR adds it (in Python rs.score(lists, {'nn': lm}))"),
        ("nn", True, "rescore lattice rescore --lm nn=NAME|DIR adds it (in Python lattices.rescore({'nn': lm}, ...))"),
        ("ngram", False, "rescore nbest --ngram FILE adds it (in Python rs.score(lists, {'ngram': lm}))"),
        ("am", False, "it is a recogniser's own: take the lists as the recogniser wrote them, with all scores"),
    ],
)
def test_a_score_that_is_missing(name: str, lattices: bool, advice: str) -> None:
    said = no_score("utterance u", name, ["lm", "words"], "which --fix names", lattices)
    assert said == f"utterance u has no score '{name}', which --fix names; found: lm, words; {advice}"


def test_whichever_of_two_utterances_lacks_a_score_is_named() -> None:
    check_same_scores("utterance v", {"am": 1.0, "lm": 1.0}, "utterance u", ["lm", "am"])
    with pytest.raises(ScoreError, match="utterance v has no score 'lm', which utterance u has; found: am;"):
        check_same_scores("utterance v", ["am"], "utterance u", ["am", "lm"])
    with pytest.raises(ScoreError, match="utterance u has no score 'lm', which utterance v has; found: am;"):
        check_same_scores("utterance v", ["am", "lm"], "utterance u", ["am"])


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"decision": "MBR"}, "w.json: the decision is 'MBR'; expected one of map, mbr, first"),
        ({"decision": 1}, "the decision is 1"),
        ({"decision": "mbr", "inverse_temperature": 0}, "inverse_temperature is 0, expected a number above 0"),
        ({"decision": "mbr", "inverse_temperature": "1"}, "inverse_temperature is '1'"),
        ({"decision": "mbr", "inverse_temperature": None}, "inverse_temperature is None"),
        ({"decision": "mbr", "inverse_temperature": float("nan")}, "inverse_temperature is nan"),
        ({"decision": "mbr", "inverse_temperature": True}, "inverse_temperature is True"),
    ],
)
def test_decisions_that_there_are_not(info: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        decision_of(Weights({"am": 1.0}, info), "w.json")
