"""`rescore lattice convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rescore.cli.lattice.source import source_options, words_for
from rescore.cli.outputs import OutputSpec
from rescore.cli.words import words_options

if TYPE_CHECKING:
    from rescore.skipping import OnError
    from rescore.text import TextNormalizer


@click.command()
@source_options
@click.argument("target", metavar="DST", type=OutputSpec())
@words_options()
def command(
    source: str,
    words: str | None,
    on_error: OnError,
    target: str,
    normalizer: TextNormalizer,
) -> None:
    """Write lattices in another format, or Kaldi archives as text, binary, one file, packed or not.

    Kaldi to Kaldi keeps every byte of a binary record, but for words that change.  --words serves SRC and DST where
    they hold numbers of words; without it words keep those of SRC, and without any are numbered as they come, with a
    words.txt beside.

    \b
    Example: rescore lattice convert kaldi:exp/tri1/decode slf:exp/tri1/slf --words words.txt
    Example: rescore lattice convert kaldi:lat.1.gz kaldi:lat.txt?text=yes
    """
    from rescore.sharing.shares import Sharing
    from rescore.workflows.convert import lattices_to_lattices

    source, target = words_for(words, source, target)
    lattices_to_lattices(source, target, normalizer, on_error, Sharing())
