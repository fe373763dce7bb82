"""Synthetic speech: settings, engines, resampling, noise, and `asr synthesise`."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from asr.cli.main import cli
from asr.dataset import synthetic_set
from asr.dataset.synthesis import SPEAKERS, TRAIN, NothingSpoken, Speakers, draw_setting, finish, noise
from asr.dataset.synthetic_set import SetOptions, sentences_to_speak, speak_shard
from asr.errors import DataError
from rescore.errors import RescoreError
from tests.full_disk import full_disk

SENTENCES = ["A CAT SAT ON THE MAT", "HIS MOTHER'S HOUSE WAS NEAR", "THE END"]


def draws(voices: str) -> list[tuple[str, str, int, int]]:
    settings = [draw_setting(1, f"u{index}", SPEAKERS[voices], 0.5, (5, 40)) for index in range(3000)]
    return [(setting.engine, setting.voice, setting.pitch, setting.rate) for setting in settings]


def test_settings_come_from_seed_and_id() -> None:
    setting = draw_setting(1, "u1", TRAIN, 0.5, (5, 40))
    assert setting == draw_setting(1, "u1", TRAIN, 0.5, (5, 40))
    assert setting != draw_setting(2, "u1", TRAIN, 0.5, (5, 40))
    assert 5 <= setting.snr_db <= 40
    assert {draw_setting(1, f"u{i}", TRAIN, 1.0, (5, 40)).engine for i in range(50)} == {"pico"}


@pytest.mark.parametrize("engine", ["pico", "espeak"])
def test_held_out_settings_never_occur_in_training(engine: str) -> None:
    train = [draw for draw in draws("train") if draw[0] == engine]
    test = [draw for draw in draws("test") if draw[0] == engine]
    assert len(train) > 1000 and len(test) > 1000
    for place, name in ((2, "pitch"), (3, "rate")):
        assert not {draw[place] for draw in train} & {draw[place] for draw in test}, name
    if engine == "espeak":
        for part in (0, 1):
            variants = {draw[1].split("+")[part] for draw in test}
            assert not variants & {(draw[1] + "+").split("+")[part] for draw in train}


@pytest.mark.parametrize("colour", [0.0, 1.0, 2.0])
def test_noise_has_its_power_and_slope(colour: float) -> None:
    made = noise(100000, colour, 3)
    assert np.mean(made**2) == pytest.approx(1.0, rel=1e-4)
    power = np.abs(np.fft.rfft(made.astype(np.float64) * np.hanning(100000))) ** 2
    low, high = power[2000:3000].mean(), power[20000:30000].mean()  # a factor of ten in frequency
    assert 10 * np.log10(low / high) == pytest.approx(10 * colour, abs=1.0)


def test_level_and_noise_are_as_drawn() -> None:
    setting = replace(draw_setting(1, "u1", TRAIN, 0.5, (20, 20)), colour="white")
    speech = (1000 * np.sin(np.arange(32000))).astype(np.float32)
    made = finish(speech, setting) / 32768
    first = round(setting.silence[0] * 16000)
    quiet, loud = made[:first], made[first : first + 32000]
    assert 10 * np.log10(np.mean(loud**2)) == pytest.approx(setting.level_db, abs=0.2)
    assert len(made) == 32000 + sum(round(16000 * seconds) for seconds in setting.silence)
    assert 10 * np.log10(np.mean(loud**2) / np.mean(quiet**2)) == pytest.approx(20, abs=0.7)


def test_a_peak_is_not_clipped_but_all_is_quieter() -> None:
    setting = replace(draw_setting(1, "u1", TRAIN, 0.5, (90, 90)), level_db=-20.0)
    speech = np.tile(np.array([5.0] + [0.0] * 999, np.float32), 20)  # its peaks are 30 dB above its mean
    assert np.abs(finish(speech, setting)).max() / 32768 == pytest.approx(0.98, abs=1e-3)


def test_wide_ranges_are_drawn_as_often_as_they_are_wide() -> None:
    """Of 20, 16 and 37."""
    pitches = [draw_setting(1, f"u{index}", TRAIN, 1.0, (5, 40)).pitch for index in range(3000)]
    assert np.mean([pitch >= 113 for pitch in pitches]) == pytest.approx(37 / 73, abs=0.03)


def test_a_breathing_voice_does_not_depend_on_the_time_of_the_day() -> None:
    pytest.importorskip("espeakng_loader")
    code = "from asr.dataset.synthesis import Espeak; print(Espeak().speak('yes', 'gmw/en-US+f3', 50, 170).sum())"
    first, second = [], []
    for outputs in (first, second):
        outputs.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        time.sleep(1.0)  # eSpeak's own seed is the time in whole seconds
    assert first == second


def test_what_cannot_be_spoken() -> None:
    pytest.importorskip("ttspico")
    with pytest.raises(NothingSpoken, match=r"speaks nothing for '\.\.\.'"):
        Speakers().speak("...", draw_setting(1, "u1", TRAIN, 1.0, (5, 40)))


def test_unknown_voice() -> None:
    pytest.importorskip("espeakng_loader")
    from asr.dataset.synthesis import Espeak

    with pytest.raises(DataError, match="no voice 'gmw/martian'"):
        Espeak().speak("hello", "gmw/martian", 50, 170)


def test_sentences_are_chosen_evenly(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("ONE\n\nTWO WORDS\nA B C D\nTHREE\nFOUR\n")
    chosen = sentences_to_speak(tmp_path / "t.txt", False, SetOptions(words=(1, 3), count=2))
    assert chosen == {"t-0000001": "ONE", "t-0000005": "THREE"}
    with pytest.raises(DataError, match="has 4 sentences of 1 to 3 words, expected 9"):
        sentences_to_speak(tmp_path / "t.txt", False, SetOptions(words=(1, 3), count=9))
    (tmp_path / "k.txt").write_text("a ONE TWO\nb THREE\n")
    assert sentences_to_speak(tmp_path / "k.txt", True, SetOptions()) == {"a": "ONE TWO", "b": "THREE"}


def test_ids_that_would_be_spoken_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("".join(f"utt-{number} THE CAT\n" for number in range(4)))
    sentences_to_speak(tmp_path / "text", True, SetOptions())
    assert "utterance ids" not in capsys.readouterr().err
    sentences_to_speak(tmp_path / "text", False, SetOptions())
    assert "('utt-0'): spoken without --ids" in capsys.readouterr().err


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*.flac")}


@pytest.fixture
def engines() -> None:
    for package in ("ttspico", "espeakng_loader", "soundfile"):
        pytest.importorskip(package)


def synthesise(text: Path, out: Path, *options: str) -> str:
    args = ["synthesise", str(text), str(out), "--seed", "1", *options]
    return CliRunner().invoke(cli, args, catch_exceptions=False).stdout


@pytest.mark.usefixtures("engines")
def test_synthesise_makes_a_set_that_lhotse_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lhotse = pytest.importorskip("lhotse")
    monkeypatch.setattr(synthetic_set, "SHARD", 2)
    monkeypatch.setattr(synthetic_set, "_in_own_process", lambda shard: speak_shard(*shard))
    (tmp_path / "t.txt").write_text("\n".join([*SENTENCES, "..."]))
    assert "3 utterances" in synthesise(tmp_path / "t.txt", tmp_path / "out", "--pico", "1")
    cuts = lhotse.CutSet.from_file(tmp_path / "out" / "cuts.jsonl.gz").with_recording_path_prefix(tmp_path / "out")
    assert [cut.supervisions[0].text for cut in cuts] == SENTENCES
    for cut in cuts:
        assert cut.load_audio().shape == (1, cut.num_samples)
        assert cut.recording.sampling_rate == 16000
    for name in ("recordings", "supervisions"):
        assert len(list(lhotse.load_manifest_lazy(tmp_path / "out" / f"{name}.jsonl.gz"))) == 3

    before = digests(tmp_path / "out")
    (tmp_path / "out/audio/00001/shard.jsonl").unlink()  # a stopped run has no such shard at all
    for file in (tmp_path / "out/audio/00001").iterdir():
        file.unlink()
    (tmp_path / "out/audio/00001").rmdir()
    synthesise(tmp_path / "t.txt", tmp_path / "out", "--pico", "1")
    assert digests(tmp_path / "out") == before
    with pytest.raises(DataError, match="was made with speakers train, expected test"):
        synthesise(tmp_path / "t.txt", tmp_path / "out", "--pico", "1", "--held-out")


@pytest.mark.parametrize("speakers", [("--held-out", "--speakers", "train"), ("--speakers", "train", "--held-out")])
def test_held_out_speakers_are_not_those_of_training(tmp_path: Path, speakers: tuple[str, ...]) -> None:
    """The last of the two options decided, without a word."""
    (tmp_path / "t.txt").write_text("\n".join(SENTENCES))
    result = CliRunner().invoke(cli, ["synthesise", str(tmp_path / "t.txt"), str(tmp_path / "out"), *speakers])
    assert result.exit_code == 2 and "--held-out is --speakers test" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("engines")
def test_a_set_of_another_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_set, "_in_own_process", lambda shard: speak_shard(*shard))
    (tmp_path / "t.txt").write_text("\n".join(SENTENCES))
    synthesise(tmp_path / "t.txt", tmp_path / "out", "--pico", "1")
    before = digests(tmp_path / "out")
    (tmp_path / "t.txt").write_text("\n".join([*SENTENCES[:2], "THE START"]))
    with pytest.raises(
        DataError, match=r"00000: has the sentence t-0000003 'THE END' where .*t.txt has t-0000003 'THE S"
    ):
        synthesise(tmp_path / "t.txt", tmp_path / "out", "--pico", "1")
    assert digests(tmp_path / "out") == before


@pytest.mark.usefixtures("engines")
def test_a_full_disk_leaves_no_shard(tmp_path: Path) -> None:
    for room in (300, 20000):
        with full_disk(room), pytest.raises(RescoreError, match=r"00000/.* cannot be written \(File too large\)"):
            speak_shard(tmp_path / "00000", [("a", SENTENCES[0]), ("b", SENTENCES[1])], SetOptions(pico=1.0))
        assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("engines")
def test_the_same_seed_gives_the_same_samples(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(SENTENCES))
    synthesise(tmp_path / "t.txt", tmp_path / "a", "--pico", "0.3")
    synthesise(tmp_path / "t.txt", tmp_path / "b", "--pico", "0.3", "--jobs", "2")
    assert digests(tmp_path / "a") == digests(tmp_path / "b") != {}
