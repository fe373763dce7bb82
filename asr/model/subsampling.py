"""From filterbank frames at 100 Hz to vectors at 25 Hz: two 2-D convolutions of stride 2 (Gulati et al. 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr.model.masks import inside, window

KERNEL = 3
STRIDE = 2


def halved(lengths: Tensor) -> Tensor:
    """Frames after one convolution of stride 2."""
    return (lengths + 1) // STRIDE


def subsampled(lengths: Tensor) -> Tensor:
    """Frames at 25 Hz of utterances of `lengths` frames at 100 Hz: ceil(ceil(T / 2) / 2)."""
    return halved(halved(lengths))


class Subsampling(nn.Module):
    """Two convolutions with ReLU, then a linear layer.

    Causal: padded in time on the left only, so that output t sees features 4 t - 6 to 4 t; else on both sides alike.
    """

    def __init__(self, features: int, channels: int, dim: int, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.features, self.channels = features, channels
        self.conv1 = nn.Conv2d(1, channels, KERNEL, STRIDE, padding=(0, 1))
        self.conv2 = nn.Conv2d(channels, channels, KERNEL, STRIDE, padding=(0, 1))
        self.linear = nn.Linear(channels * ((features + 3) // 4), dim)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """features `(B, T, F)`, zero behind their `lengths` `(B,)` -> `(B, T', dim)`."""
        past = (KERNEL - 1, 0) if self.causal else (1, 1)
        x = F.relu(self.conv1(F.pad(features.unsqueeze(1), (0, 0, *past))))
        if not self.causal:  # what lies behind the end looks as it does to an utterance alone
            x = x * inside(halved(lengths), x.shape[2])[:, None, :, None]
        x = F.relu(self.conv2(F.pad(x, (0, 0, *past))))
        return self.project(x)

    def initial(self, batch: int) -> tuple[Tensor, Tensor]:
        """What both convolutions remember before the first frame: their padding, `(B, 2, ...)`."""
        like = self.conv1.weight
        return (
            like.new_zeros(batch, KERNEL - 1, 1, self.features),
            like.new_zeros(batch, KERNEL - 1, self.channels, (self.features + 1) // STRIDE),
        )

    def step(
        self, features: Tensor, lengths: Tensor, seen: Tensor, past: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """The causal model on some more frames.

        Args:
          features: `(B, C, F)` of which the first `lengths` `(B,)` count.
          seen: frames that came before, `(B,)`.
          past: of `initial` or the step before.

        Returns:
          `(B, C', dim)`, how many of them count `(B,)`, and what to remember.
        """
        x, lengths, past1 = _step(self.conv1, features.unsqueeze(2), lengths, seen, past[0])
        x, lengths, past2 = _step(self.conv2, x, lengths, halved(seen), past[1])
        return self.linear(x.flatten(2)), lengths, (past1, past2)

    def project(self, x: Tensor) -> Tensor:
        """The second convolution's output `(B, channels, T', F')` -> `(B, T', dim)`."""
        return self.linear(x.transpose(1, 2).flatten(2))


def _step(conv: nn.Conv2d, x: Tensor, lengths: Tensor, seen: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One convolution on x `(B, C, channels, F)` after `seen` frames, the last two of which are `past`."""
    joined = torch.cat([past, x], dim=1)
    made = halved(seen + lengths) - halved(seen)
    size = int(made.max()) if len(made) else 0
    if size:
        aligned = window(joined, seen % STRIDE, STRIDE * size + KERNEL - STRIDE)
        x = F.relu(conv(aligned.transpose(1, 2))).transpose(1, 2)
    else:
        x = x.new_zeros(len(x), 0, conv.out_channels, (x.shape[3] + 1) // STRIDE)
    return x, made, window(joined, lengths, KERNEL - 1)
