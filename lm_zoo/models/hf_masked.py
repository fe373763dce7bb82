"""Masked LMs of Hugging Face folders (BERT and the like), as `hf-mlm:PATH`: pseudo-log-likelihoods, for N-best only.

J. Salazar, D. Liang, T. Q. Nguyen, K. Kirchhoff, "Masked Language Model Scoring" (2020), Section 2: each token of a
sentence is masked in turn, and PLL(W) = sum_t log p(w_t | all others).  That is not the probability of the sentence:
there is no sentence end, there are no prefixes, and it says nothing about perplexity.  Words are encoded as in
`lm_zoo.models.hf_causal`, `?case=` too.  With `?eos=true` a full stop is put behind the last word, without a
blank, and its score counts as the sentence end's: `--eos` of the paper's mlm-scoring.

A sentence of more tokens than the model has positions is refused, or with `?long=windows` each of its tokens is scored
in a window of so many tokens around it, which at both ends of the sentence is the first or last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from lm_zoo.base import LONGEST, Context
from lm_zoo.deadline import in_time
from lm_zoo.errors import LMError, VocabError
from lm_zoo.inference.trie import context_tokens
from lm_zoo.models.hf_causal import BATCH_TOKENS
from lm_zoo.models.hf_load import Loading
from lm_zoo.models.hf_model import ANCHOR, HFModel
from lm_zoo.text.coverage import MOST_UNKNOWN


class HFMaskedLM(HFModel):
    """See the module's description."""

    pseudo_likelihood = True
    windows = "each token in the middle of one, or in the first or last"

    def __init__(
        self,
        folder: Path,
        case: str = "",
        eos: str = "",
        long: str = "",
        batch_tokens: int = BATCH_TOKENS,
        parts: tuple[Any, Any] | None = None,
        how: Loading = Loading(),  # noqa: B008
    ) -> None:
        super().__init__(folder, "AutoModelForMaskedLM", how, parts)
        self.mask = self.tokenizer.mask_token_id
        if self.mask is None:
            raise VocabError(f"{folder}: the tokenizer has no mask token, so it is not one of a masked LM")
        self.before, self.after = _special_tokens(self.tokenizer)
        self.stop = _full_stop(self.tokenizer) if eos else ()
        self.special = len(self.before) + len(self.stop) + len(self.after)
        first, last = (part[0] if part else self.mask for part in (self.before, self.after))
        self.set_vocabulary(first, last, case)
        self.batch_tokens, self.in_windows = batch_tokens, bool(long)
        most = LONGEST if self.positions is None else self.positions
        self.room = most - len(self.before) - len(self.after)  # tokens of a sentence in one pass

    @torch.no_grad()
    def score_hypotheses(
        self,
        sentences: Sequence[Sequence[str]],
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[Context] | None = None,
    ) -> list[list[float]]:
        """Pseudo-log-likelihoods: for each sentence one a word (its tokens' summed), and the sentence end's.

        The last is 0.0 without `eos`.  Of the text before a sentence no token is masked.
        """
        self.checked(sentences, max_unknown)
        encoded = [[*(self.vocab.encode_word(word) for word in words), self.stop] for words in sentences]
        flat = [[token for word in words for token in word] for words in encoded]
        before = self._before(flat, contexts or [()] * len(flat))
        scores = [[0.0] * len(tokens) for tokens in flat]
        for batch in in_time(self._batches([len(tokens) for tokens in before], [len(tokens) for tokens in flat])):
            for (sentence, place), score in zip(batch, self._masked_scores(before, flat, batch), strict=True):
                scores[sentence][place] = score
        self.long_sentences += sum(len(tokens) > self.room for tokens in flat)
        result = []
        for words, row in zip(encoded, scores, strict=True):
            values = iter(row)
            result.append([float(sum(next(values) for _ in word)) for word in words])
        return result

    def _before(self, flat: list[list[int]], contexts: Sequence[Context]) -> list[list[int]]:
        """Special tokens and context before every sentence, as much of it as there is room for."""
        pairs = zip(contexts, flat, strict=True)
        return [
            [*self.before, *context_tokens(self.vocab, context, (), max(0, self.room - len(tokens))).tolist()]
            for context, tokens in pairs
        ]

    def _batches(self, before: list[int], lengths: list[int]) -> Iterator[list[tuple[int, int]]]:
        """(sentence, place) of every token once, long sentences first; a batch keeps to `batch_tokens`.

        All of a batch have one length: some models (ConvBERT, FNet, MobileBERT) see what stands behind the end of a
        sentence whatever the mask says, so nothing is padded.

        Args:
          before, lengths: tokens before each sentence and of it.
        """
        widths = [start + min(length, self.room) for start, length in zip(before, lengths, strict=True)]
        order = sorted(range(len(lengths)), key=lambda sentence: -widths[sentence])
        for width, sentences in groupby(order, key=widths.__getitem__):
            tokens = [(sentence, place) for sentence in sentences for place in range(lengths[sentence])]
            rows = max(1, self.batch_tokens // (width + len(self.after)))
            for start in range(0, len(tokens), rows):
                yield tokens[start : start + rows]

    def _masked_scores(
        self, before: list[list[int]], flat: list[list[int]], batch: list[tuple[int, int]]
    ) -> list[float]:
        inputs, masked = [], []
        for sentence, place in batch:
            start, window = self._window(flat[sentence], place)
            tokens = [*before[sentence], *window, *self.after]
            masked.append(len(before[sentence]) + place - start)
            tokens[masked[-1]] = self.mask
            inputs.append(tokens)
        places = torch.tensor(masked)
        targets = torch.tensor([flat[sentence][place] for sentence, place in batch])
        rows = torch.arange(len(batch))
        with self.evaluated() as model:
            found = model(input_ids=torch.tensor(inputs, device=self.device)).logits
        logits = found[rows, places].float().cpu()
        return (logits[rows, targets] - logits.logsumexp(dim=1)).double().tolist()

    def _window(self, tokens: list[int], place: int) -> tuple[int, list[int]]:
        """Where the window around a token begins, and its tokens: the whole sentence where there is room for it."""
        start = min(max(0, place - self.room // 2), max(0, len(tokens) - self.room))
        return start, tokens[start : start + self.room]

    def _refuse(self) -> NoReturn:
        raise LMError(
            f"{self.folder}: a masked LM gives pseudo-log-likelihoods of whole sentences, for N-best only; lattices, "
            "perplexity and interpolation need a causal LM (hf:PATH)"
        )

    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Refused with an LMError, as are `initial_state`, `step` and `score_words`."""
        self._refuse()

    def initial_state(self) -> Any:
        self._refuse()

    def step(self, state: Any, parents: Tensor, tokens: Tensor) -> tuple[Any, Tensor]:
        self._refuse()

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        self._refuse()


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after a sentence, such as [CLS] and [SEP]."""
    bare, whole = tokenizer.encode(ANCHOR, add_special_tokens=False), tokenizer.encode(ANCHOR)
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start], whole[start + len(bare) :]
    return [], []


def _full_stop(tokenizer: Any) -> tuple[int, ...]:
    """The tokens of a full stop right behind a word."""
    bare, stopped = (tokenizer.encode(text, add_special_tokens=False) for text in (ANCHOR, f"{ANCHOR}."))
    if stopped[: len(bare)] != bare or len(stopped) == len(bare):
        raise VocabError(f"its tokenizer has no token of its own for the full stop in '{ANCHOR}.': leave eos=true out")
    return tuple(stopped[len(bare) :])
