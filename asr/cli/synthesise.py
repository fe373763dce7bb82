"""`asr synthesise`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.numbers import DECIBEL, Number
from rescore.cli.outputs import OutputPath


@click.command()
@click.argument("text", type=click.Path(path_type=Path))
@click.argument("out_dir", type=OutputPath(folder=True))
@click.option("--ids", is_flag=True, help="Each line of TEXT begins with an utterance id (Kaldi text).")
@click.option("--seed", type=int, default=0, show_default=True, help="Of voices, settings and noise.")
@click.option(
    "--speakers",
    type=click.Choice(["train", "test"]),
    help="Voices, pitches and rates to draw from; none of `test` occurs in `train` but for Pico's two voices.  "
    "[default: train]",
)
@click.option("--held-out", is_flag=True, help="The same as --speakers test.")
@click.option("--pico", type=Number(0, 1), default=0.5, show_default=True, help="Share of Pico; rest: eSpeak.")
@click.option("--snr", nargs=2, type=DECIBEL, default=(5.0, 40.0), show_default=True, help="Range of the noise, dB.")
@click.option("--count", type=click.IntRange(1), help="Sentences to take, spread evenly over TEXT.  [default: all]")
@click.option("--words", nargs=2, type=int, default=(1, 40), show_default=True, help="Range of a sentence's length.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
def command(
    text: Path,
    out_dir: Path,
    ids: bool,
    seed: int,
    speakers: str | None,
    held_out: bool,
    pico: float,
    snr: tuple[float, float],
    count: int | None,
    words: tuple[int, int],
    jobs: int,
) -> None:
    """Synthetic speech of TEXT (a sentence a line; .gz and .xz too) in OUT_DIR, as FLAC and lhotse manifests.

    Voice, pitch, rate, level and noise of each sentence are drawn from the seed and its id.  A stopped run goes on
    where it was when the same command is given again.

    Example: asr synthesise books.txt.xz data/synthetic --count 20000 --seed 1
    """
    from asr.dataset.synthetic_set import SetOptions, synthesise
    from rescore.console import remark

    if snr[0] > snr[1] or words[0] > words[1]:
        raise click.UsageError(f"--snr {snr} or --words {words}: expected the smaller number first")
    if held_out and speakers == "train":
        raise click.UsageError("--held-out is --speakers test, and --speakers train is given: leave one of them out")
    speakers = "test" if held_out else speakers or "train"
    options = SetOptions(seed, speakers, pico, snr, count, words)
    counts = synthesise(text, ids, out_dir, options, jobs)
    if counts.unspoken:
        names = ", ".join(counts.unspoken[:5])
        remark(
            f"no sound for {len(counts.unspoken)} sentences, left out ({names}{', ...' * (counts.unspoken[5:] != [])})"
        )
    click.echo(f"{out_dir}: {counts.utterances} utterances, {counts.hours:.2f} hours")
