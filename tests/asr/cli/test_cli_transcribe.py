"""`asr transcribe` and what stands behind it, with a small untrained model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from click.testing import CliRunner, Result

from asr.cli.main import cli
from asr.decoding.prefixes import Pieces
from asr.decoding.transcribe import Transcriber, find_model, finished, read_audio, report, usual_model
from asr.errors import CheckpointError, ConfigError, DataError
from asr.model.checkpoint import load_model, save_model
from asr.model.config import EncoderConfig, TransducerConfig
from asr.model.transducer import Transducer
from rescore.errors import UsageError
from tests.asr.tiny import vocabulary

RATE = 16000


def small_model(folder: Path, decoder: str = "stateless", causal: bool = True) -> Path:
    """A model folder; large random weights in the joiner make it say something."""
    torch.manual_seed(4)
    encoder = EncoderConfig(channels=4, dim=16, layers=2, heads=2, feedforward=24, causal=causal)
    model = Transducer(TransducerConfig(18, encoder, decoder, decoder_dim=12, joiner_dim=12))
    with torch.no_grad():
        for parameter in [*model.joiner.parameters(), *model.decoder.parameters()]:
            parameter.normal_(0.0, 0.8)
    save_model(folder, model, vocabulary(), {})
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("models") / "small")


def noise(seconds: float, seed: int = 1) -> np.ndarray:
    return (0.1 * np.random.default_rng(seed).standard_normal(int(seconds * RATE))).astype(np.float32)


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "speech.wav", noise(1.5), RATE)
    return tmp_path / "speech.wav"


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


@pytest.mark.parametrize("method", ["greedy_search", "modified_beam_search"])
def test_a_stream_ends_with_what_is_recognised_at_once(model: Path, wav: Path, method: str) -> None:
    network, vocab = load_model(model)
    transcriber = Transcriber(network, Pieces(vocab), method)
    samples = read_audio(wav)
    whole = transcriber.whole(samples)
    for chunk_ms in (25, 320, 5000):
        partials = list(transcriber.stream(samples, chunk_ms))
        stream = finished(partials)
        assert stream.words == whole.words and stream.words
        assert stream.seconds == whole.seconds == pytest.approx(1.5)
        assert len(stream.delays) == -(-1500 // chunk_ms)
        assert [partial.seconds for partial in partials] == sorted(partial.seconds for partial in partials)
    assert "RTF" in report(whole) and "latency 320 ms of a chunk" in report(stream, 320)


def test_words_and_speed_are_printed(model: Path, wav: Path) -> None:
    plain = run("transcribe", wav, "--model", model)
    words = plain.stdout.removeprefix(f"{wav}: ").strip()
    assert words and "RTF" in plain.stderr and "latency" in plain.stderr
    streamed = run("transcribe", wav, "--model", model, "--streaming", "--chunk-ms", 100)
    lines = streamed.stdout.splitlines()
    assert lines[-1] == f"{wav}: {words}" and len(lines) > 2
    assert lines[-2].endswith(f" s  {words}") and lines[0].split()[1] == "s"
    assert run("--quiet", "transcribe", wav, "--model", model).stderr == ""
    assert "Example: asr transcribe speech.wav" in run("transcribe", "-h").stdout


def test_options_that_would_do_nothing_are_refused(model: Path, wav: Path) -> None:
    with pytest.raises(UsageError, match=r"--beam-size does nothing without --decoding-method modified_beam_search"):
        run("transcribe", wav, "--model", model, "--beam-size", 8)
    with pytest.raises(UsageError, match=r"--chunk-ms does nothing without --streaming"):
        run("transcribe", wav, "--model", model, "--chunk-ms", 160)
    beam = ["--decoding-method", "modified_beam_search", "--beam-size", 8]
    assert run("transcribe", wav, "--model", model, *beam).exit_code == 0


def test_transcripts_as_data(model: Path, wav: Path) -> None:
    (row,) = json.loads(run("transcribe", wav, "--model", model, "--streaming", "--json", "-").stdout)
    words = run("transcribe", wav, "--model", model).stdout.removeprefix(f"{wav}: ").split()
    assert row["words"] == words and row["file"] == str(wav)
    assert row["seconds"] == pytest.approx(1.5) and row["rtf"] > 0 and len(row["delays"]) == 5


def test_the_model_that_ships_says_what_it_is(
    model: Path, wav: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(model, tmp_path / "small")
    monkeypatch.setattr("asr.decoding.transcribe.PRETRAINED", tmp_path)
    for installed in (False, True):
        monkeypatch.setattr("asr.decoding.transcribe.has_moonshine", lambda: installed)  # noqa: B023
        said = run("transcribe", wav, "--model", "small").stderr
        assert "trained on synthetic voices alone" in said and "WER 96 to 98 %" in said and "--model moonshine" in said
        assert ("pip install 'rescore[moonshine]'" in said) != installed
        assert usual_model(streaming=False) == ("moonshine" if installed else None) and usual_model(True) is None
    assert "moonshine hears it, but no streams" in run("transcribe", wav, "--streaming").stderr
    assert "synthetic" not in run("transcribe", wav, "--model", model).stderr


def test_moonshine_is_the_default_where_it_is_installed(wav: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("asr.decoding.transcribe.has_moonshine", lambda: True)
    monkeypatch.setattr("asr.seq2seq.models.find_folder", lambda name: asked.append(name))
    with pytest.raises(ConfigError, match="no model is called 'moonshine'"):
        run("transcribe", wav)
    assert asked == ["moonshine"]


def test_audio_that_cannot_be_used(tmp_path: Path) -> None:
    def write(name: str, samples: np.ndarray, rate: int = RATE, **more: object) -> Path:
        soundfile.write(tmp_path / name, samples, rate, **more)
        return tmp_path / name

    with pytest.raises(DataError, match=r"none.wav: no such file"):
        read_audio(tmp_path / "none.wav")
    (tmp_path / "text.wav").write_text("no audio at all")
    with pytest.raises(DataError, match=r"text.wav: not audio that can be read"):
        read_audio(tmp_path / "text.wav")
    with pytest.raises(DataError, match=r"empty.wav: empty, no sample"):
        read_audio(write("empty.wav", noise(0)))
    with pytest.raises(DataError, match=r"short.wav: 0.050 s of audio, expected speech"):
        read_audio(write("short.wav", noise(0.05)))
    with pytest.raises(DataError, match="found 130 s of audio, expected 120 s at most; use --streaming"):
        read_audio(write("long.flac", np.zeros(130 * RATE, dtype=np.float32)))
    assert len(read_audio(tmp_path / "long.flac", None)) == 130 * RATE
    bad = noise(1)
    bad[7] = np.nan
    with pytest.raises(DataError, match=r"nan.wav: a sample is NaN or infinite"):
        read_audio(write("nan.wav", bad, subtype="FLOAT"))
    flac = write("cut.flac", noise(2))
    flac.write_bytes(flac.read_bytes()[:20000])
    with pytest.raises(DataError, match=r"cut.flac: (damaged or truncated|not audio)"):
        read_audio(flac)


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input(model: Path, wav: Path, name: str) -> None:
    """As `ffmpeg -i talk.mp4 -ar 16000 -f wav - | asr transcribe -` gives it, which leaves the length open."""
    data = bytearray(wav.read_bytes())
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    command = [sys.executable, "-m", "asr", "transcribe", "--model", str(model), name]
    piped = subprocess.run(command, input=bytes(data), capture_output=True, check=True, cwd=Path(__file__).parents[3])
    words = run("transcribe", wav, "--model", model).output.splitlines()[0].removeprefix(f"{wav}: ")
    assert words and piped.stdout.decode() == f"{name}: {words}\n"


def test_other_rates_and_channels_become_16_khz_mono(tmp_path: Path) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(44100) / 44100)
    soundfile.write(tmp_path / "stereo.wav", np.stack([tone, tone], axis=1), 44100)
    samples = read_audio(tmp_path / "stereo.wav")
    expected = 0.3 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
    assert samples.dtype == np.float32 and len(samples) == RATE
    assert np.abs(samples - expected)[500:-500].max() < 0.01


def test_narrow_band_is_taken_and_told(model: Path, tmp_path: Path) -> None:
    """As `asr decode` takes it."""
    soundfile.write(tmp_path / "telephone.wav", noise(1)[:8000], 8000)
    result = run("transcribe", tmp_path / "telephone.wav", "--model", model)
    assert result.exit_code == 0 and result.stdout.startswith(f"{tmp_path / 'telephone.wav'}: ")
    assert "telephone.wav: found 8000 samples a second; a model that was trained on 16000 or more" in result.stderr
    assert "1.00 s of audio" in result.stderr


def test_one_bad_file_does_not_end_a_run(model: Path, wav: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_text("no audio")
    arguments = ["transcribe", str(tmp_path / "bad.wav"), str(wav), "--model", str(model)]
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, DataError) and "1 of 2 files could not be transcribed" in str(result.exception)
    assert result.stdout.startswith(f"{wav}: ") and "not audio that can be read" in result.stderr


def test_models_that_cannot_be_used(model: Path, wav: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no model is called 'nothing'"):
        find_model("nothing")
    monkeypatch.setattr("asr.decoding.transcribe.PRETRAINED", tmp_path)
    with pytest.raises(ConfigError, match="no trained model ships"):
        find_model()
    shutil.copytree(model, tmp_path / "small")
    assert find_model() == find_model("small") == tmp_path / "small"
    vocabulary(20).save(tmp_path / "small")
    with pytest.raises(CheckpointError, match=r"has 20 tokens, but the model is for 18"):
        run("transcribe", wav, "--model", tmp_path / "small")
    with pytest.raises(ConfigError, match="the encoder is not causal"):
        run("transcribe", wav, "--streaming", "--model", small_model(tmp_path / "offline", causal=False))
