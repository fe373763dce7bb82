"""Causal LMs of Hugging Face folders (GPT-2 and the like), as `hf:PATH` or `hf:PATH?case=lower`.

A word is encoded as the tokenizer does inside a sentence, so for GPT-2 with the space before it; also at the sentence
start, so that a word has the same tokens wherever it stands.  The begin of sentence is the tokenizer's `bos` token or,
where it has none, its `eos` token; the end is `eos` (GPT-2: `<|endoftext|>` for both).

What stands before a sentence is read as running text, without such a token between sentences: these LMs have seen
whole documents, which it would end.

Such LMs have seen ordinary text: `?case=lower` lower-cases words before they are encoded (the hypotheses keep theirs),
`?case=mixed` takes them as they are, and without either, text that is all upper case is refused.

A sentence of more tokens than the model has positions is refused, or with `?long=windows` scored in windows of so many
tokens: each begins half a window after the one before it, and scores what that one has not.  A token is so conditioned
on half a window of tokens at least, and on the begin of sentence in the first window alone.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_zoo import base
from lm_zoo.deadline import OutOfTime, check_time, in_time
from lm_zoo.errors import ModelError, VocabError
from lm_zoo.inference import scoring, tree, trie
from lm_zoo.inference.state import State
from lm_zoo.inference.trie import build_trie, sequence_scores
from lm_zoo.layers.output import SoftmaxLayer
from lm_zoo.models.hf_load import Loading
from lm_zoo.models.hf_model import HFModel
from lm_zoo.text.coverage import MOST_UNKNOWN

TREE_NODES = 512  # prefixes in one pass: each is compared with all
BATCH_TOKENS = 1024  # logits of GPT-2 for so many tokens take 200 MB
TRIE_ROWS = 128  # bounds the keys and values that trie scoring keeps
WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")  # of configs: tokens that some layers look back


class HFCausalLM(HFModel):
    """See the module's description, and `lm_zoo.base.LanguageModel`."""

    special = 1

    def __init__(
        self,
        folder: Path,
        case: str = "",
        long: str = "",
        parts: tuple[Any, Any] | None = None,
        how: Loading = Loading(),  # noqa: B008
    ) -> None:
        super().__init__(folder, "AutoModelForCausalLM", how, parts)
        self.in_windows = bool(long)
        self._output: SoftmaxLayer | None = None
        self._takes_trees: bool | None = None
        self._cache_name = _cache_name(self.model)
        self._check_causal()
        self.keeps_keys = True
        self.keeps_keys = self._goes_on_from_keys()
        eos = self.tokenizer.eos_token_id
        if eos is None:
            raise VocabError(f"{folder}: the tokenizer has no end of sentence (eos_token), which has to be scored")
        bos = eos if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id
        self.set_vocabulary(bos, eos, case)

    @torch.no_grad()
    def _check_causal(self) -> None:
        """Later tokens must not change what is predicted before them, nor must there being any (CPM-Ant)."""
        inputs = torch.tensor([[1, 2, 1], [1, 2, 2]], device=self.device)  # 0 is what some pad by
        exact = self.dtype == torch.float32
        try:
            with self.evaluated() as model:
                logits = model(input_ids=inputs, use_cache=False).logits[:, :2]
                alone = model(input_ids=inputs[:1, :2], use_cache=False).logits[0]
        except Exception as error:  # a model's code may want more than tokens, and say so in any way
            kind = self.model.config.model_type
            raise ModelError(f"{self.folder}: a {kind} given three tokens fails ({error}), not supported") from error
        # Rows of one batch differ by rounding, too: SmolLM2 in two threads by 4e-5 of the logits' spread.
        share, least = (1e-5, max(1e-5, 1e-4 * float(logits.std()))) if exact else (0.02, 0.02)
        if not torch.allclose(logits[0], logits[1], rtol=share, atol=least) or not self._same(alone, logits[0]):
            raise ModelError(f"{self.folder}: not a causal LM, it looks ahead; score N-best lists with hf-mlm:PATH")

    @torch.no_grad()
    def _goes_on_from_keys(self) -> bool:
        """Whether keys and values of all layers lead to what the whole sentence gives; tried on three tokens.

        They do not in models with recurrent layers (Mamba, Qwen3.5, LFM2), or with loops that share a cache (Dory).
        """
        state, tokens = self.initial_state(), torch.tensor([1, 2, 1])
        try:
            for token in tokens:
                state, found = self.step(state, torch.tensor([0]), token[None])
        except OutOfTime:
            raise
        except Exception:  # a model's code may refuse such a cache in any way
            return False
        return self._same(found, self._after(tokens[None].to(self.device)))

    def _same(self, found: Tensor, expected: Tensor) -> bool:
        """Whether logits or log-probabilities are the same but for rounding, which depends on how many are computed."""
        share = 1e-3 if self.dtype == torch.float32 else 0.1  # SmolLM2 in bfloat16: 0.02
        return bool((found - expected).abs().mean() <= share * expected.std())

    @torch.no_grad()
    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """See `LanguageModel.score`."""
        tokens, lengths = tokens.to(self.device), lengths.to(self.device)
        result = torch.zeros(len(tokens), tokens.shape[1] + 1, device=self.device)
        if not len(tokens):
            return result
        longest = int(lengths.max())
        if self.in_windows and self.is_long(longest):
            for row, length in enumerate(lengths.tolist()):
                result[row, : length + 1] = self._score_windows(tokens[row, :length])
            return result
        self.check_length(longest + 1)
        tokens = tokens[:, :longest]
        begin = torch.full((len(tokens), 1), self.vocab.bos, device=self.device)
        inputs = torch.cat([begin, tokens], dim=1)
        place = torch.arange(longest + 1, device=self.device)
        inside = place <= lengths.unsqueeze(1)
        targets = torch.cat([tokens, torch.zeros_like(begin)], dim=1)
        targets = targets.masked_fill(place == lengths.unsqueeze(1), self.vocab.eos)
        with self.evaluated() as model:
            logits = model(input_ids=inputs, attention_mask=inside.long(), use_cache=False).logits[inside].float()
        scores = logits.gather(1, targets[inside].unsqueeze(1)).squeeze(1) - logits.logsumexp(dim=1)
        result[:, : longest + 1][inside] = scores
        return result

    def _score_windows(self, tokens: Tensor) -> Tensor:
        """As `score`, of one sentence `(time,)` of any length: `(time + 1,)`; see the module's description."""
        begin, end = (torch.tensor([token], device=self.device) for token in (self.vocab.bos, self.vocab.eos))
        inputs, targets = torch.cat([begin, tokens]), torch.cat([tokens, end])
        size = self.positions or len(inputs)
        scores = torch.zeros(len(inputs), device=self.device)
        done = start = 0
        while done < len(inputs):
            check_time()
            with self.evaluated() as model:
                logits = model(input_ids=inputs[None, start : start + size], use_cache=False).logits[0].float()
            rows, wanted = logits[done - start :], targets[done : start + size]
            scores[done : start + size] = rows.gather(1, wanted[:, None]).squeeze(1) - rows.logsumexp(dim=1)
            done, start = start + size, start + max(1, size // 2)
        return scores

    def initial_state(self) -> State:
        """As `LanguageModel.initial_state`; a state is the keys and values of all layers, or the tokens read so far."""
        return State(0, ())

    @torch.no_grad()
    def step(self, state: State, parents: Tensor, tokens: Tensor) -> tuple[State, Tensor]:
        """See `LanguageModel.step`; without keys and values a step reads all from the begin of sentence on."""
        self.check_length(state.time + 1)
        before, tokens = state.select(parents.to(self.device)).memory, tokens.to(self.device)
        if not self.keeps_keys:
            read = torch.cat([*before, tokens[:, None, None, None]], dim=2)  # of the form that keys have
            return State(state.time + 1, (read,)), self._after(read[:, 0, :, 0])
        with self.evaluated() as model:
            output = model(input_ids=tokens.unsqueeze(1), use_cache=True, **{self._cache_name: _cache(before)})
        memory = _keys_and_values(getattr(output, self._cache_name))
        return State(state.time + 1, memory), output.logits[:, -1].float().log_softmax(dim=-1)

    def _after(self, read: Tensor) -> Tensor:
        """`log p(next token)` after whole prefixes, int64 `(nodes, time)`, some at a time: `(nodes, vocab)`."""
        parts = read.split(max(1, BATCH_TOKENS // read.shape[1]))
        with self.evaluated() as model:
            logits = [model(input_ids=part, use_cache=False).logits[:, -1].float() for part in in_time(parts)]
        return torch.cat(logits).log_softmax(dim=-1)

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        """See `LanguageModel.score_words`; in batches of like lengths (running text)."""
        checked = self.checked(sentences, max_unknown)
        found = base.score_in_batches(self, checked, BATCH_TOKENS)
        self.long_sentences += len(self._long(checked))
        return found

    def _long(self, sentences: Sequence[Sequence[str]]) -> list[int]:
        """The places of sentences that are scored in windows."""
        if not self.in_windows:
            return []
        return [place for place, words in enumerate(sentences) if self.is_long(self._tokens(words))]

    boundary = ()  # between two sentences

    @property
    def most_tokens(self) -> int:  # type: ignore[override]
        return base.LONGEST if self.positions is None else self.positions - self.special

    def score_hypotheses(
        self,
        sentences: Sequence[Sequence[str]],
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[base.Context] | None = None,
    ) -> list[list[float]]:
        """The same for sentences that share prefixes: each distinct prefix is evaluated once, where keys are kept.

        Beside a sentence that is scored in windows there is no room for the text before it.
        """
        sentences = self.checked(sentences, max_unknown)
        if long := self._long(sentences):
            return self._score_around(long, sentences, contexts)
        if not self.keeps_keys:
            encoded = trie.encode_words(self.vocab, sentences, contexts, self.boundary, self.most_tokens)
            behind = [encoded.contexts[number].tolist() for number in encoded.after.tolist()]
            return base.score_in_batches(self, sentences, BATCH_TOKENS, behind)
        before = contexts or [()] * len(sentences)
        if self._within_windows(sentences, before) and self.takes_trees():
            order = self._order(sentences, before)
            rows, behind = [sentences[row] for row in order], [before[row] for row in order]
            found = scoring.score_by_tree(self, rows, TREE_NODES, behind)  # type: ignore[arg-type]
            return [scores for _, scores in sorted(zip(order, found, strict=True))]
        return trie.score_by_steps(self, sentences, TRIE_ROWS, contexts, self.boundary, self.most_tokens)

    def _order(self, sentences: Sequence[Sequence[str]], contexts: Sequence[base.Context]) -> list[int]:
        """The places of the sentences in an order in which neighbours share prefixes, contexts too."""
        sizes = {context: sum(map(self._tokens, context)) for context in dict.fromkeys(contexts)}
        lengths, before = map(self._tokens, sentences), map(sizes.__getitem__, contexts)
        rooms = trie.context_rooms(np.fromiter(lengths, int), np.fromiter(before, int), self.most_tokens).tolist()
        return sorted(range(len(sentences)), key=lambda row: (contexts[row], rooms[row], tuple(sentences[row])))

    def _score_around(
        self, long: list[int], sentences: Sequence[Sequence[str]], contexts: Sequence[base.Context] | None
    ) -> list[list[float]]:
        """`score_hypotheses` of all sentences, of which those at the places `long` go through windows."""
        rest = sorted({*range(len(sentences))} - {*long})
        before = None if contexts is None else [contexts[place] for place in rest]
        in_trees = self.score_hypotheses([sentences[place] for place in rest], None, before)
        in_windows = self.score_words([sentences[place] for place in long], None)  # at last, as it counts them
        found = dict(zip([*long, *rest], [*in_windows, *in_trees], strict=True))
        return [found[place] for place in range(len(sentences))]

    def _within_windows(self, sentences: Sequence[Sequence[str]], contexts: Sequence[base.Context]) -> bool:
        """Whether every prefix sees all tokens before it, as in `tree_hidden`."""
        config = self.model.config.get_text_config()
        window = min(getattr(config, name, None) or sys.maxsize for name in WINDOWS)
        if window > self.most_tokens:
            return True
        before = {context: sum(map(self._tokens, context)) for context in dict.fromkeys(contexts)}
        pairs = zip(sentences, contexts, strict=True)
        return all(before[context] + self._tokens(words) < window for words, context in pairs)

    def takes_trees(self) -> bool:
        """Whether the model takes 4-D masks and its logits are those of its output layer; tried once, on a tree."""
        if self._takes_trees is None:
            self._takes_trees = self._tried()
        return self._takes_trees

    def _tried(self) -> bool:
        small = [[0, 1, 2], [0, 2], [0, 1, 3, 0], [3]]
        padded = torch.tensor([row + [0] * (4 - len(row)) for row in small])
        expected = self.score(padded, torch.tensor([len(row) for row in small])).sum(dim=1)
        try:
            made = build_trie(small)
            found = torch.from_numpy(sequence_scores(made, *scoring.score(self, made)))  # type: ignore[arg-type]
            plain = self._logits_are_plain()
        except OutOfTime:
            raise
        except Exception:  # a model's code may refuse such a mask in any way
            return False
        atol = 1e-3 if self.dtype == torch.float32 else 0.5
        return plain and torch.allclose(found.float(), expected.float().cpu(), atol=atol)

    @torch.no_grad()
    def _logits_are_plain(self) -> bool:
        """Whether they are what the output layer gives; those of Gemma 2 are capped, those of Cohere scaled."""
        inputs = torch.arange(4, device=self.device)[None]
        with self.evaluated() as model:
            logits = model(input_ids=inputs, use_cache=False).logits.float()
            hidden = model.base_model(input_ids=inputs, use_cache=False).last_hidden_state
            given = model.get_output_embeddings()(hidden).float()
        tolerance = 1e-4 if self.dtype == torch.float32 else 1e-2
        return torch.allclose(given, logits, rtol=tolerance, atol=tolerance)

    @property
    def output(self) -> SoftmaxLayer:
        """The model's output layer, its weights shared.

        Raises:
          ModelError: it is more than a matrix, such as one with an adapter beside it.
        """
        if self._output is None:
            head: Any = self.model.get_output_embeddings()
            if (kind := type(head)) is not torch.nn.Linear:  # an adapter's has that name, too
                raise ModelError(f"{self.folder}: its output layer is a {kind.__module__}.{kind.__name__}")
            self._output = SoftmaxLayer(len(head.weight), head.weight.shape[1], head)
            self._output.to(head.weight.device, self.dtype)
            if getattr(head, "bias", None) is not None:
                self._output.bias = head.bias
        return self._output

    def move_to(self, device: torch.device) -> None:
        """See `HFModel.move_to`; what was found out on another device is found out anew."""
        super().move_to(device)
        self._output = self._takes_trees = None

    @torch.no_grad()
    def tree_hidden(self, prefixes: tree.Tree) -> Tensor:
        """All prefixes as one sequence: `(nodes, dim)`; positions are depths, each sees its ancestors and itself."""
        size, hides = len(prefixes.inputs), torch.finfo(self.dtype).min
        mask = torch.full((size, size), hides, dtype=self.dtype, device=self.device).fill_diagonal_(0.0)
        for level in prefixes.levels[1:]:
            torch.maximum(mask[level], mask[prefixes.parents[level]], out=mask[level])
        inputs = {"input_ids": prefixes.inputs[None], "position_ids": prefixes.depths[None]}
        with self.evaluated() as model:
            found = model.base_model(**inputs, attention_mask=mask[None, None], use_cache=False)
        hidden: Tensor = found.last_hidden_state[0].to(self.output.weight)
        return hidden

    def cast(self, dtype: str) -> HFCausalLM:
        """The same in float32 or if it is bfloat16 already, else a copy with weights and sums in bfloat16.

        Raises:
          ModelError: int8.
        """
        if dtype == "float32" or (dtype == "bfloat16" and self.dtype == torch.bfloat16):
            return self
        if dtype != "bfloat16":
            raise ModelError(f"{self.folder}: {dtype} is for the zoo's own LMs; take float32 or bfloat16")
        made = copy.copy(self)
        made.model, made._output, made._takes_trees = copy.deepcopy(self.model).bfloat16(), None, None
        return made


def _cache_name(model: Any) -> str:
    """What a model calls a cache, as argument and in its output: `cache`, before transformers 5.24 another name."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    takes, fields = inspect.signature(model.forward).parameters, CausalLMOutputWithPast.__dataclass_fields__
    names = ("past_key_values", "cache")  # models of one's own may have the former still
    return next((name for name in names if name in takes), names["cache" in fields])  # an adapter passes on what comes


def _cache(memory: tuple[Tensor, ...]) -> Any:
    """transformers' cache of keys and values, each (nodes, heads, time, size), layer by layer."""
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer in range(len(memory) // 2):
        cache.update(memory[2 * layer], memory[2 * layer + 1], layer)
    return cache


def _keys_and_values(cache: Any) -> tuple[Tensor, ...]:
    return tuple(tensor for layer in cache for tensor in layer[:2])
