"""`rescore train-ngram`: estimate an n-gram LM, write ARPA."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath
from rescore.errors import UsageError


@click.command("train-ngram")
@click.option(
    "--text", "texts", multiple=True, required=True, help="Training text: FILE or kaldi:FILE; can be repeated."
)
@click.option(
    "--order", type=int, required=True, help="Order of the LM, 1 to 6 (KenLM, by which LMs are read here, wants 2)."
)
@click.option("--prune", help="Leave out n-grams seen this often or less: one value an order, as '0 0 1 1' or 0,0,1,1.")
@click.argument("more_prune", nargs=-1, metavar="")
@click.option(
    "--vocab",
    type=click.Path(),
    help="Keep only n-grams of these words (white space between them; or a table, as words.txt, or counts).",
)
@click.option("--discount-fallback", is_flag=True, help="Fixed discounts 0.5 1 1.5 where the text is too small.")
@click.option("--digits", type=click.IntRange(2, 7), default=7, show_default=True, help="Fewer: a smaller file.")
@click.option("--out", type=OutputPath(), required=True, help="ARPA file to write, .arpa or .arpa.gz.")
def command(
    texts: tuple[str, ...],
    order: int,
    prune: str | None,
    more_prune: tuple[str, ...],
    vocab: str | None,
    discount_fallback: bool,
    digits: int,
    out: Path,
) -> None:
    """Estimate an n-gram LM by interpolated modified Kneser-Ney smoothing and write it as ARPA.

    Text has one sentence a line, .gz and .xz as they are; kaldi:FILE drops the utterance id of each line.
    Probabilities, pruning and --vocab are those of KenLM's lmplz (its --limit_vocab_file).

    \b
    Example: rescore train-ngram --text books.txt.xz --text kaldi:text --order 4 --prune 0 0 1 1 --out 4gram.arpa.gz
    """
    from itertools import chain

    from lm_zoo.files import is_in_place
    from lm_zoo.ngram.arpa import write_arpa
    from lm_zoo.ngram.kneser_ney import FALLBACK_DISCOUNTS, check_thresholds, estimate
    from lm_zoo.text.sentences import read_sentences, read_word_list
    from rescore.console import remark

    thresholds = check_thresholds(_thresholds(prune, more_prune), order)
    if not out.name.endswith((".arpa", ".arpa.gz")) and not is_in_place(out):
        raise UsageError(f"--out {out}: expected a name that ends in .arpa or .arpa.gz")
    model = estimate(
        chain.from_iterable(read_sentences(text, remark) for text in texts),
        order,
        thresholds,
        vocab=set(read_word_list(vocab, remark)) if vocab else None,
        discount_fallback=FALLBACK_DISCOUNTS if discount_fallback else None,
        remark=remark,
    )
    write_arpa(model, out, digits)
    remark(f"wrote {out}")


def _thresholds(prune: str | None, more: tuple[str, ...]) -> list[int]:
    """Thresholds from `--prune 0,0,1`, `--prune '0 0 1'` or, as lmplz has it, `--prune 0 0 1`."""
    if prune is None:
        if more:
            raise UsageError(f"unexpected argument '{more[0]}'")
        return []
    fields = ",".join((prune, *more)).replace(",", " ").split()
    try:
        return [int(field) for field in fields]
    except ValueError:
        raise UsageError(f"--prune: found '{' '.join(fields)}', expected whole numbers, one an order") from None
