"""`rescore export-lm`: checkpoints that icefall loads."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command("export-lm")
@click.argument("name", metavar="NAME|DIR")
@click.option("--out", required=True, type=OutputPath(), help="Checkpoint to write: epoch-N.pt.")
def command(name: str, out: Path) -> None:
    """Write an LSTM LM or an icefall-transformer over sentencepiece pieces as a checkpoint that icefall loads.

    Tells the options that icefall's decode.py needs with it.

    \b
    Example: rescore export-lm exp/lstm --out exp/epoch-1.pt
    """
    from lm_zoo.icefall.checkpoints import export_lm
    from rescore.console import remark

    options = export_lm(name, out)
    remark(f"wrote {out}; for icefall's decode.py: {options} (before April 2023: --vocab-size, not --lm-vocab-size)")
