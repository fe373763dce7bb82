"""Modules that compute once, in evaluation, what follows from their weights alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import nn

Value = TypeVar("Value")


class Remembering(nn.Module):
    """Keeps one value a name; training, loading and moving the weights drop them all."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._remembered: dict[str, tuple[Hashable, Any]] = {}

    def remembered(self, name: str, key: Hashable, make: Callable[[], Value]) -> Value:
        """`make()`; in evaluation, without gradients, what it gave last time if that was for the same key."""
        if self.training or torch.is_grad_enabled():
            return make()
        if name not in self._remembered or self._remembered[name][0] != key:
            self._remembered[name] = (key, make())
        return self._remembered[name][1]

    def train(self, mode: bool = True) -> Any:
        self._remembered.clear()
        return super().train(mode)

    def _apply(self, fn: Any, *args: Any) -> Any:
        self._remembered.clear()
        return super()._apply(fn, *args)

    def _load_from_state_dict(self, *args: Any) -> None:
        self._remembered.clear()
        super()._load_from_state_dict(*args)
