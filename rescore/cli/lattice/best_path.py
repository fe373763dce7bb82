"""`rescore lattice best-path`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.lattice.source import source_options


@click.command()
@source_options
@click.option("--lmwt", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True, help="LM weight.")
@click.option("--wip", type=float, default=0.0, show_default=True, help="Word insertion penalty, a cost for each word.")
@click.option("--ref", type=click.Path(path_type=Path), help="References, Kaldi text: print error rates, not words.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the words here, Kaldi text.")
def command(
    source: str, words: str | None, on_error: str, lmwt: float, wip: float, ref: Path | None, out: Path | None
) -> None:
    """The best path of each lattice, and its word error rate, as Kaldi's local/score.sh has them.

    The best path has the least graph + acoustic / LMWT + WIP * words, all costs; the graph's part is all of its scores
    but the acoustic one (graph, or lm and pron).  As in Kaldi, only utterances with a lattice and a reference are
    scored; the others are counted.

    \b
    Example: rescore lattice best-path kaldi:exp/tri1/decode --words words.txt --lmwt 12 --wip 0.5 --ref text
    Example: rescore lattice best-path kaldi:lat.1.gz --words words.txt --out 1best.txt
    """
    from rescore.cli.lattice.source import policy, read
    from rescore.files import read_kaldi_text, write_kaldi_text
    from rescore.lattice_best import best_words, present_errors
    from rescore.wer import kaldi_lines

    refs = read_kaldi_text(ref) if ref is not None else None
    hyps = best_words(read(source, words, policy(on_error)), lmwt, wip)
    if out is not None:
        write_kaldi_text(out, hyps)
    if refs is not None:
        counts, absent = present_errors(refs, hyps)
        for line in (*kaldi_lines(counts), f"Scored {counts.sentences} sentences, {absent} not present in hyp."):
            click.echo(line)
    elif out is None:
        for utt_id, hyp in hyps.items():
            click.echo(" ".join((utt_id, *hyp)))
