"""`asr prepare` of Kaldi's folders."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asr.dataset.features import fbank
from asr.dataset.loader import LoaderOptions, load_samples, load_stored
from asr.dataset.manifests import load_cuts
from rescore.errors import FormatError
from tests.asr.cli.test_cli_prepare import loaded, prepare, write_audio
from tests.asr.kaldi_files import matrix, wav, write_archive

soundfile = pytest.importorskip("soundfile")


@pytest.fixture
def kaldi(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    folder = tmp_path / "kaldi" / "train"
    audio = {name: write_audio(folder / f"{name}.wav", 2.0, seed) for seed, name in enumerate(("file", "pipe"))}
    audio["ark"] = (0.1 * np.random.default_rng(7).standard_normal(32000)).astype(np.float32)
    write_archive(folder / "raw.ark", folder / "raw.scp", {"ark": wav((audio["ark"] * 32768).astype(np.int16))})
    lines = [f"file {folder}/file.wav", f"pipe cat {folder}/pipe.wav |", (folder / "raw.scp").read_text().strip()]
    (folder / "wav.scp").write_text("\n".join([*lines, f"gone {folder}/gone.wav"]) + "\n")
    (folder / "text").write_text("u1 A CAT\nu2 A HAT\nu3 THE MAT\nu4 GONE\nu5 NOWHERE\n")
    (folder / "utt2spk").write_text("u1 s1\nu2 s1\nu3 s2\nu4 s2\n")
    (folder / "segments").write_text("u1 file 0.5 1.5\nu2 pipe 0 -1\nu3 ark 1.0 2.4\nu4 gone 0 1\nu6 file 0 1\n")
    return folder, audio


def test_kaldi_audio_that_has_changed_is_read_again(kaldi: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    folder, audio = kaldi

    def prepared() -> np.ndarray:
        prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
        (cut,) = (cut for cut in load_cuts(tmp_path / "data/kaldi_cuts_train.jsonl.gz") if cut.id == "u2")
        return load_samples(cut)

    flac = tmp_path / "data/audio/train/pipe.flac"
    prepared()
    time = flac.stat().st_mtime_ns
    assert np.abs(prepared() - audio["pipe"]).max() < 1e-4 and flac.stat().st_mtime_ns == time  # nothing has changed
    samples = write_audio(folder / "pipe.wav", 1.0, seed=11)  # the same pipe, another file
    assert np.abs(prepared() - samples).max() < 1e-4
    other = write_audio(folder / "other.wav", 1.5, seed=12)
    (folder / "wav.scp").write_text((folder / "wav.scp").read_text().replace("pipe.wav |", "other.wav |"))
    assert np.abs(prepared() - other).max() < 1e-4


def test_kaldi(kaldi: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    folder, audio = kaldi
    result = prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    for reason in (
        "audio missing, unreadable or empty (u4)",
        "not in text (u6)",
        "in text, but not in segments or wav.scp (u5)",
    ):
        assert f"1 utterances left out, {reason}" in result.stderr
    cuts = load_cuts(tmp_path / "data" / "kaldi_cuts_train.jsonl.gz")
    expected = {"u1": audio["file"][8000:24000], "u2": audio["pipe"], "u3": audio["ark"][16000:]}
    assert [cut.id for cut in cuts] == list(expected)
    for cut in cuts:
        assert np.abs(load_samples(cut) - expected[cut.id]).max() < 1e-4
        assert cut.supervisions[0].start == 0 and cut.supervisions[0].duration == cut.duration
    assert [cut.supervisions[0].speaker for cut in cuts] == ["s1", "s1", "s2"]


@pytest.mark.parametrize(("storage", "error"), [("numpy", 0.0), ("lilcom", 0.1)])
def test_kaldi_features(kaldi: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, storage: str, error: float) -> None:
    folder, _ = kaldi
    features = {
        f"u{index}": np.random.default_rng(index).standard_normal((50 + index, 80)).astype(np.float32)
        for index in (1, 2, 9)
    }
    records = {name: matrix(values) for name, values in features.items()}
    write_archive(folder / "f.ark", folder / "feats.scp", records)
    result = prepare(tmp_path / "data", "--kaldi", folder, "--kaldi-feats", "--storage", storage)
    assert "1 utterances left out, not in text (u9)" in result.stderr
    assert "3 utterances left out, in text, but not in feats.scp (u3, u4, u5)" in result.stderr
    cuts = load_cuts(tmp_path / "data" / "kaldi_cuts_train.jsonl.gz")
    found = loaded(cuts, LoaderOptions(max_duration=10), stored=True)
    assert sorted(found) == ["u1", "u2"]
    for name, values in found.items():
        assert np.abs(values - features[name]).max() <= error


def test_why_a_pipe_gives_no_audio(kaldi: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    folder, _ = kaldi
    (folder / "pipe.wav").write_bytes(b"RIFF, but no WAV")
    result = prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    assert "2 utterances left out, audio missing, unreadable or empty (u2, u4); u2: " in result.stderr


@pytest.mark.parametrize("form", ["WAV", "WAVEX"])
@pytest.mark.parametrize("subtype", ["PCM_24", "FLOAT", "PCM_16"])
def test_a_pipe_of_any_wav(kaldi: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, form: str, subtype: str) -> None:
    folder, audio = kaldi
    soundfile.write(str(folder / "pipe.wav"), audio["pipe"], 16000, subtype=subtype, format=form)
    prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    cuts = {cut.id: cut for cut in load_cuts(tmp_path / "data" / "kaldi_cuts_train.jsonl.gz")}
    assert np.abs(load_samples(cuts["u2"]) - audio["pipe"]).max() < 1e-4


def test_the_folder_that_one_is_in_has_its_own_name(
    kaldi: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(kaldi[0])
    prepare(tmp_path / "data", "--kaldi", ".", "--allow-pipes")
    assert (tmp_path / "data/kaldi_cuts_train.jsonl.gz").exists() and (tmp_path / "data/audio/train/pipe.flac").exists()


def test_two_folders_of_one_name_are_refused_before_features_are_written(tmp_path: Path) -> None:
    """The second one's would stand under the name of the first, to which older manifests lead."""
    for name in ("one", "two"):
        (tmp_path / name / "train").mkdir(parents=True)
        values = np.random.default_rng(len(name)).standard_normal((50, 80)).astype(np.float32)
        write_archive(tmp_path / name / "f.ark", tmp_path / name / "train/feats.scp", {"u1": matrix(values)})
    folders = ("--kaldi", tmp_path / "one/train", "--kaldi", tmp_path / "two/train")
    assert (
        "two --kaldi folders are named train" in prepare(tmp_path / "data", *folders, "--kaldi-feats", ok=False).stderr
    )
    assert not (tmp_path / "data").exists()


