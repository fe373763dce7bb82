"""PocketSphinx's own 1-best of the recordings whose lattices are rescored: the line that everything is compared with.

The lattices do not hold it (they lack the decoder's trigram scores), so the audio is decoded once more.

Example: python local/recognise.py --audio LibriSpeech/train-clean-100 --ref dev.text --out exp/dev/recogniser.txt
"""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import click

from rescore.cli.door import watched
from rescore.console import progress, remark
from rescore.errors import RescoreError
from rescore.files import read_kaldi_text, write_kaldi_text
from rescore.text import TextNormalizer
from rescore.types import Words

NORMALIZER = TextNormalizer(case="upper", delete=".", split="-")
_decoder: Any = None


def _start() -> None:
    global _decoder
    from pocketsphinx import Decoder

    _decoder = Decoder(loglevel="FATAL")


def recognise(audio: Path) -> str:
    """Decodes one 16 kHz file from a fresh state; the decoder's words as they are."""
    import soundfile

    try:
        samples, rate = soundfile.read(str(audio), dtype="int16")
    except soundfile.LibsndfileError as error:
        raise RescoreError(f"{audio}: cannot be read ({error.error_string}), expected FLAC") from None
    if rate != 16000 or samples.ndim > 1:
        channels = samples.shape[1] if samples.ndim > 1 else 1
        raise RescoreError(f"{audio}: {rate} Hz, channels: {channels}; expected 16000 Hz and one channel")
    _decoder.reinit_feat()
    _decoder.start_utt()
    _decoder.process_raw(samples.tobytes(), full_utt=True)
    _decoder.end_utt()
    found = _decoder.hyp()
    return found.hypstr if found else ""


@click.command()
@click.option("--audio", required=True, type=click.Path(path_type=Path, exists=True), help="Folder of SPK/CHAP/*.flac.")
@click.option("--ref", required=True, type=click.Path(path_type=Path), help="Kaldi text that names the utterances.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Kaldi text to write.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Processes.")
def main(audio: Path, ref: Path, out: Path, jobs: int) -> None:
    """Recognise recordings with PocketSphinx."""
    utts = list(read_kaldi_text(ref))
    files = [audio.joinpath(*utt.split("-")[:2], f"{utt}.flac") for utt in utts]
    if missing := [file for file in files if not file.is_file()]:
        raise RescoreError(f"{ref}: of {len(files)} utterances {len(missing)} have no recording, such as {missing[0]}")
    with multiprocessing.get_context("spawn").Pool(jobs, _start) as pool:
        lines = list(progress(pool.imap(recognise, files), "recognising", len(files)))
    words: dict[str, Words] = {utt: NORMALIZER.words(line.split()) for utt, line in zip(utts, lines, strict=True)}
    write_kaldi_text(out, words)
    remark(f"{len(words)} utterances written to {out}")


if __name__ == "__main__":
    watched("recognise.py", main)
