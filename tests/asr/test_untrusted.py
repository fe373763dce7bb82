"""Data of others that would run programs, unpickle or write elsewhere: refused by name, or run on request alone."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from asr.cli.main import cli
from asr.dataset.kaldi_places import read_place
from asr.dataset.manifests import load_cuts, read_recording
from asr.dataset.pipes import command_of, shell_reads
from asr.dataset.stores import with_features
from asr.errors import DataError
from rescore.errors import FormatError
from tests.asr import kaldi_files
from tests.asr.cli.test_cli_prepare import prepare, write_audio
from tests.asr.kaldi_files import write_archive

pytest.importorskip("lhotse")


class Makes:
    """Pickles as a call that makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "kaldi" / "train"
    write_audio(made / "a.wav", 1.0)
    (made / "wav.scp").write_text(f"a {made}/a.wav\n")
    return made


def test_archives_are_not_unpickled(folder: Path, tmp_path: Path) -> None:
    """Some tools keep pickles in archives behind PKL."""
    target = tmp_path / "made"
    data = b"PKL" + pickle.dumps(Makes(target))
    (folder / "x.ark").write_bytes(b"a " + data)
    (folder / "y.ark").write_bytes(data)
    for name, more in (("wav.scp", ()), ("feats.scp", ("--kaldi-feats",))):
        for place in (f"{folder}/y.ark:0", f"{folder}/x.ark:2", f"{folder}/y.ark[0:1]", f"cat {folder}/y.ark |"):
            (folder / name).write_text(f"a {place}\n")
            with pytest.raises(DataError):
                prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes", *more)
    with pytest.raises(DataError, match=r"begins with b'PKL.*', expected audio or a matrix"):
        read_place(f"{folder}/x.ark:2")
    assert not target.exists()


def test_places_of_kaldi(folder: Path) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    write_archive(folder / "m.ark", folder / "m.scp", {"u": kaldi_files.matrix(matrix)})
    (folder / "text.ark").write_text("[\n 0.5 1.5\n 2.5 3.5 ]\n")
    place = (folder / "m.scp").read_text().split()[1]
    assert np.array_equal(read_place(place), matrix)
    assert np.array_equal(read_place(f"{place}[1:2]"), matrix[1:3])
    assert np.array_equal(read_place(f"{place}[:,0:1]"), matrix[:, :2])
    assert np.array_equal(read_place(f"{place}[1:6,0:2]"), matrix[1:])  # up to 3 rows beyond, as in Kaldi
    for bad in ("1:7", "4:5", "2:1", "2", "2:", ":2", "0:1,0:3", "0:1,0:1,0:0"):
        with pytest.raises(DataError, match=r"found the range \[.*\], expected "):
            read_place(f"{place}[{bad}]")
    with pytest.raises(DataError, match=r"found the range \[0:9\] of audio, expected it of a matrix"):
        read_place(f"{folder}/a.wav[0:9]")
    assert np.array_equal(read_place(f"tail -c +3 {folder}/m.ark |"), matrix)
    assert read_place(f"{folder}/text.ark").tolist() == [[0.5, 1.5], [2.5, 3.5]]
    rate, samples = read_place(f"{folder}/a.wav")
    assert rate == 16000 and len(samples) == 16000
    for bad in ("", " ", f"{folder}", "-", f"{folder}/m.ark:{'9' * 5000}", f"{place}[9:x]", "false |", "none.ark:7"):
        with pytest.raises(DataError):
            read_place(bad)
    (folder / "m.ark").write_bytes(b"\0BFM \4\xff\xff\xff\x7f\4\xff\xff\xff\x7f")  # 2^62 numbers
    with pytest.raises(DataError):
        read_place(f"{folder}/m.ark:0")


