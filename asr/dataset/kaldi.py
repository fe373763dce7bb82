"""Cuts of Kaldi data folders: `wav.scp`, `segments`, `text`, `utt2spk`, `feats.scp`.

Audio files are read where they lie; archives (`raw.ark:123`) are read once and kept as FLAC, and so is the output of
pipes (`sph2pipe ... |`), which are run only where that is allowed.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asr.dataset.flac import read_origin, save_flac
from asr.dataset.kaldi_places import read_place
from asr.dataset.manifests import Missing, make_cut, own_name, read_recording, why_unread
from asr.dataset.pipes import ADVICE, is_command
from asr.dataset.stores import SHIFT_SECONDS, feature_store, with_features
from asr.errors import DataError
from lm_zoo.reading import kaldi_fields, key_and_rest
from rescore.console import progress
from rescore.errors import FormatError
from rescore.file_names import file_name
from rescore.files import read_kaldi_text, read_lines, require_folder

if TYPE_CHECKING:
    from lhotse import MonoCut, Recording

NO_AUDIO = "audio missing, unreadable or empty"
OVERSHOOT = 0.5  # seconds that a segment ends behind its recording from which on Kaldi's extract-segments rejects it


# Ours, not lhotse.kaldi.load_kaldi_data_dir: that ends at an utterance without text, and cuts audio to milliseconds.
def kaldi_cuts(folder: str | Path, out: Path, allow_pipes: bool = False) -> list[MonoCut]:
    """Cuts with audio of a data folder.

    Args:
      out: audio that comes from pipes and archives is written to `out/audio/NAME`.
      allow_pipes: run the commands in `wav.scp`.
    Raises:
      DataError:   no utterance is left.
      FormatError: `wav.scp` or another file is missing or malformed, or has a command that is not to be run.
    """
    folder, missing = require_folder(folder), Missing()
    texts, speakers = _texts(folder), _speakers(folder)
    recordings: dict[str, Recording | tuple[str, str]] = {}
    wavs = dict(read_scp(folder / "wav.scp", allow_pipes))
    cuts = []
    for utt_id, recording_id, start, end in progress(list(_segments(folder, wavs)), own_name(folder)):
        if recording_id not in wavs:
            missing.add("its recording is not in wav.scp", utt_id)
            continue
        if recording_id not in recordings:
            target = out / "audio" / own_name(folder) / f"{file_name(recording_id)}.flac"
            recordings[recording_id] = _recording(wavs[recording_id], recording_id, folder, target)
        recording = recordings[recording_id]
        if isinstance(recording, tuple):
            reason, detail = recording
            missing.add(reason, utt_id, detail)
        elif texts is not None and utt_id not in texts:
            missing.add("not in text", utt_id)
        elif start < 0 or start >= recording.duration or (end is not None and end <= start):  # Kaldi skips them too
            missing.add("its segment is empty, or begins before 0 or behind the recording's end", utt_id)
        elif end is not None and end - recording.duration >= OVERSHOOT:
            detail = f"at {end:g} s, the recording at {recording.duration:g} s"
            missing.add(f"its segment ends {OVERSHOOT} s or more behind the recording", utt_id, detail)
        else:
            text = texts[utt_id] if texts is not None else ""
            cuts.append(make_cut(recording, utt_id, text, speakers.get(utt_id), start, end))
    _add_texts_alone(texts, cuts, missing, "segments or wav.scp")
    missing.tell(folder)
    if not cuts:
        raise DataError(f"{folder}: no utterance with audio and text is left")
    return cuts


def kaldi_feature_cuts(
    folder: str | Path, out: Path, storage: str = "lilcom", allow_pipes: bool = False
) -> list[MonoCut]:
    """Cuts with the features of `feats.scp`, copied to `out/feats/NAME`; no audio.

    The values stay what they are: Kaldi's log energies are 20.79 (2 ln 32768) above those of `asr.dataset.features`.

    Raises:
      DataError: no utterance is left, or features that are no matrix.
      FormatError: `feats.scp` is missing or malformed, or has a command that is not to be run (`allow_pipes`).
    """
    from lhotse import MonoCut, SupervisionSegment

    from asr.dataset.loader import check_features

    folder, missing, cuts = require_folder(folder), Missing(), []
    texts, speakers = _texts(folder), _speakers(folder)
    with feature_store(out / "feats", own_name(folder), storage) as store:
        for utt_id, place in progress(list(read_scp(folder / "feats.scp", allow_pipes)), own_name(folder)):
            if texts is not None and utt_id not in texts:
                missing.add("not in text", utt_id)
                continue
            try:
                features = np.asarray(read_place(place), dtype=np.float32)
            except (DataError, ValueError, TypeError) as error:
                raise DataError(f"{folder / 'feats.scp'}: {utt_id}: cannot be read from {place} ({error})") from None
            try:
                check_features(features)
            except DataError as error:
                missing.add(re.sub(r"^\d+ of \d+ ", "", str(error)), utt_id)
                continue
            duration = len(features) * SHIFT_SECONDS
            text = texts[utt_id] if texts is not None else ""
            segment = SupervisionSegment(utt_id, utt_id, 0.0, duration, 0, text, speaker=speakers.get(utt_id))
            cuts.append(with_features(MonoCut(utt_id, 0.0, duration, 0, [segment]), features, store))
    _add_texts_alone(texts, cuts, missing, "feats.scp")
    missing.tell(folder)
    if not cuts:
        raise DataError(f"{folder}: no utterance with features and text is left")
    return cuts


def _add_texts_alone(texts: dict[str, str] | None, cuts: list[MonoCut], missing: Missing, where: str) -> None:
    """Adds the utterances of `text` that are nowhere else."""
    known = {cut.id for cut in cuts}.union(*missing.ids.values())
    for utt_id in sorted((texts or {}).keys() - known):
        missing.add(f"in text, but not in {where}", utt_id)


def read_scp(path: Path, allow_pipes: bool = False) -> Iterator[tuple[str, str]]:
    """`(key, rest of the line)` of a Kaldi script file.

    Raises:
      FormatError: a line without place, a key that occurs twice, or a command, unless `allow_pipes`.
    """
    seen: set[str] = set()
    for number, line in read_lines(path):
        key, place = key_and_rest(line)
        if not place:
            raise FormatError(path, f"found '{line}', expected 'key file' or 'key command |'", line=number)
        if is_command(place) and not allow_pipes:
            raise FormatError(path, f"'{key}' is the output of a command ('{place[:80]}'), {ADVICE}", number)
        if key in seen:
            raise FormatError(path, f"'{key}' occurs a second time, expected each key once", line=number)
        seen.add(key)
        yield key, place


def _texts(folder: Path) -> dict[str, str] | None:
    path = folder / "text"
    return {utt: " ".join(words) for utt, words in read_kaldi_text(path).items()} if path.exists() else None


def _speakers(folder: Path) -> dict[str, str]:
    path = folder / "utt2spk"
    return {utt: " ".join(names) for utt, names in read_kaldi_text(path).items()} if path.exists() else {}


def _segments(folder: Path, wavs: dict[str, str]) -> Iterator[tuple[str, str, float, float | None]]:
    """`(utterance, recording, start, end)` in seconds; end None (or -1 in the file): that of the recording.

    Raises:
      FormatError: a line of another form, a time that is no finite number, or an utterance that occurs twice.
    """
    path = folder / "segments"
    if not path.exists():
        yield from ((name, name, 0.0, None) for name in wavs)
        return
    seen: set[str] = set()
    for number, line in read_lines(path):
        try:
            utt_id, recording_id, start, end = kaldi_fields(line)
            limits = float(start), float(end)
            if not all(map(math.isfinite, limits)):
                raise ValueError
        except ValueError:
            text = f"found '{line}', expected 'utterance recording start end', both times in seconds"
            raise FormatError(path, text, line=number) from None
        if utt_id in seen:
            raise FormatError(path, f"utterance '{utt_id}' occurs a second time, expected each once", line=number)
        seen.add(utt_id)
        yield utt_id, recording_id, limits[0], None if limits[1] == -1 else limits[1]


def _recording(place: str, recording_id: str, folder: Path, target: Path) -> Recording | tuple[str, str]:
    """A file as it is; what a pipe or an archive gives as the FLAC `target`.  Why there is none, and what is known."""
    path, origin = _audio_file(place, folder), _origin(place)
    if path is not None and not os.path.exists(path):
        return NO_AUDIO, ""
    if path is None and read_origin(target) != origin and (problem := _extract(place, target, origin)):
        return NO_AUDIO, problem
    path = path or target
    return read_recording(path, recording_id) or (why_unread(path), "")


def _audio_file(place: str, folder: Path) -> Path | None:
    """The file that a place names; None if it is a pipe or within an archive."""
    if place.endswith("|") or re.search(r"\.ark:\d+$", place):
        return None
    return Path(place) if os.path.exists(place) else folder / place


def _origin(place: str) -> str:
    """What audio of a pipe or an archive depends on: its line, and size and time of the files that the line names."""
    digest = hashlib.blake2b(place.encode(), digest_size=8)
    for word in place.split():
        if os.path.isfile(path := re.sub(r":\d+$", "", word)):
            digest.update(f" {os.stat(path).st_size} {os.stat(path).st_mtime_ns}".encode())
    return digest.hexdigest()


def _extract(place: str, target: Path, origin: str) -> str | None:
    """Writes the audio of a place; what is wrong with it if it has none."""
    try:
        found = read_place(place)
    except DataError as error:
        return str(error)
    if not isinstance(found, tuple):
        return "a matrix, expected audio"
    rate, samples = found
    save_flac(target, samples, rate, origin)
    return None
