"""Values of options that are real numbers."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """As click's `FloatRange`, without the `nan` that is in every range, and without infinities."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"found '{value}', expected a finite number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        """Nothing in a command's help where there are no bounds."""
        return "" if self.min is self.max is None else super()._describe_range()


NUMBER = Number()
POSITIVE = Number(min=0, min_open=True)
DECIBEL = Number(-100, 100)  # 16 bits have 96
