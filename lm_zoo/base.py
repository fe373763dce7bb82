"""The protocol that every LM of the zoo follows, and the vocabularies (words or sentencepiece pieces).

A sentence is scored as `log p(w_1 ... w_n, </s> | <s>)`: the begin is context only, the end is scored.
All scores are natural logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lm_zoo.deadline import check_time
from lm_zoo.errors import LMError
from lm_zoo.text.coverage import MOST_UNKNOWN
from lm_zoo.text.vocabulary import Vocabulary

if TYPE_CHECKING:  # n-grams, and whoever asks LMs word by word, are not to load torch
    import torch
    from torch import Tensor

DTYPES = ("float32", "bfloat16", "int8")  # of an LM's products
LONGEST = 1 << 15  # tokens of a sentence: with 512 dimensions 2.5 GB, and an hour on a core
Context = tuple[tuple[str, ...], ...]  # the sentences before one, oldest first, as words


class LanguageModel:
    """What rescoring needs of an LM.  `score`, `step` and trie scoring agree to 1e-4 in float32.

    An LM gives `score_words` and `knows`; `score`, `initial_state` and `step` if it can be asked token by token; and
    the rest where it differs from the defaults.

    Attributes:
      pseudo_likelihood: whether scores are pseudo-log-likelihoods of whole sentences, of use for N-best lists alone.
      with_uncertainty: whether rescoring writes the column of `score_with_uncertainty` too.
      name: what its scores are called; "" if nobody has named it.
      positions: tokens that a sentence may have at most, the special ones included; None: no limit.
      most_tokens: of a sentence with the text before it, of which what is older is not read.
      products: the dtype of its products, if it is a copy that `cast` has made.
    """

    vocab: Vocabulary
    name: str = ""
    pseudo_likelihood: bool = False
    with_uncertainty: bool = False
    positions: int | None = None
    most_tokens: int = LONGEST
    products: str = "float32"

    # -- scores ------------------------------------------------------------------------------------------------

    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Log-probabilities of whole sentences.

        Args:
          tokens: int64 `(batch, time)`, without begin and end, padded on the right with anything valid.
          lengths: int64 `(batch,)`, tokens of each sentence (0 for an empty one).
        Returns:
          float32 `(batch, time + 1)`: `log p(token | prefix)`; the sentence end stands at column `lengths[b]`,
          zeros after it.
        """
        self._no_tokens()

    def initial_state(self) -> Any:
        """The state of one node that has read nothing, not even the begin of sentence."""
        self._no_tokens()

    def step(self, state: Any, parents: Tensor, tokens: Tensor) -> tuple[Any, Tensor]:
        """Extends nodes of a state by one token each.

        Args:
          state: a state of `n` nodes that have all read the same number of tokens.
          parents: int64 `(nodes,)`, the node of `state` that each new node extends.
          tokens: int64 `(nodes,)`, the token that each new node reads (`vocab.bos` first).
        Returns:
          the state of the new nodes, and float32 `(nodes, vocab)`: `log p(next token)` after each of them.
        """
        self._no_tokens()

    def _no_tokens(self) -> NoReturn:
        raise LMError(f"a {type(self).__name__} scores words, and cannot be asked token by token")

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        """Log-probabilities a word (those of its tokens summed), the sentence end last, of running text.

        Args:
          max_unknown: the largest share of words that may be unknown; None: the text has been checked already.
        Raises:
          VocabError: more unknown words than that, or text in another case than the LM's (see `lm_zoo.text.coverage`).
        """
        raise NotImplementedError

    def score_hypotheses(
        self,
        sentences: Sequence[Sequence[str]],
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[Context] | None = None,
    ) -> list[list[float]]:
        """The same for sentences that share prefixes, such as the hypotheses of N-best lists.

        Args:
          contexts: `(sentences,)`, the text that each sentence follows: it is read before the sentence as running text
            is in training, and has no score of its own.  Where it is more than the LM takes, its oldest words are left
            out.  None: no sentence has any.
        """
        if contexts is not None:
            raise LMError(f"a {type(self).__name__} scores sentences alone, without the text before them")
        return self.score_words(sentences, max_unknown)

    def score_sentences(
        self,
        sentences: Sequence[Sequence[str]],
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[Context] | None = None,
    ) -> list[float]:
        """The sums of `score_hypotheses`, one a sentence."""
        rows = self.score_hypotheses(sentences, max_unknown, contexts)
        return [sum(scores) for scores in one_a_word(self, sentences, rows)]

    def score_with_uncertainty(
        self, sentences: Sequence[Sequence[str]], contexts: Sequence[Context] | None = None
    ) -> tuple[list[list[float]], list[list[float]]]:
        """As `score_hypotheses`, and the uncertainty of each value; of LMs `with_uncertainty`."""
        raise LMError(f"a {type(self).__name__} gives no uncertainty")

    # -- what text suits it --------------------------------------------------------------------------------------

    def knows(self, word: str) -> bool:
        """Whether the word is not scored as `<unk>`, nor any part of it."""
        raise NotImplementedError

    def has_tokens(self) -> bool:
        """Whether it can be asked token by token: it has `step`, and a `vocab`."""
        return type(self).step is not LanguageModel.step and hasattr(self, "vocab")

    def token_count(self, word: str) -> int:
        """The tokens that the word has; 1 where the LM has no `vocab`."""
        return len(self.vocab.encode_word(word)) if hasattr(self, "vocab") else 1

    def vocabularies(self) -> Iterable[Vocabulary]:
        """Those that text must suit by its case: the LM's, if it has one, or those of all LMs that it is made of."""
        return [self.vocab] if hasattr(self, "vocab") else []

    def own_vocabularies(self) -> Iterable[Vocabulary]:
        """All of the LM, or of the LMs that it is made of, whatever text they are asked about."""
        return self.vocabularies()

    def check_case(self, words: Iterable[str]) -> None:
        """Raises a VocabError if an LM of mixed case has hardly seen the case of these words; by default any suits."""

    def check_words(self, words: Sequence[str], what: str) -> None:
        """Raises an LMError if a sentence, called `what`, is too long for the LM; by default none is."""

    def said(self) -> str:
        """What a user should know of the text scored so far, such as what was too long; "" for nothing."""
        return "; ".join(f"{number} {what}" for what, number in self.counted().items())

    def counted(self) -> Counter[str]:
        """The numbers in `said` by what is said behind them: of several processes they are summed."""
        return Counter()

    # -- where and how it is evaluated -----------------------------------------------------------------------------

    def move_to(self, device: torch.device) -> None:
        """Puts the weights on the device; n-grams stay where they are."""

    def is_slow(self) -> bool:
        """Whether its products are of a dtype in which its processor is many times slower than in float32."""
        return False

    def cast(self, dtype: str) -> LanguageModel:
        """The LM as scoring uses it, its products in `dtype` (see `lm_zoo.inference.precision`); n-grams have none.

        Raises:
          ModelError: an LM that cannot be had in that dtype.
        """
        return self


