"""The option `--utterances`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def utterances_option(command: F) -> F:
    """Adds `--utterances same|common`, the argument `common` (bool)."""
    return click.option(
        "--utterances",
        "common",
        type=click.Choice(("same", "common")),
        default="same",
        show_default=True,
        callback=lambda ctx, param, value: value == "common",
        help="References and hypotheses must have the same utterances; or count those that all have, and say how many "
        "are left out.",
    )(command)
