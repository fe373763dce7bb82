"""`rescore convert-lm`: a trained LM turned into an LM of another kind."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.completion import kinds
from rescore.cli.outputs import OutputPath


@click.command()
@click.argument("kind", shell_complete=kinds)
@click.argument("source", metavar="NAME|DIR")
@click.option("--out", required=True, type=OutputPath(folder=True), help="Folder of the new model.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the new kind, e.g. sigma=0.02."
)
def command(kind: str, source: str, out: Path, settings: tuple[str, ...]) -> None:
    """Turn a trained Transformer into an LM of KIND that scores the same: bayesian, lookup or ngram-embedding.

    A Bayesian LM gets the Transformer's weights as posterior means, a lookup LM an empty dictionary (with --set
    residual=false one of random numbers, by which alone it scores until it is trained).  rescore train-lm --init does
    the same and goes on training.

    \b
    Example: rescore convert-lm bayesian exp/transformer --set uncertain=feedforward --set blocks=1 --out exp/bayesian
    """
    from lm_zoo.training.transfer import convert_lm
    from rescore.cli.settings import parse_settings
    from rescore.console import remark

    convert_lm(kind, source, parse_settings(settings), out)
    remark(f"{kind} with the weights of {source} written to {out}")
