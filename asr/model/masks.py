"""Batches whose utterances have different lengths."""

from __future__ import annotations

import torch
from torch import Tensor


def inside(lengths: Tensor, size: int) -> Tensor:
    """Lengths `(B,)` -> bool `(B, size)`: true for the frames of the utterance, false for padding."""
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)


def window(x: Tensor, starts: Tensor, size: int) -> Tensor:
    """Of each `x[b]` the `size` frames from `starts[b]` on: x `(B, T, ...)`, starts `(B,)` -> `(B, size, ...)`.

    Frames outside of x are repetitions of its first or last.
    """
    index = starts.unsqueeze(1) + torch.arange(size, device=x.device)
    return x[torch.arange(len(x), device=x.device).unsqueeze(1), index.clamp(0, max(x.shape[1] - 1, 0))]
