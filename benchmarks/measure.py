"""What the benchmarks measure with: memory of this process, seconds, tables."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def memory(field: str) -> float:
    """MB of a field of /proc/self/status, such as VmRSS; NaN where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024
    except (OSError, StopIteration):
        return float("nan")


def added_memory(action: Callable[[], Any]) -> float:
    """MB that an action adds at its peak to what is held before it."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed before goes back to the system
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    except (AttributeError, OSError):
        return float("nan")
    held = memory("VmRSS")
    action()
    return memory("VmHWM") - held


def measured(action: Callable[[], T]) -> tuple[T, float, float]:
    """What an action gives, its CPU seconds, and the MB that it adds at its peak."""
    results: list[tuple[T, float]] = []

    def timed() -> None:
        begin = time.process_time()
        result = action()
        results.append((result, time.process_time() - begin))

    megabytes = added_memory(timed)
    return *results[0], megabytes


def seconds(action: Callable[[], Any], rounds: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """The best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = clock()
        action()
        best = min(best, clock() - start)
    return best


def heading(*columns: str) -> None:
    """The head of a Markdown table; all columns but the first are numbers."""
    print(f"| {' | '.join(columns)} |\n|---{'|---:' * (len(columns) - 1)}|", flush=True)


def row(*values: object) -> None:
    print(f"| {' | '.join(map(str, values))} |", flush=True)
