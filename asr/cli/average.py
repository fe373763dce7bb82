"""`asr average`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command()
@click.option("--exp-dir", required=True, type=click.Path(path_type=Path), help="Folder of the training run.")
@click.option("--epoch", type=int, help="Last checkpoint: epoch-N.pt.")
@click.option("--iter", "iteration", type=int, help="Last checkpoint: the newest checkpoint-B.pt with B up to this.")
@click.option("--avg", default=1, show_default=True, help="Checkpoints to average.")
@click.option("--use-averaged-model", type=bool, default=False, show_default=True, help="Average over all batches.")
@click.option("--half", is_flag=True, help="Store the weights as float16.")
@click.option("--out", type=OutputPath(folder=True), help="Model folder; EXP_DIR/epoch-N-avg-M if left out.")
def command(
    exp_dir: Path,
    epoch: int | None,
    iteration: int | None,
    avg: int,
    use_averaged_model: bool,
    half: bool,
    out: Path | None,
) -> None:
    """Average the checkpoints of a training run into a model folder.

    With --use-averaged-model, as icefall's: over the models of every --average-period batches after epoch N - M up to
    epoch N.  This needs those two files only, and an update of the running average between them.

    \b
    Example: asr average --exp-dir exp --epoch 30 --avg 9 --use-averaged-model true
    """
    from asr.model.average import average
    from rescore.console import remark

    made = average(exp_dir, epoch, iteration, avg, use_averaged_model)
    folder = out or exp_dir / made.name
    made.save(folder, half)
    remark(f"{folder}: average of {', '.join(made.checkpoints)}")
