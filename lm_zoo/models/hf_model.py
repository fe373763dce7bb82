"""What causal and masked LMs of Hugging Face share: the tokenizer as a vocabulary, the folder, checks of the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lm_zoo import base
from lm_zoo.errors import LMError, ModelError, VocabError
from lm_zoo.layers.processor import slow_in_bfloat16
from lm_zoo.models.hf_load import Loading, load_parts
from lm_zoo.text.coverage import check_text
from lm_zoo.text.vocabulary import TextForm, is_unknown, remember, text_case

ANCHOR = "a"


class HFVocabulary:
    """A Hugging Face tokenizer, one word at a time."""

    case = "mixed"
    form: TextForm | None = TextForm(True, "digits")

    def __init__(self, where: Path, tokenizer: Any, size: int, bos: int, eos: int, case: str) -> None:
        self.where, self.tokenizer, self.size = where, tokenizer, size
        self.bos, self.eos = bos, eos
        self.unk: int = -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id
        self._lower = case == "lower"
        self._marks = set(tokenizer.all_special_ids) - {self.unk}
        self._has_unknown = self.unk >= 0 and self.unk not in (bos, eos)  # GPT-2 calls its sentence end so
        self._cache: dict[str, tuple[int, ...]] = {}
        self._anchor = self._encode(ANCHOR)

    def __len__(self) -> int:
        return self.size

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def encode_word(self, word: str) -> tuple[int, ...]:
        tokens = self._cache.get(word)
        if tokens is None:
            tokens = self._inside_a_sentence(word.lower() if self._lower else word)
            remember(self._cache, word, tokens)
        return tokens

    def _inside_a_sentence(self, word: str) -> tuple[int, ...]:
        if self._has_unknown and is_unknown(word):
            return (self.unk,)
        tokens, before = self._encode(f"{ANCHOR} {word}"), len(self._anchor)
        if tokens[:before] != self._anchor:
            raise VocabError(f"{self.where}: its tokenizer has tokens across words ('{ANCHOR} {word}'), cannot be used")
        if len(tokens) == before and self.unk < 0:
            raise VocabError(f"{self.where}: its tokenizer has no tokens for the word '{word}'")
        if self._marks.isdisjoint(tokens[before:]):
            return tuple(tokens[before:]) or (self.unk,)
        if self.unk < 0:
            raise VocabError(f"{self.where}: '{word}' is a special token of its tokenizer, not a word; leave it out")
        return (self.unk,)

    def save(self, folder: Path) -> None:
        raise ModelError(f"{self.where}: Hugging Face models stay in their own folder")


class HFModel(base.LanguageModel):
    """What causal and masked LMs share: the folder, the tokenizer, checks of the text."""

    special: int  # tokens beside those of the words
    in_windows = False  # whether sentences that are too long are scored in windows
    long_sentences = 0  # scored so far
    windows = "each token behind half a window at least"

    def __init__(self, folder: Path, auto_class: str, how: Loading, parts: tuple[Any, Any] | None = None) -> None:
        """`parts`: tokenizer and model, if they are there already; `folder` is then what messages call them."""
        self.folder = folder
        self.tokenizer, self.model = parts or load_parts(folder, auto_class, how)
        self.size: int = self.model.config.get_text_config().vocab_size
        if len(self.tokenizer) > self.size:
            found = f"the tokenizer has {len(self.tokenizer)} tokens, but the weights are for {self.size}"
            raise VocabError(f"{folder}: {found}")
        by_accelerate = getattr(self.model, "hf_device_map", None) is not None
        self._stays = bool(how.bits or how.device_map) or by_accelerate
        self.positions = _positions(self.model, self.tokenizer)

    def set_vocabulary(self, bos: int, eos: int, case: str) -> None:
        """Makes `vocab`; `case` is "lower", "mixed", or "" to refuse text that is all upper case."""
        self.vocab = HFVocabulary(self.folder, self.tokenizer, self.size, bos, eos, case)
        self._refuses_upper = not case and self.vocab.encode_word("THE") != self.vocab.encode_word("the")

    def check_case(self, words: Iterable[str]) -> None:
        """Refuses text that is all upper case (two longer words at least) where that makes a difference."""
        if not self._refuses_upper:
            return
        words = {word for word in words if len(word) > 1}
        if len(words) > 1 and text_case(words) == "upper":
            raise VocabError(
                f"the text is upper case ('{min(words)}'), which the LM in {self.folder} has hardly seen; lower-case "
                "it for the LM alone with hf:PATH?case=lower, or insist with hf:PATH?case=mixed"
            )

    def check_length(self, tokens: int, what: str = "a sentence", advice: str = "") -> None:
        """Refuses what is longer than the model's positions; `tokens` counts the special ones, too."""
        if self.positions is not None and tokens > self.positions:
            raise LMError(
                f"{what} has {tokens} tokens with the special ones, but the model in {self.folder} takes "
                f"{self.positions} at most; leave it out (of lists and lattices: --on-error skip), {advice}or use "
                "another LM"
            )

    @contextmanager
    def evaluated(self) -> Iterator[Any]:
        """The model without dropout, also while something trains it; afterwards its parts are as they were."""
        training = [part for part in self.model.modules() if part.training] if self.model.training else []
        for part in training:
            part.training = False
        try:
            yield self.model
        finally:
            for part in training:
                part.training = True

    @property
    def dtype(self) -> torch.dtype:
        """Of what goes through the layers; weights of 4 or 8 bits have others."""
        found: torch.dtype = self.model.get_input_embeddings().weight.dtype
        return found

    @property
    def device(self) -> torch.device:
        """Where the model takes its tokens."""
        found: torch.device = self.model.get_input_embeddings().weight.device
        return found

    def move_to(self, device: torch.device) -> None:
        """Models that were placed when they were loaded (`?device_map`, `?bits`) stay where they are."""
        if not self._stays:
            self.model.to(device)

    def checked(self, sentences: Sequence[Sequence[str]], max_unknown: float | None) -> Sequence[Sequence[str]]:
        """The sentences, if their words and their lengths suit the model."""
        check_text(self, sentences, max_unknown)
        for words in sentences:
            self.check_words(words, f"the sentence '{' '.join(words[:5])} ...'")
        return sentences

    def check_words(self, words: Sequence[str], what: str) -> None:
        """Refuses a sentence, called `what`, that is longer than the model's positions and not scored in windows."""
        if not self.in_windows:
            self.check_length(self._tokens(words) + self.special, what, "score it in windows with ?long=windows, ")

    def is_long(self, tokens: int) -> bool:
        """Whether so many tokens, with the special ones, are more than the positions."""
        return self.positions is not None and tokens + self.special > self.positions

    def counted(self) -> Counter[str]:
        what = f"sentences of more than {self.positions} tokens scored in windows of {self.positions}, {self.windows}"
        return +Counter({what: self.long_sentences})

    def is_slow(self) -> bool:
        return self.device.type == "cpu" and self.dtype == torch.bfloat16 and slow_in_bfloat16()

    def _tokens(self, words: Sequence[str]) -> int:
        return sum(len(self.vocab.encode_word(word)) for word in words)

    def knows(self, word: str) -> bool:
        """Whether no part of the word is unknown to the tokenizer."""
        return self.vocab.unk not in self.vocab.encode_word(word)


def _positions(model: Any, tokenizer: Any) -> int | None:
    """The longest input, special tokens included; None if there is no limit."""
    limits = [getattr(model.config.get_text_config(), "max_position_embeddings", None), tokenizer.model_max_length]
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if limits[0] is not None and padding is not None:
        limits[0] -= padding + 1  # RoBERTa counts its positions from there
    known = [limit for limit in limits if limit is not None and limit < 1 << 30]  # the tokenizer's "none" is huge
    return min(known, default=None)
