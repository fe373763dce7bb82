"""n-gram LMs as lattices ask them: histories are numbered, and each question is put to the LM once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

import numpy as np

from lm_zoo.base import WordLM
from rescore.lattices.build import EPSILON
from rescore.lattices.log_zero import without_infinities


class NgramHistories:
    """Numbers for LM states (0: the begin of sentence), and the LM's scores after them, LOG_ZERO where it says -inf.

    Attributes:
      known: of each history: word -> log-prob, longer history; an epsilon changes nothing.
      ends: history -> log-prob of the sentence end, of those that were asked for.
      unknown_words: labels of the words that the LM does not know.
      impossible: words and sentence ends that were -inf so far.
    """

    def __init__(self, lm: WordLM, symbols: list[str], name: str, where: str) -> None:
        """`name` of the score and `where` are for messages."""
        self.states: list[Hashable] = []
        self.known: list[dict[int, tuple[float, int]]] = []
        self.ends: dict[int, float] = {}
        self.unknown_words: set[int] = set()
        self.impossible = 0
        self._lm, self._symbols, self._name, self._where = lm, symbols, name, where
        self._numbers: dict[Hashable, int] = {}
        self._number(lm.start())

    def extend(self, histories: Iterable[int], labels: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
        """Log-probs of words after histories, float64 `(n,)`, and the longer histories, int64 `(n,)`.

        Raises:
          ScoreError: the LM gave NaN or +inf.
        """
        known, ask = self.known, self.ask
        answers = [known[old].get(label) or ask(old, label) for old, label in zip(histories, labels, strict=True)]
        logprobs = np.fromiter((logprob for logprob, _ in answers), np.float64, len(answers))
        return logprobs, np.fromiter((longer for _, longer in answers), np.int64, len(answers))

    def end(self, history: int) -> float:
        """Log-prob of the sentence end; raises as `extend`."""
        logprob = self.ends.get(history)
        if logprob is None:
            logprob = self.ends[history] = self._checked(self._lm.end(self.states[history]))
        return logprob

    def ask(self, history: int, label: int) -> tuple[float, int]:
        """Log-prob of a word that is not among `known[history]`, and the longer history; raises as `extend`."""
        logprob, state, in_vocabulary = self._lm.extend(self.states[history], self._symbols[label])
        if not in_vocabulary:
            self.unknown_words.add(label)
        if not math.isfinite(logprob):
            logprob = self._checked(logprob)
        number = self._numbers.get(state)
        self.known[history][label] = answer = (logprob, self._number(state) if number is None else number)
        return answer

    def _number(self, state: Hashable) -> int:
        """The number of a new state."""
        number = self._numbers[state] = len(self.states)
        self.states.append(state)
        self.known.append({EPSILON: (0.0, number)})
        return number

    def _checked(self, logprob: float) -> float:
        scores, impossible = without_infinities(np.array([logprob]), self._name, self._where)
        self.impossible += impossible
        return float(scores[0])
