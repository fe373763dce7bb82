"""The options `--device` and `--dtype` of commands that evaluate LMs."""

from __future__ import annotations

import click

device_option = click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="cpu|cuda|cuda:N",
    help="Where neural LMs are evaluated.",
)

dtype_option = click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "int8"]),
    default="float32",
    show_default=True,
    help="Of the neural LMs' matrix products.",
)
