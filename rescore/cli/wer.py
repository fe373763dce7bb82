"""`rescore wer`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--ref", required=True, type=click.Path(path_type=Path), help="References, Kaldi text.")
@click.option("--hyp", required=True, type=click.Path(path_type=Path), help="Hypotheses, Kaldi text.")
@click.option("--cer", is_flag=True, help="Count characters (blanks left out) instead of words.")
@click.option("--details", type=click.Path(path_type=Path), help="Write alignments and confusions as icefall does.")
def command(ref: Path, hyp: Path, cer: bool, details: Path | None) -> None:
    """Word error rate as Kaldi's compute-wer prints it.

    \b
    Example: rescore wer --ref data/test/text --hyp exp/test/1best.txt --details exp/test/errs.txt
    """
    from rescore.console import remark
    from rescore.files import read_kaldi_text
    from rescore.wer import characters, corpus_errors, kaldi_lines, write_errs

    refs, hyps = read_kaldi_text(ref), read_kaldi_text(hyp)
    if cer:
        refs, hyps = characters(refs), characters(hyps)
    for line in kaldi_lines(corpus_errors(refs, hyps), "CER" if cer else "WER"):
        click.echo(line)
    if details:
        write_errs(details, refs, hyps)
        remark(f"details: {details}")
