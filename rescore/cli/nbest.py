"""`rescore nbest`: score every hypothesis with every LM, keep the columns, combine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rescore.cli.device import device_option, dtype_option, max_unknown_option
from rescore.cli.outputs import Output
from rescore.cli.sharing import sharing_options

if TYPE_CHECKING:
    from rescore.workflows.shares import Sharing


@click.command()
@click.option(
    "--nbest",
    "source",
    required=True,
    metavar="[FORMAT:]PATH",
    help="N-best lists, or the lattices' N-best made by rescore convert.",
)
@click.option(
    "--lm",
    "lms",
    multiple=True,
    metavar="[COLUMN=]NAME|DIR",
    help="An LM by name or model folder, or hf:DIR, hf-mlm:DIR of Hugging Face; may be repeated.",
)
@click.option("--ngram", metavar="FILE|NAME", help="An n-gram LM (ARPA or KenLM binary), column `ngram`.")
@click.option(
    "--mix",
    type=click.Path(path_type=Path),
    help="Interpolation weights written by rescore ppl --save-mix: adds the column `mix`.",
)
@click.option("--weights", "weights_file", type=click.Path(path_type=Path), help="Weights written by rescore tune.")
@click.option("--scale", "scales", multiple=True, metavar="NAME=VALUE", help="Scale of one score; may be repeated.")
@dtype_option
@device_option
@max_unknown_option
@sharing_options
@click.option("--out", required=True, type=Output(folder=True), help="Folder for scores, 1-best and N-best.")
def command(
    source: str,
    lms: tuple[str, ...],
    ngram: str | None,
    mix: Path | None,
    weights_file: Path | None,
    scales: tuple[str, ...],
    dtype: str,
    device: str,
    max_unknown: float,
    out: Path,
    sharing: Sharing,
) -> None:
    """Score N-best lists with LMs and combine the scores.

    Writes scores.jsonl.gz (every score by name), 1best.txt (Kaldi text) and nbest.jsonl.gz (best first) to the
    folder.  Without --weights and --scale every score counts with scale 1: tune on a development set for better ones.

    --executor shares the work out among processes, --split K/N does one share of it; the scores are the same.

    \b
    Example: rescore nbest --nbest dev.jsonl.gz --lm transfornn --ngram 4gram.arpa --out exp/dev
    """
    from rescore.workflows.nbest import rescore_nbest

    rescore_nbest(source, lms, ngram, mix, weights_file, scales, out, dtype, device, max_unknown, sharing)
