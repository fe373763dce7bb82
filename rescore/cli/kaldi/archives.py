"""`rescore kaldi archives`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.device import max_unknown_option
from rescore.cli.numbers import POSITIVE
from rescore.cli.once import Once


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--words", required=True, type=click.Path(path_type=Path), help="words.txt of the lattices.")
@click.option(
    "--old-ngram", cls=Once, required=True, metavar="FILE|NAME", help="Their LM: G.fst, ARPA or KenLM binary."
)
@click.option("--job", type=click.IntRange(min=1), default=1, show_default=True, help="Number of the job.")
@click.option("-n", type=click.IntRange(min=1), default=10, show_default=True, help="Hypotheses an utterance.")
@click.option("--lmwt", type=POSITIVE, default=10.0, show_default=True, help="LM weight.")
@click.option("--phi", is_flag=True, help="In G.fst, back off only where there is no arc (after lmrescore.sh).")
@click.option("--no-ali", is_flag=True, help="Leave alignments out.")
@max_unknown_option
def command(
    source: Path,
    out: Path,
    words: Path,
    old_ngram: str,
    job: int,
    n: int,
    lmwt: float,
    phi: bool,
    no_ali: bool,
    max_unknown: float,
) -> None:
    """Write the N best hypotheses of the lattices in SOURCE, lat.JOB.gz, as OUT/nbest1.JOB.gz and OUT/archives.JOB.

    \b
    Example: rescore kaldi archives exp/tri1/decode/lat.1.gz exp/tri1/decode_nn --words data/lang/words.txt \\
               --old-ngram data/lang/G.fst -n 100 --lmwt 12
    """
    from lm_zoo.files import locked
    from lm_zoo.registry import load_grammar, load_ngram
    from rescore.console import remark
    from rescore.formats import read_lattices
    from rescore.formats.symbols import read_symbols
    from rescore.workflows.kaldi_nbest import write_archives

    lattices = read_lattices(f"kaldi:{source}?words={words}")
    old_lm = load_grammar(Path(old_ngram), phi=True) if phi else load_ngram(old_ngram)
    with locked(out / f"archives.{job}"):  # other jobs write into OUT at the same time
        count = write_archives(lattices, out, job, old_lm, read_symbols(words), lmwt, n, not no_ali, max_unknown)
    remark(f"{count} hypotheses written to {out}/archives.{job}")
