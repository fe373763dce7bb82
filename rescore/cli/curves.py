"""`rescore curves`: training runs in one picture."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="[NAME=]DIR...")
@click.option("--out", required=True, type=OutputPath(), help="PNG to write.")
def command(runs: tuple[str, ...], out: Path) -> None:
    """Draw the validation perplexity of runs of `rescore train-lm` against passes, tokens and core-hours.

    Needs matplotlib (pip install 'rescore[plot]').

    \b
    Example: rescore curves exp/transfornn LSTM=exp/lstm --out exp/curves.png
    """
    from rescore.console import remark
    from rescore.workflows.curves import draw, named_runs, read_run

    draw({name: read_run(folder) for name, folder in named_runs(runs).items()}, out)
    remark(f"wrote {out}")
