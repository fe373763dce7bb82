"""`asr transcribe`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from asr.decoding.options import BEAM, BEAM_SIZE, GREEDY, PREFIX_METHODS
from rescore.cli.results import is_alone, json_option

if TYPE_CHECKING:
    import numpy as np

    from asr.decoding.transcribe import Partial, Transcript

SHOWN = 30  # words of a partial result


@click.command()
@click.argument("audio", nargs=-1, required=True, metavar="AUDIO...", type=click.Path(path_type=Path))
@click.option(
    "--model",
    metavar="FOLDER|NAME",
    help="Model folder, shipped model or moonshine.  [default: moonshine if it is installed and "
    "without --streaming, else the shipped model]",
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
@json_option
@click.pass_context
def command(
    context: click.Context,
    audio: tuple[Path, ...],
    model: str | None,
    streaming: bool,
    chunk_ms: int,
    method: str,
    beam_size: int,
    json_file: Path | None,
) -> None:
    """Words of audio files (WAV, FLAC, OGG, MP3; -: standard input), with real-time factor and latency.

    The model that ships was trained on synthetic voices; it is there to be streamed and looked at, and gets nearly
    every word of real speech wrong.  Moonshine (pip install 'rescore[moonshine]') hears real English.

    \b
    Example: asr transcribe speech.wav
    Example: asr transcribe --streaming --chunk-ms 160 speech.flac
    Example: asr transcribe --model small speech.wav
    """
    from asr.decoding.transcribe import report
    from asr.errors import DataError
    from rescore.cli.results import show
    from rescore.console import remark

    _check_options(context, streaming, method)
    say: Callable[[str], None] = (lambda line: None) if is_alone(json_file) else click.echo
    recognise = _recogniser(model, streaming, chunk_ms, method, beam_size, say)
    failed, rows = 0, []
    for path in audio:
        try:
            found = _transcribed(path, recognise, streaming)
        except DataError as error:
            if len(audio) == 1:
                raise
            click.echo(f"asr: {error}", err=True)
            failed += 1
            continue
        say(f"{path}: {' '.join(found.words)}")
        rows.append({"file": str(path), **asdict(found), "words": list(found.words), "rtf": found.rtf})
        remark(f"{path}: {report(found, chunk_ms if streaming else None)}")
    show(rows, [], json_file)
    if failed:
        raise DataError(f"{failed} of {len(audio)} files could not be transcribed")


def _check_options(context: click.Context, streaming: bool, method: str) -> None:
    """Raises UsageError for an option that would do nothing beside the others."""
    from rescore.errors import UsageError

    for name, used, needed in (
        ("chunk_ms", streaming, "--streaming"),
        ("beam_size", method == BEAM, f"--decoding-method {BEAM}"),
    ):
        if not used and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.replace('_', '-')} does nothing without {needed}; give both, or neither")


def _transcribed(path: Path, recognise: Callable[[np.ndarray], Transcript], streaming: bool) -> Transcript:
    """The transcript of a file; what the model refuses is told with the file's name.

    Raises:
      DataError: the file cannot be read, or the model does not take it.
    """
    from asr.decoding.transcribe import read_audio
    from asr.errors import DataError

    samples = read_audio(path, None) if streaming else read_audio(path)
    try:
        return recognise(samples)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _recogniser(
    model: str | None, streaming: bool, chunk_ms: int, method: str, beam_size: int, say: Callable[[str], None]
) -> Callable[[np.ndarray], Transcript]:
    """What makes a transcript of samples, with the model of that name or in that folder; partial ones go to `say`."""
    from asr.decoding.prefixes import Pieces
    from asr.decoding.transcribe import (
        Transcriber,
        WrittenTranscriber,
        find_model,
        finished,
        say_what_it_is,
        usual_model,
    )
    from asr.model.checkpoint import load_model
    from asr.seq2seq.models import find_folder
    from rescore.console import remark
    from rescore.errors import UsageError

    if model is None and (model := usual_model(streaming)) is not None:
        remark(f"model: {model} (else: --model FOLDER)")
    folder = find_folder(model) if model is not None else None
    if folder is not None and model is not None:
        if streaming:
            raise UsageError(f"{model}: hears whole utterances, no streams; leave --streaming out")
        return WrittenTranscriber(folder, model, method, beam_size).whole
    own = find_model(model)
    say_what_it_is(own, streaming)
    network, vocab = load_model(own)
    transcriber = Transcriber(network, Pieces(vocab), method, beam_size)
    if not streaming:
        return transcriber.whole
    return lambda samples: finished(_shown(transcriber.stream(samples, chunk_ms), say))


def _shown(partials: Iterable[Partial], say: Callable[[str], None]) -> Iterator[Partial]:
    """Says what changes: the last words, for the text of an hour at every chunk would be too much."""
    shown = ""
    for partial in partials:
        text = " ".join(partial.words[-SHOWN:])
        if len(partial.words) > SHOWN:
            text = f"... {text}"
        if text != shown:
            say(f"{partial.seconds:8.2f} s  {text}")
        shown = text
        yield partial
