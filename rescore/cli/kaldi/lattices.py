"""`rescore kaldi lattices`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--job", type=click.IntRange(min=1), default=1, show_default=True, help="Number of the job.")
@click.option("--costs", required=True, metavar="NAME", help="The file of archives.JOB that has their graph costs.")
def command(out: Path, job: int, costs: str) -> None:
    """Write OUT/lat.JOB.gz, the hypotheses of OUT/nbest1.JOB.gz side by side with new graph costs.

    \b
    Example: rescore kaldi lattices exp/decode_nn --job 1 --costs lmwt.interp.0.8
    """
    from lm_zoo.files import locked
    from rescore.console import remark
    from rescore.workflows.kaldi_nbest import write_rescored

    with locked(out / f"lat.{job}.gz"):  # other jobs write into OUT at the same time
        remark(f"{write_rescored(out, job, costs)} lattices written to {out}/lat.{job}.gz")
