"""Batches of cuts: bucketing, augmentation, stored features, several ranks, continuing, bad cuts."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from asr.dataset import loader as loading
from asr.dataset.augment import SpecAugment, add_noise
from asr.dataset.features import fbank
from asr.dataset.left_out import FirstOfReason
from asr.dataset.loader import Loader, LoaderOptions, load_samples, make_loader
from asr.dataset.manifests import load_cuts, store_fbank
from asr.errors import ConfigError, DataError
from lm_zoo.training.stopping import Stopping
from rescore.errors import FormatError

lhotse = pytest.importorskip("lhotse")
soundfile = pytest.importorskip("soundfile")
pytest.importorskip("kaldi_native_fbank")

COUNT = 12


def make_cut(folder: Path, name: str, seconds: float, rate: int = 16000, text: str = "A CAT", channels: int = 1) -> Any:
    samples = 0.1 * np.random.default_rng(len(name) + round(1000 * seconds)).standard_normal(
        (round(rate * seconds), channels)
    )
    soundfile.write(str(folder / f"{name}.wav"), samples, rate)
    cut = lhotse.Recording.from_file(folder / f"{name}.wav").to_cut()
    segment = lhotse.SupervisionSegment(name, name, 0.0, cut.duration, text=text)
    return lhotse.utils.fastcopy(cut, id=name, supervisions=[segment])


@pytest.fixture
def cuts(tmp_path: Path) -> Any:
    return lhotse.CutSet.from_cuts([make_cut(tmp_path, f"u{index:02d}", 0.5 + 0.1 * index) for index in range(COUNT)])


def loader(cuts: Any, lines: list[str] | None = None, noise: Any = None, **options: Any) -> Loader:
    options = {"max_duration": 3.0, "buckets": 3, **options}
    return make_loader(cuts, LoaderOptions(**options), noise, say=(lines if lines is not None else []).append)


def ids(batches: Any) -> list[list[str]]:
    return [batch["ids"] for batch in batches]


def test_batches_hold_features_texts_and_ids(cuts: Any) -> None:
    batches = list(loader(cuts)(1))
    assert sorted(name for batch in batches for name in batch["ids"]) == [f"u{index:02d}" for index in range(COUNT)]
    for batch in batches:
        assert batch["features"].dtype == torch.float32 and batch["lengths"].dtype == torch.int64
        assert batch["features"].shape == (len(batch["ids"]), int(batch["lengths"].max()), 80)
        assert int(batch["lengths"].sum()) <= 300
        assert set(batch["texts"]) == {"A CAT"}
        for row, name in enumerate(batch["ids"]):
            length = int(batch["lengths"][row])
            samples = soundfile.read(cuts[name].recording.sources[0].source, dtype="float32")[0]
            assert np.array_equal(batch["features"][row, :length].numpy(), fbank(samples))
            assert (batch["features"][row, length:] < -23).all()


def test_order_depends_on_seed_and_epoch_alone(cuts: Any) -> None:
    first = ids(loader(cuts)(1))
    assert ids(loader(cuts)(1)) == first
    assert ids(loader(cuts)(2)) != first
    assert ids(loader(cuts, seed=1)(1)) != first
    assert ids(loader(cuts, shuffle=False)(1)) == ids(loader(cuts, shuffle=False)(2))
    orders = [[cut.id for cut in loader(cuts)._cuts.of(epoch)] for epoch in (1, 2)]  # lhotse sees a part at a time
    assert orders[0] != orders[1] != sorted(orders[0]) == sorted(orders[1])


def test_a_run_continues_in_mid_epoch_with_the_same_augmentation(cuts: Any) -> None:
    options = {"speeds": (0.9, 1.0, 1.1), "spec_augment": SpecAugment(), "noise_probability": 0.7}
    whole = list(loader(cuts, noise=cuts, **options)(3))
    rest = list(loader(cuts, noise=cuts, **options)(3, skip=2))
    assert len(whole) > 3 and ids(rest) == ids(whole[2:])
    for one, other in zip(whole[2:], rest, strict=True):
        assert torch.equal(one["features"], other["features"])
    workers = list(loader(cuts, noise=cuts, num_workers=1, **options)(3))
    assert all(torch.equal(one["features"], other["features"]) for one, other in zip(whole, workers, strict=True))


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_draws_nothing_from_the_random_numbers_of_training(cuts: Any, workers: int) -> None:
    """A run that goes on in mid-epoch starts the loader once more than one that was not stopped."""
    before = torch.get_rng_state()
    assert list(loader(cuts, num_workers=workers)(1, skip=2))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork by themselves")
def test_ctrl_c_leaves_the_processes_that_load_to_the_run(cuts: Any) -> None:
    """A terminal's goes to all processes; with another way of starting them, the default from Python 3.14 on."""
    whole, usual = ids(loader(cuts, max_duration=1.0)(1)), multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        with pytest.raises(KeyboardInterrupt), Stopping():
            batches = loader(cuts, num_workers=1, max_duration=1.0)(1)
            found = [next(batches)["ids"]]
            for process in (os.getpid(), *(child.pid for child in multiprocessing.active_children())):
                os.kill(process, signal.SIGINT)
            found += ids(batches)
            assert found == whole
    finally:
        multiprocessing.set_start_method(usual, force=True)


