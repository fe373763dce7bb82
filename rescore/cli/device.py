"""The option `--device` of commands that evaluate LMs."""

from __future__ import annotations

import click

device_option = click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="cpu|cuda|cuda:N",
    help="Where neural LMs are evaluated.",
)
