"""A Transformer whose input embedding is augmented by N-grams: the lookup-table LM, rival of the lookup dictionary.

W. R. Huang, T. N. Sainath, C. Peyser, S. Kumar, D. Rybach, T. Strohman, "Lookup-Table Recurrent Language Models for
Long Tail Speech Recognition" (2021), on the Transformer of the lookup-dictionary paper (Table 1, row "[10]").  A table
of trained vectors, chosen by the hash of the last N token ids, joins the token's embedding; here the two are added
(concatenation followed by a linear map, with that map folded into the table).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lm_zoo.inference.state import State
from lm_zoo.inference.tree import Tree
from lm_zoo.layers.ngram_hash import slot_of, with_history
from lm_zoo.models.transformer import Transformer, TransformerConfig
from lm_zoo.text.vocabulary import Vocabulary


@dataclass
class NgramEmbeddingConfig(TransformerConfig):
    """A Transformer's settings, and those of the table."""

    slots: int = 5000  # of the table
    order: int = 2  # of the n-grams that are embedded
    hashing: str = "sum"  # or "positional"


class NgramEmbedding(Transformer):
    """See the module's description."""

    Config = NgramEmbeddingConfig
    added = ("table.",)
    config: NgramEmbeddingConfig

    def __init__(self, vocab: Vocabulary, config: NgramEmbeddingConfig) -> None:
        super().__init__(vocab, config)
        if min(config.slots, config.order) < 1:
            raise ValueError(f"slots {config.slots} and order {config.order} must be at least 1")
        slot_of(torch.zeros(1, config.order, dtype=torch.long), config.slots, config.hashing)
        self.table = nn.Embedding(config.slots, config.dim)
        nn.init.zeros_(self.table.weight)

    def augment(self, x: Tensor, ngrams: Tensor) -> Tensor:
        """Embedded tokens `(..., dim)` and their N-grams `(..., order)` -> `(..., dim)`."""
        return x + self.table(slot_of(ngrams, self.config.slots, self.config.hashing)) * self.input.scale

    def embed(self, inputs: Tensor) -> Tensor:
        return self.augment(super().embed(inputs), with_history(inputs, self.config.order))

    def hidden_after(self, state: State, inputs: Tensor) -> tuple[State, Tensor]:
        *caches, recent = state.memory
        seen = torch.cat([recent, inputs], dim=1)
        ngrams = with_history(seen, self.config.order)[:, recent.shape[1] :]
        x = self.augment(self.input(inputs, start=state.time), ngrams)
        inner, output = self.layers_after(State(state.time, tuple(caches)), x)
        return State(inner.time, (*inner.memory, seen[:, inputs.shape[1] :])), output

    def tree_hidden(self, tree: Tree) -> Tensor:
        x = self.input.at(tree.inputs, tree.depths)
        return self.tree_layers(self.augment(x, tree.history(self.config.order)), tree)

    def initial_state(self) -> State:
        state = super().initial_state()
        recent = torch.zeros(1, self.config.order - 1, dtype=torch.long, device=self.device)
        return State(state.time, (*state.memory, recent))

    def step_hidden(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        *caches, recent = state.memory
        ngrams = torch.cat([recent, tokens.unsqueeze(1)], dim=1)
        x = self.augment(self.input(tokens.unsqueeze(1), start=state.time).squeeze(1), ngrams)
        inner, output = self.step_layers(State(state.time, tuple(caches)), x)
        return State(inner.time, (*inner.memory, ngrams[:, 1:])), output
