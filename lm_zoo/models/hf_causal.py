"""Causal LMs of Hugging Face folders (GPT-2 and the like), as `hf:PATH` or `hf:PATH?case=lower`.

A word is encoded as the tokenizer does inside a sentence, so for GPT-2 with the space before it; also at the sentence
start, so that a word has the same tokens wherever it stands.  The begin of sentence is the tokenizer's `bos` token or,
where it has none, its `eos` token; the end is `eos` (GPT-2: `<|endoftext|>` for both).  Weights are used as float32.

What stands before a sentence is read as running text, without such a token between sentences: these LMs have seen
whole documents, which it would end.

Such LMs have seen ordinary text: `?case=lower` lower-cases words before they are encoded (the hypotheses keep theirs),
`?case=mixed` takes them as they are, and without either, text that is all upper case is refused.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lm_zoo import base
from lm_zoo.errors import LMError, ModelError, VocabError
from lm_zoo.inference import scoring, tree, trie
from lm_zoo.inference.state import State
from lm_zoo.inference.trie import LONGEST, build_trie, sequence_scores
from lm_zoo.layers.output import SoftmaxLayer
from lm_zoo.safe_unpickle import without_pickles
from lm_zoo.text.coverage import MOST_UNKNOWN, check_text
from lm_zoo.text.vocabulary import TextForm, text_case

TREE_NODES = 512  # prefixes in one pass: each is compared with all
BATCH_TOKENS = 1024  # logits of GPT-2 for so many tokens take 200 MB
TRIE_ROWS = 128  # bounds the keys and values that trie scoring keeps
WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")  # of configs: tokens that some layers look back
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
        self._cache: dict[str, tuple[int, ...]] = {}
        self._anchor = self._encode(ANCHOR)

    def __len__(self) -> int:
        return self.size

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def encode_word(self, word: str) -> tuple[int, ...]:
        tokens = self._cache.get(word)
        if tokens is None:
            tokens = self._cache[word] = self._inside_a_sentence(word.lower() if self._lower else word)
        return tokens

    def _inside_a_sentence(self, word: str) -> tuple[int, ...]:
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

    def __init__(self, folder: Path, auto_class: str, parts: tuple[Any, Any] | None = None) -> None:
        """`parts`: tokenizer and model, if they are there already; `folder` is then what messages call them."""
        self.folder = folder
        self.tokenizer, self.model = parts or load_parts(folder, auto_class)
        self.size: int = self.model.config.get_text_config().vocab_size
        if len(self.tokenizer) > self.size:
            found = f"the tokenizer has {len(self.tokenizer)} tokens, but the weights are for {self.size}"
            raise VocabError(f"{folder}: {found}")
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

    def check_length(self, tokens: int, what: str = "a sentence") -> None:
        """Refuses what is longer than the model's positions; `tokens` counts the special ones, too."""
        if self.positions is not None and tokens > self.positions:
            raise LMError(
                f"{what} has {tokens} tokens with the special ones, but the model in {self.folder} takes "
                f"{self.positions} at most; leave it out, or use another LM"
            )

    def move_to(self, device: torch.device) -> None:
        self.model.to(device)

    def checked(self, sentences: Sequence[Sequence[str]], max_unknown: float | None) -> Sequence[Sequence[str]]:
        """The sentences, if their words and their lengths suit the model."""
        check_text(self, sentences, max_unknown)
        for words in sentences:
            self.check_words(words, f"the sentence '{' '.join(words[:5])} ...'")
        return sentences

    def check_words(self, words: Sequence[str], what: str) -> None:
        """Refuses a sentence, called `what`, that is longer than the model's positions."""
        self.check_length(self._tokens(words) + self.special, what)

    def _tokens(self, words: Sequence[str]) -> int:
        return sum(len(self.vocab.encode_word(word)) for word in words)

    def knows(self, word: str) -> bool:
        """Whether no part of the word is unknown to the tokenizer."""
        return self.vocab.unk not in self.vocab.encode_word(word)


