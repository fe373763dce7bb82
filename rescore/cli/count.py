"""`rescore count`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command()
@click.option(
    "--text", "texts", multiple=True, required=True, help="Training text: FILE or kaldi:FILE; can be repeated."
)
@click.option("--order", type=click.IntRange(1, 2), default=2, show_default=True, help="1: words; 2: bigrams too.")
@click.option("--characters", is_flag=True, help="Count characters (blanks left out) instead of words; <unk> is one.")
@click.option("--out", required=True, type=OutputPath(), help="Counts to write, .gz and .xz compressed.")
def command(texts: tuple[str, ...], order: int, characters: bool, out: Path) -> None:
    """Count the words and bigrams of a training text, for --tail of wer, compare and ppl.

    Writes a line COUNT WORD a word and COUNT PREVIOUS WORD a bigram, as uniq -c does.  A bigram lies within a
    sentence; <s> stands before the first word.  Text has one sentence a line, .gz and .xz as they are; kaldi:FILE
    drops the utterance id of each line.

    \b
    Example: rescore count --text books.txt.xz --text kaldi:data/train/text --out counts.txt.gz
    """
    from itertools import chain

    from lm_zoo.text.sentences import read_sentences
    from rescore.console import remark
    from rescore.evaluation.counts import count_ngrams, without_marks, write_counts
    from rescore.evaluation.wer import split_characters

    sentences = chain.from_iterable(without_marks(read_sentences(text, remark), text) for text in texts)
    counts = count_ngrams(
        (list(split_characters(tuple(words))) for words in sentences) if characters else sentences, order
    )
    write_counts(out, counts)
    types = " and ".join(f"{len(table.keys)} {n}-grams" for n, table in enumerate(counts.tables, start=1))
    remark(f"{out}: {types}, of a text of {counts.tables[0].counts.sum()} {'characters' if characters else 'words'}")
