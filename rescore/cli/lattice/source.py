"""Options that the commands on lattices share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from rescore.cli.completion import formats

if TYPE_CHECKING:
    from rescore.skipping import OnError
    from rescore.types import Lattice


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument SRC and the options --words and --on-error, as `source`, `words`, `on_error`."""
    for option in (
        click.option(
            "--on-error",
            type=click.Choice(["stop", "skip"]),
            default="stop",
            show_default=True,
            help="A lattice that cannot be read: stop, or skip and count it.",
        ),
        click.option(
            "--words",
            metavar="FILE",
            help="words.txt, for formats that hold numbers of words (default: its usual places), or: ids.",
        ),
        click.argument("source", metavar="SRC", shell_complete=formats),
    ):
        command = option(command)
    return command


def policy(on_error: str) -> OnError:
    """What --on-error says."""
    from rescore.skipping import Skip, fail

    return Skip() if on_error == "skip" else fail


def read(source: str, words: str | None, on_error: OnError) -> Iterator[Lattice]:
    """The lattices of `source`, with progress; at the end a remark on how many were skipped, an error if all were."""
    from rescore.errors import FormatError
    from rescore.formats import with_option
    from rescore.formats.counting import lattices_with_progress
    from rescore.skipping import report_skipped

    empty = True
    for lattice in lattices_with_progress(with_option(source, "words", words), "lattices", on_error):
        empty = False
        yield lattice
    report_skipped(on_error)
    if empty:
        raise FormatError(source, "no lattice in it that can be read")
