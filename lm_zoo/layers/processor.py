"""What this processor does with products of bfloat16: some round sums, some have no instructions for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

ROUNDED = 2.0**-8  # the share that rounding a number to bfloat16 moves it by, at most
SLOW = 3.0  # times float32's; with instructions for them they take 0.3 to 1.5 times, without 10 to 80 times
SIZE, ROUNDS = 128, 10


@lru_cache
def adds_up_in_float32() -> bool:
    """Whether products of bfloat16 are rounded once, at their end.

    Some processors add up in bfloat16, which puts Muon's iterations off by a fifth of an update.
    """
    places = torch.arange(64 * 2048, dtype=torch.float64)
    left, right = (places.mul(step).sin().view(64, 2048).bfloat16() for step in (0.7, 0.3))
    exact = left.double() @ right.double().t()
    layouts = (left @ right.t(), left @ right.t().contiguous(), left.t().contiguous().t() @ right.t())
    return all(float((found.double() - exact).norm() / exact.norm()) < ROUNDED for found in layouts)


@lru_cache
def slow_in_bfloat16() -> bool:
    """Whether products of bfloat16 take more than `SLOW` times as long as those of float32, by the clock.

    So it is where torch has none that the processor's instructions make, as on x86 without AVX-512.
    """
    matrix = torch.linspace(-1.0, 1.0, SIZE * SIZE).view(SIZE, SIZE)
    return _least(matrix.bfloat16()) > SLOW * _least(matrix)


def _least(matrix: Tensor, clock: Callable[[], float] = time.perf_counter) -> float:
    """The seconds of a product, the fastest of some: what else runs can only add to it."""
    seconds = []
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for _ in range(ROUNDS + 1):  # the first one makes ready
            start = clock()
            matrix @ matrix
            seconds.append(clock() - start)
    return min(seconds[1:])
