"""`rescore combine`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from rescore.cli.completion import formats
from rescore.cli.normalise import cer_option, normalise_option
from rescore.cli.numbers import POSITIVE
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option


@click.command()
@click.option(
    "--scores",
    cls=Once,
    required=True,
    metavar="DIR|[FORMAT:]PATH",
    shell_complete=formats,
    help="Folder with scores.jsonl.gz, or N-best lists with their own scores.",
)
@click.option(
    "--weights", "weights_file", cls=Once, type=click.Path(path_type=Path), help="Weights written by `rescore tune`."
)
@click.option("--scale", "scales", multiple=True, metavar="NAME=VALUE", help="Scale of one score; may be repeated.")
@click.option(
    "--mbr",
    type=POSITIVE,
    metavar="SCALE",
    help="Minimum Bayes risk: choose by expected errors; posteriors are the softmax of SCALE times the totals.",
)
@cer_option
@normalise_option
@json_option
@click.option("--out", required=True, type=OutputPath(folder=True), help="Folder for 1best.txt and nbest.jsonl.gz.")
def command(
    scores: str,
    weights_file: Path | None,
    scales: tuple[str, ...],
    mbr: float | None,
    cer: bool,
    normalise: str | None,
    json_file: Path | None,
    out: Path,
) -> None:
    """Apply weights to saved scores: new 1-best and N-best.  Loads no LM.

    Weights that were tuned with --normalise or --cer are applied with it: hypotheses that become equal are one, the
    probabilities (am) summed; with --cer, --mbr and `words` are of characters.  What is written keeps the form it came
    in.

    The weights name the decision that they were tuned for; --mbr goes before it.  OUT/weights.json has what was used,
    --normalise, --cer and --mbr too: combined with it, the same scores give the same again.

    \b
    Example: rescore combine --scores exp/test --weights exp/weights.json --out exp/test/best
    Example: rescore combine --scores exp/test --scale am=1 --scale lm=8 --scale words=10 --out exp/test/best
    Example: rescore combine --scores exp/test --weights exp/weights.json --mbr 0.1 --out exp/test/mbr
    """
    from rescore.cli.results import show
    from rescore.console import remark
    from rescore.errors import UsageError
    from rescore.types import Weights
    from rescore.weights import for_mbr, load_weights, parse_scales
    from rescore.workflows.combine import read_scores, say_columns, write_combined
    from rescore.workflows.normalising import under_weights
    from rescore.workflows.scored_by import known_lms, remark_other_lms

    if bool(weights_file) == bool(scales):
        raise UsageError("give either --weights FILE or --scale NAME=VALUE (one or more), not both and not neither")
    weights = load_weights(weights_file) if weights_file else Weights(parse_scales(scales))
    weights = for_mbr(under_weights(weights, normalise, weights_file, cer), mbr, weights_file)
    remark_other_lms(weights, known_lms(scores))
    counts = write_combined(read_scores(scores, "combining"), weights, out)
    say_columns(counts)
    remark(
        f"{counts.utterances} utterances, {counts.hypotheses} hypotheses; {counts.changed} first hypotheses changed; "
        f"written to {out}"
    )
    show(asdict(counts), [], json_file)
