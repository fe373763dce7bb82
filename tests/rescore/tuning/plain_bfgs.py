"""One search of `rescore.tuning.quasi_newton`, a number after another: the slow, obvious reference."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def plain_minimise(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, low: np.ndarray, tolerance: float
) -> tuple[np.ndarray, float]:
    point = np.maximum(start, low)
    value, slope = function(point)
    inverse = None
    for _ in range(200):
        free = (point > low) | (slope < 0)
        downhill = np.where(free, -slope, 0.0)
        step = None if inverse is None else np.where(free, inverse @ downhill, 0.0)
        if step is None or not slope @ step < 0:
            inverse, step = None, downhill / max(1.0, math.sqrt(downhill @ downhill))
        length = 1.0
        while True:
            new = np.maximum(point + length * step, low)
            if length <= 1e-10 or (new == point).all():
                break
            new_value, new_slope = function(new)
            promised = slope @ (new - point)
            if new_value <= value + 1e-4 * promised:
                break
            lowest = 0.5 * promised / (promised - (new_value - value)) if promised < 0 else 0.5
            length *= min(max(lowest, 0.1), 0.5)
        if length <= 1e-10 or (new == point).all():
            if inverse is None:
                break
            inverse = None
            continue
        inverse = _updated(inverse, new - point, np.where(new == point, 0.0, new_slope - slope), slope)
        gain = value - new_value
        point, value, slope = new, new_value, new_slope
        if gain <= tolerance * abs(value):
            break
    return point, value


def _updated(inverse: np.ndarray | None, s: np.ndarray, y: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Nocedal and Wright, eq. 6.17 and 6.20; steps twice as long where that is no valley."""
    one = np.eye(len(s))
    if not s @ y > 1e-10 * math.sqrt((s @ s) * (y @ y)):
        return one * 2.0 * math.sqrt((s @ s) / (slope @ slope)) if inverse is None else 2.0 * inverse
    inverse = one * (s @ y) / (y @ y) if inverse is None else inverse
    left = one - np.outer(s, y) / (s @ y)
    return np.asarray(left @ inverse @ left.T + np.outer(s, s) / (s @ y))
