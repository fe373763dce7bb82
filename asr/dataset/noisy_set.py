"""A set of utterances under noise, as FLAC files and lhotse manifests.

    OUT/audio/SET/UTT.flac ...
    OUT/PREFIX_{cuts,recordings,supervisions}_SET.jsonl.gz, OUT/PREFIX_text_SET

What an utterance gets depends on the seed, its id, and for babble on the ids and speakers of the others.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from asr.dataset.augment import add_noise, babble, seeded, white_noise
from asr.dataset.features import SAMPLE_RATE
from asr.dataset.flac import read_origin, save_flac
from asr.dataset.loader import cut_text, load_errors, load_samples, load_trouble
from asr.dataset.manifests import (
    Missing,
    check_ids,
    kind_and_part,
    load_cuts,
    make_cut,
    read_recording,
    recordings_of,
    save_cuts,
)
from asr.errors import DataError
from rescore.console import progress
from rescore.file_names import file_name
from rescore.files import make_folder

if TYPE_CHECKING:
    from lhotse.cut import MonoCut

WHITE, BABBLE = "white", "babble"
UNUSABLE = "their audio, or that of their babble, cannot be used"


@dataclass(frozen=True)
class NoiseOptions:
    """
    Attributes:
      kind:   `white`, or `babble` of other utterances of the set.
      snr_db: ratio of the powers of speech and noise, each over the whole utterance.
      voices: utterances of other speakers in the babble.
    """

    kind: str
    snr_db: float
    seed: int = 0
    voices: int = 8

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.snr_db:g}dB"


def add_noise_to_set(path: Path, out: Path, options: NoiseOptions, allow_pipes: bool = False) -> Path:
    """Writes the set under noise; a stopped run goes on where it was.  Returns the path of its cuts.

    An utterance is made anew if its audio, or that of its babble, is another than before.

    Args:
      allow_pipes: run the commands that the manifest names.

    Raises:
      DataError: two cuts of one id, too few speakers for babble, or no utterance can be loaded.
    """
    cuts: list[MonoCut] = list(load_cuts(path, allow_pipes=allow_pipes))
    check_ids(path, (cut.id for cut in cuts))
    prefix, part = kind_and_part(path)
    name = f"{part}-{options.name}"
    folder = make_folder(out / "audio" / name)
    voices = _Voices(cuts, options)
    chosen = {cut.id: voices(place) for place, cut in enumerate(cuts)}
    load = lru_cache(maxsize=200)(lambda place: _samples(cuts[place]))
    missing, made = Missing(), []
    for place, cut in enumerate(progress(cuts, name, len(cuts))):
        file = folder / f"{file_name(cut.id)}.flac"
        origin = f"{cut.id} {options} {_origin([cut, *(cuts[voice] for voice in chosen[cut.id])])}"
        if read_origin(file) != origin:
            try:
                speech, babblers = load(place), [load(voice) for voice in chosen[cut.id]]
            except DataError as error:
                missing.add(UNUSABLE, cut.id, str(error))
                continue
            noise = _noise(len(speech), babblers, cut.id, options)
            save_flac(file, _within_range(add_noise(speech, noise, options.snr_db)), SAMPLE_RATE, origin)
        made.append(_cut_of(file, cut))
    missing.tell(path)
    if not made:
        raise DataError(f"{path}: no utterance has audio that can be loaded")
    return save_cuts(out, prefix, name, made)


def _samples(cut: MonoCut) -> np.ndarray:
    """As `load_samples`; a DataError, which names the cut, where they cannot be loaded or are no numbers."""
    try:
        samples = load_samples(cut)
    except load_errors() as error:
        raise DataError(f"audio of {cut.id} cannot be loaded: {load_trouble(cut, error)}") from None
    if not np.isfinite(samples).all():
        raise DataError(f"audio of {cut.id} has a sample that is NaN or infinite")
    return samples


def _origin(cuts: list[MonoCut]) -> str:
    """What the audio of cuts depends on: all of them but their texts, and size and time of their files."""
    digest = hashlib.blake2b(digest_size=8)
    for cut in cuts:
        digest.update(repr(cut.drop_supervisions().to_dict()).encode())
        for source in (source for recording in recordings_of(cut) for source in recording.sources):
            if source.type == "file" and os.path.isfile(source.source):
                digest.update(f" {os.stat(source.source).st_size} {os.stat(source.source).st_mtime_ns}".encode())
    return digest.hexdigest()


class _Voices:
    """Whose voices are the babble of each cut: those of other speakers, drawn by its id."""

    def __init__(self, cuts: list[MonoCut], options: NoiseOptions) -> None:
        self.cuts, self.options = cuts, options
        self.places: dict[str, list[int]] = {}  # of a speaker's cuts
        for place, cut in enumerate(cuts):
            self.places.setdefault(_speaker(cut), []).append(place)

    def __call__(self, place: int) -> list[int]:
        """The places of the cuts that are the babble of the cut at `place`."""
        options, cut = self.options, self.cuts[place]
        if options.kind != BABBLE:
            return []
        own = self.places[_speaker(cut)]
        others = len(self.cuts) - len(own)
        if others < options.voices:
            raise DataError(f"{others} utterances of others than the speaker of {cut.id}, expected {options.voices}")
        drawn = Random(f"{options.seed} {BABBLE} {cut.id}").sample(range(others), options.voices)
        return [_not_among(own, number) for number in drawn]


def _not_among(places: Sequence[int], number: int) -> int:
    """The `number`-th place, from 0, of those that are not among `places`, which ascend."""
    return number + bisect_right(range(len(places)), number, key=lambda index: places[index] - index)


def _speaker(cut: MonoCut) -> str:
    """The speaker; each cut that names none counts as one of its own."""
    names = [segment.speaker for segment in cut.supervisions if segment.speaker]
    return names[0] if names else cut.id


def _noise(size: int, voices: list[np.ndarray], utt_id: str, options: NoiseOptions) -> np.ndarray:
    draw = seeded(options.seed, options.kind, utt_id)
    return white_noise(size, draw) if options.kind == WHITE else babble(size, voices, draw)


def _within_range(samples: np.ndarray) -> np.ndarray:
    """Samples at most 1 in size; all are scaled where one is larger, so that none is clipped."""
    peak = float(np.abs(samples).max(initial=0.0))
    return samples if peak <= 1.0 else samples / np.float32(peak)


def _cut_of(file: Path, cut: MonoCut) -> MonoCut:
    recording = read_recording(file, cut.id)
    assert recording is not None
    return make_cut(recording, cut.id, cut_text(cut), None if _speaker(cut) == cut.id else _speaker(cut))
