#!/usr/bin/env python3
"""Perplexities of LMs that were trained with several seeds: means with 95 % intervals, and changes seed by seed.

    ../../shared/over_seeds.py exp/all/ppl.json --against tuned --out exp/all/ppl.md

reads what `rescore ppl --json` writes.  LMs are called KIND.SEED (`--lm tuned.1=exp/tuned-1`); one without a seed is a
row of its own, and so are mixtures.  An interval is Student's, of the seeds alone.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import click
from compare_seeds import interval

from rescore.cli.door import watched
from rescore.errors import UsageError
from rescore.files import atomic_text

COLUMNS = {"ppl_word": "perplexity", "ppl_tail1": "Tail-1", "ppl_tail2": "Tail-2"}
WEIGHT = re.compile(r"(^|\+ )[\d.e-]+ ")  # in the names of mixtures: 0.21 ngram + 0.79 tuned.1
SEED = re.compile(r"\.(\d+)\b")
Kinds = dict[str, dict[str, dict[str, float]]]  # kind -> seed ("" for none) -> row


def read_kinds(path: Path) -> Kinds:
    """The rows of a file by kind and seed, in its order.

    Raises:
      UsageError: not what `rescore ppl --json` writes, or two rows of a kind and a seed.
    """
    kinds: Kinds = {}
    try:
        rows = [(str(row["lm"]), _numbers(row)) for row in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        raise UsageError(f"{path}: expected what rescore ppl --json writes") from None
    for name, row in rows:
        name = WEIGHT.sub(r"\1", name)
        kind, seed = SEED.sub("", name), ".".join(SEED.findall(name))
        if kinds.setdefault(kind, {}).setdefault(seed, row) is not row:
            raise UsageError(f"{path}: two rows of '{kind}' with the seed '{seed}'")
    return kinds


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    """The perplexities of a row; one that is not known, as of words for an LM of pieces alone, is null or not there."""
    return {name: float(row[name]) for name in COLUMNS if row.get(name) is not None}


def cell(values: list[float], digits: int = 1) -> str:
    if not values:
        return "-"
    mean, half = interval(values)
    return f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def change(row: dict[str, dict[str, float]], other: dict[str, dict[str, float]]) -> str:
    """How much lower (negative) a kind's perplexity is than another's, in per cent, with the same seeds."""
    seeds = [seed for seed in row if seed in other and "ppl_word" in row[seed] and "ppl_word" in other[seed]]
    if row is other:
        return "-"
    return cell([100 * (row[seed]["ppl_word"] / other[seed]["ppl_word"] - 1) for seed in seeds], 2)


def table(kinds: Kinds, against: tuple[str, ...]) -> list[str]:
    """Lines of Markdown."""
    if unknown := [name for name in against if name not in kinds]:
        raise UsageError(f"--against {unknown[0]}: expected one of {', '.join(kinds)}")
    measured = {name for runs in kinds.values() for row in runs.values() for name in row}
    columns = [name for name in COLUMNS if name in measured]
    heads = ["LM", "seeds", *(COLUMNS[name] for name in columns), *(f"against {name}, %" for name in against)]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for kind, runs in kinds.items():
        cells = [cell([row[name] for row in runs.values() if name in row]) for name in columns]
        cells += [change(runs, kinds[name]) for name in against]
        lines.append("| " + " | ".join([kind, str(len(runs)), *cells]) + " |")
    return lines


@click.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="JSON")
@click.option("--against", multiple=True, metavar="KIND", help="Changes against this one; may be repeated.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Markdown file to write.")
def main(path: Path, against: tuple[str, ...], out: Path) -> None:
    """Means over seeds of the perplexities in a file of `rescore ppl --json`."""
    try:
        lines = table(read_kinds(path), against)
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    with atomic_text(out) as stream:
        print("\n".join(lines), file=stream)
    click.echo("\n".join(lines))


if __name__ == "__main__":
    watched(Path(sys.argv[0]).name, main)
