"""A set of synthetic utterances on disk: FLAC files in shards, and lhotse manifests.

    OUT/audio/00000/UTT.flac ...   a shard, made in one process of its own and renamed into place when it is whole
    OUT/audio/00000/shard.jsonl    what was spoken, and how
    OUT/{recordings,supervisions,cuts}.jsonl.gz

Paths in the manifests are relative to OUT, so that the folder can be moved; `asr.dataset.manifests.load_cuts`
finds the audio.  With lhotse alone: `CutSet.from_file(...).with_recording_path_prefix(OUT)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from asr.dataset.features import SAMPLE_RATE
from asr.dataset.flac import save_flac
from asr.dataset.synthesis import SPEAKERS, NothingSpoken, Range, Speakers, draw_setting
from asr.errors import DataError
from lm_zoo.files import write_text
from lm_zoo.reading import BLANKS, kaldi_fields, parse_json, read_json
from lm_zoo.text.sentences import HEAD, begin_with_ids
from rescore.console import progress, remark
from rescore.file_names import file_name
from rescore.files import atomic_folder, atomic_text, read_kaldi_text, read_lines
from rescore.workers import worker_pool

SHARD = 500  # sentences


@dataclass(frozen=True)
class SetOptions:
    """What makes one set differ from another of the same text.

    Attributes:
      seed:     of everything drawn.
      speakers: `train` or `test`, the names of `asr.dataset.synthesis.SPEAKERS`.
      pico:     share of Pico's voices.
      snr_db:   least and greatest signal-to-noise ratio.
      count:    sentences to take, spread evenly over the text; None: all.
      words:    least and greatest number of words of a sentence.
    """

    seed: int = 0
    speakers: str = "train"
    pico: float = 0.5
    snr_db: Range = (5.0, 40.0)
    count: int | None = None
    words: tuple[int, int] = (1, 40)


@dataclass(frozen=True)
class SetCounts:
    """What was made: utterances, hours of audio, and the ids of sentences that an engine gave no sound for."""

    utterances: int
    hours: float
    unspoken: list[str]


def sentences_to_speak(path: Path, ids: bool, options: SetOptions) -> dict[str, str]:
    """The sentences to speak by utterance id.

    Args:
      ids: lines begin with the id; otherwise the id is the file's name and the line's number.
    Raises:
      DataError:   no sentence is left, or fewer than `options.count`.
      FormatError: the file cannot be read.
    """
    if ids:
        lines = {utt_id: " ".join(words) for utt_id, words in read_kaldi_text(path).items()}
    else:
        stem = path.name.split(".")[0]
        lines = {f"{stem}-{number:07d}": line.strip(BLANKS) for number, line in read_lines(path)}
        head = list(filter(None, map(kaldi_fields, islice(lines.values(), HEAD))))
        if begin_with_ids(head):
            remark(f"{path}: lines begin with what looks like utterance ids ('{head[0][0]}'): spoken without --ids")
    least, most = options.words
    usable = [utt for utt, line in lines.items() if least <= len(kaldi_fields(line)) <= most]
    if len(usable) < len(lines):
        remark(f"{path}: {len(lines) - len(usable)} of {len(lines)} lines left out (not {least} to {most} words)")
    count = len(usable) if options.count is None else options.count
    if not usable or count > len(usable):
        raise DataError(f"{path}: has {len(usable)} sentences of {least} to {most} words, expected {max(count, 1)}")
    chosen = (usable[index * len(usable) // count] for index in range(count))
    return {utt: lines[utt] for utt in chosen}


def synthesise(text: Path, ids: bool, out: Path, options: SetOptions, jobs: int = 1) -> SetCounts:
    """Speaks a text into the folder `out`; a stopped run goes on where it was.

    Raises:
      DataError: `out` holds a set of other options or text; an engine is missing or fails.
    """
    sentences = sentences_to_speak(text, ids, options)
    _check_options(out / "options.json", {**asdict(options), "text": text.name, "sentences": len(sentences)})
    items = list(sentences.items())
    shards = [items[start : start + SHARD] for start in range(0, len(items), SHARD)]
    folders = [out / "audio" / f"{index:05d}" for index in range(len(shards))]
    for folder, shard in zip(folders, shards, strict=True):
        _check_text(folder, shard, text)
    todo = [(folder, shard, options) for folder, shard in zip(folders, shards, strict=True) if not folder.exists()]
    if len(todo) < len(shards):
        remark(f"{out}: {len(shards) - len(todo)} of {len(shards)} shards are there already")
    with ThreadPoolExecutor(jobs) as pool:
        for _ in progress(pool.map(_in_own_process, todo), "shards", total=len(todo)):
            pass
    return _write_manifests(out, folders)


def _check_options(path: Path, options: dict[str, Any]) -> None:
    """Writes the options down, or compares them with those of an earlier run."""
    options = json.loads(json.dumps(options))
    if not path.exists():
        with atomic_text(path) as stream:
            json.dump(options, stream, indent=1)
        return
    try:
        there = dict(read_json(path))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); name a new folder or remove this one") from None
    for name in sorted(options.keys() | there.keys()):
        if options.get(name) != there.get(name):
            text = f"{path.parent}: was made with {name} {there.get(name)}, expected {options.get(name)}"
            raise DataError(f"{text}; name a new folder or remove this one")


def _check_text(folder: Path, sentences: list[tuple[str, str]], text: Path) -> None:
    """Raises DataError where a shard is there already and has other sentences than these."""
    if not folder.exists():
        return
    there = [(row["id"], row["text"]) for _, row in _rows([folder])]
    if there != sentences:
        old, new = next(pair for pair in zip_longest(there, sentences, fillvalue=("none", "")) if pair[0] != pair[1])
        found = f"{folder}: has the sentence {old[0]} '{old[1]}' where {text} has {new[0]} '{new[1]}'"
        raise DataError(f"{found}; name a new folder or remove this one")


def _in_own_process(shard: tuple[Path, list[tuple[str, str]], SetOptions]) -> None:
    """A new process for each shard: the samples then depend on the shard alone (see `Speakers`)."""
    with worker_pool(1, "spawn") as pool:
        pool.submit(speak_shard, *shard).result()


def speak_shard(folder: Path, sentences: list[tuple[str, str]], options: SetOptions) -> None:
    """Speaks `(utterance id, text)` into `folder`, which appears when it is whole."""
    speakers, voices = Speakers(), SPEAKERS[options.speakers]
    with atomic_folder(folder) as temporary:
        rows = []
        for utt_id, text in sentences:
            setting = draw_setting(options.seed, utt_id, voices, options.pico, options.snr_db)
            row: dict[str, Any] = {"id": utt_id, "text": text, "speaker": setting.speaker, "setting": setting.to_dict()}
            try:
                samples = speakers.speak(text, setting)
            except NothingSpoken:
                row["samples"] = 0
            else:
                row["samples"] = len(samples)
                save_flac(temporary / f"{file_name(utt_id)}.flac", samples, SAMPLE_RATE)
            rows.append(row)
        write_text(temporary / "shard.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def _write_manifests(out: Path, folders: list[Path]) -> SetCounts:
    unspoken, samples, utterances = [], 0, 0
    with (
        atomic_text(out / "recordings.jsonl.gz") as recordings,
        atomic_text(out / "supervisions.jsonl.gz") as supervisions,
        atomic_text(out / "cuts.jsonl.gz") as cuts,
    ):
        for folder, row in _rows(folders):
            if not row["samples"]:
                unspoken.append(row["id"])
                continue
            recording = _recording(row, f"{folder.relative_to(out).as_posix()}/{file_name(row['id'])}.flac")
            supervision = _supervision(row, recording["duration"])
            cut = {"id": row["id"], "start": 0, "duration": recording["duration"], "channel": 0}
            cut |= {"supervisions": [supervision], "recording": recording, "type": "MonoCut"}
            for stream, value in ((recordings, recording), (supervisions, supervision), (cuts, cut)):
                stream.write(json.dumps(value) + "\n")
            samples += row["samples"]
            utterances += 1
    return SetCounts(utterances, samples / SAMPLE_RATE / 3600, unspoken)


def _rows(folders: list[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for folder in folders:
        path = folder / "shard.jsonl"
        for number, line in read_lines(path, ended=True):
            try:
                row = parse_json(line)
                if not isinstance(row["id"], str) or not isinstance(row["text"], str):
                    raise ValueError("id or text is no string")
            except (ValueError, LookupError, TypeError) as error:
                raise DataError(f"{path}:{number}: damaged ({error}); remove its folder to make it again") from None
            yield folder, row


def _recording(row: dict[str, Any], path: str) -> dict[str, Any]:
    """A lhotse Recording as its JSON."""
    return {
        "id": row["id"],
        "sources": [{"type": "file", "channels": [0], "source": path}],
        "sampling_rate": SAMPLE_RATE,
        "num_samples": row["samples"],
        "duration": row["samples"] / SAMPLE_RATE,
        "channel_ids": [0],
    }


def _supervision(row: dict[str, Any], duration: float) -> dict[str, Any]:
    """A lhotse SupervisionSegment as its JSON; how it was spoken stands in `custom`."""
    value = {"id": row["id"], "recording_id": row["id"], "start": 0.0, "duration": duration, "channel": 0}
    value |= {"text": row["text"], "language": "English", "speaker": row["speaker"], "custom": row["setting"]}
    return value
