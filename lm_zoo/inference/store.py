"""What layers keep of the nodes of a tree that they have evaluated, for the nodes that come later."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Store:
    """What the layers keep of evaluated nodes, by layer: tensors `(..., slots, size)`, a slot a node."""

    def __init__(self) -> None:
        self.tensors: dict[Any, Tensor] = {}

    def space(self, key: Any, slots: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Room for `slots` slots, `(*shape[:-1], slots, shape[-1])`; what was there before stays."""
        held = self.tensors.get(key)
        if held is None or held.shape[-2] < slots:
            room = max(slots, 256 if held is None else 2 * held.shape[-2])
            made = torch.empty(*shape[:-1], room, shape[-1], dtype=like.dtype, device=like.device)
            if held is not None:
                made[..., : held.shape[-2], :] = held
            held = self.tensors[key] = made
        return held[..., :slots, :]

    def keep(self, slots: Tensor) -> None:
        """Only these slots, int64 `(slots,)`, are left, in this order."""
        self.tensors = {key: held.index_select(-2, slots.to(held.device)) for key, held in self.tensors.items()}

    @property
    def held(self) -> int:
        """Bytes."""
        return sum(held.numel() * held.element_size() for held in self.tensors.values())
