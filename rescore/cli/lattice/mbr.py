"""`rescore lattice mbr`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rescore.cli.lattice.options import posterior_scale, scaled_options
from rescore.cli.normalise import cer_option
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option
from rescore.cli.sharing import max_seconds_option


@click.command()
@scaled_options
@posterior_scale
@max_seconds_option
@click.option(
    "--ref",
    cls=Once,
    type=click.Path(path_type=Path),
    help="References (Kaldi text, recogs, lists): print error rates, not words.",
)
@cer_option
@click.option("--out", type=OutputPath(), help="Write the words here, Kaldi text.")
@click.option("--ctm", type=OutputPath(), help="Write words with times and confidences here, NIST CTM.")
@click.option("--network", type=OutputPath(), help="Write the confusion networks here, JSON lines.")
@json_option
def command(
    ref: Path | None,
    cer: bool,
    out: Path | None,
    ctm: Path | None,
    network: Path | None,
    json_file: Path | None,
    **given: Any,
) -> None:
    """Minimum Bayes risk: the words with the fewest expected errors, their confidences, and confusion networks.

    After Xu, Povey, Mangu and Zhu (2011).  Pruned lattices (rescore lattice prune) take less time.  With --weights and
    --ref, texts are compared in the form that the weights were tuned for (rescore tune --normalise, --cer).  --cer
    counts the characters of the result; it is decided by words all the same, the expected errors are those of words.

    Kaldi's lattices have the times of words only behind Kaldi's lattice-align-words; as they are decoded, words do
    not stand at their own frames.

    \b
    Example: rescore lattice mbr lattices/ --scale am=1 --scale lm=12 --posterior-scale 0.08 --ctm mbr.ctm
    """
    from rescore.cli.lattice.errors import counted_in, show_errors
    from rescore.cli.lattice.options import each_scaled
    from rescore.cli.results import show
    from rescore.files import read_kaldi_text, write_kaldi_text
    from rescore.lattices.mbr import mbr_lines, write_mbr
    from rescore.weights import load_weights

    refs = read_kaldi_text(ref) if ref else None
    decode = mbr_lines(ctm is not None, network is not None)
    results, file = each_scaled(decode, **given), given["weights_file"]
    normaliser = counted_in(ref, cer, load_weights(file) if file else None, file)
    hyps = write_mbr(results, ctm, network)
    if out:
        write_kaldi_text(out, hyps)
    if refs is not None:
        show_errors(refs, hyps, normaliser, json_file)
    elif json_file or not (out or ctm or network):
        show(hyps, (" ".join((utt_id, *hyp)) for utt_id, hyp in hyps.items()), json_file)
