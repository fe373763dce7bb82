"""Masks of batches whose utterances have different lengths."""

from __future__ import annotations

import torch
from torch import Tensor


def inside(lengths: Tensor, size: int) -> Tensor:
    """Lengths `(B,)` -> bool `(B, size)`: true for the frames of the utterance, false for padding."""
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)
