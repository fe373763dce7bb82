"""Default scales."""

from __future__ import annotations

from rescore.weights import LM_WEIGHT, default_scales, equal_scales


def test_default_scales() -> None:
    assert LM_WEIGHT == 10.0
    assert default_scales({"pron", "words", "lm", "am"}) == {"am": 1.0, "lm": 10.0}
    assert default_scales(["graph", "am"]) == {"am": 1.0, "graph": 10.0}
    assert default_scales(["graph", "am"], ngram="ngram") == {"am": 1.0, "ngram": 10.0}
    assert default_scales(["score"]) == {"score": 1.0}
    assert default_scales([]) == {}


def test_equal_scales() -> None:
    assert equal_scales(["am", "words"]) == {"am": 1.0, "words": 1.0}
