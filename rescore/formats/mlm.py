"""The JSON of mlm-scoring (Salazar et al., 2020): one object with an entry an utterance.

    {"a": {"hyp_1": {"score": -7.1, "text": "he said"}, ..., "ref": "he said"}, ...}

The rank of a hypothesis is the number in its key, whatever the order in the file (mlm-scoring itself sorts keys as
text).  The file is parsed utterance by utterance and never held as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lm_zoo.reading import check_characters, kaldi_fields
from rescore.errors import FormatError
from rescore.files import atomic_binary, read_chunks
from rescore.formats.common import (
    SCORE,
    Place,
    UniqueIds,
    encoded,
    finite_score,
    formed,
    join_words,
    make_list,
    put,
    single_score,
    utterance_id,
)
from rescore.skipping import OnError, fail
from rescore.text import short
from rescore.types import Hypothesis, NbestList

MAX_ENTRY = 1 << 26  # characters; an utterance that is longer is taken for a syntax error
_HYP = re.compile(r"hyp_(\d{1,9})")
_SPACE = re.compile(r"\s*")
_OTHERS = {  # first keys of other files that are called .json
    "audio_filepath": "NeMo's manifest with beams is read as nemo",
    **dict.fromkeys(("utt_id", "id", "hyps", "nbest"), "JSON lines are read as jsonl"),
}


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads mlm-scoring JSON; the score is called as the option `score` says."""
    name = options.get("score", SCORE)
    unique = UniqueIds()
    for line, key, value in _entries(path):
        utt_id = utterance_id(key, Place(path, line))
        place = Place(path, line, utt_id)
        unique.add(utt_id, place)
        yield _nbest(utt_id, value, name, place)


def _nbest(utt_id: str, value: object, name: str, place: Place) -> NbestList:
    if not isinstance(value, tuple):  # objects arrive as tuples of pairs
        what = _OTHERS.get(utt_id)
        other = "" if what is None else f" ({what}:{place.path})"
        raise place.format_error(f"{short(value)}, expected an object with 'hyp_1', 'hyp_2', ...{other}")
    ref = None
    hyps: dict[int, Hypothesis] = {}
    for key, entry in value:
        found = _HYP.fullmatch(key)
        if key == "ref" and isinstance(entry, str):
            ref = tuple(kaldi_fields(entry))
        elif found and int(found[1]) not in hyps:
            hyps[int(found[1])] = _hypothesis(entry, key, int(found[1]), name, place)
        elif found:
            raise place.format_error(f"'{key}' occurs a second time")
        else:
            other = f" (ESPnet's data.json is read as espnet:{place.path})" if utt_id == "utts" else ""
            raise place.format_error(f"'{key}': {short(entry)}, expected 'hyp_1', 'hyp_2', ... and 'ref'{other}")
    ranks = sorted(hyps)
    if ranks != list(range(1, len(ranks) + 1)):
        missing = next(rank for rank in range(1, len(ranks) + 1) if rank not in hyps)
        raise place.format_error(f"'hyp_{missing}' is missing; 'hyp_{ranks[-1]}' is there")
    return make_list(utt_id, [hyps[rank] for rank in ranks], ref, place)


def _hypothesis(entry: object, key: str, rank: int, name: str, place: Place) -> Hypothesis:
    fields = dict(entry) if isinstance(entry, tuple) else {}
    if not isinstance(fields.get("text"), str):
        raise place.format_error(f"'{key}' has no 'text', expected 'score' and 'text'")
    score = finite_score(fields.get("score"), name, rank, place)
    return Hypothesis(tuple(kaldi_fields(fields["text"])), {name: score})


