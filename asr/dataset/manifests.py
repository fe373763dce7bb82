"""lhotse manifests: read and written, made of LibriSpeech-like folders or of audio and text, features stored."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asr.dataset.flac import NO_LENGTH
from asr.dataset.pipes import ADVICE, command_of, shell_reads
from asr.dataset.stores import SHIFT_SECONDS, feature_store, with_features
from asr.errors import DataError
from lm_zoo.reading import kaldi_fields, parse_json, read_json
from rescore.console import NAMED, progress, remark
from rescore.errors import FormatError
from rescore.files import atomic_text, read_kaldi_text, read_lines, require_folder

if TYPE_CHECKING:
    from lhotse import CutSet, Recording
    from lhotse.cut import Cut, MonoCut

AUDIO = (".flac", ".wav", ".mp3", ".ogg", ".opus", ".sph", ".aiff")
MAKE_CUTS = "make cuts: lhotse cut simple -r RECORDINGS -s SUPERVISIONS CUTS.jsonl.gz"


@dataclass
class Missing:
    """Utterances that could not be taken, by reason; told once all are there."""

    ids: dict[str, list[str]] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)  # what is known of the first of a reason

    def add(self, reason: str, utt_id: str, detail: str = "") -> None:
        self.ids.setdefault(reason, []).append(utt_id)
        self.first.setdefault(reason, detail)

    def tell(self, where: object) -> None:
        for reason, ids in self.ids.items():
            names = ", ".join(ids[:NAMED]) + (", ..." if len(ids) > NAMED else "")
            detail = f"; {ids[0]}: {self.first[reason]}" if self.first[reason] else ""
            remark(f"{where}: {len(ids)} utterances left out, {reason} ({names}){detail}")


def own_name(path: Path) -> str:
    """The name of a file or folder as it was given, that of `.` too; links keep their own."""
    return os.path.basename(os.path.abspath(path))


def kind_and_part(path: Path) -> tuple[str, str]:
    """`librispeech_cuts_dev.jsonl.gz` is part `dev` of `librispeech`; others, and folders, are parts of `speech`."""
    stem = own_name(path).removesuffix(".gz").removesuffix(".jsonl")
    kind, between, part = stem.partition("_cuts_")
    return (kind, part) if between else ("speech", stem)


def load_cuts(*paths: str | Path, allow_pipes: bool = False) -> CutSet:
    """The cuts of `.jsonl` or `.jsonl.gz` files or folders with `cuts.jsonl.gz`, or of one lhotse Shar folder (lazy).

    Paths of audio and features that are relative and lie beside the manifest are taken from there, others from the
    current folder.

    Args:
      allow_pipes: take cuts whose audio or features are the output of a command (see `asr.dataset.pipes`).
    Raises:
      DataError, FormatError: no such file, a line that is no cut, or one that runs a command; Shar and something else.
    """
    from lhotse import CutSet

    files = [_cuts_file(Path(path)) for path in paths]
    if len(files) == 1 and files[0].is_dir():
        cuts = CutSet.from_shar(in_dir=str(files[0]))
        return cuts if allow_pipes else cuts.map(partial(_without_commands, folder=files[0]))
    for shar in (file for file in files if file.is_dir()):
        raise DataError(
            f"{shar}: Shar is read in its order, and alone, found {len(files)} manifests; make one Shar of all"
        )
    return CutSet.from_cuts(cut for file in files for cut in _read_cuts(file, allow_pipes))


def iter_cuts(path: Path, allow_pipes: bool = False) -> Iterator[Cut]:
    """The cuts of one path, as `load_cuts` reads them; one of a file at a time."""
    file = _cuts_file(path)
    return iter(load_cuts(path, allow_pipes=allow_pipes)) if file.is_dir() else _read_cuts(file, allow_pipes)


def _without_commands(cut: Cut, folder: Path) -> Cut:
    if command := command_of(cut):
        raise FormatError(folder, f"cut '{cut.id}' is loaded by a command ('{command[:80]}'), {ADVICE}")
    return cut


def is_shar(path: Path) -> bool:
    """Whether it is a folder of lhotse's Shar."""
    return path.is_dir() and any(path.glob("cuts.*.jsonl*"))


