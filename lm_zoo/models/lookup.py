"""The memory-augmented lookup dictionary LM: a Transformer that looks up what followed the last N tokens in training.

Y. Feng, M. Tu, R. Xia, C. Huang, Y. Wang, "Memory Augmented Lookup Dictionary based Language Modeling for Automatic
Speech Recognition" (2022).  The dictionary D (U slots x M entries x dim) is no parameter.  The last N token ids choose
a slot (Eqs. 1, 2); the Transformer's output attends to the slot's M entries (Eqs. 5, 6).  In training every entry of
the slot moves to the embedding of the token that follows, with smoothing alpha (Eq. 3) and probability
1 / ln(count of that token) (Eq. 4), after the selection, and not in the first steps.

Where the paper leaves room:
- Eq. 4 has no value for counts 0 and 1 and exceeds 1 for a count of 2: the probability is 1 for counts below 3.
- Eq. 6 read to the letter replaces the Transformer's output by the mixture of entries, which cuts it off from all but
  M embeddings.  `residual` (the default) adds the mixture to the output, as attention does everywhere else in a
  Transformer; `residual=false` is the letter.  Its dictionary starts at random, like an embedding.
- An entry that is hit several times in one batch is updated in the order of the batch (its sentences, then time).
- `entries=1, gated=false` is the single-vector note of Wu et al. 2021 ("Taking notes on the fly").
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from lm_zoo.inference.state import State
from lm_zoo.inference.tree import Tree
from lm_zoo.layers.ngram_hash import slot_of, with_history
from lm_zoo.models.transformer import Transformer, TransformerConfig
from lm_zoo.text.batches import Batch, TokenText
from lm_zoo.text.vocabulary import Vocabulary

ROWS = 256  # prefixes whose entries are gathered at once: with 64 of 1024 dimensions 67 MB


@dataclass
class LookupConfig(TransformerConfig):
    """Defaults are the paper's for LibriSpeech (Section 3.2)."""

    dim: int = 1024  # width of embeddings and layers
    feedforward: int = 4096  # width inside a layer
    layers: int = 16  # Transformer layers
    dropout: float = 0.3  # share of what is dropped in training
    activation: str = "gelu"  # "relu" or "gelu"
    slots: int = 5000  # of the dictionary, U of the paper
    entries: int = 64  # of a slot, M of the paper
    order: int = 2  # of the n-grams that are looked up, N of the paper
    hashing: str = "sum"  # or "positional"
    alpha: float = 0.5  # share of what stays when an entry is updated, Eq. 3
    gated: bool = True  # Eq. 4; false: every hit updates
    residual: bool = True  # what is found is added; false: mixed in, Eq. 6 to the letter
    update_after: int = 1000  # steps of a run before the first update


