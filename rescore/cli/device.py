"""Options of commands that evaluate LMs: `--device`, `--dtype`, `--max-unknown`."""

from __future__ import annotations

import click

from lm_zoo.text.coverage import MOST_UNKNOWN

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
    help="Of the neural LMs' matrix products; int8 changes a sentence's score by half a nat or so.",
)

max_unknown_option = click.option(
    "--max-unknown",
    type=click.FloatRange(0, 1),
    default=MOST_UNKNOWN,
    show_default=True,
    metavar="SHARE",
    help="Refuse text of which an LM does not know more than this share of the words.",
)
