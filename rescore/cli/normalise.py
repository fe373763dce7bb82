"""The options `--normalise` and `--cer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from lm_zoo.text.normalise import NORMALISERS

F = TypeVar("F", bound=Callable[..., object])


def normalise_option(command: F) -> F:
    """Adds `--normalise NAME`; None where it is not given."""
    return click.option(
        "--normalise",
        type=click.Choice(NORMALISERS),
        help="Normalise references and hypotheses: basic (lower case, no punctuation), whisper-en, or librispeech "
        "(upper case, numbers and titles in words).",
    )(command)


def cer_option(command: F) -> F:
    """Adds `--cer`."""
    return click.option("--cer", is_flag=True, help="Count characters (blanks left out) instead of words.")(command)
