"""`rescore lattice nbest`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rescore.cli.lattice.first_pass import find_scales, first_pass_options, keep_scales
from rescore.cli.lattice.source import source_options
from rescore.cli.once import Once
from rescore.cli.outputs import OutputSpec
from rescore.cli.sharing import max_seconds_option, sharing_options

if TYPE_CHECKING:
    from rescore.sharing.shares import Sharing
    from rescore.skipping import OnError


@click.command()
@source_options
@click.argument("target", metavar="DST", type=OutputSpec())
@click.option("-n", type=click.IntRange(min=1), default=100, show_default=True, help="Word sequences an utterance.")
@click.option("--scale", "scales", multiple=True, metavar="NAME=VALUE", help="Scale of a score; repeat it.")
@click.option(
    "--weights", "weights_file", cls=Once, type=click.Path(path_type=Path), help="Weights written by rescore tune."
)
@first_pass_options
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: the number of cores.")
@max_seconds_option
@sharing_options
def command(
    source: str,
    words: str | None,
    on_error: OnError,
    target: str,
    n: int,
    scales: tuple[str, ...],
    weights_file: Path | None,
    ref: Path | None,
    cer: bool,
    common: bool,
    jobs: int | None,
    sharing: Sharing,
) -> None:
    """Write the exact N best different word sequences of lattices, with every score by name.

    --ref, for a development set, finds the scales first: those with the fewest errors of best paths, Kaldi's LMWT and
    word insertion penalty.  They are printed, and written beside DST (dev.weights.json of dev.jsonl.gz) to be used on
    other sets as --weights.

    --weights are those, or of rescore tune --lattices.  Scales not given: am=1, and 10 for lm or graph where lattices
    have it.  (Kaldi's LM weight L and word penalty W are --scale am=1 --scale graph=L --scale words=-LxW.)  `rescore
    convert` normalises words and takes an n-gram LM too.

    \b
    Example: rescore lattice nbest kaldi:exp/tri1/decode lists.jsonl.gz --words words.txt -n 100 --scale graph=12
    Example: rescore lattice nbest kaldi:exp/tri1/decode_dev dev.jsonl.gz --ref data/dev/text
    Example: rescore lattice nbest kaldi:exp/tri1/decode_test test.jsonl.gz --weights dev.weights.json
    """
    from rescore.formats import with_option
    from rescore.text import TextNormalizer
    from rescore.workflows.convert import ConvertRequest, lattices_to_nbest
    from rescore.workflows.first_pass import ScaleSearch, given_scales

    weights, source = given_scales(weights_file, scales, ref, common, cer), with_option(source, "words", words)
    found = None
    if ref is not None:
        search = ScaleSearch(ref, weights.scales, common=common, cer=cer)
        found = find_scales(source, target, "nbest", search, on_error, sharing)
    used, weighted = (found or weights).scales, bool(found or weights_file)
    request = ConvertRequest(source, target, TextNormalizer(), n, scales=used, weighted=weighted)
    lattices_to_nbest("lattice nbest", request, jobs, on_error, sharing)
    keep_scales(found, target)
