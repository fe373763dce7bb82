"""SpeechBrain's `TransformerLM`: the Transformer, with a head of a linear layer and two layer normalisations.

Behind the last layer, post-norm or pre-norm, stand a layer normalisation, a linear layer, a layer normalisation and the
softmax layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lm_zoo.layers.linear import Linear
from lm_zoo.layers.lstm import OutputNorm
from lm_zoo.models.transformer import Transformer, TransformerConfig
from lm_zoo.text.vocabulary import Vocabulary


@dataclass
class SpeechBrainTransformerConfig(TransformerConfig):
    """Defaults are those of SpeechBrain's LibriSpeech recipe."""

    dim: int = 768  # width of embeddings and layers
    heads: int = 12  # of attention; they share the width
    feedforward: int = 3072  # width inside a layer
    layers: int = 12  # Transformer layers
    tied: bool = False  # one matrix for input and output embeddings
    dropout: float = 0.0  # share of what is dropped in training
    activation: str = "gelu"  # or "relu"
    norm_eps: float = 1e-6  # added to variances by layer normalisations


class SpeechBrainTransformer(Transformer):
    """See the module's description."""

    Config = SpeechBrainTransformerConfig

    def __init__(self, vocab: Vocabulary, config: SpeechBrainTransformerConfig) -> None:
        super().__init__(vocab, config)
        c = config
        self.last_norm = nn.Sequential(
            nn.LayerNorm(c.dim, c.norm_eps), Linear(c.dim, c.dim), OutputNorm(c.dim, c.norm_eps)
        )