def test_ranks_share_an_epoch(cuts: Any) -> None:
    parts = [ids(loader(cuts, max_duration=1.5, rank=rank, world_size=2)(1)) for rank in (0, 1)]
    assert len(parts[0]) == len(parts[1])
    names = [name for part in parts for batch in part for name in batch]
    names = [name.split("_dup")[0] for name in names]  # lhotse fills a last batch up for a rank that has none left
    assert set(names) == {f"u{index:02d}" for index in range(COUNT)}


def test_the_first_rank_alone_tells_of_the_manifest(cuts: Any, tmp_path: Path) -> None:
    """Every rank reads it whole, but loads its own share alone: of that it tells itself."""
    odd = [
        make_cut(tmp_path, "short", 0.2),
        make_cut(tmp_path, "other", 1.0, rate=8000),
        make_cut(tmp_path, "gone", 1.0),
    ]
    (tmp_path / "gone.wav").unlink()
    said: list[list[str]] = [[], []]
    for rank in (0, 1):
        both = loader(lhotse.CutSet.from_cuts([*cuts, *odd]), said[rank], rank=rank, world_size=2)
        list(both(1))
        assert both.left_out.counts()["too short"] == 1
    assert sum("cut other has 8000 Hz" in line for line in said[0]) == sum("too short" in line for line in said[0]) == 1
    assert not any("short" in line or "8000" in line for line in said[1])
    assert sum("cut gone left out" in line for line in [*said[0], *said[1]]) == 1


def test_speeds_change_lengths(cuts: Any) -> None:
    found = {}
    for speed in (0.9, 1.1):
        for batch in loader(cuts, speeds=(speed,))(1):
            found |= {(name, speed): len(part) for name, part in rows(batch)}
    for (name, speed), length in found.items():
        assert length == pytest.approx(100 * cuts[name].duration / speed, abs=1)
    drawn = {name: len(part) for batch in loader(cuts, speeds=(0.9, 1.1))(1) for name, part in rows(batch)}
    assert all(length in (found[name, 0.9], found[name, 1.1]) for name, length in drawn.items())
    assert len({found[name, 0.9] == length for name, length in drawn.items()}) == 2


def test_a_cut_that_cannot_be_loaded_is_counted_once_whatever_its_speeds(cuts: Any) -> None:
    Path(cuts["u03"].recording.sources[0].source).unlink()
    lines: list[str] = []
    made = loader(cuts, lines, speeds=(0.9, 1.0, 1.1))
    for epoch in range(1, 6):
        list(made(epoch))
    assert made.left_out.summary() == "1 x cannot be loaded" and len(lines) == 1


