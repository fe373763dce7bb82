"""Options that name one input."""

from __future__ import annotations

from typing import Any

import click


class Once(click.Option):
    """An option that is refused where it is given a second time; click takes the last one, without a word.

    Flags of one argument have their names as values (`flag_value`), and exclude each other.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "multiple": True})

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        values = super().process_value(ctx, value)
        if len(values) > 1:
            flags = [f"--{value}" for value in dict.fromkeys(values)] if self.is_flag else []
            if len(flags) > 1:
                raise click.UsageError(f"{' and '.join(flags)} are given, expected one of them", ctx)
            raise click.UsageError(
                f"{self.opts[0]} is given {len(values)} times ({', '.join(map(str, values))}), expected once", ctx
            )
        return values[0] if values else None
