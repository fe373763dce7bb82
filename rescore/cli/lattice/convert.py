"""`rescore lattice convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rescore.cli.lattice.source import source_options, words_for
from rescore.cli.outputs import OutputSpec

if TYPE_CHECKING:
    from rescore.skipping import OnError


@click.command()
@source_options
@click.argument("target", metavar="DST", type=OutputSpec())
@click.option("--case", type=click.Choice(["upper", "lower"]), help="Change the case of words.")
@click.option("--delete", default="", metavar="CHARS", help="Delete these characters from words.")
@click.option("--drop", multiple=True, metavar="WORD", help="Leave out this word, such as '[noise]'; repeat it.")
@click.option(
    "--split-words", "--split", "split_at", default="", metavar="CHARS", help="Split words at these characters."
)
def command(
    source: str,
    words: str | None,
    on_error: OnError,
    target: str,
    case: str | None,
    delete: str,
    drop: tuple[str, ...],
    split_at: str,
) -> None:
    """Write lattices in another format, or Kaldi archives as text, binary, one file, packed or not.

    --words serves SRC and DST where they hold numbers of words.  Kaldi to Kaldi keeps every byte of a binary record.

    \b
    Example: rescore lattice convert kaldi:exp/tri1/decode slf:exp/tri1/slf --words words.txt
    Example: rescore lattice convert kaldi:lat.1.gz kaldi:lat.txt?text=yes
    """
    from rescore.sharing.shares import Sharing
    from rescore.text import TextNormalizer, check_characters
    from rescore.workflows.convert import lattices_to_lattices

    source, target = words_for(words, source, target)
    check_characters(delete, split_at)
    normalizer = TextNormalizer(case, delete, split_at, drop=drop)
    lattices_to_lattices(source, target, normalizer, on_error, Sharing())
