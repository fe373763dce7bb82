#!/usr/bin/env python3
"""Validation perplexity of training runs against passes over the text and against core-hours, as a PNG.

    curves.py --out curves.png exp/transfornn_2 "LSTM=exp/lstm" ...

Needs matplotlib (pip install matplotlib, or the extra `plot`); reads `log.jsonl` and `run.json` of `rescore train-lm`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from rescore.errors import UsageError


def read_run(folder: Path) -> list[dict[str, Any]]:
    """The validations of a run, in order: the first is that of the fewest steps.

    Raises:
      UsageError: there is no log, or it has no validation with its processor time.
    """
    path = folder / "log.jsonl"
    if not path.is_file():
        raise UsageError(f"{folder}: no log.jsonl; expected the folder of a run of rescore train-lm")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = [record for record in records if "valid_loss" in record and "cpu_seconds" in record]
    if not found:
        raise UsageError(f"{path}: no validation with cpu_seconds yet")
    return found


def draw(runs: dict[str, list[dict[str, Any]]], out: Path) -> None:
    """Two pictures side by side, a line a run; perplexities on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True)
    for name, records in runs.items():
        first = records[0]["tokens"] / max(1, records[0]["epoch"])
        ppl = [math.exp(record["valid_loss"]) for record in records]
        axes[0].plot([record["tokens"] / first for record in records], ppl, marker=".", label=name)
        axes[1].plot([record["cpu_seconds"] / 3600 for record in records], ppl, marker=".", label=name)
    for axis, label in zip(axes, ("passes over the training text", "core-hours"), strict=True):
        axis.set_xlabel(label)
        axis.set_yscale("log")
        axis.grid(True, which="both", alpha=0.3)
    axes[0].set_ylabel("validation perplexity a token")
    axes[1].legend()
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    pyplot.close(figure)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="[NAME=]FOLDER...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="PNG to write.")
def main(runs: tuple[str, ...], out: Path) -> None:
    """Draw the validation perplexity of runs of `rescore train-lm`."""
    named = {name if equals else Path(name).name: Path(folder or name) for name, equals, folder in
             (run.partition("=") for run in runs)}  # fmt: skip
    try:
        draw({name: read_run(folder) for name, folder in named.items()}, out)
    except UsageError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"wrote {out}", err=True)


if __name__ == "__main__":
    main()
