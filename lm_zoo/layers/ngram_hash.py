"""Hashing N-grams of tokens to slots (lookup-dictionary paper, Eqs. 1 and 2)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

HASHES = ("sum", "positional")
MULTIPLIER = -7046029254386353131  # 2^64 / golden ratio, odd, as a signed number; products wrap around


def with_history(inputs: Tensor, order: int) -> Tensor:
    """The last `order` tokens at every position: int64 `(batch, time)` -> `(batch, time, order)`, newest last.

    Before the first token stands id 0.
    """
    return F.pad(inputs, (order - 1, 0)).unfold(1, order, 1)


def slot_of(ngrams: Tensor, slots: int, hashing: str) -> Tensor:
    """The slot of each N-gram: int64 `(..., order)` -> `(...)`, from 0 to `slots - 1`.

    "sum" is Eq. 2, the sum of the ids modulo the number of slots: orders of the same tokens collide.  "positional"
    mixes the ids one after another, so that their order counts.

    Raises:
      ValueError: another hash.
    """
    if hashing == "sum":
        return ngrams.sum(dim=-1) % slots
    if hashing != "positional":
        raise ValueError(f"hashing is '{hashing}', expected one of {', '.join(HASHES)}")
    key = torch.zeros_like(ngrams[..., 0])
    for position in range(ngrams.shape[-1]):
        key = (key + ngrams[..., position] + 1) * MULTIPLIER
        key = key ^ (key >> 32)
    return key % slots
