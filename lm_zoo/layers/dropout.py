"""Dropout that does not cost a sixth of the training time on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def dropout(x: Tensor, p: float) -> Tensor:
    """`F.dropout`, but on a CPU a random byte decides: eight fates for one draw, and p rounded to a 256th.

    `(...)` -> `(...)`: zero with probability p, else divided by 1 - p.
    """
    if p == 0 or x.device.type != "cpu":
        return F.dropout(x, p)
    dropped = min(max(round(p * 256), 1), 255)
    words = torch.empty(x.numel() // 8 + 1, dtype=torch.long).random_(-(2**63), None)
    kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= dropped
    return x * kept.to(x.dtype).mul_(256 / (256 - dropped))


def locked_dropout(x: Tensor, p: float, time: int = 1) -> Tensor:
    """The same units of a row at all times, `(batch, time, dim)` -> the same; `time` is the number of that axis.

    Gal and Ghahramani 2016, "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks".
    """
    return x * dropout(torch.ones_like(x.select(time, 0)), p).unsqueeze(time)


class Dropout(nn.Module):
    """`nn.Dropout` by `dropout`, or `locked_dropout` of `(batch, time, dim)`."""

    def __init__(self, p: float, locked: bool = False) -> None:
        super().__init__()
        self.p = p
        self.locked = locked

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return locked_dropout(x, self.p) if self.locked else dropout(x, self.p)