def test_speeds_of_cuts_with_stored_features(cuts: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """lhotse warns of each such cut, and takes the features from the cut that it is given."""
    extractor = lhotse.Fbank(lhotse.FbankConfig(num_mel_bins=80))
    with lhotse.NumpyFilesWriter(tmp_path / "features") as storage:
        stored = [cut.compute_and_store_features(extractor, storage) for cut in list(cuts)[:3]]
    stored.append(stored[0].append(stored[1]))
    batches = list(loader(lhotse.CutSet.from_cuts(stored), speeds=(0.9, 1.1))(1))
    assert sum(len(batch["ids"]) for batch in batches) == 4
    assert not caplog.records
    assert all(cut.has_features for cut in stored)


def test_speeds_of_rates_with_little_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by lhotse's filter from 9,922 to 11,025 Hz, which takes 4 GB and minutes, nor by that of 44,101 Hz."""
    made, rates = lhotse.augmentation.torchaudio.get_or_create_resampler, list[tuple[int, int]]()

    def resampler(source: int, target: int) -> Any:
        rates.append((source, target))
        assert source * target <= 1e6 * math.gcd(source, target) ** 2
        return made(source, target)

    monkeypatch.setattr(lhotse.augmentation.torchaudio, "get_or_create_resampler", resampler)
    cuts = [make_cut(tmp_path, f"r{rate}", 1.0, rate) for rate in (11025, 44101, 22050)]
    lines: list[str] = []
    (batch,) = loader(lhotse.CutSet.from_cuts(cuts), lines, speeds=(0.9,), max_duration=10)(1)
    assert sorted(zip(batch["ids"], batch["lengths"].tolist(), strict=True)) == [
        ("r11025", 111),
        ("r22050", 111),
    ]
    assert any("r44101 left out" in line and "44101 Hz cannot be made 16000 Hz" in line for line in lines)
    assert {(14400, 16000), (19845, 22050)} <= set(rates)


def test_noise_comes_at_its_level() -> None:
    samples = np.sin(np.arange(16000, dtype=np.float32))
    noise = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    added = add_noise(samples, noise, 7.0) - samples
    assert 10 * np.log10(np.mean(samples**2) / np.mean(added**2)) == pytest.approx(7.0, abs=0.01)
    assert np.corrcoef(added[:5000], added[5000:10000])[0, 1] == pytest.approx(1.0, abs=1e-4)
    assert np.array_equal(add_noise(samples, np.zeros(10, np.float32), 7.0), samples)


def test_noise_is_of_a_random_place(tmp_path: Path) -> None:
    cut = make_cut(tmp_path, "noise", 5.0)
    parts = [loading._part(cut, 1.0, random.Random(seed)) for seed in range(40)]
    assert all(part.duration == 1.0 and 0.0 <= part.start <= 4.0 for part in parts)
    assert min(part.start for part in parts) < 1.0 and max(part.start for part in parts) > 3.0
    assert loading._part(cut, 5.0, random.Random(0)) is cut


def test_spec_augment_masks_and_keeps_the_shape() -> None:
    features = np.random.default_rng(0).standard_normal((400, 80)).astype(np.float32)
    kept = features.copy()
    augment = SpecAugment(warp=0, probability=1.0)
    masked = []
    for seed in range(20):
        made = augment(features, random.Random(seed))
        assert made.shape == features.shape and np.array_equal(features, kept)
        changed = made != kept
        assert (made[changed] == kept.mean()).all()
        masked.append((changed.all(1).sum(), changed.all(0).sum()))
        assert np.array_equal(made, augment(features, random.Random(seed)))
    frames, bins = np.array(masked).T
    assert frames.max() <= 0.15 * 400 and frames.mean() > 10 and 10 < bins.mean() <= 54
    assert np.array_equal(SpecAugment(probability=0.0)(features, random.Random(1)), kept)


@pytest.mark.parametrize(("frames", "masks"), [(400, 1), (700, 2), (1300, 2), (1400, 3), (9000, 10)])
def test_as_many_masks_over_frames_as_lhotse(frames: int, masks: int) -> None:
    """`ceil` of the part that may be covered over the size of a mask, in lhotse's `SpecAugment._forward_single`."""
    bounds = []

    class Recorded(random.Random):
        def randint(self, a: int, b: int) -> int:
            bounds.append(b)
            return super().randint(a, b)

    SpecAugment(warp=0, bin_masks=0, probability=1.0)(np.ones((frames, 80), dtype=np.float32), Recorded(0))
    assert bounds[::2] == [min(100, int(0.15 * frames / masks))] * masks  # sizes; in between are the places


def test_no_mask_over_frames_where_no_part_may_be_covered() -> None:
    features = np.random.default_rng(0).standard_normal((400, 80)).astype(np.float32)
    augment = SpecAugment(warp=0, bin_masks=0, frame_fraction=0.0, probability=1.0)
    assert np.array_equal(augment(features, random.Random(0)), features)


def test_time_warping_moves_frames_by_less_than_its_bound() -> None:
    ramp = np.repeat(np.arange(400, dtype=np.float32)[:, None], 80, axis=1)
    made = SpecAugment(warp=30, bin_masks=0, frame_masks=1, frame_mask_size=1, frame_fraction=1e-9, probability=1.0)
    warped = made(ramp, random.Random(3))[:, 0]
    assert warped[0] == 0 and warped[-1] == pytest.approx(399, abs=0.01)
    assert (np.diff(warped) > 0).all() and 0 < np.abs(warped - ramp[:, 0]).max() < 30


def test_stored_features(cuts: Any, tmp_path: Path) -> None:
    extractor = lhotse.Fbank(lhotse.FbankConfig(num_mel_bins=80))
    with lhotse.NumpyFilesWriter(tmp_path / "features") as storage:
        stored = lhotse.CutSet.from_cuts([cut.compute_and_store_features(extractor, storage) for cut in cuts])
    computed = {name: part for batch in loader(cuts)(1) for name, part in rows(batch)}
    for batch in loader(stored, stored=True)(1):
        for name, part in rows(batch):
            assert torch.allclose(part, computed[name], atol=2e-3)
    unknown = lhotse.utils.fastcopy(stored[0], features=lhotse.utils.fastcopy(stored[0].features, storage_type="own"))
    made = loader(lhotse.CutSet.from_cuts([unknown, stored[1]]), stored=True)
    assert [name for batch in made(1) for name in batch["ids"]] == [stored[1].id]
    assert made.left_out.counts() == {"cannot be loaded": 1}
    with pytest.raises(DataError, match="stored features can be neither sped up nor mixed with noise"):
        loader(stored, stored=True, speeds=(0.9, 1.0))
    with pytest.raises(DataError, match=r"no cut is left to load: 12 x no stored features"):
        loader(cuts, stored=True)


def rows(batch: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    lengths = batch["lengths"].tolist()
    return [(name, batch["features"][row, : lengths[row]]) for row, name in enumerate(batch["ids"])]


def test_shar_and_lazy_manifests(cuts: Any, tmp_path: Path) -> None:
    (tmp_path / "shar").mkdir()
    cuts.to_shar(tmp_path / "shar", fields={"recording": "flac"}, shard_size=5)
    cuts.to_file(tmp_path / "cuts.jsonl.gz")
    for lazy in (
        lhotse.CutSet.from_shar(in_dir=tmp_path / "shar"),
        lhotse.CutSet.from_jsonl_lazy(tmp_path / "cuts.jsonl.gz"),
    ):
        batches = list(loader(lazy, speeds=(0.9, 1.0))(1))
        assert sum(len(batch["ids"]) for batch in batches) == COUNT
        assert ids(loader(lazy)(1)) != ids(loader(lazy)(2))  # by the draws of lhotse's sampler alone
    for other in ("shar", "cuts.jsonl.gz"):
        with pytest.raises(DataError, match=r"shar: Shar is read in its order, and alone, found 2 manifests; make one"):
            load_cuts(tmp_path / "shar", tmp_path / other)
    with pytest.raises(FormatError, match=r"cut 'u00' is in other files of lhotse's Shar; give its folder, .*shar$"):
        load_cuts(tmp_path / "shar" / "cuts.000000.jsonl.gz")


def test_other_rates_are_resampled_and_channels_averaged(tmp_path: Path) -> None:
    lines: list[str] = []
    made = [make_cut(tmp_path, "slow", 1.0, rate=8000), make_cut(tmp_path, "slow2", 1.0, rate=8000)]
    made += [make_cut(tmp_path, "fast", 1.0, rate=44100)]
    (batch,) = loader(lhotse.CutSet.from_cuts(made), lines, buckets=1, shuffle=False)(1)
    assert batch["lengths"].tolist() == [100, 100, 100]
    assert lines == ["cut slow has 8000 Hz: such cuts are resampled to 16000 Hz"]
    loader(lhotse.CutSet.from_cuts(store_fbank([made[0]], tmp_path, "slow", "numpy")), lines, stored=True)
    assert len(lines) == 1  # stored features are taken as they are


def test_bad_cuts_are_named_and_do_not_end_a_run(tmp_path: Path) -> None:
    good = [make_cut(tmp_path, f"g{index}", 1.0 + 0.1 * index) for index in range(3)]
    missing, broken = make_cut(tmp_path, "missing", 1.0), make_cut(tmp_path, "broken", 1.0)
    short, hour = make_cut(tmp_path, "short", 0.05), make_cut(tmp_path, "hour", 1.0)
    (tmp_path / "missing.wav").unlink()
    (tmp_path / "broken.wav").write_bytes(b"RIFF no audio at all")
    hour.recording.duration = hour.duration = 3600.0
    lines: list[str] = []
    made = loader(lhotse.CutSet.from_cuts([*good, missing, broken, short, hour]), lines)
    for epoch in (1, 2):
        batches = list(made(epoch))
        assert sorted(name for batch in batches for name in batch["ids"]) == ["g0", "g1", "g2"]
    assert made.left_out.counts() == {"too short": 1, "too long": 1, "cannot be loaded": 2}
    text = "\n".join(lines)
    assert "cut short left out: too short (0.050 s, expected 0.3 s or more)" in text
    assert "cut hour left out: too long (3600.0 s, expected 30.0 s or less)" in text
    assert "cut missing left out: cannot be loaded" in text and len(lines) == 4


def test_parts_of_what_a_supervision_says_are_no_training_data(tmp_path: Path) -> None:
    """Windows keep the whole text: icefall's dataset refuses such cuts (lhotse's `validate_for_asr`)."""
    whole = make_cut(tmp_path, "whole", 3.0, text="THE CAT SAT ON THE MAT")
    first, second = lhotse.CutSet.from_cuts([whole]).cut_into_windows(2.0)
    rounded = make_cut(tmp_path, "rounded", 1.0)
    rounded.supervisions[0].duration += 0.05
    silent = make_cut(tmp_path, "silent", 1.0, text="")
    silent.supervisions[0].duration = 9.0
    cuts = lhotse.CutSet.from_cuts([whole, first, second, rounded, silent])
    lines: list[str] = []
    made = loader(cuts, lines, whole_texts=True)
    assert sorted(name for batch in made(1) for name in batch["ids"]) == ["rounded", "silent", "whole"]
    assert made.left_out.counts() == {"words beyond its audio": 2}
    assert any("supervision whole from 0.00 to 3.00 s of 2.00 s; make a cut of each" in line for line in lines)
    assert len([name for batch in loader(cuts)(1) for name in batch["ids"]]) == 5


def test_one_cut_of_many_supervisions_is_told_apart(tmp_path: Path) -> None:
    cut = make_cut(tmp_path, "talk", 3.0)
    cut.supervisions.append(lhotse.SupervisionSegment("more", "talk", 1.0, 1.0, text="A HAT"))
    with pytest.raises(DataError, match="too long"):
        loader(lhotse.CutSet.from_cuts([cut]), lines := [], max_seconds=2.0)
    assert "expected 2.0 s or less; make a cut of each supervision: lhotse cut trim-to-supervisions" in lines[0]


def test_cuts_without_audio_have_none_to_load(cuts: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent = store_fbank([cuts[0]], tmp_path, "first", "numpy")[0].drop_recording()
    with pytest.raises(DataError, match="no audio: its manifest names no recording"):
        load_samples(silent)
    assert [cut.id for cut in store_fbank([silent, cuts[1]], tmp_path, "again", "numpy")] == [cuts[1].id]
    assert "1 utterances left out, audio cannot be loaded (u00)" in capsys.readouterr().err
    lines: list[str] = []
    with pytest.raises(DataError, match="no cut is left to load: 1 x no audio"):
        loader(lhotse.CutSet.from_cuts([silent]), lines)
    assert lines[0].endswith("but stored features, which asr train takes with --on-the-fly-feats false)")


def test_a_batch_of_bad_cuts_alone_is_empty(tmp_path: Path) -> None:
    cut = make_cut(tmp_path, "only", 1.0)
    (tmp_path / "only.wav").unlink()
    (batch,) = loader(lhotse.CutSet.from_cuts([cut]), [])(1)
    assert batch["ids"] == [] and batch["features"].shape == (0, 0, 80) and len(batch["lengths"]) == 0


def test_silence_is_loaded_and_no_number_is_not(tmp_path: Path) -> None:
    silent, wrong = make_cut(tmp_path, "silent", 1.0), make_cut(tmp_path, "wrong", 1.0)
    soundfile.write(str(tmp_path / "silent.wav"), np.zeros(16000), 16000)
    soundfile.write(str(tmp_path / "wrong.wav"), np.full(16000, np.nan, dtype=np.float32), 16000, subtype="FLOAT")
    made = loader(lhotse.CutSet.from_cuts([silent, wrong]), [])
    assert [name for batch in made(1) for name in batch["ids"]] == ["silent"]
    assert made.left_out.counts() == {"cannot be loaded": 1}


def test_sph_files_without_sph2pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = make_cut(tmp_path, "a", 1.0)
    path = tmp_path / "a.sph"
    soundfile.write(str(path), np.zeros(16000), 16000, format="NIST", subtype="PCM_16")
    cut.recording.sources[0].source = str(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    lines: list[str] = []
    list(loader(lhotse.CutSet.from_cuts([cut]), lines)(1))
    assert lines[0].startswith(f"cut a left out: cannot be loaded ({path}: lhotse needs sph2pipe to read it")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_package_that_lhotse_lacks_is_named(cuts: Any, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """Without torchaudio, lhotse wants scipy for cuts with `resample(16000)`, and tells so in many lines."""

    def fail(cut: Any) -> None:
        raise ModuleNotFoundError("No module named 'scipy'\n[extra info] When calling: MonoCut.load_audio(...)")

    monkeypatch.setattr(lhotse.MonoCut, "load_audio", fail)
    with pytest.raises(ConfigError, match=r"^cut u\d\d: lhotse needs another .* \(No module named 'scipy'\); install"):
        list(loader(cuts, num_workers=workers)(1))


def test_manifests_that_say_resample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of `cuts.resample(16000)`: the extra `asr` has scipy, by which lhotse does it without torchaudio."""
    pytest.importorskip("scipy")
    monkeypatch.setattr("lhotse.augmentation.torchaudio.is_torchaudio_available", lambda: False)
    cut = make_cut(tmp_path, "a", 1.0, rate=8000)
    (batch,) = loader(lhotse.CutSet.from_cuts([cut.resample(16000)]), buckets=1)(1)
    assert batch["ids"] == ["a"] and batch["lengths"].tolist() == [100]


def test_the_first_ten_of_a_reason_are_named_once() -> None:
    said: list[str] = []
    first = FirstOfReason(said.append)
    for name in [f"u{index // 2}" for index in range(24)]:
        first.tell(name, "no words", name)
    assert said == [*(f"u{index}" for index in range(9)), "u9; further ones (no words) are counted only"]


def test_nothing_to_load(cuts: Any) -> None:
    with pytest.raises(DataError, match="no cut is left to load: the manifest is empty"):
        loader(lhotse.CutSet.from_cuts([]))
    with pytest.raises(DataError, match="the noise has no cuts"):
        loader(cuts, noise=lhotse.CutSet.from_cuts([]))
