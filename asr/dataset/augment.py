"""Augmentation of features and samples: SpecAugment (Park et al., 2019) and noise at a signal-to-noise ratio."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from asr.dataset.features import SAMPLE_RATE, can_resample

if TYPE_CHECKING:
    from lhotse.cut import Cut


@dataclass(frozen=True)
class SpecAugment:
    """Time warping, then masks over bins and over frames; the defaults are those of icefall's recipes.

    Attributes:
      warp:         greatest move of a frame by time warping; 0: none.
      bin_masks, bin_mask_size: number of masks over bins, and the greatest size of one.
      frame_masks, frame_mask_size: greatest number and size of masks over frames.
      frame_fraction: all masks over frames together cover at most about this part of an utterance.
      probability:  of doing anything to an utterance.
    """

    warp: int = 80
    bin_masks: int = 2
    bin_mask_size: int = 27
    frame_masks: int = 10
    frame_mask_size: int = 100
    frame_fraction: float = 0.15
    probability: float = 0.9

    def __call__(self, features: np.ndarray, draw: Random) -> np.ndarray:
        """Features (T, F) augmented; masks hold the mean of the utterance."""
        if not len(features) or draw.random() > self.probability:
            return features
        features = self._warp(features, draw)
        mean = features.mean()
        frames, bins = features.shape
        for _ in range(self.bin_masks):
            size = draw.randint(0, min(self.bin_mask_size, bins))
            start = draw.randint(0, bins - size)
            features[:, start : start + size] = mean
        covered = self.frame_fraction * frames
        masks = min(self.frame_masks, math.ceil(covered / self.frame_mask_size))  # as many as lhotse
        longest = min(self.frame_mask_size, int(covered / masks)) if masks else 0
        for _ in range(masks):
            size = draw.randint(0, longest)
            start = draw.randint(0, frames - size)
            features[start : start + size] = mean
        return features

    def _warp(self, features: np.ndarray, draw: Random) -> np.ndarray:
        """A copy, the part before a random frame stretched to another random length, the rest to what remains."""
        frames = len(features)
        if not self.warp or frames <= 2 * self.warp + 1:
            return features.copy()
        centre = draw.randint(self.warp + 1, frames - self.warp - 1)
        moved = draw.randint(centre - self.warp + 1, centre + self.warp - 1)
        places = np.interp(np.arange(frames), [0, moved, frames - 1], [0, centre, frames - 1])
        before = np.minimum(places.astype(int), frames - 2)
        weight = (places - before).astype(np.float32)[:, None]
        return features[before] * (1 - weight) + features[before + 1] * weight


def at_speed(cut: Cut, speed: float, rename: bool = True) -> Cut:
    """The cut at another speed, such as 0.9; `rename`: as `ID_sp0.9`.

    Of rates that are no multiple of ten (11,025 Hz), lhotse's filter between the speeds would take 4 GB and minutes:
    such cuts are at 16 kHz first, or stay as they are where that cannot be.  Stored features go with the old speed.
    """
    if speed == 1.0:
        return cut
    if cut.has_features:  # lhotse would warn of each cut, and take them from the cut that it was given
        cut = cut.drop_features()
    if int(cut.sampling_rate) % 10:
        if not can_resample(int(cut.sampling_rate)):
            return cut
        cut = cut.resample(SAMPLE_RATE)
    return cut.perturb_speed(speed, affix_id=rename)


def add_noise(samples: np.ndarray, noise: np.ndarray, snr_db: float) -> np.ndarray:
    """Samples (N,) under noise (M,), which is cut to N, or repeated where it is shorter.

    Powers are means over the whole of each, as in lhotse's mixing; silence stays as it is.
    """
    part = np.resize(noise, len(samples)) if len(noise) else np.zeros_like(samples)
    power, noise_power = np.mean(samples**2), np.mean(part**2)
    if power == 0 or noise_power == 0:
        return samples
    return samples + np.float32(np.sqrt(power / noise_power / 10 ** (snr_db / 10))) * part


def white_noise(size: int, draw: np.random.RandomState) -> np.ndarray:
    """Gaussian samples float32 `(size,)`."""
    return draw.standard_normal(size).astype(np.float32)


def babble(size: int, voices: Sequence[np.ndarray], draw: np.random.RandomState) -> np.ndarray:
    """Several recordings at once, all equally loud: float32 `(size,)`.

    Args:
      voices: samples of each; it begins at a random place, and begins anew where it ends.
    """
    total = np.zeros(size, dtype=np.float32)
    for voice in voices:
        power = np.mean(voice**2) if len(voice) else 0.0
        if power > 0:
            total += np.resize(np.roll(voice, -draw.randint(len(voice))), size) / np.float32(np.sqrt(power))
    return total


def seeded(*words: object) -> np.random.RandomState:
    """Random numbers that depend on the words alone, whatever the version of numpy."""
    digest = hashlib.sha256(" ".join(map(str, words)).encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, dtype="<u4"))
