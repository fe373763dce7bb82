"""`rescore lattice info`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.lattice.source import source_options
from rescore.cli.results import json_option


@click.command()
@source_options
@click.option("--ref", type=click.Path(path_type=Path), help="References, Kaldi text: the exact oracle error rate too.")
@json_option
def command(source: str, words: str | None, on_error: str, ref: Path | None, json_file: Path | None) -> None:
    """How large, dense and long lattices are, what scores they have, and what is the best error rate in them.

    Depth is the number of arcs that cross a frame, on average over all frames (as Kaldi's lattice-depth).

    \b
    Example: rescore lattice info kaldi:exp/tri1/decode --words words.txt --ref text
    """
    from rescore.cli.lattice.source import policy, read
    from rescore.cli.results import show
    from rescore.files import read_kaldi_text
    from rescore.lattices.info import lattice_info

    refs = read_kaldi_text(ref) if ref is not None else None
    info = lattice_info(read(source, words, policy(on_error)), refs)
    show(info.data(), info.lines(), json_file)
