"""The LSTM LM: TransfoRNN with its Transformer layers unplugged (TransfoRNN paper, Table 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from lm_zoo.inference.lstm_cells import lstm
from lm_zoo.inference.neural import NeuralLM, rnn_after
from lm_zoo.inference.state import State
from lm_zoo.inference.tree import Tree
from lm_zoo.layers.dropout import Dropout
from lm_zoo.layers.lstm import LSTMLayers, OutputNorm
from lm_zoo.layers.output import SoftmaxLayer
from lm_zoo.layers.transformer import InputEmbedding
from lm_zoo.text.vocabulary import Vocabulary


@dataclass
class LSTMConfig:
    """Defaults are those of Table 1 (two layers, d = 512); `embedding_dim` 0 means `dim`."""

    dim: int = 512  # width of the layers
    rnn_layers: int = 2  # LSTM layers
    embedding_dim: int = 0  # width of the embeddings; 0: dim
    tied: bool = True  # one matrix for input and output embeddings
    dropout: float = 0.1  # share of what is dropped in training
    word_dropout: float = 0.0  # share of the vocabulary without embeddings, a training batch
    weight_dropout: float = 0.0  # share of the LSTMs' recurrent weights that is dropped in training
    locked_dropout: bool = False  # the same units are dropped at all times of a row
    output_norm: bool = False  # layer normalisation behind the LSTM layers: see `lm_zoo.models.transfornn`


class LSTM(NeuralLM):
    """See the module's description."""

    Config: ClassVar[type] = LSTMConfig

    def __init__(self, vocab: Vocabulary, config: LSTMConfig) -> None:
        super().__init__(vocab, config)
        c = config
        width = c.embedding_dim or c.dim
        if c.tied and width != c.dim:
            raise ValueError(f"tied embeddings need embedding_dim {width} to be dim {c.dim}")
        self.input = InputEmbedding(len(vocab), width, False, c.dropout, c.word_dropout, c.locked_dropout)
        self.rnn = LSTMLayers(width, c.dim, c.rnn_layers, c.dropout, c.weight_dropout, c.locked_dropout)
        self.norm: nn.Module = OutputNorm(c.dim) if c.output_norm else nn.Identity()
        self.dropout = Dropout(c.dropout, c.locked_dropout)
        self.output = SoftmaxLayer(len(vocab), c.dim, self.input.embedding if c.tied else None)

    def hidden(self, inputs: Tensor) -> Tensor:
        return self.dropout(self.norm(self.rnn(self.input(inputs))[0]))

    def hidden_after(self, state: State, inputs: Tensor) -> tuple[State, Tensor]:
        x, memory = rnn_after(self.rnn, self.input(inputs), *state.memory)
        return State(state.time + inputs.shape[1], memory), self.dropout(self.norm(x))

    def recurrent(self, state: State) -> State:
        return state

    def tree_hidden(self, tree: Tree) -> Tensor:
        return self.norm(lstm(self.rnn, self.input.at(tree.inputs, tree.depths), tree))

    def initial_state(self) -> State:
        zeros = torch.zeros(1, self.config.rnn_layers, self.config.dim, device=self.device)
        return State(0, (zeros, zeros))

    def step_hidden(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        h, c = (tensor.transpose(0, 1).contiguous() for tensor in state.memory)
        x, (h, c) = self.rnn(self.input(tokens.unsqueeze(1)), (h, c))
        return State(state.time + 1, (h.transpose(0, 1), c.transpose(0, 1))), self.norm(x.squeeze(1))