class HFCausalLM(HFModel):
    """See the module's description, and `lm_zoo.base.LanguageModel`."""

    special = 1

    def __init__(self, folder: Path, case: str = "", parts: tuple[Any, Any] | None = None) -> None:
        super().__init__(folder, "AutoModelForCausalLM", parts)
        self._output: SoftmaxLayer | None = None
        self._takes_trees: bool | None = None
        self._check_causal()
        eos = self.tokenizer.eos_token_id
        if eos is None:
            raise VocabError(f"{folder}: the tokenizer has no end of sentence (eos_token), which has to be scored")
        bos = eos if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id
        self.set_vocabulary(bos, eos, case)

    @torch.no_grad()
    def _check_causal(self) -> None:
        """Later tokens must not change what is predicted before them, and states must be keys and values."""
        inputs = torch.tensor([[0, 0, 0], [0, 0, 1]])
        kind = self.model.config.model_type
        try:
            output = self.model(input_ids=inputs, past_key_values=_cache(()), use_cache=True)
        except Exception as error:  # a model's code may refuse such a cache in any way
            raise ModelError(f"{self.folder}: a {kind} with a cache of keys and values fails ({error})") from error
        if not torch.allclose(output.logits[0, :2], output.logits[1, :2], atol=1e-5):
            raise ModelError(f"{self.folder}: not a causal LM, it looks ahead; score N-best lists with hf-mlm:PATH")
        try:
            _keys_and_values(output.past_key_values)
        except (AttributeError, TypeError):
            raise ModelError(f"{self.folder}: a {kind} has states other than keys and values, not supported") from None

    @torch.no_grad()
    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """See `LanguageModel.score`."""
        tokens, lengths = tokens.to(self.device), lengths.to(self.device)
        result = torch.zeros(len(tokens), tokens.shape[1] + 1, device=self.device)
        longest = int(lengths.max()) if len(lengths) else 0
        self.check_length(longest + 1)
        tokens = tokens[:, :longest]
        begin = torch.full((len(tokens), 1), self.vocab.bos, device=self.device)
        inputs = torch.cat([begin, tokens], dim=1)
        place = torch.arange(longest + 1, device=self.device)
        inside = place <= lengths.unsqueeze(1)
        targets = torch.cat([tokens, torch.zeros_like(begin)], dim=1)
        targets = targets.masked_fill(place == lengths.unsqueeze(1), self.vocab.eos)
        logits = self.model(input_ids=inputs, attention_mask=inside.long(), use_cache=False).logits[inside].float()
        scores = logits.gather(1, targets[inside].unsqueeze(1)).squeeze(1) - logits.logsumexp(dim=1)
        result[:, : longest + 1][inside] = scores
        return result

    def initial_state(self) -> State:
        """As `LanguageModel.initial_state`; a state is the keys and values of all layers."""
        return State(0, ())

    @torch.no_grad()
    def step(self, state: State, parents: Tensor, tokens: Tensor) -> tuple[State, Tensor]:
        """See `LanguageModel.step`."""
        self.check_length(state.time + 1)
        cache = _cache(state.select(parents.to(self.device)).memory)
        output = self.model(input_ids=tokens.to(self.device).unsqueeze(1), past_key_values=cache, use_cache=True)
        memory = _keys_and_values(output.past_key_values)
        return State(state.time + 1, memory), output.logits[:, -1].float().log_softmax(dim=-1)

    def score_words(
        self, sentences: Sequence[Sequence[str]], max_unknown: float | None = MOST_UNKNOWN
    ) -> list[list[float]]:
        """See `LanguageModel.score_words`; in batches of like lengths (running text)."""
        return base.score_in_batches(self, self.checked(sentences, max_unknown), BATCH_TOKENS)

    boundary = ()  # between two sentences

    @property
    def most_tokens(self) -> int:
        return LONGEST if self.positions is None else self.positions - self.special

    def score_hypotheses(
        self,
        sentences: Sequence[Sequence[str]],
        max_unknown: float | None = MOST_UNKNOWN,
        contexts: Sequence[base.Context] | None = None,
    ) -> list[list[float]]:
        """The same for sentences that share prefixes: each distinct prefix is evaluated once."""
        sentences = self.checked(sentences, max_unknown)
        before = contexts or [()] * len(sentences)
        if self._within_windows(sentences, before) and self.takes_trees():
            # In an order in which neighbours share prefixes.
            order = sorted(range(len(sentences)), key=lambda row: (before[row], tuple(sentences[row])))
            rows, behind = [sentences[row] for row in order], [before[row] for row in order]
            found = scoring.score_by_tree(self, rows, TREE_NODES, behind)  # type: ignore[arg-type]
            return [scores for _, scores in sorted(zip(order, found, strict=True))]
        return trie.score_by_steps(self, sentences, TRIE_ROWS, contexts, self.boundary, self.most_tokens)

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
        except Exception:  # a model's code may refuse such a mask in any way
            return False
        return torch.allclose(found.float(), expected.float().cpu(), atol=1e-3 if self.dtype == torch.float32 else 0.5)

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.model.parameters())).dtype

    @property
    def device(self) -> torch.device:
        return next(iter(self.model.parameters())).device

    @property
    def output(self) -> SoftmaxLayer:
        """The model's output layer, its weights shared."""
        if self._output is None:
            head = self.model.get_output_embeddings()
            self._output = SoftmaxLayer(len(head.weight), head.weight.shape[1], head).to(self.dtype)
            if getattr(head, "bias", None) is not None:
                self._output.bias = head.bias
        return self._output

    @torch.no_grad()
    def tree_hidden(self, prefixes: tree.Tree) -> Tensor:
        """All prefixes as one sequence: `(nodes, dim)`; positions are depths, each sees its ancestors and itself."""
        sees = torch.eye(len(prefixes.inputs), dtype=torch.bool, device=self.device)
        for level in prefixes.levels[1:]:
            sees[level] |= sees[prefixes.parents[level]]
        mask = torch.zeros(sees.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~sees, torch.finfo(self.dtype).min)
        inputs = {"input_ids": prefixes.inputs[None], "position_ids": prefixes.depths[None]}
        found = self.model.base_model(**inputs, attention_mask=mask[None, None], use_cache=False)
        hidden: Tensor = found.last_hidden_state[0]
        return hidden

    def cast(self, dtype: str) -> HFCausalLM:
        """The same in float32, a copy with weights and sums in bfloat16.

        Raises:
          ModelError: int8.
        """
        if dtype == "float32":
            return self
        if dtype != "bfloat16":
            raise ModelError(f"{self.folder}: {dtype} is for the zoo's own LMs; take float32 or bfloat16")
        made = copy.copy(self)
        made.model, made._output, made._takes_trees = copy.deepcopy(self.model).bfloat16(), None, None
        return made


