"""`rescore kaldi score`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rescore.cli.device import max_unknown_option, text_view_option
from rescore.cli.outputs import OutputPath
from rescore.cli.words import words_options

if TYPE_CHECKING:
    from rescore.text import TextNormalizer


@click.command()
@click.argument("folder", type=OutputPath(folder=True))
@click.option("--lm", "name", metavar="NAME|DIR", help="The LM: writes lmwt.nn and lmwt.nn.sum.")
@click.option("--weight", metavar="W", help="Its interpolation weight: writes lmwt.interp.W.")
@words_options(", for the LM alone")
@max_unknown_option
@text_view_option
def command(
    folder: Path,
    name: str | None,
    weight: str | None,
    normalizer: TextNormalizer,
    max_unknown: float,
    text_view: str,
) -> None:
    """Score the hypotheses of FOLDER, an archives.JOB, with an LM, and interpolate with the old LM's costs.

    \b
    Example: rescore kaldi score exp/decode_nn/archives.1 --lm exp/lstm --weight 0.8
    """
    from rescore.errors import UsageError
    from rescore.workflows.kaldi_nbest import write_interpolated, write_lm_costs

    if name is None and weight is None:
        raise UsageError("give --lm NAME|DIR, --weight W, or both")
    if name is not None:
        from rescore.workflows.columns import open_scorers

        (scorer,) = open_scorers([f"nn={name}"], None, exact=text_view == "exact")
        write_lm_costs(folder, scorer.lm, normalizer, max_unknown, scorer.view)
    if weight is not None:
        write_interpolated(folder, weight)
