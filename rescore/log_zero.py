"""Words that an LM holds for impossible: log 0 is -inf, which no file can hold and no scale can weigh."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from rescore.errors import ScoreError

LOG_ZERO = -99.0 * math.log(10.0)  # what ARPA files write for log 0, as a natural log


def without_infinities(scores: np.ndarray, lm: str, where: str) -> tuple[np.ndarray, int]:
    """`scores` of an LM, natural logs, with LOG_ZERO for -inf, and how many were -inf.

    So a lattice all of whose paths an LM forbids still has a best one; `lm` and `where` are for messages.

    Raises:
      ScoreError: a score is NaN or +inf.
    """
    bad = scores[~(scores < np.inf)]
    if len(bad):
        raise ScoreError(f"{where}: the LM '{lm}' gave {bad[0]} to a word, expected a log-probability")
    impossible = scores == -np.inf
    return np.where(impossible, LOG_ZERO, scores), int(impossible.sum())


class FiniteLM:
    """An n-gram LM (`rescore.expand.WordLM`) as `without_infinities` leaves it.

    Attributes:
      impossible: words and sentence ends that were -inf so far.
    """

    def __init__(self, lm: Any, name: str, where: str) -> None:
        self._lm, self._name, self._where = lm, name, where
        self.impossible = 0

    def start(self) -> Hashable:
        state: Hashable = self._lm.start()
        return state

    def extend(self, state: Any, word: str) -> tuple[float, Hashable, bool]:
        logprob, longer, known = self._lm.extend(state, word)
        return self._finite(logprob), longer, known

    def end(self, state: Any) -> float:
        return self._finite(self._lm.end(state))

    def _finite(self, logprob: float) -> float:
        if math.isfinite(logprob):
            return logprob
        scores, impossible = without_infinities(np.array([logprob]), self._name, self._where)
        self.impossible += impossible
        return float(scores[0])
