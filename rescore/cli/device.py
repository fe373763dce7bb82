"""Options of commands that evaluate LMs: `--device`, `--dtype`, `--max-unknown`, `--text-view`."""

from __future__ import annotations

from collections.abc import Callable

import click

from lm_zoo.text.coverage import MOST_UNKNOWN
from rescore.cli.completion import lm_names
from rescore.cli.numbers import Number

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
    help="Of the neural LMs' matrix products; bfloat16 is fast on GPUs and on processors that have it, int8 changes a "
    "sentence's score by half a nat or so.",
)

max_unknown_option = click.option(
    "--max-unknown",
    type=Number(0, 1),
    default=MOST_UNKNOWN,
    show_default=True,
    metavar="SHARE",
    help="Refuse text of which an LM does not know more than this share of the words.",
)

text_view_option = click.option(
    "--text-view",
    type=click.Choice(["lm", "exact"]),
    default="lm",
    show_default=True,
    help="What LMs see of written words: lm, in the form of their own text (case, punctuation, numbers); exact, as "
    "they are, and text of another case is refused.",
)


def lms_option(what: str, required: bool = False) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """--lm of a command that takes several LMs."""
    return click.option(
        "--lm",
        "lms",
        multiple=True,
        required=required,
        metavar="[COLUMN=]NAME|DIR",
        shell_complete=lm_names,
        help=what,
    )
