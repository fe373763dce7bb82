"""`asr add-noise`."""

from __future__ import annotations

from pathlib import Path

import click

from asr.cli.pipes import pipes_option
from rescore.cli.numbers import DECIBEL
from rescore.cli.outputs import OutputPath


@click.command()
@click.argument("cuts", type=click.Path(path_type=Path))
@click.argument("out_dir", type=OutputPath(folder=True))
@click.option("--kind", type=click.Choice(["white", "babble"]), required=True, help="Of noise; babble: other cuts.")
@click.option("--snr", type=DECIBEL, required=True, help="Power of the speech to that of the noise, dB.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is drawn.")
@click.option("--voices", type=click.IntRange(1), default=8, show_default=True, help="Cuts of others in babble.")
@pipes_option
def command(cuts: Path, out_dir: Path, kind: str, snr: float, seed: int, voices: int, allow_pipes: bool) -> None:
    """The speech of CUTS under noise, as FLAC and lhotse manifests in OUT_DIR; the same bytes for a seed.

    A set NAME becomes NAME-KIND-SNRdB. A stopped run goes on where it was when the same command is given again.

    \b
    Example: asr add-noise data/librispeech_cuts_dev-clean.jsonl.gz data --kind babble --snr 10
    """
    from asr.dataset.noisy_set import NoiseOptions, add_noise_to_set

    click.echo(add_noise_to_set(cuts, out_dir, NoiseOptions(kind, snr, seed, voices), allow_pipes))