@pytest.mark.parametrize("name", ["wav.scp", "feats.scp"])
def test_pipes_run_on_request_alone(folder: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "made"
    (folder / name).write_text(f"a {folder}/a.wav\nb touch {target}; cat {folder}/a.wav |\n")
    (folder / "text").write_text("b WORD\n")
    more = ["--kaldi-feats"] * (name == "feats.scp")
    expected = rf"{name}:2: 'b' is the output of a command \('touch .*'\), which is run with --allow-pipes alone"
    with pytest.raises(FormatError, match=expected):
        prepare(tmp_path / "data", "--kaldi", folder, *more)
    assert not target.exists()
    if name == "wav.scp":
        prepare(tmp_path / "data", "--kaldi", folder, "--allow-pipes")
        assert target.exists()


def test_help_says_what_pipes_are() -> None:
    for command in ("prepare", "decode", "train"):
        text = " ".join(CliRunner().invoke(cli, [command, "--help"]).output.split())
        assert "--allow-pipes Run the commands in wav.scp, feats.scp and manifests" in text


def cut_of(path: Path, **source: Any) -> dict[str, Any]:
    """The JSON of a cut of one second, whose recording has this source."""
    recording = {"id": "r", "sampling_rate": 16000, "num_samples": 16000, "duration": 1.0, "channel_ids": [0]}
    recording["sources"] = [{"type": "file", "channels": [0], "source": str(path), **source}]
    cut = {"id": "c", "start": 0.0, "duration": 1.0, "channel": 0, "supervisions": [], "recording": recording}
    return {**cut, "type": "MonoCut"}


def features_of(**values: Any) -> dict[str, Any]:
    base = {"type": "fbank", "num_frames": 100, "num_features": 80, "frame_shift": 0.01, "sampling_rate": 16000}
    base |= {"start": 0.0, "duration": 1.0, "storage_type": "numpy_files", "storage_path": "x", "storage_key": "y"}
    return {**base, "recording_id": "r", "channels": 0, **values}


def manifests(folder: Path, target: Path) -> list[dict[str, Any]]:
    """Cuts that run `touch TARGET` when lhotse loads them, each in another way."""
    call = f"touch {target}"
    plain = cut_of(folder / "a.wav")
    command = cut_of(folder, type="command", source=call)
    rir = {"name": "ReverbWithImpulseResponse", "kwargs": {"rir": command["recording"]}}
    return [
        command,
        {**plain, "custom": {"other": command["recording"]}},
        {"id": "m", "type": "MixedCut", "tracks": [{"cut": plain, "offset": 0.0}, {"cut": command, "offset": 0.0}]},
        {**plain, "recording": {**plain["recording"], "transforms": [rir]}},
        {**plain, "features": features_of(storage_path=f"pipe:{call}")},
        {**plain, "features": features_of(storage_path="", storage_key=f"pipe:{call}")},
        {**plain, "features": features_of(storage_type="kaldiio", storage_path="feats.scp")},
        {**plain, "features": features_of(storage_type="memory_raw")},
        cut_of(folder, source=f"{folder}/x; {call}; .sph"),
        cut_of(folder, type="url", source=f"pipe:{call}"),
    ]


def test_commands_in_manifests_run_on_request_alone(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "made"
    path = tmp_path / "cuts.jsonl.gz"
    good = cut_of(folder / "a.wav")
    assert command_of(good) is None
    for bad in manifests(folder, target):
        with gzip.open(path, "wt") as stream:
            stream.writelines(json.dumps(cut) + "\n" for cut in (good, bad))
        expected = r"cuts.jsonl.gz:2: cut '[cm]' is loaded by a command \('.*'\), which is run with --allow-pipes alone"
        with pytest.raises(FormatError, match=expected):
            load_cuts(path)
        with pytest.raises(FormatError, match=expected):
            prepare(tmp_path / "data", "--cuts", path, "--fbank")
        assert not target.exists()
    command = cut_of(folder, type="command", source=f"touch {target}; cat {folder}/a.wav")
    path.write_bytes(gzip.compress(json.dumps(command).encode()))
    prepare(tmp_path / "data", "--cuts", path, "--fbank", "--allow-pipes")
    assert target.exists()


def test_commands_in_shar_are_refused_too(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "shar"
    path.mkdir()
    with gzip.open(path / "cuts.000000.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(cut_of(folder, type="command", source="false")) + "\n")
    with pytest.raises(FormatError, match=r"shar: cut 'c' is loaded by a command \('false'\)"):
        list(load_cuts(path))
    assert [cut.id for cut in load_cuts(path, allow_pipes=True)] == ["c"]


def test_names_of_sph_files_go_to_a_shell(tmp_path: Path) -> None:
    assert shell_reads("/a/x; touch y.sph") and shell_reads("a b.SPH")
    assert not shell_reads("/a/x.sph") and not shell_reads("a; b.wav")
    with pytest.raises(DataError, match=r"names of .sph files go to a shell; rename it"):
        read_recording(tmp_path / "x;y.sph", "a")


IDS = ["../../../x", "../x", "/tmp/absolute", "a\x01b", "y" * 240]


def test_ids_of_recordings_make_no_paths(folder: Path, tmp_path: Path) -> None:
    """Audio of pipes and archives is kept under the id of its recording."""
    out = tmp_path / "deep" / "er" / "data"
    (folder / "wav.scp").write_text("".join(f"{name} cat {folder}/a.wav |\n" for name in IDS))
    before = set(tmp_path.rglob("*"))
    prepare(out, "--kaldi", folder, "--allow-pipes")
    new = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert all(out in path.parents for path in new)
    flacs = [path for path in new if path.suffix == ".flac"]
    assert len(flacs) == len(IDS) and all(path.parent == out / "audio" / "train" for path in flacs)
    assert [cut.id for cut in load_cuts(out / "kaldi_cuts_train.jsonl.gz")] == IDS


def test_ids_of_utterances_make_no_paths(folder: Path, tmp_path: Path) -> None:
    """Features of `--storage numpy` are a file an utterance."""
    out = tmp_path / "deep" / "er" / "data"
    segments = [f"{name} a 0 0.5\n" for name in IDS if name != "a\x01b"]
    (folder / "segments").write_text("".join(segments))
    before = set(tmp_path.rglob("*"))
    prepare(out, "--kaldi", folder, "--fbank", "--storage", "numpy")
    new = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert all(out in path.parents for path in new) and sum(path.suffix == ".npy" for path in new) == len(segments)
    for cut in load_cuts(out / "kaldi_cuts_train.jsonl.gz"):
        assert cut.load_features().shape == (50, 80)


def test_synthesised_audio_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from asr.dataset import synthetic_set

    class Speaker:
        def speak(self, text: str, setting: Any) -> np.ndarray:
            return np.zeros(1600, dtype=np.float32)

    monkeypatch.setattr(synthetic_set, "Speakers", Speaker)
    shard = tmp_path / "deep" / "00000"
    synthetic_set.speak_shard(shard, [("../../x", "A"), ("/tmp/y", "B")], synthetic_set.SetOptions())
    assert sorted(path.name for path in shard.iterdir()) == ["%2E.%2F..%2Fx.flac", "%2Ftmp%2Fy.flac", "shard.jsonl"]
    assert not (tmp_path / "x.flac").exists()
    counts = synthetic_set._write_manifests(tmp_path, [shard])
    assert counts.utterances == 2 and all(cut.load_audio().shape == (1, 1600) for cut in load_cuts(tmp_path))


def test_features_of_odd_ids_are_one_file(tmp_path: Path) -> None:
    from lhotse import MonoCut

    class Writer:
        name, storage_path = "numpy_files", "x"

        def write(self, key: str, features: np.ndarray) -> str:
            return key

    cut = with_features(MonoCut("../../x", 0.0, 1.0, 0), np.zeros((100, 80), np.float32), Writer())
    assert cut.features.storage_key == "%2E.%2F..%2Fx"
