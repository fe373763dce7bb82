"""Words that an LM holds for impossible: log 0 is -inf, which no file can hold and no scale can weigh."""

from __future__ import annotations

import math

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
