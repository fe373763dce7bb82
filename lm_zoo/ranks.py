"""The processes of a distributed run, as torchrun starts them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Ranks:
    """The processes of a distributed run (one in a plain run)."""

    rank: int
    size: int
    device: torch.device

    @classmethod
    def start(cls, device: str) -> Ranks:
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls(0, 1, torch.device(device))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
        place = torch.device("cuda", local) if device == "cuda" else torch.device(device)
        return cls(torch.distributed.get_rank(), size, place)

    def wait(self) -> None:
        """Until every rank is here."""
        if self.size > 1:
            torch.distributed.barrier()

    def sum(self, *values: float) -> list[float]:
        """Each value summed over the ranks."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return total.tolist()

    def gather(self, items: list[Any]) -> list[Any]:
        """The items of all ranks, in the order in which one process would have taken them."""
        if self.size == 1:
            return items
        parts: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(parts, items)
        return [part[index] for index in range(len(items)) for part in parts]
