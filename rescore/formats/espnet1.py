"""The `data.json` that ESPnet 1's recognition writes, with its N-best lists.

    {"utts": {"a": {"output": [{"text": "HE SAID", "rec_text": "▁HE▁SAID<eos>", "score": -7.1, ...}, ...], ...}, ...}}

An entry of `output` is a hypothesis, best first; `text` is the reference.  Pieces are joined to words: `▁` is a blank.
The file is parsed utterance by utterance and never held as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lm_zoo.reading import kaldi_fields
from rescore.errors import FormatError
from rescore.formats.common import SCORE, Place, UniqueIds, finite_score, make_list, utterance_id
from rescore.formats.mlm import JsonReader, members
from rescore.text import short
from rescore.types import Hypothesis, NbestList, Words

MARKS = ("<eos>", "<sos>")


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads such a file; the score is called as the option `score` says."""
    name, unique = options.get("score", SCORE), UniqueIds()
    for line, key, value in _utterances(path):
        utt_id = utterance_id(key, Place(path, line))
        place = Place(path, line, utt_id)
        unique.add(utt_id, place)
        outputs = value.get("output") if isinstance(value, dict) else None
        if not isinstance(outputs, list):
            raise place.format_error(f"{short(value)}, expected an object with 'output', a list of hypotheses")
        hyps = [_hypothesis(entry, rank, name, place) for rank, entry in enumerate(outputs, start=1)]
        ref = outputs[0].get("text") if outputs else None
        yield make_list(utt_id, hyps, tuple(kaldi_fields(ref)) if isinstance(ref, str) else None, place)


def _utterances(path: Path) -> Iterator[tuple[int, str, Any]]:
    reader, decoder = JsonReader(path), json.JSONDecoder()
    if not reader.peek():
        raise FormatError(path, "empty file, expected ESPnet's data.json: an object with 'utts'")
    reader.expect("{")
    found = False
    while reader.peek() == '"':
        key = reader.value(decoder)
        reader.expect(":")
        if key == "utts":
            yield from members(reader, decoder)
            found = True
        else:
            reader.value(decoder)
        if reader.expect(",}") == "}":
            break
    if not found:
        raise FormatError(path, "no 'utts' in it, expected ESPnet's data.json")
    if reader.peek():
        raise FormatError(path, "text after the end of the JSON object", line=reader.line)


def _hypothesis(entry: object, rank: int, name: str, place: Place) -> Hypothesis:
    fields = entry if isinstance(entry, dict) else {}
    if not isinstance(fields.get("rec_text"), str):
        raise place.format_error(
            f"hypothesis {rank} has no 'rec_text'; expected the data.json of a decoding folder, not of the data"
        )
    return Hypothesis(_words(fields["rec_text"]), {name: finite_score(fields.get("score"), name, rank, place)})


def _words(text: str) -> Words:
    for mark in MARKS:
        text = text.replace(mark, "")
    return tuple(kaldi_fields(text.replace("▁", " ")))
