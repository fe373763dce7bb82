"""N-best lists with the errors of their hypotheses: what an LM is trained on to make fewer of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class ErrorList:
    """The hypotheses of an utterance.

    Attributes:
      name: of the utterance, for messages.
      sentences: the words of each.
      scores: of each, natural logs: the total of all scores but the LM's.
      errors: of each, against the reference.
    """

    name: str
    sentences: Sequence[Sequence[str]]
    scores: Sequence[float]
    errors: Sequence[float]