class Lookup(Transformer):
    """See the module's description.

    Attributes:
      dictionary: float `(slots, entries, dim)`; zeros at first, of `residual=false` random numbers.
      update_probability: float `(vocab,)`, Eq. 4; set when a run starts, and not stored with the model.
    """

    Config = LookupConfig
    added = ("dictionary",)
    config: LookupConfig
    dictionary: Tensor
    update_probability: Tensor

    def __init__(self, vocab: Vocabulary, config: LookupConfig) -> None:
        super().__init__(vocab, config)
        c = config
        if min(c.slots, c.entries, c.order) < 1 or not 0 <= c.alpha < 1:
            raise ValueError(
                f"slots {c.slots}, entries {c.entries}, order {c.order} must be at least 1, alpha {c.alpha} in [0, 1)"
            )
        slot_of(torch.zeros(1, c.order, dtype=torch.long), c.slots, c.hashing)
        dictionary = torch.zeros(c.slots, c.entries, c.dim)
        if not c.residual:  # of zeros the output would be zero, without a gradient, until a slot is filled
            dictionary.normal_(std=c.dim**-0.5)
        self.register_buffer("dictionary", dictionary)
        self.register_buffer("update_probability", torch.ones(len(vocab)), persistent=False)

    def slots(self, inputs: Tensor) -> Tensor:
        """The slot at every position: int64 `(batch, time)` -> `(batch, time)`."""
        return slot_of(with_history(inputs, self.config.order), self.config.slots, self.config.hashing)

    def select(self, output: Tensor, slots: Tensor) -> Tensor:
        """Context selection (Eqs. 5, 6): output `(..., dim)` and slots `(...)` -> `(..., dim)`."""
        memory = self.dictionary[slots].to(output.dtype)
        scores = torch.matmul(memory, output.unsqueeze(-1)) / math.sqrt(output.shape[-1])
        mixture = torch.matmul(scores.transpose(-1, -2).softmax(dim=-1).to(memory.dtype), memory).squeeze(-2)
        return output + mixture if self.config.residual else mixture

    def hidden(self, inputs: Tensor) -> Tensor:
        return self.select(super().hidden(inputs), self.slots(inputs))

    def hidden_after(self, state: State, inputs: Tensor) -> tuple[State, Tensor]:
        *caches, recent = state.memory
        inner, output = super().hidden_after(State(state.time, tuple(caches)), inputs)
        seen = torch.cat([recent, inputs], dim=1)
        slots = self.slots(seen)[:, recent.shape[1] :]
        return State(inner.time, (*inner.memory, seen[:, inputs.shape[1] :])), self.select(output, slots)

    def tree_hidden(self, tree: Tree) -> Tensor:
        c = self.config
        slots = slot_of(tree.history(c.order), c.slots, c.hashing)
        output = super().tree_hidden(tree)
        found = torch.empty_like(output)
        for start in range(0, len(output), ROWS):
            rows = slice(start, start + ROWS)
            found[rows] = self.select(output[rows], slots[rows])
        return found

    def initial_state(self) -> State:
        state = super().initial_state()
        recent = torch.zeros(1, self.config.order - 1, dtype=torch.long, device=self.device)
        return State(state.time, (*state.memory, recent))

    def step_hidden(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        *caches, recent = state.memory
        inner, output = super().step_hidden(State(state.time, tuple(caches)), tokens)
        ngrams = torch.cat([recent, tokens.unsqueeze(1)], dim=1)
        output = self.select(output, slot_of(ngrams, self.config.slots, self.config.hashing))
        return State(inner.time, (*inner.memory, ngrams[:, 1:])), output

    # -- training ----------------------------------------------------------------------------------------------

    def begin_training(self, text: TokenText) -> None:
        """Sets the update probabilities (Eq. 4) from the counts of the tokens in the training text."""
        if not self.config.gated:
            return
        counts = torch.bincount(torch.from_numpy(text.tokens).long(), minlength=len(self.vocab))
        counts[self.vocab.eos] += len(text.offsets) - 1
        self.update_probability = (1.0 / counts.clamp(min=1).log()).clamp(max=1.0).to(self.device)

    def untouched(self, steps: int) -> str:
        after = self.config.update_after
        if steps > after:
            return ""
        return (
            f"the dictionary has no update in {steps} steps, it stays as it was at first: update_after={after} steps "
            "are before the first one; train longer, or --set update_after=N"
        )

    def after_step(self, batches: Iterable[Batch], step: int, seed: int) -> None:
        """Updates the dictionary with the batches of one optimiser step (all ranks' batches, in order)."""
        if step <= self.config.update_after:
            return
        slots, tokens = [], []
        for inputs, targets in batches:
            inside = targets >= 0
            slots.append(self.slots(inputs)[inside])
            tokens.append(targets[inside])
        generator = torch.Generator().manual_seed((seed * MAX_STEPS + step) % SEEDS)
        self.update(torch.cat(slots), torch.cat(tokens), generator)

    def behind(self, state: State) -> Tensor:
        """The tokens that the first N-grams of a window reach back to."""
        return state.memory[-1]

    @torch.no_grad()
    def update(self, slots: Tensor, tokens: Tensor, generator: torch.Generator) -> None:
        """Eqs. 3 and 4 for a sequence of events, as if one after another.

        Args:
          slots: int64 `(events,)`, the slot of the N-gram before each token.
          tokens: int64 `(events,)`, the token that followed.
          generator: on the CPU, so that every device and rank draws alike.
        """
        c = self.config
        draws = torch.rand(len(slots), c.entries, generator=generator)
        event, entry = (draws < self.update_probability[tokens.to(self.device)].cpu()[:, None]).nonzero().unbind(1)
        row = slots.cpu()[event] * c.entries + entry
        row, order = row.sort(stable=True)
        event = event[order].to(self.device)
        touched, hits = row.unique_consecutive(return_counts=True)
        later = hits.cumsum(0).repeat_interleave(hits) - 1 - torch.arange(len(row))  # hits of the row still to come
        rows = self.dictionary.view(-1, c.dim)
        embeddings = self.input.embedding.weight[tokens.to(self.device)[event]]
        touched, hits, row, later = (tensor.to(self.device) for tensor in (touched, hits, row, later))
        rows[touched] *= (c.alpha ** hits.to(rows.dtype)).unsqueeze(1)
        # Each pass sees a row once at most, so the order of the sums is fixed.  What weighs below 1e-8 is left out.
        depth = int(hits.max()) if len(hits) else 0
        most = 1 if c.alpha < 1e-8 else 1 + math.ceil(math.log(1e-8) / math.log(c.alpha))
        for back in range(min(depth, most)):
            chosen = (later == back).nonzero().squeeze(1)
            rows[row[chosen]] += (1 - c.alpha) * c.alpha**back * embeddings[chosen]


MAX_STEPS = 1 << 32  # optimiser steps that one seed has room for
SEEDS = 1 << 64  # that torch takes
