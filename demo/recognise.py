"""The recogniser of the demo: PocketSphinx with the US English model that its package carries.

Any other recogniser can take its place: it has to turn a folder of `UTT.wav` into a folder of lattices and a file of
its own 1-best in Kaldi text.  Here the lattices are HTK SLF (`UTT.slf.gz`).

Example: python demo/recognise.py --wav work/wav --lattices work/lattices --text work/recogniser.txt
"""

from __future__ import annotations

import gzip
import multiprocessing
import os
import tempfile
import wave
from pathlib import Path
from typing import Any

import click

from rescore.console import progress
from rescore.files import atomic_path, write_kaldi_text
from rescore.text import TextNormalizer

NORMALIZER = TextNormalizer(case="upper", delete=".", split="-")
_decoder: Any = None


def _start() -> None:
    global _decoder
    from pocketsphinx import Decoder

    # Acoustics of every second frame and fewer active states: half of the time, and the same WER.
    _decoder = Decoder(loglevel="FATAL", ds=2, maxhmmpf=3000)


def recognise(wav: Path, lattice: Path) -> str:
    """Decodes one file from a fresh state, writes its lattice, returns the recogniser's words."""
    with wave.open(str(wav), "rb") as audio:
        samples = audio.readframes(audio.getnframes())
    _decoder.reinit_feat()  # forgets the means of the utterances before, so that their order does not matter
    _decoder.start_utt()
    _decoder.process_raw(samples, full_utt=True)
    _decoder.end_utt()
    found = _decoder.hyp()
    with tempfile.NamedTemporaryFile(suffix=".slf") as plain, atomic_path(lattice) as packed:
        _decoder.get_lattice().write_htk(plain.name)
        packed.write_bytes(gzip.compress(Path(plain.name).read_bytes(), compresslevel=4, mtime=0))
    return found.hypstr if found else ""


def _job(paths: tuple[Path, Path]) -> tuple[str, str]:
    return paths[0].stem, recognise(*paths)


@click.command()
@click.option("--wav", required=True, type=click.Path(path_type=Path, exists=True), help="Folder of UTT.wav.")
@click.option("--lattices", required=True, type=click.Path(path_type=Path), help="Folder for UTT.slf.gz.")
@click.option("--text", required=True, type=click.Path(path_type=Path), help="The recogniser's 1-best, Kaldi text.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
def main(wav: Path, lattices: Path, text: Path, jobs: int) -> None:
    """Recognise a folder of wav files with PocketSphinx."""
    lattices.mkdir(parents=True, exist_ok=True)
    files = sorted(wav.glob("*.wav"))
    for old in lattices.glob("*.slf.gz"):
        old.unlink()
    todo = [(path, lattices / f"{path.stem}.slf.gz") for path in files]
    with multiprocessing.get_context("spawn").Pool(jobs, _start) as pool:
        words = dict(progress(pool.imap(_job, todo), "recognising", len(todo)))
    write_kaldi_text(text, {utt_id: NORMALIZER.words(line.split()) for utt_id, line in words.items()})


if __name__ == "__main__":
    main()
