"""Minimising a smooth function of a few variables that have lower bounds: BFGS on the variables that are free to move.

D. P. Bertsekas, "Projected Newton methods for optimization problems with simple constraints", SIAM Journal on Control
and Optimization 20 (1982): variables at their bound that would go below it are held, the others take a quasi-Newton
step (J. Nocedal and S. J. Wright, "Numerical Optimization", 2006, eq. 6.17), and steps are cut at the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]

_DECREASE = 1e-4  # of the decrease that the slope promises
_SHORTEST = 1e-10  # relative step
_SHORTER = 0.1, 0.5  # times the step before
_MOST_STEPS = 200
_FLAT = 1e-300  # curvature along a step whose inverse is beyond float64


def minimise(
    function: Function, start: np.ndarray, low: np.ndarray, tolerance: float = 1e-8
) -> tuple[np.ndarray, float]:
    """A local minimum that descends from `start`, and the value there.

    Args:
      function: the value and the gradient `(n,)` at a point `(n,)`.
      start, low: `(n,)`; bounds may be -inf.
      tolerance: it ends where a step brings less than this, relative to the value.
    """
    point = np.maximum(start, low)
    value, slope = function(point)
    inverse: np.ndarray | None = None  # of the Hessian
    for _ in range(_MOST_STEPS):
        free = (point > low) | (slope < 0)
        step = _direction(slope, free, inverse)
        if inverse is not None and not slope @ step < 0:
            inverse = None
            step = _direction(slope, free, None)
        found = _descend(function, point, value, slope, step, low)
        if found is None:
            if inverse is None:
                break
            inverse = None
            continue
        new_point, new_value, new_slope = found
        inverse = _updated(inverse, new_point - point, new_slope - slope)
        gain = value - new_value
        point, value, slope = new_point, new_value, new_slope
        if gain <= tolerance * abs(value):
            break
    return point, value


def _direction(slope: np.ndarray, free: np.ndarray, inverse: np.ndarray | None) -> np.ndarray:
    """Downhill along the free variables; no longer than 1 where nothing is known of the curvature."""
    step = np.zeros(len(slope))
    if inverse is None:
        step[free] = -slope[free]
        return step / max(1.0, math.sqrt(step @ step))
    # Variables that are held have a slope of 0 here, which leaves their columns of the inverse out.
    step[free] = -(inverse @ np.where(free, slope, 0.0))[free]
    return step


def _descend(
    function: Function, point: np.ndarray, value: float, slope: np.ndarray, step: np.ndarray, low: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """The first of ever shorter steps that decreases the value enough; None if none does.

    The next length is where the parabola through the two values and the first slope is lowest (Nocedal and Wright,
    eq. 3.58), within `_SHORTER` of the length before, or half of that where the bounds have turned the step uphill.
    """
    length = 1.0
    while length > _SHORTEST:
        new = np.maximum(point + length * step, low)
        if (new == point).all():
            return None
        new_value, new_slope = function(new)
        promised = float(slope @ (new - point))
        if new_value <= value + _DECREASE * promised:
            return new, new_value, new_slope
        lowest = 0.5 * promised / (promised - (new_value - value)) if promised < 0 else 0.5
        length *= min(max(lowest, _SHORTER[0]), _SHORTER[1])
    return None


def _updated(inverse: np.ndarray | None, step: np.ndarray, change: np.ndarray) -> np.ndarray | None:
    """The inverse Hessian after a step and the change of the gradient along it; as it was where that is no valley."""
    curvature, size = float(step @ change), float(change @ change)
    if not size or curvature <= _FLAT or curvature <= 1e-10 * math.sqrt((step @ step) * size):
        return inverse
    if inverse is None:
        inverse = np.eye(len(step)) * (curvature / size)
    # Eq. 6.17, multiplied out: with r = y / c, (1 - s r') H (1 - r s') + s s' / c.
    moved = inverse @ (change / curvature)
    along = step * (0.5 * (change @ moved / curvature + 1.0 / curvature)) - moved
    product = along[:, None] * step
    result: np.ndarray = inverse + product + product.T
    return result
