"""Stored features: the same files and keys as lhotse's writers give, and nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asr.dataset.loader import load_stored
from asr.dataset.manifests import load_cuts, save_cuts, store_fbank
from asr.dataset.stores import feature_store, with_features
from asr.errors import DataError

lhotse = pytest.importorskip("lhotse")
WRITERS = {"lilcom": lhotse.LilcomChunkyWriter, "numpy": lhotse.NumpyFilesWriter}
DICE = np.random.default_rng(0)
MADE = {f"utt-{frames}": DICE.normal(size=(frames, 80)).astype(np.float32) for frames in (3, 500, 1201)}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("storage", ["lilcom", "numpy"])
@pytest.mark.parametrize("name", ["train", "a.b"])
def test_files_and_keys_are_those_of_lhotse(tmp_path: Path, storage: str, name: str) -> None:
    with feature_store(tmp_path / "ours", name, storage) as store:
        keys = [store.write(key, features) for key, features in MADE.items()]
    (tmp_path / "theirs").mkdir()
    with WRITERS[storage](tmp_path / "theirs" / name) as writer:
        assert [writer.write(key, features) for key, features in MADE.items()] == keys
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    assert store.name == writer.name
    assert Path(store.storage_path) == tmp_path / "ours" / Path(writer.storage_path).relative_to(tmp_path / "theirs")


@pytest.mark.parametrize(("storage", "most"), [("lilcom", 2**-5), ("numpy", 0.0)])
def test_cuts_load_what_was_stored(tmp_path: Path, storage: str, most: float) -> None:
    cuts = {key: lhotse.MonoCut(key, 0.0, len(features) / 100, 0) for key, features in MADE.items()}
    with feature_store(tmp_path, "train", storage) as store:
        cuts = {key: with_features(cut, MADE[key], store) for key, cut in cuts.items()}
    for key, cut in cuts.items():
        assert np.abs(cut.load_features() - MADE[key]).max() <= most


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100])
def test_stored_filterbanks_of_other_rates_are_as_lhotse_wants(tmp_path: Path, rate: int) -> None:
    """Of 22,050 Hz, 10 ms are no whole number of samples: lhotse would count frames of 220, more than there are."""
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(str(tmp_path / "a.wav"), 0.1 * DICE.standard_normal(7 * rate), rate)
    cut = lhotse.Recording.from_file(tmp_path / "a.wav").to_cut()
    save_cuts(tmp_path, "speech", "a", store_fbank([cut], tmp_path, "a", "numpy"))
    (found,) = load_cuts(tmp_path / "speech_cuts_a.jsonl.gz")
    lhotse.validate(found, read_data=True)
    assert len(load_stored(found)) == found.num_frames == 700
    assert found.load_audio().shape == (1, 7 * int(found.sampling_rate))


def test_what_is_not_whole_has_no_name(tmp_path: Path) -> None:
    with pytest.raises(KeyError), feature_store(tmp_path, "train", "lilcom") as store:
        store.write("u", MADE["utt-500"])
        raise KeyError
    assert files(tmp_path) == {}


def test_a_second_utterance_does_not_take_the_place_of_the_first(tmp_path: Path) -> None:
    first, second = MADE["utt-500"], MADE["utt-1201"]
    with feature_store(tmp_path, "train", "lilcom") as store:
        keys = store.write("u", first), store.write("u", second)
    assert keys[0] != keys[1]
    with feature_store(tmp_path, "train", "numpy") as store:
        store.write("u", first)
        with pytest.raises(DataError, match=r"u.npy: the features of a second utterance of this id"):
            store.write("u", second)
    with feature_store(tmp_path, "train", "numpy") as store:  # another run of the command
        store.write("u", second)
