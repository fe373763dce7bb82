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
    from lm_zoo.training.run_identity import first_incomparable
    from rescore.console import remark
    from rescore.workflows.curves import draw, named_runs, read_run

    folders = named_runs(runs)
    draw({name: read_run(folder) for name, folder in folders.items()}, out)
    first, *_ = folders.values()
    if found := first_incomparable([*folders.values()]):
        remark(f"{first} and {found[0]} have another {found[1]}: their perplexities say nothing of which is better")
    remark(f"wrote {out}")
