#!/usr/bin/env python3
"""WER against the number of utterances that scales are tuned on: every objective and decision of `rescore tune`.

    tuning_curves.py --dev exp/dev/scores dev.text --test exp/test/scores test.text --out exp/tuning

Draws of each size are made from the utterances of --dev; without --test, all other utterances of --dev are the test.
Writes OUT/curves.jsonl (a line a draw; a run that was stopped goes on, one of other lists or settings begins anew),
OUT/curves.md and, with matplotlib (the extra `plot`), OUT/curves.png.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from asr.decoding.journal import Journal
from lm_zoo.files import atomic_path, write_text
from lm_zoo.identity import content
from rescore.cli.door import watched
from rescore.console import remark
from rescore.files import read_kaldi_text
from rescore.tuning.decisions import Decider, decider_of
from rescore.tuning.risk_tune import tune_risk
from rescore.tuning.score_table import ScoreTable, build_table
from rescore.tuning.selection import compared
from rescore.tuning.settings import DECIDED, OBJECTIVES, RISK, Settings, tune
from rescore.tuning.tune import choose_fixed, percent
from rescore.weights import parse_scales
from rescore.workflows.combine import read_scores
from rescore.workflows.normalising import Normaliser

SYSTEMS = [(objective, decision) for objective in OBJECTIVES for decision in DECIDED]
SIGNIFICANT = 1.96  # standard errors of the difference of two systems' errors on the same utterances


@dataclass
class Experiment:
    """Where the utterances of a draw and its test come from, and how is tuned."""

    dev: ScoreTable
    test: ScoreTable | None
    fixed: dict[str, float]
    folds: int
    validated: int

    def draw(self, size: int, number: int) -> tuple[ScoreTable, ScoreTable]:
        """The utterances of a draw, and those that it is tested on."""
        order = np.random.default_rng([size, number]).permutation(len(self.dev.utt_ids))
        rest = self.test or self.dev.select(np.sort(order[size:]))
        return self.dev.select(np.sort(order[:size])), rest

    def run(self, size: int, number: int) -> list[dict[str, Any]]:
        """What each system makes of a draw: its WER, cross-validated too, and the test's against the first pass."""
        drawn, test = self.draw(size, number)
        first = test.errors[test.offsets[:-1]]
        rows = []
        for objective, decision in SYSTEMS:
            found, rates = self.tuned(drawn, objective, decision, number)
            errors = found.errors(test)
            more, error = compared(errors, first)
            rows.append(
                {
                    "size": size,
                    "draw": number,
                    "system": f"{objective}, {decision.upper()}",
                    **rates,
                    "test": round(100 * int(errors.sum()) / test.total_words, 3),
                    "first": round(100 * int(first.sum()) / test.total_words, 3),
                    "above_first": more / error if error else 0.0,
                    "kept_first": found.decision == "first",
                    "scales": dict(zip(test.names, found.scales.tolist(), strict=True)),
                }
            )
        return rows

    def tuned(
        self, drawn: ScoreTable, objective: str, decision: str, number: int
    ) -> tuple[Decider, dict[str, float | None]]:
        """As `rescore tune`; the first `validated` draws with the cross-validated rate, which takes longest."""
        settings = Settings(self.fixed, objective, decision, seed=number, folds=self.folds)
        if number < self.validated:
            weights, _ = tune(drawn, settings)
            return decider_of(weights), {"dev": weights.info["wer"], "cv": weights.info["cv_wer"]}
        found: Decider
        if objective == RISK:
            found = tune_risk(drawn, choose_fixed(drawn, self.fixed), decision, self.folds, number)
        else:
            found = decider_of(tune(drawn, replace(settings, folds=0))[0])
        return found, {"dev": percent(int(found.errors(drawn).sum()), drawn.total_words), "cv": None}


def results(experiment: Experiment, sizes: Sequence[int], draws: int, log: Journal) -> list[dict[str, Any]]:
    """All rows of these sizes and draws; those that are not in the log are added to it."""
    done = {entry["id"]: entry["rows"] for entry in log}
    rows = []
    for size, number in ((size, number) for size in sizes for number in range(draws)):
        name = f"{size} utterances, draw {number}"
        if name not in done:
            done[name] = experiment.run(size, number)
            log.add({"id": name, "rows": done[name]})
            remark(f"{name}: " + ", ".join(f"{row['system']} {row['test']}" for row in done[name]))
        rows += done[name]
    return rows


def means(rows: list[dict[str, Any]], size: int, system: str) -> dict[str, float]:
    """Means over the draws; how many were significantly above the first pass, and how many kept it."""
    some = [row for row in rows if (row["size"], row["system"]) == (size, system)]
    known = {key: [row[key] for row in some if row[key] is not None] for key in COLUMNS}
    mean = {key: float(np.mean(values)) if values else math.nan for key, values in known.items()}
    spread = float(np.std([row["test"] for row in some], ddof=1)) if len(some) > 1 else 0.0
    return {
        **mean,
        "draws": len(some),
        "spread": spread,
        "above": sum(row["above_first"] > SIGNIFICANT for row in some),
        "kept": sum(row["kept_first"] for row in some),
    }


