"""Words of audio files: at once, or as a stream with partial results, with real-time factor and latency."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from asr.dataset.features import NARROW_BAND, SAMPLE_RATE, OnlineFbank, fbank, resample
from asr.dataset.flac import NO_LENGTH
from asr.dataset.manifests import is_truncated
from asr.decoding.beam_search import BeamSearch
from asr.decoding.decode import Decoder
from asr.decoding.greedy_search import GreedySearch
from asr.decoding.options import BEAM, BEAM_SIZE, GREEDY, PREFIX_METHODS, DecodeOptions
from asr.decoding.prefixes import Pieces, SearchHypothesis
from asr.decoding.written import NORMALISER, WrittenDecoder
from asr.errors import ConfigError, DataError
from asr.model.streaming import StreamingEncoder
from asr.seq2seq.models import INSTALL, MOONSHINE, has_moonshine, load
from lm_zoo.reading import is_read_once, kaldi_fields, open_bytes
from lm_zoo.text.normalise import normalise
from rescore.console import remark
from rescore.types import Words

if TYPE_CHECKING:
    from asr.model.s4former import S4former
    from asr.model.transducer import Transducer

PRETRAINED = Path(__file__).resolve().parents[1] / "pretrained"
MAX_SECONDS = 120.0  # at once: attention over a whole utterance costs memory that grows with its square
MIN_SECONDS = 0.1


@dataclass
class Partial:
    """What is known when a chunk has been taken in.

    Attributes:
      seconds: of audio so far.
      words:   so far; they may still change with a beam search.
      delay:   seconds of work on the chunk.
    """

    seconds: float
    words: Words
    delay: float


@dataclass
class Transcript:
    """The words of an audio file.

    Attributes:
      seconds: of audio.
      work:    seconds that recognition took.
      delays:  of a stream: seconds of work on each chunk.
    """

    words: Words
    seconds: float
    work: float
    delays: list[float] = field(default_factory=list)

    @property
    def rtf(self) -> float:
        """Real-time factor: work by audio."""
        return self.work / self.seconds


def usual_model(streaming: bool) -> str | None:
    """The model where none is named: moonshine if it is installed, for whole utterances; else None, what ships."""
    return MOONSHINE if has_moonshine() and not streaming else None


def say_what_it_is(folder: Path, streaming: bool) -> None:
    """A remark on a model that ships: it is good for demonstrations alone."""
    if folder.parent != PRETRAINED:
        return
    better = "moonshine hears it, but no streams" if streaming else f"--model {MOONSHINE}"
    install = "" if has_moonshine() else f" ({INSTALL})"
    remark(
        f"{folder.name}, the model that ships, was trained on synthetic voices alone: of real speech it gets nearly "
        f"every word wrong (WER 96 to 98 % on LibriSpeech dev-clean); for real speech: {better}{install}"
    )


def find_model(name: str | None = None) -> Path:
    """The model folder that a path or the name of a shipped model means; None: the first that ships.

    Raises:
      ConfigError: there is none.
    """
    shipped = {folder.parent.name: folder.parent for folder in sorted(PRETRAINED.glob("*/config.json"))}
    if name is None and shipped:
        return next(iter(shipped.values()))
    if name is None:
        raise ConfigError("no trained model ships with this package; give --model FOLDER (written by asr average)")
    if (Path(name) / "config.json").is_file():
        return Path(name)
    if name in shipped:
        return shipped[name]
    raise ConfigError(
        f"no model is called '{name}' and no such model folder; shipped are: {', '.join(shipped) or 'none'}"
    )


def read_audio(path: Path, longest: float | None = MAX_SECONDS) -> np.ndarray:
    """Samples float32 `(N,)` in [-1, 1] at 16 kHz; the mean of several channels.

    Args:
      path: a file; `-` is standard input, which is read to its end, as other pipes are.
      longest: seconds; None for any length.
    Raises:
      DataError: no such file, not audio, too short or too long, not finite, or at a rate that cannot be resampled.
    """
    import soundfile

    piped = is_read_once(path)
    if not (piped or path.is_file()):
        raise DataError(f"{path}: {'is a folder, expected an audio file' if path.is_dir() else 'no such file'}")
    try:
        with soundfile.SoundFile(io.BytesIO(open_bytes(path).read()) if piped else path) as file:
            if file.frames == NO_LENGTH:
                raise DataError(f"{path}: its header has no number of samples, as through a pipe; write it anew")
            seconds = file.frames / file.samplerate
            _check_audio(path, seconds, longest)
            samples = file.read(dtype="float32", always_2d=True).mean(axis=1)
            missing = len(samples) < file.frames or is_truncated(file.extra_info)
    except soundfile.SoundFileError as error:
        raise DataError(f"{path}: not audio that can be read, expected WAV, FLAC, OGG or MP3 ({error})") from None
    if missing:
        raise DataError(f"{path}: damaged or truncated, {len(samples)} samples could be read, its header tells of more")
    if not np.isfinite(samples).all():
        raise DataError(f"{path}: a sample is NaN or infinite; write it anew")
    if file.samplerate < SAMPLE_RATE:
        remark(f"{path}: found {file.samplerate} samples a second; {NARROW_BAND}")
    try:
        return resample(samples, file.samplerate)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _check_audio(path: Path, seconds: float, longest: float | None) -> None:
    if seconds < MIN_SECONDS:
        raise DataError(
            f"{path}: {'empty, no sample' if not seconds else f'{seconds:.3f} s of audio'}, expected speech"
        )
    if longest is not None and seconds > longest:
        raise DataError(
            f"{path}: found {seconds:.0f} s of audio, expected {longest:.0f} s at most; use --streaming, or split it"
        )


class Transcriber:
    """A recogniser for single files."""

    def __init__(self, model: Transducer, pieces: Pieces, method: str = GREEDY, beam_size: int = BEAM_SIZE) -> None:
        """
        Raises:
          DataError: the tokens are not the model's.
          ConfigError: another method than greedy_search and modified_beam_search.
        """
        if method not in PREFIX_METHODS:
            raise ConfigError(f"decoding method '{method}'; there are {' and '.join(PREFIX_METHODS)}")
        self.model, self.pieces, self.method = model.eval(), pieces, method
        self.decoder = Decoder(model, pieces, DecodeOptions(method, beam_size))

    def whole(self, samples: np.ndarray) -> Transcript:
        """Samples float32 `(N,)`, recognised at once."""
        begin = time.perf_counter()
        features = torch.from_numpy(fbank(samples)).unsqueeze(0)
        lengths = torch.tensor([features.shape[1]])
        found = self.decoder(features, lengths, ["audio"])
        if not found:
            raise DataError("the audio could not be recognised; look at it, or take another model")
        return Transcript(found[0].words, len(samples) / SAMPLE_RATE, time.perf_counter() - begin)

    def stream(self, samples: np.ndarray, chunk_ms: int = 320) -> Iterator[Partial]:
        """Samples float32 `(N,)` as if they came in chunks; the last partial result is the final one.

        Raises:
          ConfigError: the encoder is not causal.
        """
        run = _Stream(self)
        size = max(1, chunk_ms * SAMPLE_RATE // 1000)
        for start in range(0, len(samples), size):
            begin = time.perf_counter()
            chunk = samples[start : start + size]
            run.accept(chunk, last=start + size >= len(samples))
            words = self.pieces.words(run.hypothesis().tokens)
            yield Partial((start + len(chunk)) / SAMPLE_RATE, words, time.perf_counter() - begin)


class WrittenTranscriber:
    """An encoder-decoder for single files: text as it is written, with case and punctuation."""

    def __init__(self, folder: Path, name: str, method: str = GREEDY, beam_size: int = BEAM_SIZE) -> None:
        """
        Raises:
          ConfigError, CheckpointError: as `asr.seq2seq.models.load`, or a method that makes lattices.
        """
        recogniser = load(folder, Path(name).name, torch.get_num_threads())
        self.decoder = WrittenDecoder(recogniser, method, beam_size, normalise(NORMALISER))

    def whole(self, samples: np.ndarray) -> Transcript:
        """Samples float32 `(N,)`.

        Raises:
          DataError: longer than the model takes.
        """
        begin = time.perf_counter()
        best = self.decoder(samples)[0]
        if best.cut:
            remark("cut off at the limit of the length: the words at its end may be missing or repeated")
        return Transcript(tuple(kaldi_fields(best.text)), len(samples) / SAMPLE_RATE, time.perf_counter() - begin)


class _Stream:
    """One stream: features, encoder and search as they go on."""

    def __init__(self, owner: Transcriber) -> None:
        self.fbank = OnlineFbank()
        self.encoder = StreamingEncoder(cast("S4former", owner.model.encoder))
        self.state = self.encoder.initial(1)
        device = torch.device("cpu")
        self.search: GreedySearch | BeamSearch = GreedySearch(owner.model, 1, device)
        if owner.method == BEAM:
            options = owner.decoder.options
            self.search = BeamSearch(owner.model, 1, device, options.beam_size, length_norm=options.length_norm)

    @torch.no_grad()
    def accept(self, samples: np.ndarray, last: bool) -> None:
        frames = [self.fbank.accept(samples)]
        if last:
            frames.append(self.fbank.finish())
        features = torch.from_numpy(np.concatenate(frames)).unsqueeze(0)
        if not features.shape[1]:
            return
        encoded, lengths, self.state = self.encoder.step(features, torch.tensor([features.shape[1]]), self.state)
        if int(lengths[0]):
            self.search.advance(encoded, lengths)

    def hypothesis(self) -> SearchHypothesis:
        return self.search.hypothesis(0) if isinstance(self.search, GreedySearch) else self.search.hypotheses(0)[0]


def finished(partials: Iterable[Partial]) -> Transcript:
    """The transcript of a stream; takes the partial results as they come and keeps the last of them alone."""
    last, delays = Partial(0.0, (), 0.0), []
    for last in partials:
        delays.append(last.delay)
    return Transcript(last.words, last.seconds, sum(delays), delays)


def report(transcript: Transcript, chunk_ms: int | None = None) -> str:
    """A line with real-time factor and latency."""
    line = f"{transcript.seconds:.2f} s of audio in {transcript.work:.2f} s: RTF {transcript.rtf:.3f}"
    if chunk_ms is None:
        return f"{line}, latency {1000 * transcript.work:.0f} ms after the end"
    mean, worst = 1000 * float(np.mean(transcript.delays)), 1000 * max(transcript.delays)
    last = 1000 * transcript.delays[-1]
    return (
        f"{line}, latency {chunk_ms} ms of a chunk + {mean:.0f} ms of work (at most {worst:.0f} ms), "
        f"{last:.0f} ms after the end"
    )
