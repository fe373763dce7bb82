"""Which recording an utterance is of, and where it stands there: by a file, by ids, or as the N-best lists say."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_zoo.reading import kaldi_fields, parse_json
from rescore.console import some_names
from rescore.errors import FormatError, UsageError
from rescore.file_names import by_numbers
from rescore.files import read_lines
from rescore.types import NbestList

ADVICE = "say which recording an utterance is of: --recording-of REGEX, or --recordings FILE"
# Ids that tell the recording themselves: what they are called, and how they look.
_IDS = (
    ("ids up to the two times at their end (RECORDING-START-END)", re.compile(r"(.+)[-_](\d{5,})[-_](\d{5,})")),
    ("ids up to the number at their end (as in SPEAKER-CHAPTER-NUMBER)", re.compile(r"(.+)[-_.]\d+")),
)

Place = tuple[float, tuple[Any, ...]]  # start in seconds (0 where it is not known), and the id to be sorted by


@dataclass(frozen=True)
class Recordings:
    """The recordings of all utterances that are rescored.

    Attributes:
      how: how they were told from one another, for messages.
      names: utterance -> recording.
      places: utterance -> its place; a recording's utterances follow one another in their order.
    """

    how: str
    names: dict[str, str]
    places: dict[str, Place]

    @property
    def sizes(self) -> Counter[str]:
        """Utterances of each recording."""
        return Counter(self.names.values())

    @property
    def identity(self) -> str:
        """Of all recordings, their utterances and their order."""
        lines = "".join(f"{utt_id}\t{name}\t{self.places[utt_id]}\n" for utt_id, name in sorted(self.names.items()))
        return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def find_recordings(lists: Iterable[NbestList], regex: str | None = None, file: Path | None = None) -> Recordings:
    """The recordings of all lists: by the file, the expression, their own field `recording`, or their ids.

    Args:
      regex: finds the recording in an id: its first group, or all that it finds.
      file: Kaldi's `segments` or `utt2spk`, or a lhotse manifest of supervisions or cuts (`.jsonl`, `.jsonl.gz`).
    Raises:
      UsageError: both are given, an expression that is none, or does not tell the recordings.
      FormatError: a file that is none of these, lacks an utterance, or says two things of one.
    """
    if regex is not None and file is not None:
        raise UsageError("give either --recording-of REGEX or --recordings FILE, not both")
    fields = {nbest.utt_id: nbest.recording for nbest in lists}
    ids = list(fields)
    if file is not None:
        found = _from_file(file, ids)
    elif regex is not None:
        found = _from_ids(f"what '{regex}' finds in ids", ids, _compiled(regex))
    elif all(fields.values()):
        found = _made("the field 'recording' of the lists", {utt_id: str(name) for utt_id, name in fields.items()})
    else:
        found = _by_default(ids)
    if len(ids) > 1 and len(found.sizes) == len(ids):
        raise UsageError(f"context: by {found.how}, each utterance would be a recording of its own; {ADVICE}")
    return found


def _compiled(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except re.error as error:
        raise UsageError(f"--recording-of '{regex}' is no regular expression: {error}") from None


def _made(how: str, names: dict[str, str], starts: dict[str, float] | None = None) -> Recordings:
    places = {utt_id: ((starts or {}).get(utt_id, 0.0), by_numbers(utt_id)) for utt_id in names}
    return Recordings(how, names, places)


def _by_default(ids: Sequence[str]) -> Recordings:
    for how, pattern in _IDS:
        matches = [pattern.fullmatch(utt_id) for utt_id in ids]
        if all(match and (match.lastindex == 1 or _are_times(match[2], match[3])) for match in matches):
            return _made(how, {utt_id: match[1] for utt_id, match in zip(ids, matches, strict=True) if match})
    odd = next(utt_id for utt_id in ids if not _IDS[-1][1].fullmatch(utt_id))
    raise UsageError(f"context: the id '{odd}' does not end in a number, as in RECORDING-NUMBER; {ADVICE}")


def _are_times(start: str, end: str) -> bool:
    return len(start) == len(end) and start < end


def _from_ids(how: str, ids: Sequence[str], pattern: re.Pattern[str]) -> Recordings:
    names = {}
    for utt_id in ids:
        match = pattern.search(utt_id)
        if not match:
            raise UsageError(f"--recording-of '{pattern.pattern}' finds nothing in the id '{utt_id}'")
        names[utt_id] = match[1 if pattern.groups else 0] or ""
    return _made(how, names)


def _from_file(file: Path, ids: Sequence[str]) -> Recordings:
    names, starts = dict[str, str](), dict[str, float]()
    for number, line in read_lines(file):
        try:
            utt_id, name, start = _json_entry(line) if line.startswith("{") else _kaldi_entry(line)
            if not math.isfinite(start):
                raise ValueError("no order by such a start")
        except (ValueError, LookupError, TypeError, OverflowError):  # OverflowError: a number of hundreds of digits
            wanted = "'UTTERANCE RECORDING', 'UTTERANCE RECORDING START END' or a lhotse supervision or cut"
            raise FormatError(file, f"found '{line[:60]}', expected {wanted}", number) from None
        if names.setdefault(utt_id, name) != name or starts.setdefault(utt_id, start) != start:
            problem = f"utterance '{utt_id}' stands there a second time, with another recording or start"
            raise FormatError(file, problem, number)
    missing = [utt_id for utt_id in ids if utt_id not in names]
    if missing:
        raise FormatError(file, f"{len(missing)} of {len(ids)} utterances are not there ({some_names(missing)})")
    return _made(f"{file.name}", {utt_id: names[utt_id] for utt_id in ids}, starts)


def _kaldi_entry(line: str) -> tuple[str, str, float]:
    """A line of `utt2spk` or of `segments`."""
    fields = kaldi_fields(line)
    if len(fields) == 2:
        return fields[0], fields[1], 0.0
    utt_id, name, start, end = fields
    float(end)
    return utt_id, name, float(start)


def _json_entry(line: str) -> tuple[str, str, float]:
    """A supervision or a cut of lhotse."""
    entry = parse_json(line)
    name = entry["recording_id"] if "recording_id" in entry else entry["recording"]["id"]
    return str(entry["id"]), str(name), float(entry["start"])
