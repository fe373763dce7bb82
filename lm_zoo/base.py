"""The protocol that every LM of the zoo follows, and the vocabularies (words or sentencepiece pieces).

A sentence is scored as `log p(w_1 ... w_n, </s> | <s>)`: the begin is context only, the end is scored.
All scores are natural logs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from lm_zoo.text.coverage import MOST_UNKNOWN
from lm_zoo.text.vocabulary import Vocabulary


class LanguageModel(Protocol):
    """What rescoring needs of an LM.  `score`, `step` and trie scoring agree to 1e-4 in float32."""

    vocab: Vocabulary

    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Log-probabilities of whole sentences.

        Args:
          tokens: int64 `(batch, time)`, without begin and end, padded on the right with anything valid.
          lengths: int64 `(batch,)`, tokens of each sentence (0 for an empty one).
        Returns:
          float32 `(batch, time + 1)`: `log p(token | prefix)`; the sentence end stands at column `lengths[b]`,
          zeros after it.
        """

    def initial_state(self) -> Any:
        """The state of one node that has read nothing, not even the begin of sentence."""

    def step(self, state: Any, parents: Tensor, tokens: Tensor) -> tuple[Any, Tensor]:
        """Extends nodes of a state by one token each.

        Args:
          state: a state of `n` nodes that have all read the same number of tokens.
          parents: int64 `(nodes,)`, the node of `state` that each new node extends.
          tokens: int64 `(nodes,)`, the token that each new node reads (`vocab.bos` first).
        Returns:
          the state of the new nodes, and float32 `(nodes, vocab)`: `log p(next token)` after each of them.
        """

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        """Log-probabilities a word (those of its tokens summed), the sentence end last, of running text.

        Args:
          max_unknown: the largest share of words that may be unknown; None: the text has been checked already.
        Raises:
          VocabError: more unknown words than that, or text in another case than the LM's (see `lm_zoo.text.coverage`).
        """

    def score_hypotheses(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        """The same for sentences that share prefixes, such as the hypotheses of N-best lists."""

    def knows(self, word: str) -> bool:
        """Whether the word is not scored as `<unk>`, nor any part of it."""


@torch.no_grad()
def score_in_batches(
    lm: LanguageModel, sentences: Sequence[Sequence[str]], batch_tokens: int = 8192
) -> list[list[float]]:
    """Log-probabilities a word: those of its tokens summed; the last value of each sentence is the sentence end.

    Args:
      sentences: words; batched by length so that a padded batch holds about `batch_tokens` tokens.
    Returns:
      for each sentence a list of `len(words) + 1` natural logs, in the order given.
    """
    word_tokens = [[lm.vocab.encode_word(word) for word in words] for words in sentences]
    sizes = [sum(map(len, tokens)) for tokens in word_tokens]
    order = sorted(range(len(sentences)), key=sizes.__getitem__)
    result: list[list[float]] = [[] for _ in sentences]
    while order:
        width = sizes[order[-1]] + 1
        chosen = [order.pop() for _ in range(min(len(order), max(1, batch_tokens // width)))]
        tokens = torch.full((len(chosen), width - 1), lm.vocab.eos, dtype=torch.long)
        for row, index in enumerate(chosen):
            flat = [token for word in word_tokens[index] for token in word]
            tokens[row, : len(flat)] = torch.tensor(flat, dtype=torch.long)
        scores = lm.score(tokens, torch.tensor([sizes[index] for index in chosen])).double().tolist()
        for row, index in enumerate(chosen):
            result[index] = _sum_to_words(scores[row], [len(word) for word in word_tokens[index]])
    return result


def _sum_to_words(token_scores: list[float], counts: list[int]) -> list[float]:
    sums, start = [], 0
    for count in [*counts, 1]:
        sums.append(sum(token_scores[start : start + count]))
        start += count
    return sums


class WordLM(Protocol):
    """What `lm_zoo.ngram.kenlm_lm.NgramLM` offers; log-probs are natural.  States are hashable, equal if their
    futures are.
    """

    def start(self) -> Hashable: ...

    def extend(self, state: Any, word: str) -> tuple[float, Hashable, bool]: ...

    def end(self, state: Any) -> float: ...
