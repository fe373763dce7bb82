"""`rescore export-lm`: checkpoints that icefall loads."""

from __future__ import annotations

import re
from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command("export-lm")
@click.argument("name", metavar="NAME|DIR")
@click.option("--out", required=True, type=OutputPath(), help="Checkpoint to write: epoch-N.pt.")
def command(name: str, out: Path) -> None:
    """Write an LSTM LM or an icefall-transformer over sentencepiece pieces as a checkpoint that icefall loads.

    Tells the options that icefall's decode.py needs with it, which looks for epoch-N.pt in a folder.

    \b
    Example: rescore export-lm exp/lstm --out exp/epoch-1.pt
    """
    from lm_zoo.icefall.checkpoints import export_lm
    from rescore.console import remark

    options = export_lm(name, out)
    number = re.fullmatch(r"epoch-(\d+)\.pt", out.name)
    place = f"--lm-exp-dir {out.parent} --lm-epoch {number[1] if number else 'N'} --lm-avg 1"
    before = "before April 2023: --vocab-size, not --lm-vocab-size" + ("" if number else "; rename it to epoch-N.pt")
    remark(f"wrote {out}; for icefall's decode.py: {options} {place} ({before})")
