"""Perplexity: a sentence at a time, or over running text in windows ("all" and "final position" evaluation)."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice

import numpy as np
import torch

from lm_zoo.base import LanguageModel, one_a_word
from lm_zoo.errors import LMError
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.inference.viewed import ViewedLM
from lm_zoo.text.batches import TokenText, carried_batches, running_text, streams_of, window_batches
from lm_zoo.text.coverage import MOST_UNKNOWN, Coverage

SENTENCES_AT_A_TIME = 2000
POSITIONS = ("all", "final", "carried")


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


@torch.no_grad()
def window_perplexity(lm: NeuralLM, text: TokenText, window: int, position: str = "all", batch: int = 64) -> Perplexity:
    """Perplexity of a neural LM over running text, sentences one after another (TransfoRNN paper, Table 4).

    Args:
      window: tokens of context that a window holds.
      position: "all": windows side by side, every position scored; "final": the window slides by one token and only
        its last position is scored, so that every token but the first ones sees `window` tokens (Al-Rfou et al.
        2019); `window` times the work.  "carried": windows one after another, each in the state of the one before, in
        `batch` streams side by side, fewer of a short text (see `NeuralLM.hidden_after`).
    """
    if position == "all":
        loss = sum(
            float(lm(inputs.to(lm.device), targets.to(lm.device)))
            for inputs, targets in window_batches(text, lm.vocab, window, batch, None)
        )
    elif position == "carried":
        loss = _carried_loss(lm, text, window, batch)
    elif position == "final":
        loss = _final_position_loss(lm, text, window, batch)
    else:
        raise LMError(f"no evaluation is called '{position}'; there are: {', '.join(POSITIONS)}")
    if math.isnan(loss):
        raise LMError("the LM gave NaN; its weights are bad")
    sentences = len(text.offsets) - 1
    return Perplexity(sentences, text.words, text.unknown, len(text.tokens) + sentences, -loss, math.nan)


def _carried_loss(lm: NeuralLM, text: TokenText, window: int, batch: int) -> float:
    streams = streams_of(text, window, batch)
    loss, state = 0.0, lm.initial_state().repeat(streams)
    for inputs, targets in carried_batches(text, lm.vocab, window, streams, None):
        part, state = lm(inputs.to(lm.device), targets.to(lm.device), state)
        loss += float(part)
    return loss


def _final_position_loss(lm: NeuralLM, text: TokenText, window: int, batch: int) -> float:
    stream = torch.from_numpy(np.concatenate([[lm.vocab.eos], running_text(text, lm.vocab)]))
    head = stream[: window + 1].to(lm.device)
    loss = float(lm(head[None, :-1], head[None, 1:]))  # the first tokens have all that stands before them
    if len(stream) <= window + 1:
        return loss
    windows = stream[1:].unfold(0, window + 1, 1)  # view: (len(stream) - window - 1, window + 1)
    for begin in range(0, len(windows), batch):
        part = windows[begin : begin + batch].to(lm.device)
        hidden = lm.hidden(part[:, :-1])[:, -1]
        loss -= float(lm.output(hidden).gather(1, part[:, -1:]).double().sum())
    return loss
