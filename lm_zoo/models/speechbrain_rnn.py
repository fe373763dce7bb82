"""SpeechBrain's `RNNLM`: an LSTM LM with feed-forward blocks (linear, layer normalisation, activation) behind it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lm_zoo.layers.linear import Linear
from lm_zoo.layers.lstm import OutputNorm
from lm_zoo.layers.output import SoftmaxLayer
from lm_zoo.models.lstm import LSTM, LSTMConfig
from lm_zoo.text.vocabulary import Vocabulary

ACTIVATIONS: dict[str, type[nn.Module]] = {"leaky_relu": nn.LeakyReLU, "relu": nn.ReLU, "gelu": nn.GELU}


@dataclass
class SpeechBrainRNNConfig:
    """Defaults are those of SpeechBrain's LibriSpeech recipe."""

    dim: int = 2048  # width of the LSTM layers
    rnn_layers: int = 2  # LSTM layers
    embedding_dim: int = 128  # width of the embeddings
    blocks: int = 1  # behind the LSTM layers
    feedforward: int = 512  # width of a block
    activation: str = "leaky_relu"  # of the blocks; or "relu", "gelu"
    dropout: float = 0.0  # share of what is dropped in training


class SpeechBrainRNN(LSTM):
    """See the module's description."""

    Config = SpeechBrainRNNConfig

    def __init__(self, vocab: Vocabulary, config: SpeechBrainRNNConfig) -> None:
        c = config
        super().__init__(vocab, LSTMConfig(c.dim, c.rnn_layers, c.embedding_dim, tied=False, dropout=c.dropout))
        if c.activation not in ACTIVATIONS:
            raise ValueError(f"activation '{c.activation}' is not one of {', '.join(ACTIVATIONS)}")
        self.config = config
        self.norm, width = nn.Sequential(), c.dim
        for _ in range(c.blocks):
            for layer in (Linear(width, c.feedforward), OutputNorm(c.feedforward), ACTIVATIONS[c.activation]()):
                self.norm.append(layer)
            width = c.feedforward
        self.output = SoftmaxLayer(len(vocab), width, None)
