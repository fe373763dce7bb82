"""Learning rates: each schedule is the share of its highest value that a rate has at the next step."""

from __future__ import annotations

import math

import torch

LEAST = 0.01  # share at the end of a cosine


def warm_up(step: int, steps: int) -> float:
    """Linearly to 1 over the first `steps`."""
    return min(1.0, (step + 1) / steps) if steps else 1.0


def cosine(step: int, warmup: int, steps: int) -> float:
    """Half a cosine from 1 after the warm-up to `LEAST` after `steps`."""
    done = min(1.0, max(0, step - warmup) / max(1, steps - warmup))
    return LEAST + (1.0 - LEAST) * 0.5 * (1.0 + math.cos(math.pi * done))


def eden(done: int, scale: float) -> float:
    """One of the two factors of icefall's Eden, `((n^2 + b^2) / b^2)^-0.25`.

    Args:
      done, scale: n and b, in batches or in epochs.
    """
    return ((done / scale) ** 2 + 1.0) ** -0.25


def keep_highest(optimizers: list[torch.optim.Optimizer]) -> None:
    """Each parameter group keeps its learning rate as the highest, `base_lr`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]


def set_learning_rates(optimizers: list[torch.optim.Optimizer], share: float) -> None:
    """Gives every group this share of its highest learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * share