def _cuts_file(path: Path) -> Path:
    """A file of cuts, or the folder itself if it is lhotse's Shar."""
    if not path.is_dir() or is_shar(path):
        return path
    for name in ("cuts.jsonl.gz", "cuts.jsonl"):
        if (path / name).exists():
            return path / name
    raise DataError(f"{path}: no cuts.jsonl.gz and no Shar files in it; give a manifest of cuts")


def _read_cuts(path: Path, allow_pipes: bool) -> Iterator[Cut]:
    from lhotse.serialization import deserialize_item

    if path.exists() and re.search(r"\.(json|ya?ml)(\.gz)?$", path.name):
        raise FormatError(path, f"expected cuts one a line, as .jsonl or .jsonl.gz: lhotse copy {path} CUTS.jsonl.gz")
    count = 0
    for number, line in read_lines(path):
        try:
            value = parse_json(line)
            if "Cut" not in value.get("type", ""):
                raise ValueError(f"it has no 'type' of a cut; of recordings and supervisions, {MAKE_CUTS}")
            if not allow_pipes and (command := command_of(value)):
                problem = f"cut '{value.get('id')}' is loaded by a command ('{command[:80]}'), {ADVICE}"
                raise FormatError(path, problem, line=number)
            if any(holder.get("type") == "shar" for holder, _ in _places(value)):
                problem = f"the audio of cut '{value.get('id')}' is in other files of lhotse's Shar"
                raise FormatError(path, f"{problem}; give its folder, {path.parent}", line=number)
            _resolve(value, path.parent)
            cut = deserialize_item(value)
            if not math.isfinite(cut.duration):
                raise ValueError(f"its duration is {cut.duration}, expected seconds")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # names that the system refuses
            reason = str(error) if type(error) is ValueError else repr(error)
            raise FormatError(path, f"not a lhotse cut ({reason})", line=number) from None
        count += 1
        yield cut
    if not count:
        raise FormatError(path, "empty file, expected lhotse cuts, one a line")


def _resolve(cut: dict[str, Any], folder: Path) -> None:
    """Makes the relative paths of a cut's audio and features absolute, where such files lie in `folder`."""
    for holder, name in _places(cut):
        place = holder[name]
        if isinstance(place, str) and not place.startswith("/") and (folder / place).exists():
            holder[name] = str((folder / place).absolute())


