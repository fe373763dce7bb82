"""The suite that every LM passes, `lm_zoo.testing`, over small ones of every kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lm_zoo.testing.test_lm import STRANGE, TestTokens, TestWords, tokens_of
from tests.lm_zoo import zoo

__all__ = ["TestTokens", "TestWords", "tokens_of"]


@pytest.fixture(scope="module", params=zoo.ALL)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return zoo.make(request.param, tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="module")
def words() -> list[str]:
    return ["A", "B", "C"]


def test_no_sentence_has_no_score(lm: Any) -> None:
    assert lm.score(torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, dtype=torch.long)).shape == (0, 4)


def test_words_are_known_or_not(lm: Any, words: list[str]) -> None:
    assert all(map(lm.knows, words)) and not lm.knows(STRANGE)
