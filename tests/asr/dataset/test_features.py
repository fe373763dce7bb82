"""The filterbank: against lhotse's, whole against pieces; resampling."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from asr.dataset.features import OnlineFbank, fbank, resample
from asr.errors import DataError

pytest.importorskip("kaldi_native_fbank")


def speech(length: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    envelope = 0.05 * (1.5 + np.sin(np.arange(length) / 3000))
    return (envelope * generator.standard_normal(length)).astype(np.float32)


@pytest.mark.parametrize("length", [240, 400, 16000, 33333])
def test_equals_lhotse(length: int) -> None:
    lhotse = pytest.importorskip("lhotse")
    samples = speech(length)
    expected = lhotse.Fbank(lhotse.FbankConfig(num_mel_bins=80)).extract(samples, 16000)
    made = fbank(samples)
    assert made.dtype == np.float32 and made.shape == ((length + 80) // 160, 80)
    # Rounding in the quietest bins: 2.01e-4 on an Intel Xeon, less on an AMD EPYC.
    assert np.abs(made - expected).max() < 4e-4


@pytest.mark.parametrize("piece", [1, 37, 160, 1000, 4000])
def test_pieces_give_the_same_frames(piece: int) -> None:
    samples = speech(8000 if piece > 1 else 900)
    online = OnlineFbank()
    frames = [online.accept(samples[start : start + piece]) for start in range(0, len(samples), piece)]
    assert all(part.shape[1] == 80 for part in frames)
    made = np.concatenate([*frames, online.finish()])
    assert np.array_equal(made, fbank(samples))


def test_frames_come_as_soon_as_their_samples_are_there() -> None:
    online = OnlineFbank()
    assert len(online.accept(speech(16000))) >= 98


def test_too_short() -> None:
    assert fbank(speech(79)).shape == (0, 80)
    assert fbank(speech(0)).shape == (0, 80)


@pytest.mark.parametrize(("source", "target"), [(22050, 16000), (8000, 16000), (44100, 16000)])
def test_resampling_keeps_tones(source: int, target: int) -> None:
    for frequency, tolerance in ((440, 1e-4), (3000, 1e-3)):
        tone = np.sin(2 * np.pi * frequency * np.arange(source) / source).astype(np.float32)
        made = resample(tone, source, target)
        assert made.shape == (target,)
        expected = np.sin(2 * np.pi * frequency * np.arange(target) / target)
        assert np.abs(made - expected)[300:-300].max() < tolerance


@pytest.mark.parametrize(("source", "length"), [(22050, 5001), (44100, 5000), (8000, 3333), (48000, 4801), (11025, 3)])
def test_resampling_is_scipys_with_the_same_filter(source: int, length: int) -> None:
    resample_poly = pytest.importorskip("scipy.signal").resample_poly

    samples = speech(length)
    common = math.gcd(source, 16000)
    up, down = 16000 // common, source // common
    cut, zeros = 0.97 * min(1.0, up / down), 16
    reach = int(zeros / cut * up)
    places = np.arange(-reach, reach + 1) / up
    window = cut * np.sinc(cut * places) * np.cos(np.pi * places * cut / zeros / 2) ** 2
    expected = resample_poly(samples.astype(np.float64), up, down, window=window / up)
    np.testing.assert_allclose(resample(samples, source), expected, rtol=0, atol=5e-7)


def test_resampling_takes_away_aliases() -> None:
    tone = np.sin(2 * np.pi * 9000 * np.arange(22050) / 22050).astype(np.float32)
    assert np.abs(resample(tone, 22050))[300:-300].max() < 1e-3
    assert resample(tone, 16000) is tone


@pytest.mark.parametrize("rate", [44_101, 2_113_152, 8_388_736])
def test_rates_whose_filters_would_take_all_memory_are_refused(rate: int) -> None:
    """Damaged WAV headers took 100 to 400 MB; 44,101 Hz would have taken gigabytes."""
    with pytest.raises(DataError, match=f"{rate} Hz cannot be made 16000 Hz"):
        resample(np.zeros(10, dtype=np.float32), rate)
    for usual in (8000, 11_025, 22_050, 24_000, 37_800, 44_100, 48_000, 96_000, 192_000):
        assert len(resample(np.zeros(usual, dtype=np.float32), usual)) == 16_000


def test_resampling_takes_little_memory_whatever_the_length() -> None:
    """Ten minutes at 48 kHz took 4 GB: for each sample that is made, all those under its filter were copied."""
    samples = np.zeros(120 * 48_000, dtype=np.float32)
    tracemalloc.start()
    try:
        made = resample(samples, 48_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(made) == 120 * 16_000 and peak < 3 * samples.nbytes