def _cache(memory: tuple[Tensor, ...]) -> Any:
    """transformers' cache of keys and values, each (nodes, heads, time, size), layer by layer."""
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer in range(len(memory) // 2):
        cache.update(memory[2 * layer], memory[2 * layer + 1], layer)
    return cache


def _keys_and_values(cache: Any) -> tuple[Tensor, ...]:
    return tuple(tensor for layer in cache for tensor in layer[:2])


def load_parts(folder: Path, auto_class: str) -> tuple[Any, Any]:
    """Tokenizer and model of a folder, in evaluation mode, float32, on the CPU; nothing is downloaded or executed.

    Args:
      auto_class: "AutoModelForCausalLM" or "AutoModelForMaskedLM".
    Raises:
      ModelError: transformers is not installed, or the folder has no such model or not all of its weights.
      VocabError: no tokenizer.
    """
    transformers = _import_transformers()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **options)
    except Exception as error:  # transformers raises whatever its parts raise
        raise VocabError(f"{folder}: no tokenizer that transformers can load ({_first_line(error)})") from None
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise VocabError(f"{folder}: no tokenizer; expected the files that the tokenizer's save_pretrained writes")
    options |= {"use_safetensors": True, "ignore_mismatched_sizes": True, "output_loading_info": True}
    try:
        with without_pickles(folder) as where:
            model, found = getattr(transformers, auto_class).from_pretrained(str(where), **options)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{folder}: transformers cannot load an {auto_class} ({_first_line(error)})") from None
    for name, *shapes in sorted(found["mismatched_keys"]):
        stored, wanted = (tuple(shape) for shape in shapes)
        raise ModelError(f"{folder}: '{name}' has the shape {stored}, config.json calls for {wanted}")
    if found["missing_keys"]:
        raise ModelError(f"{folder}: the weights lack '{min(found['missing_keys'])}', which an {auto_class} needs")
    return tokenizer, model.float().eval()


def _positions(model: Any, tokenizer: Any) -> int | None:
    """The longest input, special tokens included; None if there is no limit."""
    limits = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if limits[0] is not None and padding is not None:
        limits[0] -= padding + 1  # RoBERTa counts its positions from there
    known = [limit for limit in limits if limit is not None and limit < 1 << 30]  # the tokenizer's "none" is huge
    return min(known, default=None)


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ModelError(
            f"Hugging Face models need the package transformers, which cannot be imported ({error}); "
            "install it with: pip install 'rescore[hf]'"
        ) from None
    return transformers


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
