"""Minimising smooth functions of a few variables that have lower bounds: BFGS on the variables that are free to move.

D. P. Bertsekas, "Projected Newton methods for optimization problems with simple constraints", SIAM Journal on Control
and Optimization 20 (1982): variables at their bound that would go below it are held, the others take a quasi-Newton
step (J. Nocedal and S. J. Wright, "Numerical Optimization", 2006, eq. 6.17), and steps are cut at the bounds.  What a
step does to the slope of variables that it does not move is no part of what is learnt of the Hessian (C. T. Kelley,
"Iterative Methods for Optimization", 1999, Section 5.5.3): else steps are those of all variables, far too long.

Searches from many starting points descend side by side, each by itself: small functions cost numpy's calls alone, which
all searches share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

Function = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

_DECREASE = 1e-4  # of the decrease that the slope promises
_SHORTEST = 1e-10  # relative step
_SHORTER = 0.1, 0.5  # times the step before
_LONGER = 2.0  # times the step before, where the slope along it does not rise
_MOST_STEPS = 200
_FLAT = 1e-300  # curvature along a step whose inverse is beyond float64


@dataclass
class _Searches:
    """Those that have not ended, a row each.

    Attributes:
      which: their starting points, int64 `(searches,)`.
      point, value, slope: where they are, `(searches, n)`, `(searches,)`, `(searches, n)`.
      inverse: of the Hessian, `(searches, n, n)`.
      known: whether anything is known of it, bool `(searches,)`.
      step, length: what is tried from there, `(searches, n)`, and which part of it, `(searches,)`.
      steps: how many were taken, int64 `(searches,)`.
    """

    which: np.ndarray
    point: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    inverse: np.ndarray
    known: np.ndarray
    step: np.ndarray
    length: np.ndarray
    steps: np.ndarray

    @classmethod
    def at(cls, point: np.ndarray, value: np.ndarray, slope: np.ndarray) -> _Searches:
        count, n = point.shape
        none = np.zeros(count, dtype=np.int64)
        inverse, step = np.zeros((count, n, n)), np.zeros((count, n))
        which = np.arange(count)
        return cls(which, point.copy(), value.copy(), slope.copy(), inverse, none > 0, step, np.ones(count), none)

    def only(self, chosen: np.ndarray) -> _Searches:
        """`chosen`: bool `(searches,)`."""
        return _Searches(*(getattr(self, field.name)[chosen] for field in fields(self)))


def minimise(
    function: Function, starts: np.ndarray, low: np.ndarray, tolerance: float = 1e-8
) -> tuple[np.ndarray, np.ndarray]:
    """The local minima that descend from some points, `(starts, n)`, and the values there, `(starts,)`.

    Args:
      function: values `(points,)` and gradients `(points, n)` at some points `(points, n)`, each in a search that
        began at one of `starts`, int64 `(points,)`: each start may have a function of its own.
      starts: `(starts, n)`.
      low: `(n,)`; bounds may be -inf.
      tolerance: a search ends where a step brings less than this, relative to the value.
    """
    points = np.maximum(starts, low)
    values, slopes = function(points, np.arange(len(points)))
    values = values.copy()
    now = _Searches.at(points, values, slopes)
    _turn(now, np.full(len(points), True), low)
    while len(now.which):
        with np.errstate(all="ignore"):  # in what is worked out for searches that do not use it
            ended = _advance(function, now, low, tolerance)
        if ended.any():
            points[now.which[ended]], values[now.which[ended]] = now.point[ended], now.value[ended]
            now = now.only(~ended)
    return points, values


def _advance(function: Function, now: _Searches, low: np.ndarray, tolerance: float) -> np.ndarray:
    """Each search tries a step, which is taken if it decreases the value enough, or else a shorter one comes next.

    The next length is where the parabola through the two values and the first slope is lowest (Nocedal and Wright,
    eq. 3.58), within `_SHORTER` of the length before, or half of that where the bounds have turned the step uphill.

    Returns:
      Which searches have ended, bool `(searches,)`.
    """
    new = np.maximum(now.point + now.length[:, None] * now.step, low)
    value, slope = function(new, now.which)
    moved = new - now.point
    promised = _products(now.slope, moved)
    stuck = ~(moved.any(axis=1) & (now.length > _SHORTEST))
    gain = now.value - value
    taken = ~stuck & (gain >= -_DECREASE * promised)
    ended = stuck & ~now.known
    now.known &= ~stuck

    lowest = 0.5 * promised / np.where(promised < 0, promised + gain, promised)
    now.length *= np.fmin(np.fmax(lowest, _SHORTER[0]), _SHORTER[1])

    if taken.any():
        _update(now, moved, np.where(moved == 0.0, 0.0, slope - now.slope), taken)
        now.steps += taken
        ended |= taken & ((gain <= tolerance * np.abs(value)) | (now.steps >= _MOST_STEPS))
        np.copyto(now.point, new, where=taken[:, None])
        np.copyto(now.value, value, where=taken)
        np.copyto(now.slope, slope, where=taken[:, None])
    _turn(now, taken | stuck, low)
    return ended


def _turn(now: _Searches, turning: np.ndarray, low: np.ndarray) -> None:
    """Gives some searches, bool `(searches,)`, the whole of a new step to try.

    Downhill along the free variables; no longer than 1 where nothing is known of the curvature.
    """
    # Variables that are held have a slope of 0 here, which leaves their columns of the inverse out.
    free = (now.point > low) | (now.slope < 0)
    slope = now.slope * free
    step = _times(now.inverse, slope) * free
    downhill = now.known & (_products(slope, step) > 0)
    step = np.where(downhill[:, None], step, slope / np.fmax(1.0, np.sqrt(_products(slope, slope)))[:, None])
    np.copyto(now.step, -step, where=turning[:, None])
    np.copyto(now.known, downhill, where=turning)
    np.copyto(now.length, 1.0, where=turning)


def _update(now: _Searches, step: np.ndarray, change: np.ndarray, taken: np.ndarray) -> None:
    """The inverse Hessians after steps and changes of the gradients along them.

    Where the slope does not rise along a step, there is no valley yet, and the next step is as long again and more.

    Args:
      step, change: `(searches, n)`.
      taken: which took that step, bool `(searches,)`.
    """
    curvature, size, square = _products(step, change), _products(change, change), _products(step, step)
    valley = (size > 0) & (curvature > _FLAT) & (curvature > 1e-10 * np.sqrt(square * size))
    begun = np.where(valley, curvature / size, _LONGER * np.sqrt(square / _products(now.slope, now.slope)))
    first = (taken & ~now.known)[:, None, None]
    np.multiply(now.inverse, _LONGER, out=now.inverse, where=(taken & ~valley)[:, None, None])
    np.copyto(now.inverse, np.eye(step.shape[1]) * begun[:, None, None], where=first)
    now.known |= taken
    # Eq. 6.17, multiplied out: with r = y / c, (1 - s r') H (1 - r s') + s s' / c.
    relative = change / curvature[:, None]
    moved = _times(now.inverse, relative)
    along = step * (0.5 * (_products(relative, moved) + 1.0 / curvature))[:, None] - moved
    product = along[:, :, None] * step[:, None, :]
    product += product.transpose(0, 2, 1)
    np.add(now.inverse, product, out=now.inverse, where=(taken & valley)[:, None, None])


def _products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`(searches, n)` twice, `(searches,)`."""
    result: np.ndarray = np.einsum("ij,ij->i", left, right)
    return result


def _times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """`(searches, n, n)` and `(searches, n)`, `(searches, n)`."""
    result: np.ndarray = np.einsum("ijk,ik->ij", matrix, vector)
    return result
