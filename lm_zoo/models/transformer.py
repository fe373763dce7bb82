"""The causal Transformer LM: what TransfoRNN is compared with (TransfoRNN paper, Section 5: post-norm, the default).

"all" evaluation scores every position of a window at once; "final position" evaluation slides the window by one
token and scores the last position only, after Al-Rfou et al. 2019 (Table 4): see `lm_zoo.inference.windows`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lm_zoo.inference.neural import NeuralLM
from lm_zoo.inference.state import State
from lm_zoo.inference.tree import Tree
from lm_zoo.inference.tree_attention import transformer_layer
from lm_zoo.layers.output import SoftmaxLayer
from lm_zoo.layers.transformer import InputEmbedding, TransformerLayer
from lm_zoo.text.vocabulary import Vocabulary


@dataclass
class TransformerConfig:
    """Defaults are the best Transformer on PTB in Table 1 (N = 8, d = 512)."""

    dim: int = 512  # width of embeddings and layers
    heads: int = 8  # of attention; they share the width
    feedforward: int = 1024  # width inside a layer
    layers: int = 8  # Transformer layers
    positions: bool = True  # sinusoidal positions are added to the embeddings
    tied: bool = True  # one matrix for input and output embeddings
    dropout: float = 0.1  # share of what is dropped in training
    word_dropout: float = 0.0  # share of the vocabulary without embeddings, a training batch
    activation: str = "relu"  # or "gelu"
    norm: str = "post"  # or "pre"
    norm_eps: float = 1e-5  # added to variances by layer normalisations


class Transformer(NeuralLM):
    """See the module's description."""

    Config = TransformerConfig

    def __init__(self, vocab: Vocabulary, config: TransformerConfig) -> None:
        super().__init__(vocab, config)
        c = config
        self.input = InputEmbedding(len(vocab), c.dim, c.positions, c.dropout, c.word_dropout)
        self.layers = nn.ModuleList(
            TransformerLayer(c.dim, c.heads, c.feedforward, c.dropout, c.activation, c.norm, c.norm_eps)
            for _ in range(c.layers)
        )
        self.last_norm: nn.Module = nn.LayerNorm(c.dim, c.norm_eps) if c.norm == "pre" else nn.Identity()
        self.output = SoftmaxLayer(len(vocab), c.dim, self.input.embedding if c.tied else None)

    def embed(self, inputs: Tensor) -> Tensor:
        """int64 `(batch, time)` -> `(batch, time, dim)`, what the first layer reads."""
        return self.input(inputs)

    def hidden(self, inputs: Tensor) -> Tensor:
        x = self.embed(inputs)
        for layer in self.layers:
            x = layer(x)
        return self.last_norm(x)

    def tree_hidden(self, tree: Tree) -> Tensor:
        return self.tree_layers(self.input.at(tree.inputs, tree.depths), tree)

    def tree_layers(self, x: Tensor, tree: Tree) -> Tensor:
        """The layers over the embedded tokens of a tree, `(nodes, dim)`."""
        for layer in self.layers:
            x = transformer_layer(layer, x, tree)
        return self.last_norm(x)

    def hidden_after(self, state: State, inputs: Tensor) -> tuple[State, Tensor]:
        return self.layers_after(state, self.input(inputs, start=state.time))

    def layers_after(self, state: State, x: Tensor) -> tuple[State, Tensor]:
        """The layers over an embedded window, `(batch, time, dim)`, behind the window before."""
        caches = list(state.memory)
        for index, layer in enumerate(self.layers):
            x, caches[index] = layer.after(x, caches[index])
        return State(state.time + x.shape[1], tuple(caches)), self.last_norm(x)

    def initial_state(self) -> State:
        c = self.config
        cache = torch.zeros(1, 2, c.heads, 0, c.dim // c.heads, device=self.device)
        return State(0, (cache,) * max(c.layers, 1))  # without layers one, which says how many nodes there are

    def step_hidden(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        return self.step_layers(state, self.input(tokens.unsqueeze(1), start=state.time).squeeze(1))

    def step_layers(self, state: State, x: Tensor) -> tuple[State, Tensor]:
        """The layers over one embedded token a node, `(nodes, dim)`."""
        caches = list(state.memory)
        for index, layer in enumerate(self.layers):
            x, caches[index] = layer.step(x, caches[index])
        return State(state.time + 1, tuple(caches)), self.last_norm(x)
