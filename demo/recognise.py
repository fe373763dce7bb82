"""PocketSphinx as the recogniser of the demo, with the US English model that its package carries.

Any other recogniser can take its place: it has to turn recordings into a folder of lattices and a file of its own
1-best in Kaldi text.  Here the lattices are HTK SLF (`UTT.slf.gz`).

Example: python demo/recognise.py --cuts work/speech/cuts.jsonl.gz --out work/decoded
"""

from __future__ import annotations

import gzip
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from rescore.console import progress
from rescore.file_names import file_name
from rescore.files import atomic_path, write_kaldi_text
from rescore.text import TextNormalizer

NORMALIZER = TextNormalizer(case="upper", delete=".", split="-")
_decoder: Any = None


def _start() -> None:
    global _decoder
    from pocketsphinx import Decoder

    # Acoustics of every second frame and fewer active states: half of the time, and the same WER.
    _decoder = Decoder(loglevel="FATAL", ds=2, maxhmmpf=3000)


def recognise(audio: Path, lattice: Path) -> str:
    """Decodes one file (16 kHz) from a fresh state, writes its lattice, returns the recogniser's words."""
    import soundfile

    samples = soundfile.read(str(audio), dtype="int16")[0].tobytes()
    _decoder.reinit_feat()  # forgets the means of the utterances before, so that their order does not matter
    _decoder.start_utt()
    _decoder.process_raw(samples, full_utt=True)
    _decoder.end_utt()
    found = _decoder.hyp()
    with tempfile.NamedTemporaryFile(suffix=".slf") as plain, atomic_path(lattice) as packed:
        _decoder.get_lattice().write_htk(plain.name)
        packed.write_bytes(gzip.compress(Path(plain.name).read_bytes(), compresslevel=4, mtime=0))
    return found.hypstr if found else ""


def _job(item: tuple[str, Path, Path]) -> tuple[str, str]:
    utt_id, audio, lattice = item
    return utt_id, recognise(audio, lattice)


@click.command()
@click.option("--cuts", required=True, type=click.Path(path_type=Path, exists=True), help="lhotse cuts.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for lattices/ and first.txt.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
def main(cuts: Path, out: Path, jobs: int) -> None:
    """Recognise the recordings of cuts with PocketSphinx."""
    from asr.dataset.manifests import load_cuts

    lattices = out / "lattices"
    lattices.mkdir(parents=True, exist_ok=True)
    for old in lattices.glob("*.slf.gz"):
        old.unlink()
    audio = {cut.id: Path(cut.recording.sources[0].source) for cut in load_cuts(cuts)}
    todo = [(utt_id, path, lattices / f"{file_name(utt_id)}.slf.gz") for utt_id, path in sorted(audio.items())]
    with multiprocessing.get_context("spawn").Pool(jobs, _start) as pool:
        words = dict(progress(pool.imap(_job, todo), "recognising", len(todo)))
    write_kaldi_text(out / "first.txt", {utt_id: NORMALIZER.words(line.split()) for utt_id, line in words.items()})


if __name__ == "__main__":
    main()
