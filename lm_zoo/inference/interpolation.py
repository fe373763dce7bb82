"""Linear interpolation of LMs: `p(w) = sum_k weight_k p_k(w)`, weights by EM on development text.

Jelinek and Mercer, "Interpolated estimation of Markov source parameters from sparse data", 1980.

LMs of different kinds meet at the level of words: the tokens of a word are summed first.  A word that an LM does not
know counts with what that LM gives it (a word-level LM: the probability of `<unk>`; pieces spell it), and is not left
out.  An LM that gives a word no probability at all (minus infinity) adds nothing there; the word is impossible only
if it is so for every LM whose weight is not 0.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_zoo.base import Context, LanguageModel
from lm_zoo.errors import LMError, ModelError, VocabError
from lm_zoo.text.coverage import MOST_UNKNOWN, check_text
from lm_zoo.text.vocabulary import Vocabulary, same_tokens

if TYPE_CHECKING:  # the interpolation of n-grams is not to load torch
    import torch
    from torch import Tensor

Sentences = Sequence[Sequence[str]]
TOLERANCE = 1e-10  # natural logs a word; EM ends where an iteration gains less


def interpolate(log_probs: np.ndarray, weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """`log sum_k weight_k exp(log_probs_k)`.

    Args:
      log_probs: float `(lms, words)`, natural logs, minus infinity allowed.
      weights: `(lms,)`, not negative, sum 1; a weight of 0 leaves an LM out.
    Returns:
      float64 `(words,)`.
    Raises:
      LMError: weights that are no distribution or do not fit the LMs, or a log-probability that is NaN or infinite.
    """
    log_probs = _checked(log_probs)
    weights = check_shares(weights, len(log_probs))
    used = weights > 0
    return np.logaddexp.reduce(log_probs[used] + np.log(weights[used])[:, None], axis=0)


def em_weights(log_probs: np.ndarray, max_iterations: int = 10_000) -> np.ndarray:
    """The weights that maximise the likelihood of a text, by EM from equal weights; the likelihood never falls.

    Args:
      log_probs: float `(lms, words)`, natural logs; words impossible for all LMs say nothing and are left out.
    Returns:
      float64 `(lms,)`, sum 1.
    Raises:
      LMError: no word that any LM finds possible, or a log-probability that is NaN or infinite.
    """
    log_probs = _checked(log_probs)
    best = log_probs.max(axis=0)
    possible = best > -np.inf
    if not possible.any():
        raise LMError("interpolation weights need at least one word that an LM finds possible")
    offset = best[possible].mean()
    probs = np.exp(log_probs[:, possible] - best[possible])  # scaled a word: posteriors stay, nothing underflows
    weights = np.full(len(probs), 1.0 / len(probs))
    likelihood = -np.inf
    for _ in range(max_iterations):
        joint = weights[:, None] * probs
        mixed = joint.sum(axis=0)
        gain, likelihood = offset + np.log(mixed).mean() - likelihood, offset + np.log(mixed).mean()
        if gain < TOLERANCE:
            break
        weights = (joint / mixed).mean(axis=1)
    return weights / weights.sum()


def check_shares(weights: Sequence[float] | np.ndarray, lms: int) -> np.ndarray:
    """Weights as float64 `(lms,)`, summing to 1 exactly; an LMError if they are no distribution over the LMs."""
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (lms,):
        raise LMError(f"{values.size} interpolation weights for {lms} LMs: expected one an LM")
    if not (values >= 0).all() or abs(values.sum() - 1.0) > 1e-4:
        raise LMError(f"interpolation weights {values.tolist()}: expected numbers from 0 that sum to 1")
    return values / values.sum()


def _checked(log_probs: np.ndarray) -> np.ndarray:
    log_probs = np.asarray(log_probs, dtype=np.float64)
    if log_probs.ndim != 2 or not len(log_probs):
        raise LMError(f"log-probabilities of shape {log_probs.shape}: expected (lms, words)")
    if np.isnan(log_probs).any() or (log_probs == np.inf).any():
        raise LMError("an LM gave a log-probability that is NaN or plus infinity")
    return log_probs


class InterpolatedLM(LanguageModel):
    """A linear interpolation of LMs; always over words, and over tokens too if the LMs share one vocabulary.

    LMs of weight 0 take no part.  Text has to suit all the others.
    """

    lms: Sequence[LanguageModel]

    def __init__(self, lms: Sequence[LanguageModel], weights: Sequence[float] | np.ndarray) -> None:
        shares = check_shares(weights, len(lms))
        self.lms = [lm for lm, share in zip(lms, shares.tolist(), strict=True) if share > 0]
        self.weights = shares[shares > 0]
        self.pseudo_likelihood = any(lm.pseudo_likelihood for lm in self.lms)
        self.most_tokens = min(lm.most_tokens for lm in self.lms)
        self.positions = min((lm.positions for lm in self.lms if lm.positions is not None), default=None)

    def score_words(self, sentences: Sentences, max_unknown: float | None = MOST_UNKNOWN) -> list[list[float]]:
        """See `LanguageModel.score_words`; unknown are words that none of the LMs knows."""
        check_text(self, sentences, max_unknown)
        return self._mix_words([lm.score_words(sentences, None) for lm in self.lms])

    def score_hypotheses(
        self,
        sentences: Sentences,
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[Context] | None = None,
    ) -> list[list[float]]:
        """As `LanguageModel.score_hypotheses`."""
        check_text(self, sentences, max_unknown)
        return self._mix_words([lm.score_hypotheses(sentences, None, contexts) for lm in self.lms])

    def knows(self, word: str) -> bool:
        """Whether any of the LMs knows the word."""
        return any(lm.knows(word) for lm in self.lms)

    def has_tokens(self) -> bool:
        """Whether all LMs can be asked token by token, and share one vocabulary."""
        return all(lm.has_tokens() for lm in self.lms) and self._share_tokens

    def token_count(self, word: str) -> int:
        """The tokens of the word if the LMs share one vocabulary, else 1: they meet at words."""
        return self.lms[0].token_count(word) if self._share_tokens else 1

    @cached_property
    def _share_tokens(self) -> bool:
        try:
            return self.vocab is not None
        except (AttributeError, ModelError, VocabError):  # an LM has none, or one that its file does not tell
            return False

    def check_case(self, words: Iterable[str]) -> None:
        words = list(words)
        for lm in self.lms:
            lm.check_case(words)

    def check_words(self, words: Sequence[str], what: str) -> None:
        for lm in self.lms:
            lm.check_words(words, what)

    def said(self) -> str:
        return "; ".join(filter(None, (lm.said() for lm in self.lms)))

    def counted(self) -> Counter[str]:
        return sum((lm.counted() for lm in self.lms), Counter[str]())

    def vocabularies(self) -> Iterable[Vocabulary]:
        return chain.from_iterable(lm.vocabularies() for lm in self.lms)

    def move_to(self, device: torch.device) -> None:
        for lm in self.lms:
            lm.move_to(device)

    def is_slow(self) -> bool:
        return any(lm.is_slow() for lm in self.lms)

    def cast(self, dtype: str) -> InterpolatedLM:
        """A copy, of the LMs in that dtype."""
        made = copy.copy(self)
        made.lms, made.products = [lm.cast(dtype) for lm in self.lms], dtype
        return made

    def _mix_words(self, scores: list[list[list[float]]]) -> list[list[float]]:
        """Mixes the word scores of all LMs; they cover the same sentences."""
        flat = np.array([list(chain.from_iterable(sentences)) for sentences in scores])
        ends = np.cumsum([len(sentence) for sentence in scores[0]])
        parts = np.split(interpolate(flat, self.weights), ends[:-1]) if len(ends) else []
        return [part.tolist() for part in parts]

    @property
    def vocab(self) -> Vocabulary:  # type: ignore[override]
        """The vocabulary that all LMs share; a VocabError if they do not."""
        first, *others = (lm.vocab for lm in self.lms)
        if not all(same_tokens(first, other) for other in others):
            raise VocabError("the LMs have different vocabularies: interpolate them over words, not over tokens")
        return first

    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """As `LanguageModel.score`, of LMs that share one vocabulary."""
        import torch

        _ = self.vocab
        mixed = self._mix([lm.score(tokens, lengths) for lm in self.lms])
        valid = torch.arange(mixed.shape[1], device=mixed.device) <= lengths.to(mixed.device)[:, None]
        return torch.where(valid, mixed, torch.zeros_like(mixed))

    def initial_state(self) -> tuple[Any, ...]:
        """As `LanguageModel.initial_state`: the states of all LMs."""
        _ = self.vocab
        return tuple(lm.initial_state() for lm in self.lms)

    def step(self, state: tuple[Any, ...], parents: Tensor, tokens: Tensor) -> tuple[tuple[Any, ...], Tensor]:
        """As `LanguageModel.step`, of LMs that share one vocabulary."""
        stepped = [lm.step(part, parents, tokens) for lm, part in zip(self.lms, state, strict=True)]
        return tuple(part for part, _ in stepped), self._mix([rows for _, rows in stepped])

    def _mix(self, log_probs: list[Tensor]) -> Tensor:
        """`log sum_k weight_k exp(log_probs_k)` of tensors of one shape."""
        import torch

        parts = zip(np.log(self.weights).tolist(), log_probs, strict=True)
        return torch.logsumexp(torch.stack([part + weight for weight, part in parts]), dim=0)