class JsonReader:
    """JSON that is read on as far as the parser asks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text, self.position, self.line = "", 0, 1
        self._chunks = read_chunks(path)

    def more(self) -> bool:
        """Drops what is parsed and adds a chunk (half of what is there at least); False at the end of the file."""
        self.text, self.position = self.text[self.position :], 0
        wanted, pieces = len(self.text) // 2, [self.text]
        while wanted >= 0 and (chunk := next(self._chunks, "")):
            pieces.append(chunk)
            wanted -= len(chunk)
            if wanted <= 0:
                break
        self.text = "".join(pieces)
        return len(pieces) > 1

    def advance(self, end: int) -> None:
        self.line += self.text.count("\n", self.position, end)
        self.position = end

    def peek(self) -> str:
        """The next character that is not white space, or "" at the end."""
        while True:
            found = _SPACE.match(self.text, self.position)
            self.advance(found.end() if found else self.position)
            if self.position < len(self.text):
                return self.text[self.position]
            if not self.more():
                return ""

    def expect(self, characters: str) -> str:
        """Reads over one of `characters`."""
        found = self.peek()
        if not found or found not in characters:
            what = f"'{found}'" if found else "the end of the file"
            raise FormatError(self.path, f"not JSON: {what}, expected '{characters[0]}'", line=self.line)
        self.advance(self.position + 1)
        return found

    def value(self, decoder: json.JSONDecoder) -> Any:
        """Reads one JSON value."""
        self.peek()
        while True:
            try:
                value, end = decoder.raw_decode(self.text, self.position)
                if end < len(self.text):  # else a number might go on
                    check_characters(value, self.text[self.position : end])
                    self.advance(end)
                    return value
                problem = "the end of the file"
            except (ValueError, RecursionError) as error:
                problem = re.sub(r": line \d+ column.*", "", str(error))
            if len(self.text) > MAX_ENTRY or not self.more():
                raise FormatError(self.path, f"not JSON or cut off ({problem})", line=self.line)


def _entries(path: Path) -> Iterator[tuple[int, str, Any]]:
    """`(line, key, value)` of the members of the one object in a file; objects in values become tuples of pairs."""
    reader = JsonReader(path)
    if not reader.peek():
        raise FormatError(path, "empty file, expected a JSON object with an entry an utterance")
    yield from members(reader, json.JSONDecoder(object_pairs_hook=tuple))
    if reader.peek():
        raise FormatError(path, "text after the end of the JSON object", line=reader.line)


def members(reader: JsonReader, decoder: json.JSONDecoder) -> Iterator[tuple[int, str, Any]]:
    """`(line, key, value)` of the members of the object that comes next."""
    reader.expect("{")
    if reader.peek() == "}":
        raise FormatError(reader.path, "no utterance in the JSON object")
    while True:
        if reader.peek() != '"':
            reader.expect('"')
        line = reader.line
        key = reader.value(decoder)
        reader.expect(":")
        yield line, key, reader.value(decoder)
        if reader.expect(",}") == "}":
            return


def write(path: Path, lists: Iterable[NbestList], options: Mapping[str, str], on_error: OnError = fail) -> int:
    """Writes mlm-scoring JSON, one utterance a line; see `single_score` for which score, `formed` for `on_error`."""
    count = 0
    with atomic_binary(path) as stream:
        for line in formed(lists, partial(_line, path=path, options=options), path, on_error):
            stream.write(b",\n" if count else b"{\n")
            put(stream, line)
            count += 1
        stream.write(b"\n}\n")
    return count


def _line(nbest: NbestList, path: Path, options: Mapping[str, str]) -> bytes:
    place = Place(path, utt_id=nbest.utt_id)
    scores = single_score(nbest, options, place)
    entry: dict[str, Any] = {
        f"hyp_{rank}": {"score": score, "text": join_words(hyp.words, place)}
        for rank, (hyp, score) in enumerate(zip(nbest.hyps, scores, strict=True), start=1)
    }
    if nbest.ref is not None:
        entry["ref"] = join_words(nbest.ref, place)
    return encoded(f"{json.dumps(nbest.utt_id, ensure_ascii=False)}: {json.dumps(entry, ensure_ascii=False)}")
