"""`rescore lattice mbr`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rescore.cli.lattice.options import posterior_scale, scaled_options
from rescore.cli.outputs import OutputPath


@click.command()
@scaled_options
@posterior_scale
@click.option("--ref", type=click.Path(path_type=Path), help="References, Kaldi text: print error rates, not words.")
@click.option("--out", type=OutputPath(), help="Write the words here, Kaldi text.")
@click.option("--ctm", type=OutputPath(), help="Write words with times and confidences here, NIST CTM.")
@click.option("--network", type=OutputPath(), help="Write the confusion networks here, JSON lines.")
def command(ref: Path | None, out: Path | None, ctm: Path | None, network: Path | None, **given: Any) -> None:
    """Minimum Bayes risk: the words with the fewest expected errors, their confidences, and confusion networks.

    After Xu, Povey, Mangu and Zhu (2011).  Pruned lattices (rescore lattice prune) take less time.

    \b
    Example: rescore lattice mbr lattices/ --scale am=1 --scale lm=12 --posterior-scale 0.08 --ctm mbr.ctm
    """
    from rescore.cli.lattice.options import scaled_lattices
    from rescore.evaluation.wer import kaldi_lines, present_errors
    from rescore.files import read_kaldi_text, write_kaldi_text
    from rescore.lattices.mbr import decode_all

    refs = read_kaldi_text(ref) if ref else None
    hyps = decode_all(scaled_lattices(**given), ctm, network)
    if out:
        write_kaldi_text(out, hyps)
    if refs is not None:
        for line in kaldi_lines(present_errors(refs, hyps)[0]):
            click.echo(line)
    elif not (out or ctm or network):
        for utt_id, hyp in hyps.items():
            click.echo(" ".join((utt_id, *hyp)))