def _places(cut: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """What names the files of a cut's audio and features, and under which key."""
    for track in cut.get("tracks", []):
        yield from _places(track["cut"])
    for source in cut.get("recording", {}).get("sources", []):
        yield source, "source"
    if "features" in cut:
        yield cut["features"], "storage_path"


def ids_of(path: str | Path, cuts: CutSet) -> Iterator[str]:
    """The ids of cuts that `load_cuts` has read of a path; of Shar without the audio that lies beside its manifests."""
    if not cuts.is_lazy:
        yield from (cut.id for cut in cuts)
        return
    for file in sorted(Path(path).glob("cuts.*.jsonl*")):
        for number, line in read_lines(file):
            try:
                yield str(parse_json(line)["id"])
            except (ValueError, LookupError, TypeError) as error:
                raise FormatError(file, f"not a lhotse cut ({error!r})", line=number) from None


def check_ids(where: object, ids: Iterable[str]) -> None:
    """Raises DataError for ids that Kaldi's text cannot have: with blanks, or of several cuts."""
    for cut_id, count in Counter(ids).items():
        if kaldi_fields(cut_id) != [cut_id]:
            raise DataError(f"{where}: the id '{cut_id}' has blanks, which no file of texts can have; rename it")
        if count > 1:
            raise DataError(f"{where}: found {count} cuts with the id '{cut_id}', expected ids that differ")


def save_cuts(folder: Path, prefix: str, part: str, cuts: Iterable[Cut]) -> Path:
    """Writes `PREFIX_{cuts,recordings,supervisions}_PART.jsonl.gz` and, for `rescore --ref`, the texts in Kaldi form as
    `PREFIX_text_PART`; returns the path of the cuts."""
    from asr.dataset.loader import cut_text

    names = [folder / f"{prefix}_{kind}_{part}.jsonl.gz" for kind in ("cuts", "recordings", "supervisions")]
    names.append(folder / f"{prefix}_text_{part}")
    seen: set[str] = set()
    with ExitStack() as stack:
        whole, recordings, supervisions, texts = (stack.enter_context(atomic_text(name)) for name in names)
        for cut in cuts:
            texts.write(" ".join([cut.id, *kaldi_fields(cut_text(cut))]) + "\n")
            whole.write(json.dumps(cut.to_dict(), ensure_ascii=False) + "\n")
            for recording in recordings_of(cut):
                if recording.id not in seen:
                    seen.add(recording.id)
                    recordings.write(json.dumps(recording.to_dict(), ensure_ascii=False) + "\n")
            for track in _tracks(cut):
                for segment in track.supervisions:  # the times of one alone are those of the recording
                    moved = segment.with_offset(track.start)
                    supervisions.write(json.dumps(moved.to_dict(), ensure_ascii=False) + "\n")
    return names[0]


def recordings_of(cut: Cut) -> list[Recording]:
    """The recordings of a cut: of a mixed one those of all its tracks, of padding none."""
    found = [getattr(track, "recording", None) for track in _tracks(cut)]
    return [recording for recording in found if recording is not None]


def _tracks(cut: Cut) -> list[Cut]:
    """The cuts that a mixed cut is made of; any other cut alone."""
    from lhotse.cut import MixedCut

    return [track.cut for track in cut.tracks] if isinstance(cut, MixedCut) else [cut]


def read_recording(path: Path, recording_id: str) -> Recording | None:
    """The recording of an audio file, its length as libsndfile decodes it; None where `why_unread` says why.

    Raises:
      DataError: a `.sph` file of a name that a shell would take for more.
    """
    from lhotse import Recording
    from lhotse.audio import AudioSource

    if shell_reads(str(path.resolve())):
        raise DataError(f"{path.resolve()}: names of .sph files go to a shell; rename it, without blanks and quotes")
    info = _header(path)
    if info is None or info.frames in (0, NO_LENGTH) or is_truncated(info.extra_info):
        return None
    source = AudioSource("file", list(range(info.channels)), str(path.resolve()))
    return Recording(recording_id, [source], info.samplerate, info.frames, info.frames / info.samplerate)


def why_unread(path: Path) -> str:
    """Why `read_recording` gives None for a file."""
    info = _header(path)
    if info is not None and info.frames == NO_LENGTH:  # libsndfile fails at its end, wherever that is
        return "audio whose header has no number of samples, as from a pipe; write it anew"
    return "audio unreadable or empty"


def _header(path: Path) -> Any:
    """What soundfile says of a file; None if it is no audio."""
    import soundfile

    try:
        return soundfile.info(str(path))
    except (soundfile.LibsndfileError, OSError):
        return None


def is_truncated(info: str) -> bool:
    """Whether libsndfile's `extra_info` of a WAV says that samples are missing at its end.

    Programs that write into a pipe leave the length open (0, or about 2^31 or 2^32 bytes): that is no damage.
    """
    found = re.search(r"^data : (\d+) \(should be (\d+)\)", info, re.MULTILINE)
    return found is not None and int(found[2]) < int(found[1]) < 0x7FFF0000


def make_cut(
    recording: Recording, utt_id: str, text: str, speaker: str | None, start: float = 0.0, end: float | None = None
) -> MonoCut:
    """The utterance from `start` to `end` (seconds; None: all) of a recording's first channel."""
    from lhotse import MonoCut, SupervisionSegment

    duration = (recording.duration if end is None else min(end, recording.duration)) - start
    segment = SupervisionSegment(utt_id, recording.id, 0.0, duration, 0, text, speaker=speaker)
    return MonoCut(utt_id, start, duration, 0, supervisions=[segment], recording=recording)


# Ours, not lhotse.recipes.librispeech: that ends at one damaged file, and knows FLAC and LibriSpeech's own parts alone.
def librispeech(folder: str | Path, only: Collection[str] = ()) -> dict[str, list[MonoCut]]:
    """Cuts by part (`dev-clean`, ...) of a folder PART/SPEAKER/CHAPTER with `.trans.txt`; audio of any kind.

    Args:
      only: the parts that are read; none means all that are there.
    Raises:
      DataError: no part or not all of `only` are there, two files of one name, or no utterance has audio that can be
        read.
    """
    root = require_folder(folder)
    root = root / "LibriSpeech" if (root / "LibriSpeech").is_dir() else root
    parts: dict[str, list[MonoCut]] = {}
    there = sorted(path for path in root.iterdir() if path.is_dir())
    if missing := [name for name in only if name not in {path.name for path in there}]:
        raise DataError(f"{root}: no part {missing[0]}; found {', '.join(path.name for path in there)}")
    for part in (path for path in there if not only or path.name in only):
        transcripts = sorted(part.glob("*/*/*.trans.txt"))
        if transcripts:
            parts[part.name] = list(_utterances(part, transcripts))
        elif only:
            raise DataError(f"{part}: no SPEAKER/CHAPTER/*.trans.txt in it")
    if not parts:
        raise DataError(f"{root}: no PART/SPEAKER/CHAPTER/*.trans.txt in it; give LibriSpeech's own folder")
    empty = [name for name, cuts in parts.items() if not cuts]
    if empty:
        raise DataError(f"{root / empty[0]}: no utterance of its transcripts has audio ({', '.join(AUDIO)})")
    return parts


def _utterances(part: Path, transcripts: list[Path]) -> Iterator[MonoCut]:
    missing, named = Missing(), set[str]()
    for file in progress(transcripts, part.name):
        audio = _audio_files(file.parent.iterdir())
        texts = read_kaldi_text(file)
        named |= texts.keys()
        for utt_id, words in texts.items():
            recording = read_recording(audio[utt_id], utt_id) if utt_id in audio else None
            if recording is None:
                missing.add(why_unread(audio[utt_id]) if utt_id in audio else "no audio", utt_id)
                continue
            yield make_cut(recording, utt_id, " ".join(words), file.parent.parent.name)
    heard = {path.stem for path in part.glob("*/*/*") if path.suffix.lower() in AUDIO}
    for utt_id in sorted(heard - named):
        missing.add("no text", utt_id)
    missing.tell(part)


def _audio_files(paths: Iterable[Path]) -> dict[str, Path]:
    """Those that are audio, by their names without suffix, sorted; DataError where two have the same."""
    files: dict[str, Path] = {}
    for path in sorted(path for path in paths if path.suffix.lower() in AUDIO):
        if path.stem in files:
            raise DataError(f"{path}: a second file named {path.stem} (the first: {files[path.stem]}); ids must differ")
        files[path.stem] = path
    return files


def audio_and_text(folder: str | Path, text: str | Path | None) -> list[MonoCut]:
    """Cuts of all audio files under a folder; their names without suffix are the ids of the Kaldi `text`.

    Raises:
      DataError: two files of one name, or nothing that can be read.
    """
    root, missing = require_folder(folder), Missing()
    files = _audio_files(root.rglob("*"))
    texts = read_kaldi_text(text) if text is not None else dict.fromkeys(files, ())
    cuts = []
    for utt_id in progress(sorted(files.keys() | texts.keys()), "audio"):
        reason = "no audio" if utt_id not in files else "no text" if utt_id not in texts else None
        recording = None if reason else read_recording(files[utt_id], utt_id)
        if recording is None:
            missing.add(reason or why_unread(files[utt_id]), utt_id)
            continue
        cuts.append(make_cut(recording, utt_id, " ".join(texts[utt_id]), None))
    missing.tell(root)
    if not cuts:
        raise DataError(f"{root}: no audio in it that can be read and is in the text ({', '.join(AUDIO)})")
    return cuts


def split_by_speaker(parts: dict[str, list[MonoCut]], path: str | Path) -> dict[str, list[MonoCut]]:
    """Parts that hold a speaker of the JSON `{"train": ["1462", ...], ...}` become `PART-train`, ...; others stay.

    Raises:
      DataError: not such a JSON, a speaker named twice, or a speaker of a split part that is in none.
    """
    try:
        named = read_json(path)
        if strays := [name for name, speakers in named.items() if not isinstance(speakers, list)]:
            raise ValueError(f"'{strays[0]}' has no list of speakers")
        pairs = [(str(speaker), name) for name, speakers in named.items() for speaker in speakers]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{path}: expected JSON such as {{'train': ['1462'], 'test': ['84']}} ({error})") from None
    groups = dict(pairs)
    if len(groups) < len(pairs):
        raise DataError(f"{path}: a speaker is named twice")
    made: dict[str, list[MonoCut]] = {}
    for part, cuts in parts.items():
        speakers = {cut.supervisions[0].speaker for cut in cuts}
        if not speakers & groups.keys():
            made[part] = cuts
            continue
        if speakers - groups.keys():
            raise DataError(f"{path}: speaker {sorted(speakers - groups.keys())[0]} of {part} is in no set of it")
        for name in named:
            chosen = [cut for cut in cuts if groups[cut.supervisions[0].speaker] == name]
            if chosen:
                made[f"{part}-{name}"] = chosen
    return made


def store_fbank(cuts: list[MonoCut], folder: Path, name: str, storage: str = "lilcom") -> list[MonoCut]:
    """The cuts with stored filterbanks; those whose audio cannot be loaded are told and left out.

    Rates of which 10 ms are no whole number of samples (22,050 Hz) become 16 kHz in the manifest, as lhotse wants.

    Raises:
      DataError: a cut is not of one recording (mixed, or padding), or none is left.
    """
    from lhotse.cut import MixedCut, PaddingCut

    from asr.dataset.features import SAMPLE_RATE, fbank
    from asr.dataset.loader import check_features, load_errors, load_samples, load_trouble

    for cut in cuts:
        if isinstance(cut, (MixedCut, PaddingCut)):
            problem = f"cut '{cut.id}' is a {type(cut).__name__}, expected cuts of one recording each"
            raise DataError(f"{folder / name}: {problem}; without --fbank, features are computed in training")
    missing, made = Missing(), []
    with feature_store(folder, name, storage) as store:
        for cut in progress(cuts, f"fbank {name}"):
            if cut.has_recording and cut.recording.sampling_rate % round(1 / SHIFT_SECONDS):
                cut = cut.resample(SAMPLE_RATE)
            try:
                samples = load_samples(cut)
            except load_errors() as error:
                missing.add("audio cannot be loaded", cut.id, load_trouble(cut, error))
                continue
            try:
                check_features(features := fbank(samples))
            except DataError as error:
                missing.add(re.sub(r"^\d+ of \d+ ", "", str(error)), cut.id)
                continue
            made.append(with_features(cut, features, store))
    missing.tell(folder / name)
    if not made:
        raise DataError(f"{folder / name}: no utterance is left whose features could be computed")
    return made
