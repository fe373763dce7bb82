"""`rescore tune`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.normalise import normalise_option
from rescore.cli.outputs import Output


@click.command()
@click.option("--scores", type=click.Path(path_type=Path), help="Folder with scores.jsonl.gz of dev.")
@click.option("--lattices", metavar="[FORMAT:]PATH", help="Lattices of dev instead: searches over all their paths.")
@click.option("--ref", required=True, type=click.Path(path_type=Path), help="References of dev, Kaldi text.")
@click.option("--out", required=True, type=Output(), help="Weights file to write, JSON.")
@click.option("--fix", "fixed", multiple=True, metavar="NAME=VALUE", help="Hold a scale; may be repeated.")
@click.option("--seed", default=0, show_default=True, help="Seed of all random choices.")
@click.option("--restarts", default=10, show_default=True, help="Starting points; small sets get more.")
@click.option("--folds", default=5, show_default=True, help="Folds of the cross-validation; 0 for none.")
@normalise_option
def command(
    scores: Path | None,
    lattices: str | None,
    ref: Path,
    out: Path,
    fixed: tuple[str, ...],
    seed: int,
    restarts: int,
    folds: int,
    normalise: str | None,
) -> None:
    """Find the scales of all scores, and of the number of words, that minimise WER on a development set.

    Exact line searches (Och 2003) from several starting points; of equally good scales, those in the widest flat
    region, and the smallest where that has no end.  Scales of scores stay at 0 or above, that of `words` may be
    negative.  Tune on dev, never on test.

    With --lattices, the line searches are over all paths of lattices (Macherey et al. 2008), whose words must be
    those of the references already (rescore lattice convert --case ...); pruned lattices take less time.

    With --normalise, hypotheses that become equal are one: their probabilities (am) are summed, other scores are those
    of the most probable one.  The weights say so, and rescore combine and compare repeat it.

    \b
    Example: rescore tune --scores exp/dev --ref data/dev/text --out exp/weights.json
    Example: rescore tune --scores exp/dev --ref data/dev/text --normalise librispeech --out exp/weights.json
    Example: rescore tune --lattices kaldi:exp/dev?words=words.txt --ref data/dev/text --out exp/weights.json
    """
    from rescore.console import progress
    from rescore.errors import UsageError
    from rescore.formats import is_pipe, parse_spec, read_lattices, source_identity
    from rescore.weights import parse_scales, save_weights
    from rescore.workflows.tune import summary, tune_folder, tune_lattices

    if bool(scores) == bool(lattices):
        raise UsageError("give either --scores DIR or --lattices [FORMAT:]PATH")
    repeat = [f"--fix {scale}" for scale in fixed] + [f"--seed {seed} --restarts {restarts} --folds {folds}"]
    rest = f"--ref {ref.name} --out {out.name} {' '.join(repeat)}"
    if lattices and normalise:
        raise UsageError("--normalise is for N-best lists; make them of the lattices first: rescore lattice nbest")
    if normalise:
        rest += f" --normalise {normalise}"
    if scores:
        said = f"rescore tune --scores {scores.name} {rest}"
        weights = tune_folder(scores, ref, parse_scales(fixed), seed, restarts, folds, said, normalise or "none")
    elif lattices:
        name, path = parse_spec(lattices)
        said = f"rescore tune --lattices {name}:{path.name} {rest}"
        read = progress(read_lattices(lattices), "reading lattices")
        weights = tune_lattices(read, ref, parse_scales(fixed), seed, restarts, folds, said)
        if not is_pipe(lattices):
            weights.info["data"]["content"] = source_identity(lattices)
    save_weights(out, weights)
    for line in summary(weights):
        click.echo(line)
