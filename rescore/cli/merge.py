"""`rescore merge`: the shares of a scoring become one folder."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command()
@click.argument("out", metavar="DIR", type=OutputPath(folder=True))
@click.option("--weights", "weights_file", type=click.Path(path_type=Path), help="Weights written by rescore tune.")
@click.option("--scale", "scales", multiple=True, metavar="NAME=VALUE", help="Scale of one score; may be repeated.")
def command(out: Path, weights_file: Path | None, scales: tuple[str, ...]) -> None:
    """Put the shares of rescore nbest --split K/N --out DIR together, and combine the scores.

    Writes to DIR what rescore nbest writes without --split, the same bytes.  Loads no LM.

    \b
    Example: rescore merge exp/test --weights exp/weights.json

    \b
    Before it, a job for each share, here by Kaldi's queue.pl:
      queue.pl JOB=1:8 exp/log/JOB.log rescore nbest --nbest test.jsonl.gz --lm transfornn --split JOB/8 --out exp/test
    """
    from rescore.weights import given_weights
    from rescore.workflows.merge import merge

    merge(out, given_weights(weights_file, scales))
