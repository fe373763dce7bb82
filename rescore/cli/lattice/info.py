"""`rescore lattice info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rescore.cli.lattice.source import source_options
from rescore.cli.normalise import cer_option
from rescore.cli.once import Once
from rescore.cli.results import json_option

if TYPE_CHECKING:
    from rescore.skipping import OnError


@click.command()
@source_options
@click.option(
    "--ref",
    cls=Once,
    type=click.Path(path_type=Path),
    help="References (Kaldi text, recogs, lists): the exact oracle error rate too.",
)
@cer_option
@json_option
def command(
    source: str, words: str | None, on_error: OnError, ref: Path | None, cer: bool, json_file: Path | None
) -> None:
    """How large, dense and long lattices are, what scores they have, and what is the best error rate in them.

    Depth is the number of arcs that cross a frame, on average over all frames (as Kaldi's lattice-depth).

    \b
    Example: rescore lattice info kaldi:exp/tri1/decode --words words.txt --ref text
    """
    from rescore.cli.lattice.errors import counted_in
    from rescore.cli.lattice.source import each_lattice
    from rescore.cli.results import show
    from rescore.files import read_kaldi_text
    from rescore.lattices.info import LatticeInfo

    counted_in(ref, cer)
    info = LatticeInfo(read_kaldi_text(ref) if ref is not None else None, cer)
    for _ in each_lattice(info.add, source, words, on_error):
        pass
    info.check()
    show(info.data(), info.lines(), json_file)
