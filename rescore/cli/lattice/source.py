"""Options that the commands on lattices share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rescore.cli.completion import formats
from rescore.cli.on_error import on_error_option

if TYPE_CHECKING:
    from rescore.skipping import OnError
    from rescore.types import Lattice

R = TypeVar("R")


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument SRC and the options --words and --on-error, as `source`, `words`, `on_error`."""
    for option in (
        on_error_option("A lattice"),
        click.option(
            "--words",
            metavar="FILE",
            help="words.txt, for formats that hold numbers of words (default: its usual places), or: ids.",
        ),
        click.argument("source", metavar="SRC", shell_complete=formats),
    ):
        command = option(command)
    return command


def words_for(words: str | None, *specs: str) -> tuple[str, ...]:
    """SRC and DST with the table of --words, each that holds numbers of words; without it, DST with those of SRC.

    Raises:
      UsageError: none of them does.
    """
    from rescore.errors import UsageError
    from rescore.formats import has_option, with_numbers, with_option

    if words is None:
        return (*specs[:1], *(with_numbers(specs[0], target) for target in specs[1:]))
    takers = [spec for spec in specs if has_option(spec, "words")]
    if not takers:
        raise UsageError(f"--words is for formats that hold numbers of words, unlike {' and '.join(specs)}")
    return tuple(with_option(spec, "words", words if spec in takers else None) for spec in specs)


def each_lattice(do: Callable[[Lattice], R], source: str, words: str | None, on_error: OnError) -> Iterator[R]:
    """What `do` makes of each lattice of `source`, with progress.

    Args:
      on_error: gets the error of a lattice that cannot be read or has not the right scores, or that memory does not
        suffice for; if it returns, the next one follows.
    Raises:
      FormatError: there is nothing to give.
    """
    from rescore.errors import FormatError
    from rescore.formats import with_option
    from rescore.formats.counting import lattices_with_progress
    from rescore.formats.part_files import utt_id_of
    from rescore.sharing.work import in_halves

    def do_all(lattices: list[Lattice]) -> list[R]:
        return [do(lattice) for lattice in lattices]

    read = done = 0
    lattices = lattices_with_progress(with_option(source, "words", words), "lattices", on_error)
    for read, lattice in enumerate(lattices, start=1):  # noqa: B007
        for result in in_halves(do_all, [lattice], utt_id_of, on_error):
            done += 1
            yield result
    if not done:
        raise FormatError(source, f"no lattice in it that can be read{' and done' if read else ''}")
