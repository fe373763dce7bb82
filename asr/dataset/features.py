"""The 80-bin log-mel filterbank, of whole utterances or frame by frame, with kaldi-native-fbank.

Samples are floats in [-1, 1] at 16 kHz, as in lhotse (Kaldi's own features are of samples 32768 times as large).
Frames are 25 ms, every 10 ms; `snip_edges=False`, no dither, `high_freq=-400`: lhotse's `Fbank`, to 2e-4 (rounding in
the quietest bins).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from asr.errors import DataError

SAMPLE_RATE = 16000
BINS = 80
SHIFT = 160  # samples between frames
COPIED = 1 << 22  # samples of windows at once, 16 MB
NARROW_BAND = f"a model that was trained on {SAMPLE_RATE} or more gets more words wrong"  # where there are fewer
LARGEST = 1 << 20  # numbers of the filters between two rates, of 40 bytes; those of 11.025 and 16 kHz have 303,000


class OnlineFbank:
    """Filterbank of samples that come in pieces; all pieces together give `fbank` of all samples."""

    def __init__(self) -> None:
        import kaldi_native_fbank

        self._computer = kaldi_native_fbank.OnlineFbank(_options())
        self._given = 0

    def accept(self, samples: np.ndarray) -> np.ndarray:
        """The frames (T, 80) float32 that samples (N,) complete; the last two are held back, waiting for their ends."""
        self._computer.accept_waveform(SAMPLE_RATE, np.ascontiguousarray(samples, dtype=np.float32))
        return self._new_frames()

    def finish(self) -> np.ndarray:
        """The frames (T, 80) that remain when no more samples come."""
        self._computer.input_finished()
        return self._new_frames()

    def _new_frames(self) -> np.ndarray:
        ready = self._computer.num_frames_ready
        frames = np.zeros((ready - self._given, BINS), dtype=np.float32)
        for row in range(len(frames)):
            frames[row] = self._computer.get_frame(self._given + row)
        self._computer.pop(len(frames))
        self._given = ready
        return frames


def fbank(samples: np.ndarray) -> np.ndarray:
    """Filterbank (T, 80) float32 of samples (N,); T = (N + 80) // 160, none for less than half a shift.

    Raises:
      DataError: a sample is NaN or infinite (which kaldi-native-fbank has an error of its own for, or none).
    """
    wrong = int((~np.isfinite(samples)).sum())
    if wrong:
        raise DataError(f"{wrong} of {len(samples)} samples are NaN or infinite; look at its audio")
    if len(samples) < SHIFT // 2:
        return np.zeros((0, BINS), dtype=np.float32)
    online = OnlineFbank()
    return np.concatenate([online.accept(samples), online.finish()])


def _options() -> Any:
    import kaldi_native_fbank

    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = SAMPLE_RATE
    options.frame_opts.dither = 0.0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = BINS
    options.mel_opts.high_freq = -400.0
    return options


def resample(samples: np.ndarray, source: int, target: int = SAMPLE_RATE, zeros: int = 16) -> np.ndarray:
    """Samples (N,) at another rate: interpolation by a sinc under a Hann window of `zeros` zero crossings either side.

    The sinc cuts at 0.97 of the lower rate's Nyquist frequency.  N becomes ceil(N * target / source).

    Raises:
      DataError: rates that have so little in common (16,000 and 44,101) that their filters would take all memory.
    """
    # scipy's resample_poly gives the same to rounding, as a test says, in 2 to 5 times the time from 22 or 44 kHz
    step, phases = _between(source, target)
    if step == phases:
        return samples
    if not can_resample(source, target, zeros):
        raise DataError(f"{source} Hz cannot be made {target} Hz in little memory; convert it to 16000 or 48000 Hz")
    taps, width = _sinc_filters(step, phases, zeros)
    length = -(-len(samples) * phases // step)
    blocks = -(-length // phases)
    padded = np.zeros(blocks * step + len(taps), dtype=np.float32)
    padded[width : width + len(samples)] = samples
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(taps))[::step][:blocks]
    made, some = np.empty((blocks, phases), dtype=np.float32), max(1, COPIED // len(taps))
    for begin in range(0, blocks, some):  # windows overlap: a copy of all would be some 35 times the audio
        made[begin : begin + some] = np.ascontiguousarray(windows[begin : begin + some]) @ taps
    return made.ravel()[:length]


def can_resample(source: int, target: int = SAMPLE_RATE, zeros: int = 16) -> bool:
    """Whether `resample` takes these rates."""
    step, phases = _between(source, target)
    return phases * (step + 2 * zeros * max(1, step // phases)) <= LARGEST


def _between(source: int, target: int) -> tuple[int, int]:
    """Samples of the source that as many of the target correspond to, without a common divisor."""
    common = math.gcd(source, target)
    return source // common, target // common


@functools.lru_cache
def _sinc_filters(step: int, phases: int, zeros: int) -> tuple[np.ndarray, int]:
    """Filters (taps, phases) that make `phases` samples of every `step`, and how far they begin before them."""
    cut = 0.97 * min(1.0, phases / step)
    width = math.ceil(zeros / cut)
    places = np.arange(-width, width + step)[:, None] - np.arange(phases)[None, :] * step / phases
    window = np.where(np.abs(places) <= zeros / cut, np.cos(np.pi * places * cut / zeros / 2) ** 2, 0.0)
    return (cut * np.sinc(cut * places) * window).astype(np.float32), width