def one_a_word(lm: object, sentences: Sequence[Sequence[str]], rows: Any) -> list[list[float]]:
    """The scores that an LM gave, which may be anybody's: a number a word of each sentence, and one for its end.

    Raises:
      LMError: they are not; names the sentence.
    """
    found, name = [], type(lm).__name__
    try:
        for row in rows:
            found.append(list(map(float, row)))
    except (TypeError, ValueError) as error:
        wanted = "expected a list of numbers for each sentence"
        raise LMError(f"{name}.score_words gave what are no scores ({error}); {wanted}") from None
    if len(found) != len(sentences):
        raise LMError(f"{name}.score_words gave the scores of {len(found)} sentences for {len(sentences)}")
    for words, scores in zip(sentences, found, strict=True):
        if len(scores) != len(words) + 1:
            text = " ".join(words)
            raise LMError(
                f"{name}.score_words gave {len(scores)} scores for the {len(words)} words of '{text[:80]}', expected "
                "one for each and one for the sentence end"
            )
    return found


def score_in_batches(
    lm: LanguageModel,
    sentences: Sequence[Sequence[str]],
    batch_tokens: int = 8192,
    before: Sequence[Sequence[int]] | None = None,
) -> list[list[float]]:
    """Log-probabilities a word: those of its tokens summed; the last value of each sentence is the sentence end.

    Args:
      sentences: words; batched by length so that a padded batch holds about `batch_tokens` tokens.
      before: tokens that are read before each sentence, and have no score of their own; None: none.
    Returns:
      for each sentence a list of `len(words) + 1` natural logs, in the order given.
    """
    import torch

    word_tokens = [[lm.vocab.encode_word(word) for word in words] for words in sentences]
    rows = [[token for word in words for token in word] for words in word_tokens]
    if before is not None:
        rows = [[*context, *row] for context, row in zip(before, rows, strict=True)]
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    result: list[list[float]] = [[] for _ in sentences]
    while order:
        check_time()
        width = len(rows[order[-1]]) + 1
        chosen = [order.pop() for _ in range(min(len(order), max(1, batch_tokens // width)))]
        tokens = torch.full((len(chosen), width - 1), lm.vocab.eos, dtype=torch.long)
        for row, index in enumerate(chosen):
            tokens[row, : len(rows[index])] = torch.tensor(rows[index], dtype=torch.long)
        with torch.no_grad():
            scores = lm.score(tokens, torch.tensor([len(rows[index]) for index in chosen])).double().tolist()
        for row, index in enumerate(chosen):
            counts = [len(word) for word in word_tokens[index]]
            result[index] = _sum_to_words(scores[row][len(rows[index]) - sum(counts) :], counts)
    return result


def _sum_to_words(token_scores: list[float], counts: list[int]) -> list[float]:
    sums, start = [], 0
    for count in [*counts, 1]:
        sums.append(sum(token_scores[start : start + count]))
        start += count
    return sums


class WordLM(LanguageModel):
    """An LM that is asked word by word, such as n-grams.  States are hashable, equal if their futures are."""

    def token_count(self, word: str) -> int:
        return 1

    def start(self) -> Hashable:
        """The state after the begin of sentence."""
        raise NotImplementedError

    def extend(self, state: Any, word: str) -> tuple[float, Hashable, bool]:
        """`log p(word | state)`, the state after the word, and whether the LM knows the word."""
        raise NotImplementedError

    def end(self, state: Any) -> float:
        """`log p(</s> | state)`."""
        raise NotImplementedError
