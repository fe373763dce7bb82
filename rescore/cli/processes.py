"""Options of the commands that train in several processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments `world_size` and `master_port`, as icefall's train.py has them."""
    for option in (
        click.option(
            "--master-port",
            default=12354,
            show_default=True,
            type=click.IntRange(1, 65535),
            help="Port at which the processes meet.",
        ),
        click.option(
            "--world-size",
            default=1,
            show_default=True,
            type=click.IntRange(1),
            help="Processes to train in; not under torchrun.",
        ),
    ):
        command = option(command)
    return command
