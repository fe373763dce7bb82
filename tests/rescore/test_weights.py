"""Default scales."""

from __future__ import annotations

import pytest

from rescore.errors import UsageError
from rescore.weights import LM_WEIGHT, default_scales, equal_weights, given_weights


def test_default_scales() -> None:
    assert LM_WEIGHT == 10.0
    assert default_scales({"pron", "words", "lm", "am"}) == {"am": 1.0, "lm": 10.0}
    assert default_scales(["graph", "am"]) == {"am": 1.0, "graph": 10.0}
    assert default_scales(["graph", "am"], ngram="ngram") == {"am": 1.0, "ngram": 10.0}
    assert default_scales(["score"]) == {"score": 1.0}
    assert default_scales([]) == {}


def test_equal_weights() -> None:
    assert equal_weights(["am", "words"]).scales == {"am": 1.0, "words": 1.0}


def test_given_weights() -> None:
    assert given_weights(None, ()) is None
    weights = given_weights(None, ["am=1", "lm=0.5"])
    assert weights is not None and weights.scales == {"am": 1.0, "lm": 0.5}
    with pytest.raises(UsageError, match="either --weights FILE or --scale"):
        given_weights("weights.json", ["am=1"])
