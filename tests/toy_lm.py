"""A quick LM for tests of whole runs: it likes a few words and says so, `--lm tests.toy_lm:Toy?likes=HE,SAID`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lm_zoo.base import LanguageModel
from lm_zoo.text.coverage import MOST_UNKNOWN, check_text


class Toy(LanguageModel):
    """Words that it likes are e^2 times as probable as others; the sentence end is as probable as these."""

    def __init__(self, likes: str, knows: str = "") -> None:
        self.likes, self.known = set(likes.split(",")), set(filter(None, knows.split(",")))

    def knows(self, word: str) -> bool:
        return not self.known or word in self.known

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        check_text(self, sentences, max_unknown)
        rare = -math.log(1000.0)
        return [[*(rare + 2.0 * (word in self.likes) for word in words), rare] for words in sentences]
