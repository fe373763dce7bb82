"""Numbers that are given in Python, checked as click checks those of the commands."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from rescore.errors import UsageError


def number_from(name: str, value: Any, low: float, high: float = math.inf, kind: Any = Real) -> Any:
    """The value as a number of Python's own, if it is a finite one from `low` to `high`; a UsageError else.

    True and False are none, though Python has them as 1 and 0.
    """
    if isinstance(value, bool) or not (isinstance(value, kind) and low <= value <= high and value < math.inf):
        what = "a whole number" if kind is Integral else "a number"
        raise UsageError(
            f"{name} is {value!r}, expected {what} from {low:g}" + (f" to {high:g}" if high < math.inf else "")
        )
    return int(value) if kind is Integral else float(value)


def limit(name: str, value: Any, high: float = math.inf, kind: Any = Real) -> Any:
    """None, or a number from 0 on."""
    return None if value is None else number_from(name, value, 0, high, kind)