COLUMNS = ("dev", "cv", "test", "first")


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Markdown."""
    heads = ("dev WER %", "cross-validated", "test", "sd", "first pass, test", "above it", "kept it")
    yield f"| utterances | tuned by | draws | {' | '.join(heads)} |"
    yield "|---:|---|" + "---:|" * 8
    for size in sorted({row["size"] for row in rows}):
        for system in dict.fromkeys(row["system"] for row in rows):
            m = means(rows, size, system)
            rates = " | ".join(
                "" if math.isnan(m[key]) else f"{m[key]:.2f}" for key in ("dev", "cv", "test", "spread", "first")
            )
            yield f"| {size} | {system} | {m['draws']} | {rates} | {m['above']} | {m['kept']} |"


def draw_png(rows: list[dict[str, Any]], out: Path) -> None:
    """Test WER against utterances, a line a system, means of the draws; matplotlib is needed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = sorted({row["size"] for row in rows})
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for system in dict.fromkeys(row["system"] for row in rows):
        axes.plot(sizes, [means(rows, size, system)["test"] for size in sizes], marker="o", label=system)
    axes.plot(sizes, [means(rows, size, rows[0]["system"])["first"] for size in sizes], "k--", label="first pass")
    axes.set_xscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("utterances to tune on")
    axes.set_ylabel("WER % of the test")
    axes.grid(True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    with atomic_path(out) as made:
        figure.savefig(made, dpi=120, format="png")
    pyplot.close(figure)


def read_table(scores: str, ref: str, normaliser: Normaliser) -> ScoreTable:
    refs = normaliser.texts(read_kaldi_text(ref))
    return build_table(normaliser.lists(read_scores(scores)), refs, distances=True)


def sizes_of(text: str) -> list[int]:
    """Each once, in order; UsageError for what are no numbers of utterances."""
    found = [size.strip() for size in text.split(",")]
    if wrong := [size for size in found if not size.isdecimal() or int(size) < 1]:
        raise click.UsageError(f"--sizes {text}: found '{wrong[0]}', expected numbers of utterances, as in 25,50,100")
    return sorted(set(map(int, found)))


@click.command()
@click.option("--dev", nargs=2, required=True, metavar="SCORES TEXT", help="A scores folder and its references.")
@click.option("--test", nargs=2, metavar="SCORES TEXT", help="What is tested on; else all that is not drawn.")
@click.option("--sizes", default="25,50,100,200,400,800", show_default=True, help="Utterances to tune on.")
@click.option("--draws", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--folds", type=click.IntRange(min=0), default=5, show_default=True, help="As of rescore tune.")
@click.option("--validated", default=2, show_default=True, help="Draws with a cross-validated rate; it takes long.")
@click.option("--fix", "fixed", multiple=True, metavar="NAME=VALUE", help="As of rescore tune.")
@click.option("--normalise", default="none", show_default=True, help="As of rescore tune.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write.")
def main(
    dev: tuple[str, str],
    test: tuple[str, str] | None,
    sizes: str,
    draws: int,
    folds: int,
    validated: int,
    fixed: tuple[str, ...],
    normalise: str,
    out: Path,
) -> None:
    """WER against the number of utterances that scales are tuned on."""
    asked = sizes_of(sizes)
    normaliser = Normaliser(normalise)
    pool = read_table(*dev, normaliser)
    other = read_table(*test, normaliser) if test else None
    wanted = [size for size in asked if size < len(pool.utt_ids) + (other is not None)]
    if not wanted:
        raise click.UsageError(f"{dev[0]} has {len(pool.utt_ids)} utterances, fewer than any of --sizes {sizes}")
    if left := asked[len(wanted) :]:
        remark(f"{dev[0]} has {len(pool.utt_ids)} utterances: sizes left out, {', '.join(map(str, left))}")
    made_by = {"fixed": parse_scales(fixed), "folds": folds, "normalise": normalise}
    made_by |= {"dev": content(map(Path, dev)), "test": content(map(Path, test or ()))}
    log = Journal(out / "curves.jsonl", made_by)
    rows = results(Experiment(pool, other, parse_scales(fixed), folds, validated), wanted, draws, log)
    text = "\n".join(table(rows)) + "\n"
    write_text(out / "curves.md", text)
    click.echo(text, nl=False)
    try:
        draw_png(rows, out / "curves.png")
    except ImportError:
        remark("no matplotlib, no picture: pip install matplotlib")


if __name__ == "__main__":
    watched(Path(sys.argv[0]).name, main)
