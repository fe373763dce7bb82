"""Perplexity, a sentence at a time; over running text in windows: `lm_zoo.inference.windows`.  Needs no torch."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice

import numpy as np

from lm_zoo.base import LanguageModel, one_a_word
from lm_zoo.errors import LMError
from lm_zoo.inference.viewed import ViewedLM
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage

SENTENCES_AT_A_TIME = 2000


@dataclass
class Perplexity:
    """Sums over a text; a sentence end counts as a word and as a token.

    Attributes:
      log_prob: natural log of the probability of all words and sentence ends.
      log_prob_known: the part of it that known words and sentence ends have; NaN where it was not measured.
      unknown: words that the LM does not know.
      tokens: tokens that were scored, sentence ends included.
    """

    sentences: int = 0
    words: int = 0
    unknown: int = 0
    tokens: int = 0
    log_prob: float = 0.0
    log_prob_known: float = 0.0

    @property
    def per_word(self) -> float:
        """OOV included."""
        return exp_or_inf(-self.log_prob / (self.words + self.sentences))

    @property
    def per_known_word(self) -> float:
        """OOV left out of probability and count."""
        return exp_or_inf(-self.log_prob_known / (self.words - self.unknown + self.sentences))

    @property
    def per_token(self) -> float:
        return exp_or_inf(-self.log_prob / self.tokens)

    def row(self) -> dict[str, float | None]:
        """Everything by name; None for what was not measured."""
        values = {
            "ppl_word": self.per_word,
            "ppl_word_known": self.per_known_word,
            "ppl_token": self.per_token,
            **asdict(self),
        }
        return {name: None if math.isnan(value) else value for name, value in values.items()}


def exp_or_inf(value: float) -> float:
    """Infinite where float64 ends; NaN stays."""
    return math.inf if value >= math.log(sys.float_info.max) else math.exp(value)


@dataclass
class WordScores:
    """The word log-probabilities of a text under several LMs: what perplexity and interpolation need.

    Attributes:
      log_probs: float64 `(lms, words + sentences)`, sentence ends in place.
      known: bool of the same shape: whether the LM knows the word (true for sentence ends).
      tokens: `(lms,)`, tokens of each LM.
      sentences: number of sentences.
    """

    log_probs: np.ndarray
    known: np.ndarray
    tokens: np.ndarray
    sentences: int

    @staticmethod
    def joined(parts: Sequence[WordScores]) -> WordScores:
        """Of a text, from those of its parts one after the other."""
        return WordScores(
            np.concatenate([part.log_probs for part in parts], axis=1),
            np.concatenate([part.known for part in parts], axis=1),
            np.sum([part.tokens for part in parts], axis=0),
            sum(part.sentences for part in parts),
        )

    def subset(self, lms: Sequence[int]) -> WordScores:
        """The scores of some of the LMs."""
        chosen = list(lms)
        return WordScores(self.log_probs[chosen], self.known[chosen], self.tokens[chosen], self.sentences)

    def perplexity(self, lm: int) -> Perplexity:
        """Of one of the LMs."""
        return self._sums(self.log_probs[lm], self.known[lm], int(self.tokens[lm]))

    def mixed_perplexity(self, weights: Sequence[float]) -> Perplexity:
        """Of the linear interpolation; a word is unknown if all LMs do not know it; a token is a word."""
        from lm_zoo.inference.interpolation import interpolate

        mixed = interpolate(self.log_probs, weights)
        return self._sums(mixed, self.known.any(axis=0), len(mixed))

    def _sums(self, log_probs: np.ndarray, known: np.ndarray, tokens: int) -> Perplexity:
        words = len(log_probs) - self.sentences
        unknown = int((~known).sum())
        return Perplexity(self.sentences, words, unknown, tokens, float(log_probs.sum()), float(log_probs[known].sum()))


def score_text(
    lms: Sequence[LanguageModel | ViewedLM],
    sentences: Iterable[list[str]],
    where: str,
    max_unknown: float = MOST_UNKNOWN,
    before: int = 0,
) -> WordScores:
    """Scores a text with every LM, sentence by sentence.

    Args:
      max_unknown: the largest share of the words that an LM may not know.
      before: sentences of the text that stand before these.
    Raises:
      VocabError: the text is in another case than an LM's, or has too many words that it does not know.
      LMError: no sentence, or a score that is NaN.
    """
    stream, count = iter(sentences), before
    coverages = [Coverage(lm, where, max_unknown) for lm in lms]
    log_probs: list[list[np.ndarray]] = [[] for _ in lms]
    known: list[list[np.ndarray]] = [[] for _ in lms]
    tokens = np.zeros(len(lms), dtype=np.int64)
    while chunk := list(islice(stream, SENTENCES_AT_A_TIME)):
        words = list(chain.from_iterable(chunk))
        distinct = Counter(words)
        is_word = np.ones(len(words) + len(chunk), bool)
        is_word[np.cumsum([len(sentence) + 1 for sentence in chunk]) - 1] = False
        for index, lm in enumerate(lms):
            coverages[index].add(distinct, partial(_place, chunk, where, count))
            scores = one_a_word(lm, chunk, lm.score_words(chunk, max_unknown=None))
            log_probs[index].append(np.fromiter(chain.from_iterable(scores), float, len(is_word)))
            if np.isnan(log_probs[index][-1]).any():
                bad = next(place for place, row in enumerate(scores) if any(map(math.isnan, row)))
                raise LMError(f"{where}, sentence {count + bad + 1}: an LM gave NaN; its weights or its file are bad")
            known[index].append(np.ones(len(is_word), bool))
            known[index][-1][is_word] = np.fromiter(map(coverages[index].knows, words), bool, len(words))
            sizes = {word: lm.token_count(word) for word in distinct}
            tokens[index] += sum(map(sizes.__getitem__, words)) + len(chunk)
        count += len(chunk)
    if count == before:
        raise LMError(f"{where}: no sentence to score")
    for coverage in coverages:
        coverage.check()
    return WordScores(
        np.array([np.concatenate(parts) for parts in log_probs]),
        np.array([np.concatenate(parts) for parts in known]),
        tokens,
        count - before,
    )


def _place(chunk: list[list[str]], where: str, before: int, word: str) -> str:
    """Where a word stands, `before` sentences having come before the chunk."""
    return f"{where}, sentence {next(n for n, words in enumerate(chunk, start=before + 1) if word in words)}"
