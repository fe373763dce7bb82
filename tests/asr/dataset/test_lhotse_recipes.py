"""Readings of folders against lhotse's: the same of a sound folder; and what lhotse ends by is told and left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asr.dataset.kaldi import kaldi_cuts
from asr.dataset.manifests import librispeech

lhotse = pytest.importorskip("lhotse")
soundfile = pytest.importorskip("soundfile")


def write_audio(path: Path, samples: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(str(path), np.random.default_rng(samples).uniform(-0.1, 0.1, samples), 16000)
    return path


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """LibriSpeech's folder with two utterances."""
    chapter = tmp_path / "LibriSpeech" / "dev-clean" / "84" / "1"
    for number, samples in enumerate((1607, 3200)):
        write_audio(chapter / f"84-1-000{number}.flac", samples)
    (chapter / "84-1.trans.txt").write_text("84-1-0000 A CAT\n84-1-0001 A HAT\n")
    return tmp_path / "LibriSpeech"


@pytest.fixture
def kaldi(tmp_path: Path) -> Path:
    """A data folder with two utterances."""
    places = [f"{name} {write_audio(tmp_path / f'{name}.wav', size)}\n" for name, size in (("a", 1607), ("b", 3200))]
    (tmp_path / "wav.scp").write_text("".join(places))
    (tmp_path / "text").write_text("a A CAT\nb A HAT\n")
    (tmp_path / "utt2spk").write_text("a s1\nb s2\n")
    return tmp_path


def test_librispeech_is_read_as_by_lhotse(speech: Path) -> None:
    from lhotse.recipes.librispeech import prepare_librispeech

    theirs = prepare_librispeech(speech)["dev-clean"]
    ours = librispeech(speech)["dev-clean"]
    expected = [(s.id, s.text, s.speaker) for s in theirs["supervisions"]]
    assert sorted((cut.id, cut.supervisions[0].text, cut.supervisions[0].speaker) for cut in ours) == sorted(expected)
    sizes = {recording.id: recording.num_samples for recording in theirs["recordings"]}
    assert {cut.id: cut.num_samples for cut in ours} == sizes


def test_damaged_audio_ends_lhotse_alone(speech: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from lhotse.recipes.librispeech import prepare_librispeech

    (speech / "dev-clean" / "84" / "1" / "84-1-0001.flac").write_bytes(b"no audio")
    with pytest.raises(Exception, match=r"84-1-0001"):
        prepare_librispeech(speech)
    assert [cut.id for cut in librispeech(speech)["dev-clean"]] == ["84-1-0000"]
    assert "audio unreadable or empty (84-1-0001)" in capsys.readouterr().err


def test_a_kaldi_folder_is_read_as_by_lhotse_to_a_millisecond(kaldi: Path, tmp_path: Path) -> None:
    from lhotse.kaldi import load_kaldi_data_dir

    recordings, supervisions, _ = load_kaldi_data_dir(kaldi, 16000)
    ours = kaldi_cuts(kaldi, tmp_path / "out")
    expected = [(s.id, s.text, s.speaker) for s in supervisions]
    assert [(cut.id, cut.supervisions[0].text, cut.supervisions[0].speaker) for cut in ours] == expected
    assert [cut.num_samples for cut in ours] == [1607, 3200]
    assert [recording.num_samples for recording in recordings] == [1600, 3200]  # whole milliseconds


def test_an_utterance_without_text_ends_lhotse_alone(
    kaldi: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lhotse.kaldi import load_kaldi_data_dir

    (kaldi / "text").write_text("a A CAT\n")
    with pytest.raises(KeyError):
        load_kaldi_data_dir(kaldi, 16000)
    assert [cut.id for cut in kaldi_cuts(kaldi, tmp_path / "out")] == ["a"]
    assert "not in text (b)" in capsys.readouterr().err
