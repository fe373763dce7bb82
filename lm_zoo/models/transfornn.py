"""TransfoRNN: N Transformer layers followed by M LSTM layers.

T. Y. Chong, X. Wang, L. Yang, J. Wang, "TransfoRNN: Capturing the Sequential Information in Self-Attention
Representations for Language Modeling" (2021).  Section 4: the representations z^(N) of the last Transformer layer
(Eqs. 5-9) are read in order by a stack of LSTMs, whose outputs o^(M) go to the softmax layer.  Positional encoding
(Eq. 6) may be left out (Table 3); input and output embedding are tied in the text of Section 5, yet apart in the
parameter counts of Tables 1 and 2: both can be had with `tied`.

Not of the paper: `output_norm` normalises o^(M).  Units of an LSTM are within -1 and 1, so that the softmax layer is
as sharp as its matrix is large, and weight decay of that matrix, the embedding when tied, costs what it gains; with a
gain of its own, as the last layer of a Transformer has it, the outputs grow where the embedding shrinks.
`rnn_residual` adds z^(N), what the LSTM layers read, to o^(M), as every other part of the network has it (Eqs. 7-9):
with `output_norm` the softmax layer reads LayerNorm(z^(N) + o^(M)).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lm_zoo.inference.lstm_cells import lstm
from lm_zoo.inference.neural import NeuralLM, rnn_after
from lm_zoo.inference.state import State
from lm_zoo.inference.tree import Tree
from lm_zoo.inference.tree_attention import transformer_layer
from lm_zoo.layers.dropout import Dropout
from lm_zoo.layers.lstm import LSTMLayers, OutputNorm
from lm_zoo.layers.output import SoftmaxLayer
from lm_zoo.layers.transformer import InputEmbedding, TransformerLayer
from lm_zoo.text.vocabulary import Vocabulary


@dataclass
class TransfoRNNConfig:
    """Defaults are the paper's best of d = 512 on PTB (Table 1: N = 2, M = 2), which is as good as its best of 1024."""

    dim: int = 512  # width of embeddings and layers
    heads: int = 8  # of attention; they share the width
    feedforward: int = 1024  # width inside a Transformer layer
    layers: int = 2  # Transformer layers, N of the paper
    rnn_layers: int = 2  # LSTM layers behind them, M of the paper
    positions: bool = True  # sinusoidal positions are added to the embeddings
    tied: bool = True  # one matrix for input and output embeddings
    dropout: float = 0.1  # share of what is dropped in training
    word_dropout: float = 0.0  # share of the vocabulary without embeddings, a training batch
    weight_dropout: float = 0.0  # share of the LSTMs' recurrent weights that is dropped in training
    rnn_dropout: float = -1.0  # share of what is dropped between and behind the LSTM layers; -1: dropout
    locked_dropout: bool = False  # the same units at all times of a row, of embeddings and LSTM layers
    activation: str = "relu"  # or "gelu"
    output_norm: bool = False  # layer normalisation behind the LSTM layers
    rnn_residual: bool = False  # what the LSTM layers read is added to what they give


class TransfoRNN(NeuralLM):
    """See the module's description."""

    Config = TransfoRNNConfig

    def __init__(self, vocab: Vocabulary, config: TransfoRNNConfig) -> None:
        super().__init__(vocab, config)
        c = config
        dropped = c.dropout if c.rnn_dropout < 0 else c.rnn_dropout
        self.input = InputEmbedding(len(vocab), c.dim, c.positions, c.dropout, c.word_dropout, c.locked_dropout)
        self.layers = nn.ModuleList(
            TransformerLayer(c.dim, c.heads, c.feedforward, c.dropout, c.activation) for _ in range(c.layers)
        )
        self.rnn = LSTMLayers(c.dim, c.dim, c.rnn_layers, dropped, c.weight_dropout, c.locked_dropout)
        self.norm = OutputNorm(c.dim) if c.output_norm else nn.Identity()
        self.dropout = Dropout(dropped, c.locked_dropout)
        self.output = SoftmaxLayer(len(vocab), c.dim, self.input.embedding if c.tied else None)

    def hidden(self, inputs: Tensor) -> Tensor:
        x = self.input(inputs)
        for layer in self.layers:
            x = layer(x)
        return self._output(x, self.rnn(x)[0])

    def _output(self, read: Tensor, given: Tensor) -> Tensor:
        """What the softmax layer reads, of what the LSTM layers read and gave."""
        if self.config.rnn_residual:
            return self.norm(read + self.dropout(given))  # type: ignore[no-any-return]
        return self.dropout(self.norm(given))  # type: ignore[no-any-return]

    def hidden_after(self, state: State, inputs: Tensor) -> tuple[State, Tensor]:
        *caches, h, c = state.memory
        x = self.input(inputs, start=state.time)
        for index, layer in enumerate(self.layers):
            x, caches[index] = layer.after(x, caches[index])
        given, cells = rnn_after(self.rnn, x, h, c)
        return State(state.time + inputs.shape[1], (*caches, *cells)), self._output(x, given)

    def recurrent(self, state: State) -> State:
        *caches, h, c = state.memory
        return State(0, (*(cache[:, :, :, :0] for cache in caches), h, c))

    def tree_hidden(self, tree: Tree) -> Tensor:
        x = self.input.at(tree.inputs, tree.depths)
        for layer in self.layers:
            x = transformer_layer(layer, x, tree)
        return self._output(x, lstm(self.rnn, x, tree))

    def initial_state(self) -> State:
        c, device = self.config, self.device
        cache = torch.zeros(1, 2, c.heads, 0, c.dim // c.heads, device=device)
        zeros = torch.zeros(1, c.rnn_layers, c.dim, device=device)
        return State(0, (*[cache] * c.layers, zeros, zeros))

    def step_hidden(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        *caches, h, c = state.memory
        x = self.input(tokens.unsqueeze(1), start=state.time).squeeze(1)
        for index, layer in enumerate(self.layers):
            x, caches[index] = layer.step(x, caches[index])
        given, (h, c) = self.rnn(x.unsqueeze(1), (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()))
        memory = (*caches, h.transpose(0, 1), c.transpose(0, 1))
        return State(state.time + 1, memory), self._output(x, given.squeeze(1))
