"""The option --on-error of commands that go through lattices or lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rescore.skipping import OnError


def on_error_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The argument `on_error`, an `OnError`; `what`: what is left out."""
    return click.option(
        "--on-error",
        type=click.Choice(["stop", "skip"]),
        default="stop",
        show_default=True,
        callback=lambda ctx, param, value: _policy(value),
        help=f"{what} that cannot be read or done: stop, or skip, name and count it (exit status 3).",
    )


def _policy(on_error: str) -> OnError:
    from rescore.skipping import Skip, fail

    return Skip() if on_error == "skip" else fail
