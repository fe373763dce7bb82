"""`rescore lattice best-path`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rescore.cli.lattice.source import source_options
from rescore.cli.normalise import cer_option
from rescore.cli.numbers import NUMBER, POSITIVE
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option

if TYPE_CHECKING:
    from rescore.skipping import OnError
    from rescore.types import Lattice, Weights, Words


@click.command()
@source_options
@click.option("--lmwt", type=POSITIVE, help="LM weight.  [default: 10]")
@click.option("--wip", type=NUMBER, help="Word insertion penalty, a cost for each word.  [default: 0]")
@click.option(
    "--weights", "weights_file", cls=Once, type=click.Path(path_type=Path), help="Weights of rescore tune instead."
)
@click.option(
    "--ref",
    cls=Once,
    type=click.Path(path_type=Path),
    help="References (Kaldi text, recogs, lists): print error rates, not words.",
)
@cer_option
@click.option("--out", type=OutputPath(), help="Write the words here, Kaldi text.")
@json_option
def command(
    source: str,
    words: str | None,
    on_error: OnError,
    lmwt: float | None,
    wip: float | None,
    weights_file: Path | None,
    ref: Path | None,
    cer: bool,
    out: Path | None,
    json_file: Path | None,
) -> None:
    """The best path of each lattice, and its error rate, as Kaldi's local/score.sh has them.

    The best path has the least graph + acoustic / LMWT + WIP * words, all costs; the graph's part is what the
    recogniser has beside acoustics (graph, or lm and pron).  With --weights it is the path with the highest total of
    all weighted scores, such as those of LMs put over the lattices, and texts are compared in the form that the weights
    were tuned for (rescore tune --normalise, --cer).  As in Kaldi, only utterances with a lattice and a reference are
    scored; the others are counted.

    Words count as they are.  Where a recipe scores without its <UNK>, [noise] or !SIL (local/wer_ref_filter and the
    like), pass --out and the references through that filter, and take rescore wer.

    \b
    Example: rescore lattice best-path kaldi:exp/tri1/decode --words words.txt --lmwt 12 --wip 0.5 --ref text
    Example: rescore lattice best-path kaldi:lat.1.gz --words words.txt --out 1best.txt
    Example: rescore lattice best-path k2:exp/test/lattices --weights exp/weights.json --ref text
    """
    from rescore.cli.lattice.errors import counted_in, show_errors
    from rescore.cli.lattice.options import idle_remark
    from rescore.cli.lattice.source import each_lattice
    from rescore.cli.results import show
    from rescore.files import read_kaldi_text, write_kaldi_text
    from rescore.lattices.best_path import best_words, kaldi_scales, weighted_words
    from rescore.weights import LM_WEIGHT

    weights = _weights(weights_file, lmwt, wip)
    refs = read_kaldi_text(ref) if ref is not None else None
    normaliser = counted_in(ref, cer, weights, weights_file)
    say_idle = idle_remark()

    def best(lattice: Lattice) -> dict[str, Words]:
        if weights is not None:
            return weighted_words([lattice], weights.scales)
        lm_weight, penalty = LM_WEIGHT if lmwt is None else lmwt, 0.0 if wip is None else wip
        say_idle(lattice, kaldi_scales(lattice, lm_weight, penalty))
        return best_words([lattice], lm_weight, penalty)

    found = each_lattice(best, source, words, on_error)
    hyps = {utt_id: words for one in found for utt_id, words in one.items()}
    if out is not None:
        write_kaldi_text(out, hyps)
    if refs is not None:
        show_errors(refs, hyps, normaliser, json_file, scored=True)
    elif json_file or out is None:
        show(hyps, (" ".join((utt_id, *hyp)) for utt_id, hyp in hyps.items()), json_file)


def _weights(file: Path | None, lmwt: float | None, wip: float | None) -> Weights | None:
    """Those of --weights; raises UsageError where they are given beside --lmwt and --wip."""
    from rescore.console import remark
    from rescore.errors import UsageError
    from rescore.weights import MBR, decision_of, load_weights

    if file is None:
        return None
    if lmwt is not None or wip is not None:
        raise UsageError("give either --weights FILE or --lmwt and --wip, not both")
    weights = load_weights(file)
    if decision_of(weights, file)[0] == MBR:
        remark(f"{file}: tuned for minimum Bayes risk, which is `rescore lattice mbr`; here totals decide")
    return weights
