"""The encoder S4former: a Conformer (Gulati et al. 2020) with S4s in its convolution modules (Shan et al. 2024)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from asr.errors import DataError
from asr.model.attention import RelativeAttention
from asr.model.config import EncoderConfig
from asr.model.convolution import ConvolutionModule, State
from asr.model.masks import inside
from asr.model.subsampling import Subsampling, subsampled
from lm_zoo.layers.dropout import Dropout

__all__ = ["S4former", "subsampled"]


class FeedForward(nn.Sequential):
    """LN, linear, Swish, dropout, linear."""

    def __init__(self, dim: int, hidden: int, dropout: float) -> None:
        layers = [nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.SiLU(), Dropout(dropout), nn.Linear(hidden, dim)]
        super().__init__(*layers)


class Layer(nn.Module):
    """A Conformer block: half a feed-forward, attention, convolution module, half a feed-forward, LN."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.feedforward1 = FeedForward(config.dim, config.feedforward, config.dropout)
        self.attention = RelativeAttention(config.dim, config.heads, config.causal, config.left_context)
        self.convolution = ConvolutionModule(config)
        self.feedforward2 = FeedForward(config.dim, config.feedforward, config.dropout)
        self.norm = nn.LayerNorm(config.dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """x `(B, T, dim)`, inside bool `(B, T)` -> `(B, T, dim)`."""
        x = x + 0.5 * self.dropout(self.feedforward1(x))
        x = x + self.dropout(self.attention(x, inside))
        x = x + self.dropout(self.convolution(x, inside))
        x = x + 0.5 * self.dropout(self.feedforward2(x))
        return self.norm(x)

    def initial(self, batch: int) -> State:
        """What `step` remembers before the first frame: an empty cache, then the convolution module's state."""
        empty = self.norm.weight.new_zeros(batch, 0, 2 * len(self.norm.weight))
        return (empty, *self.convolution.component.initial(batch))

    def step(self, x: Tensor, lengths: Tensor, allowed: Tensor, size: int, state: State) -> tuple[Tensor, State]:
        """Some frames more `(B, C, dim)`; `state` is the attention's cache, then the convolution module's state."""
        x = x + 0.5 * self.feedforward1(x)
        y, cache = self.attention.step(x, lengths, allowed, size, state[0])
        x = x + y
        y, memory = self.convolution.step(x, lengths, state[1:])
        x = x + y
        return self.norm(x + 0.5 * self.feedforward2(x)), (cache, *memory)


class S4former(nn.Module):
    """Filterbank frames at 100 Hz to vectors at 25 Hz."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.subsampling = Subsampling(config.features, config.channels, config.dim, config.causal)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encodes whole utterances; what stands in the padding has no influence.

        Args:
          features: `(B, T, features)`, float.
          lengths: `(B,)` int64, frames of each utterance, at most T.

        Returns:
          `(B, T', dim)` float, zero in the padding, and T' of each utterance `(B,)` int64: ceil(ceil(T / 2) / 2).

        Raises:
          DataError: features of another shape.
        """
        if features.dim() != 3 or features.shape[2] != self.config.features:
            found = "x".join(map(str, features.shape))
            raise DataError(f"features of shape {found}; the encoder takes (batch, frames, {self.config.features})")
        lengths = lengths.to(features.device)
        if features.shape[1] == 0:
            return features.new_zeros(len(features), 0, self.config.dim), lengths
        features = features.masked_fill(~inside(lengths, features.shape[1]).unsqueeze(-1), 0.0)
        x = self.dropout(self.subsampling(features, lengths))
        x = x.to(torch.promote_types(x.dtype, torch.float32))  # what the layers add up stays exact under autocast
        lengths = subsampled(lengths)
        frames = inside(lengths, x.shape[1])
        for layer in self.layers:
            x = layer(x, frames)
        return x * frames.unsqueeze(-1), lengths