def test_kaldi_malformed(kaldi: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    folder, _ = kaldi
    (folder / "segments").write_text("u1 file 0.5\n")
    with pytest.raises(FormatError, match=r"segments:1: found 'u1 file 0.5', expected 'utterance recording start end'"):
        prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    for times in ("nan 0.4", "0.2 inf"):
        (folder / "segments").write_text(f"u1 file {times}\n")
        with pytest.raises(FormatError, match=f"segments:1: found 'u1 file {times}', .* both times in seconds"):
            prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    (folder / "segments").write_text("u1 file 0 1\nu1 pipe 0 1\n")
    with pytest.raises(FormatError, match="segments:2: utterance 'u1' occurs a second time"):
        prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    with (folder / "wav.scp").open("a") as stream:
        stream.write("file other.wav\n")
    with pytest.raises(FormatError, match=r"wav.scp:5: 'file' occurs a second time"):
        prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    (folder / "wav.scp").write_text("file\n")
    with pytest.raises(FormatError, match=r"wav.scp:1: found 'file', expected 'key file'"):
        prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    (folder / "wav.scp").unlink()
    with pytest.raises(FormatError, match="no such file"):
        prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")


def test_kaldi_segments_that_begin_before_the_audio(kaldi: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Kaldi's extract-segments leaves them out too."""
    folder, _ = kaldi
    (folder / "segments").write_text("u1 file -0.3 0.5\nu2 file 0.5 1\nu3 file 1 1\nu4 file 1.5 1\n")
    result = prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    assert "3 utterances left out, its segment is empty, or begins before 0 or behind" in result.stderr
    assert [cut.id for cut in load_cuts(tmp_path / "data" / "kaldi_cuts_train.jsonl.gz")] == ["u2"]


def test_kaldi_segments_that_end_behind_the_audio(kaldi: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """By less than half a second they are cut, others are left out: so are those of Kaldi's extract-segments."""
    folder, _ = kaldi
    (folder / "segments").write_text("u1 file 0.5 2.5\nu2 file 0.5 2.49\nu3 file 0 60\n")
    result = prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
    said = "2 utterances left out, its segment ends 0.5 s or more behind the recording (u1, u3); u1: at 2.5 s, the"
    assert f"{said} recording at 2 s" in result.stderr
    (cut,) = load_cuts(tmp_path / "data" / "kaldi_cuts_train.jsonl.gz")
    assert (cut.id, cut.start, cut.duration) == ("u2", 0.5, 1.5)


def test_kaldi_places_beside_the_folder_and_recordings_of_several_segments(
    kaldi: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, audio = kaldi
    stereo = np.stack([audio["file"], audio["pipe"]], axis=1)
    soundfile.write(str(folder / "two.wav"), stereo, 16000)
    (folder / "wav.scp").write_text(f"file file.wav\npipe cat {folder}/two.wav |\n")
    (folder / "segments").write_text("u1 file 0 1\nu2 file 1 2\nu3 pipe 0 2\n")
    prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes", "--fbank", "--storage", "numpy")
    first, second, third = load_cuts(tmp_path / "data" / "kaldi_cuts_train.jsonl.gz")
    for cut, samples in ((first, audio["file"][:16000]), (second, audio["file"][16000:]), (third, audio["file"])):
        assert np.abs(load_samples(cut) - samples).max() < 1e-4
        assert np.array_equal(load_stored(cut), fbank(load_samples(cut)))
    assert np.abs(third.recording.load_audio() - stereo.T).max() < 1e-4
    recordings = gzip.decompress((tmp_path / "data" / "kaldi_recordings_train.jsonl.gz").read_bytes())
    assert [json.loads(line)["id"] for line in recordings.splitlines()] == ["file", "pipe"]
