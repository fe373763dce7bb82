"""`asr transcribe`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asr.decoding.options import BEAM_SIZE, GREEDY, PREFIX_METHODS

if TYPE_CHECKING:
    import numpy as np

    from asr.decoding.transcribe import Partial, Transcript

SHOWN = 30  # words of a partial result


@click.command()
@click.argument("audio", nargs=-1, required=True, metavar="AUDIO...", type=click.Path(path_type=Path))
@click.option(
    "--model", metavar="FOLDER|NAME", help="Model folder, shipped model or moonshine; the shipped one if left out."
)
@click.option("--streaming", is_flag=True, help="Take the audio in chunk by chunk and print partial results.")
@click.option("--chunk-ms", default=320, show_default=True, type=click.IntRange(10), help="Length of a chunk.")
@click.option(
    "--decoding-method",
    "method",
    type=click.Choice(PREFIX_METHODS),
    default=GREEDY,
    show_default=True,
)
@click.option(
    "--beam-size", default=BEAM_SIZE, show_default=True, type=click.IntRange(1), help="Of modified_beam_search."
)
def command(
    audio: tuple[Path, ...], model: str | None, streaming: bool, chunk_ms: int, method: str, beam_size: int
) -> None:
    """Words of audio files (WAV, FLAC, OGG, MP3; 16 kHz or more), with real-time factor and latency.

    \b
    Example: asr transcribe speech.wav
    Example: asr transcribe --streaming --chunk-ms 160 speech.flac
    Example: asr transcribe --model moonshine speech.wav
    """
    from asr.decoding.transcribe import read_audio, report
    from asr.errors import DataError
    from rescore.console import remark

    recognise = _recogniser(model, streaming, chunk_ms, method, beam_size)
    failed = 0
    for path in audio:
        try:
            samples = read_audio(path, None) if streaming else read_audio(path)
        except DataError as error:
            if len(audio) == 1:
                raise
            click.echo(f"asr: {error}", err=True)
            failed += 1
            continue
        found = recognise(samples)
        click.echo(f"{path}: {' '.join(found.words)}")
        remark(f"{path}: {report(found, chunk_ms if streaming else None)}")
    if failed:
        raise DataError(f"{failed} of {len(audio)} files could not be transcribed")


def _recogniser(
    model: str | None, streaming: bool, chunk_ms: int, method: str, beam_size: int
) -> Callable[[np.ndarray], Transcript]:
    """What makes a transcript of samples, with the model of that name or in that folder."""
    from asr.decoding.prefixes import Pieces
    from asr.decoding.transcribe import Transcriber, WrittenTranscriber, find_model, finished
    from asr.model.checkpoint import load_model
    from asr.seq2seq.models import find_folder
    from rescore.errors import UsageError

    folder = find_folder(model) if model is not None else None
    if folder is not None and model is not None:
        if streaming:
            raise UsageError(f"{model}: hears whole utterances, no streams; leave --streaming out")
        return WrittenTranscriber(folder, model, method, beam_size).whole
    network, vocab = load_model(find_model(model))
    transcriber = Transcriber(network, Pieces(vocab), method, beam_size)
    if not streaming:
        return transcriber.whole
    return lambda samples: finished(_shown(transcriber.stream(samples, chunk_ms)))


def _shown(partials: Iterable[Partial]) -> Iterator[Partial]:
    """Prints what changes: the last words, for the text of an hour at every chunk would be too much."""
    shown = ""
    for partial in partials:
        text = " ".join(partial.words[-SHOWN:])
        if len(partial.words) > SHOWN:
            text = f"... {text}"
        if text != shown:
            click.echo(f"{partial.seconds:8.2f} s  {text}")
        shown = text
        yield partial
