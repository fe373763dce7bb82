#!/usr/bin/env python3
"""Short runs of `short.sh`: how many steps fit into the minutes of a core, and the table of what came out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from lm_zoo.registry import load_folder
from rescore.cli.door import watched
from rescore.errors import UsageError


def records(log: Path) -> list[dict[str, Any]]:
    """What `train-lm` wrote as it went."""
    try:
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        raise UsageError(f"{log}: expected the log of rescore train-lm, log.jsonl") from None


@click.group()
def main() -> None:
    """Steps that fit, and the table of the LMs that were trained with them."""


@main.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--core-minutes", type=float, required=True)
def steps(log: Path, core_minutes: float) -> None:
    """Say how many steps fit, by the speed of a LOG of a few steps without what comes before its first record."""
    losses = [record for record in records(log) if "loss" in record]
    if len(losses) < 2:
        raise UsageError(f"{log}: found {len(losses)} records of a loss, expected two or more to see the speed")
    first, last = losses[0], losses[-1]
    click.echo(round(core_minutes * 60 * (last["step"] - first["step"]) / (last["cpu_seconds"] - first["cpu_seconds"])))


@main.command()
@click.argument("perplexities", type=click.Path(path_type=Path))
def table(perplexities: Path) -> None:
    """Print what each LM has seen in its time and its perplexity a word, from the JSON of `rescore ppl`, best first."""
    rows = json.loads(perplexities.read_text(encoding="utf-8"))
    heads = ["LM", "numbers", "steps", "tokens seen", "core-minutes", "perplexity a word"]
    click.echo(f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}")
    for row in sorted(rows, key=lambda row: float(row["ppl_word"])):
        folder = perplexities.parent / row["lm"]
        last = records(folder / "log.jsonl")[-1]
        numbers = sum(weight.numel() for weight in load_folder(folder).parameters())
        click.echo(
            f"| {row['lm']} | {numbers / 1e6:.1f} M | {last['step']:,} | {last['tokens'] / 1e6:.2f} M "
            f"| {last['cpu_seconds'] / 60:.1f} | {row['ppl_word']:.1f} |"
        )


if __name__ == "__main__":
    watched(Path(sys.argv[0]).name, main)
