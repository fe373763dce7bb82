"""`rescore tune`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--scores", required=True, type=click.Path(path_type=Path), help="Folder with scores.jsonl.gz of dev.")
@click.option("--ref", required=True, type=click.Path(path_type=Path), help="References of dev, Kaldi text.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Weights file to write, JSON.")
@click.option("--fix", "fixed", multiple=True, metavar="NAME=VALUE", help="Hold a scale; may be repeated.")
@click.option("--seed", default=0, show_default=True, help="Seed of all random choices.")
@click.option("--restarts", default=10, show_default=True, help="Starting points.")
@click.option("--folds", default=5, show_default=True, help="Folds of the cross-validation; 0 for none.")
def command(scores: Path, ref: Path, out: Path, fixed: tuple[str, ...], seed: int, restarts: int, folds: int) -> None:
    """Find the scales of all scores, and of the number of words, that minimise WER on a development set.

    Exact line searches (Och 2003) from several starting points; of equally good scales, those in the widest flat
    region.  Scales of scores stay at 0 or above, that of `words` may be negative.  Tune on dev, never on test.

    \b
    Example: rescore tune --scores exp/dev --ref data/dev/text --out exp/weights.json
    """
    from rescore.combine import parse_scales, save_weights
    from rescore.tune import summary, tune_folder

    repeat = [f"--fix {scale}" for scale in fixed] + [f"--seed {seed} --restarts {restarts} --folds {folds}"]
    names = f"--scores {scores.name} --ref {ref.name} --out {out.name}"
    weights = tune_folder(
        scores, ref, parse_scales(fixed), seed, restarts, folds, f"rescore tune {names} {' '.join(repeat)}"
    )
    save_weights(out, weights)
    for line in summary(weights):
        click.echo(line)
