"""`rescore report`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=OutputPath(), help="HTML file to write.")
@click.option(
    "--hyps", type=click.IntRange(min=1), default=20, show_default=True, help="Hypotheses shown of each list."
)
@click.option(
    "--word-scores", is_flag=True, help="Load the LMs and show the log-probability of each word before and after."
)
@click.option(
    "--audio", type=click.Path(path_type=Path), help="Lines 'utt-id FILE': the page plays these files where they lie."
)
@click.option(
    "--networks", type=click.Path(path_type=Path), help="Confusion networks to show, of: rescore lattice mbr --network."
)
def command(folder: Path, out: Path, hyps: int, word_scores: bool, audio: Path | None, networks: Path | None) -> None:
    """Write a page for a browser on what a run of `rescore run` changed, and whether to trust it.

    One file without network: the systems with intervals and p-values, and what these mean; WER against each scale on
    dev and test; WER by length, by N with the oracle, by word frequency; errors most fixed and most broken; all
    utterances, to be searched and sorted, aligned, with their lists; how it was made.

    \b
    Example: rescore report exp/run --out exp/run/report.html --word-scores
    """
    from rescore.workflows.report.write import write_report

    write_report(folder, out, hyps, word_scores, audio, networks)
