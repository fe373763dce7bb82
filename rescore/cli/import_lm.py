"""`rescore import-lm`: icefall's LM checkpoints."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import Output


@click.command("import-lm")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--bpe", required=True, type=click.Path(path_type=Path), help="The bpe.model of the LM's recipe.")
@click.option("--out", required=True, type=Output(folder=True), help="Model folder to write.")
def command(checkpoint: Path, bpe: Path, out: Path) -> None:
    """Turn a checkpoint of icefall's rnn_lm or transformer_lm (epoch-N.pt, pretrained.pt) into a model folder.

    The kind and all sizes are read from the checkpoint.

    \b
    Example: rescore import-lm exp/epoch-30.pt --bpe data/lang_bpe_500/bpe.model --out exp/icefall-lm
    """
    from lm_zoo.icefall import import_lm
    from rescore.console import remark

    made = import_lm(checkpoint, bpe, out)
    settings = ", ".join(f"{name} {value}" for name, value in made.settings.items())
    remark(f"{made.kind} with {made.params:,} parameters ({settings}) written to {out}")
