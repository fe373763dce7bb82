"""The memory of a neural LM between tokens or windows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass
class State:
    """The memory of tree nodes that have all read `time` tokens (begin of sentence included).

    Attributes:
      time: tokens read.
      memory: tensors whose first dimension is the node.
    """

    time: int
    memory: tuple[Tensor, ...]

    def select(self, nodes: Tensor) -> State:
        """The state of the given nodes, int64 `(nodes,)`, repeats allowed."""
        return replace(self, memory=tuple(tensor.index_select(0, nodes) for tensor in self.memory))

    def repeat(self, nodes: int) -> State:
        """The state of one node for so many."""
        return self.select(torch.zeros(nodes, dtype=torch.long, device=self.memory[0].device))

    def detach(self) -> State:
        """The same numbers, through which no gradient goes."""
        return replace(self, memory=tuple(tensor.detach() for tensor in self.memory))

    def to(self, device: torch.device) -> State:
        return replace(self, memory=tuple(tensor.to(device) for tensor in self.memory))
