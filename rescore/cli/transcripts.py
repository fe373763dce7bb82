"""`rescore transcripts`: plain text for LMs from the transcripts of corpora."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command()
@click.argument("kind")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="FILE|DIR...")
@click.option("--files", metavar="GLOB", help="The files of a folder, at any depth, instead of the kind's own.")
@click.option("--case", type=click.Choice(["upper", "lower"]), help="Change the case of words.")
@click.option("--out", required=True, type=OutputPath(), help="Text to write; .gz and .xz compressed.")
def command(kind: str, sources: tuple[Path, ...], files: str | None, case: str | None, out: Path) -> None:
    """Write the words of transcripts, one utterance a line: swbd (Switchboard, ISIP), fisher, stm (NIST) or chat.

    Noises, pauses and the transcribers' marks are left out; fillers and cut-off words stay.

    \b
    Example: rescore transcripts fisher LDC2004T19 LDC2005T19 --case lower --out data/fisher.txt
    """
    from rescore.console import remark
    from rescore.errors import UsageError
    from rescore.files import atomic_text
    from rescore.text import TextNormalizer
    from rescore.workflows.transcripts import read_transcripts

    normalizer, sentences, count = TextNormalizer(case), 0, 0
    with atomic_text(out) as stream:
        for source in sources:
            for words in read_transcripts(kind, source, files):
                stream.write(" ".join(normalizer.words(words)) + "\n")
                sentences, count = sentences + 1, count + len(words)
        if not sentences:
            raise UsageError(f"no words in {', '.join(map(str, sources))}, expected transcripts of the kind {kind}")
    remark(f"{out}: {sentences} utterances, {count} words")
