#!/usr/bin/env python3
"""WERs and validation losses of runs of librispeech/ASR/local/encoders.sh: means over seeds with 95 % intervals.

    ../../shared/compare_seeds.py --out exp/encoders.md exp/conv exp/conv-real-43 exp/com exp/com-lin-42 ...

Runs of one component and one kind of S4 are a row.  An interval is Student's, of the seeds alone: it does not say how
the result would differ on another test set.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from rescore.cli.door import watched
from rescore.errors import UsageError
from rescore.files import atomic_text

# Student's 97.5 % quantile by degrees of freedom
QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)
NAMES = {"real": "S4D-Real", "lin": "S4D-Lin"}


@dataclass(frozen=True)
class Run:
    """A finished run: its row, its seed, its batches in the last stage, and its numbers by column."""

    folder: Path
    row: tuple[str, str]
    seed: int
    steps: int
    values: dict[str, float]


def read_run(folder: Path) -> Run:
    """Raises UsageError where the run is not finished, or is none of local/encoders.sh, and for damaged files."""
    path = folder / "real" / "model" / "config.json"
    summaries = sorted((folder / "decoded").glob("wer-summary-*.txt"))
    if not path.is_file() or not summaries:
        raise UsageError(f"{folder}: no finished run; expected real/model and decoded of local/encoders.sh")
    with reading(path, "component, s4_init, seed and valid_loss of a recogniser that asr train made"):
        info = json.loads(path.read_text(encoding="utf-8"))
        encoder, trained = info["config"]["encoder"], info["trained"]
        component, seed, loss = str(encoder["component"]), int(trained["seed"]), trained["valid_loss"]
        scheme = "-" if component == "conv" else NAMES[encoder["s4_init"]]
        losses = {} if loss is None else {"validation loss": float(loss)}
    values = {}
    for file in summaries:
        with reading(file, "a setting and its WER, with a tab between, in the last line"):
            last = file.read_text(encoding="utf-8").splitlines()[-1]
            values[file.stem.removeprefix("wer-summary-") + ", WER %"] = float(last.split("\t")[1])
    log = folder / "real" / "log.jsonl"
    with reading(log, "a line with its step for each record of asr train"):
        steps = max(int(json.loads(line)["step"]) for line in log.read_text(encoding="utf-8").splitlines())
    return Run(folder, (component, scheme), seed, steps, {**values, **losses})


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Raises UsageError for whatever a file lacks that is read inside."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError) as error:
        found = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path}: expected {expected} ({found})") from None


def check(runs: Sequence[Run]) -> None:
    """Raises UsageError unless all runs had one budget and the same decodings, and those of a row have other seeds."""
    first, seen = runs[0], dict[tuple[tuple[str, str], int], Path]()
    for run in runs:
        if run.steps != first.steps:
            raise UsageError(
                f"{run.folder}: {run.steps} batches, but {first.folder} has {first.steps}; expected one budget"
            )
        if run.values.keys() != first.values.keys():
            names = ", ".join(sorted(run.values.keys() ^ first.values.keys()))
            raise UsageError(f"{run.folder}: other results than in {first.folder}: {names}; decode all runs alike")
        other = seen.setdefault((run.row, run.seed), run.folder)
        if other is not run.folder:
            raise UsageError(f"{run.folder}: the encoder and the seed of {other}; expected another seed")


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval (NaN of one value)."""
    if len(values) < 2:
        return values[0], math.nan
    freedom = min(len(values) - 1, len(QUANTILES))  # of more: a little too wide
    return statistics.fmean(values), QUANTILES[freedom - 1] * statistics.stdev(values) / math.sqrt(len(values))


def table(runs: Sequence[Run]) -> list[str]:
    """Lines of Markdown; rows in the order of the runs."""
    rows: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        rows.setdefault(run.row, []).append(run)
    columns = list(runs[0].values)
    lines = ["| encoder | S4 | seeds | " + " | ".join(columns) + " |", "|---|---|---:|" + "---:|" * len(columns)]
    for (component, scheme), found in rows.items():
        cells = []
        for column in columns:
            mean, half = interval([run.values[column] for run in found])
            digits = 4 if "loss" in column else 2
            cells.append(f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}"))
        lines.append(f"| `{component}` | {scheme} | {len(found)} | " + " | ".join(cells) + " |")
    return [
        *lines,
        "",
        f"{runs[0].steps} batches of real speech each; ± is half of a 95 % interval over seeds (Student).",
    ]


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Markdown file to write.")
def main(folders: tuple[Path, ...], out: Path) -> None:
    """Compare encoders over seeds."""
    try:
        runs = [read_run(folder) for folder in folders]
        check(runs)
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    with atomic_text(out) as stream:
        print("\n".join(table(runs)), file=stream)
    click.echo(out.read_text(encoding="utf-8"), nl=False)


if __name__ == "__main__":
    watched(Path(sys.argv[0]).name, main)
