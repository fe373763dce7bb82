"""Angles of the sinusoidal position codes (Vaswani et al. 2017, Sec. 3.5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def angles(positions: Tensor, dim: int) -> Tensor:
    """Position times `10000^(-2i / dim)` for i from 0: positions `(n,)` -> float32 `(n, ceil(dim / 2))`."""
    rates = torch.exp(torch.arange(0, dim, 2, device=positions.device).float() * (-math.log(10000.0) / dim))
    return positions.float().unsqueeze(1) * rates
