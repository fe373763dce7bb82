"""Our own JSON lines, one utterance a line; also lists in the style of Hugging Face.

    {"utt_id": "a", "ref": "HE SAID", "hyps": [{"words": "HE SAID", "scores": {"am": -7.1, "lm": -3.2}}, ...]}

`ref` may be left out or null; `recording` names what the utterance is a part of.  Written is `words` as a string; read
is a list of strings as well.  Also read are `nbest` for `hyps`, `text` for `words`, a single number `score`, and a bare
string for a hypothesis without scores.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from lm_zoo.reading import parse_json
from rescore.console import remark
from rescore.errors import FormatError
from rescore.files import atomic_text, read_lines
from rescore.formats.common import SCORE, Place, UniqueIds, finite_score, join_words, make_list, utterance_id
from rescore.text import short
from rescore.types import Hypothesis, NbestList, Words

_LIST_KEYS = ("hyps", "nbest")
_LINE_KEYS = {"utt_id", "ref", "hyps", "recording"}
_HYP_KEYS = {"words", "scores"}


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads JSON lines; keys that are not known are counted and remarked on."""
    unique = UniqueIds()
    ignored: Counter[str] = Counter()
    number = 0
    for number, line in read_lines(path):
        place = Place(path, number)
        entry = _parse_line(line, place)
        if "utt_id" not in entry:
            raise place.format_error(f"no 'utt_id'; found: {', '.join(entry) or 'nothing'}")
        utt_id = utterance_id(entry["utt_id"], place)
        place = Place(path, number, utt_id)
        unique.add(utt_id, place)
        list_key = _list_key(entry, place)
        hyps = [_hypothesis(hyp, rank, place, ignored) for rank, hyp in enumerate(entry[list_key], start=1)]
        ref = entry.get("ref")
        made = make_list(utt_id, hyps, None if ref is None else _words(ref, "ref", place), place)
        if entry.get("recording") is not None:
            made.recording = utterance_id(entry["recording"], place, "recording")
        yield made
        if not entry.keys() <= _LINE_KEYS:
            ignored.update(entry.keys() - {*_LINE_KEYS, list_key})
    if number == 0:
        raise FormatError(path, "empty file, expected a JSON object a line")
    if ignored:
        found = ", ".join(f"{name} ({count} times)" for name, count in sorted(ignored.items()))
        remark(f"{path}: keys that were not read: {found}")


def _parse_line(line: str, place: Place) -> dict[str, Any]:
    if not line.strip():
        raise place.format_error("empty line, expected a JSON object")
    try:
        entry = parse_json(line)
    except ValueError as error:
        raise place.format_error(f"not JSON ({error}), expected one JSON object a line") from None
    if not isinstance(entry, dict):
        raise place.format_error(f"a JSON {type(entry).__name__}, expected an object with 'utt_id' and 'hyps'")
    return entry


def _list_key(entry: dict[str, Any], place: Place) -> str:
    for key in _LIST_KEYS:
        if key in entry:
            if not isinstance(entry[key], list):
                raise place.format_error(f"'{key}' is {short(entry[key])}, expected a list of hypotheses")
            return key
    raise place.format_error(f"no 'hyps' (and no 'nbest'); found: {', '.join(entry)}")


def _hypothesis(hyp: object, rank: int, place: Place, ignored: Counter[str]) -> Hypothesis:
    if isinstance(hyp, str):
        return Hypothesis(tuple(hyp.split()))
    if not isinstance(hyp, dict):
        raise place.format_error(f"hypothesis {rank} is {short(hyp)}, expected an object with 'words' and 'scores'")
    words_key = "words" if "words" in hyp else "text"
    if words_key not in hyp:
        raise place.format_error(f"hypothesis {rank} has no 'words' (and no 'text'); found: {', '.join(hyp)}")
    if "scores" in hyp:
        scores = hyp["scores"]
        if not isinstance(scores, dict):
            raise place.format_error(
                f"hypothesis {rank} has scores {short(scores)}, expected an object of named numbers"
            )
        for name, value in scores.items():
            if type(value) is not float or not isfinite(value):
                scores[name] = finite_score(value, name, rank, place)
    elif SCORE in hyp:
        scores = {SCORE: finite_score(hyp[SCORE], SCORE, rank, place)}
    else:
        raise place.score_error(f"hypothesis {rank} has no score: neither 'scores' nor 'score'")
    if not hyp.keys() <= _HYP_KEYS:
        ignored.update(hyp.keys() - _HYP_KEYS - {words_key} - ({SCORE} if "scores" not in hyp else set()))
    return Hypothesis(_words(hyp[words_key], f"hypothesis {rank}", place), scores)


def _words(value: object, what: str, place: Place) -> Words:
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, list):
        raise place.format_error(f"{what} is {short(value)}, expected a string or a list of words")
    for word in value:
        if not isinstance(word, str) or word.split() != [word]:
            raise place.format_error(f"{what} has the word {word!r}, expected a string without white space")
    return tuple(value)


def write(path: Path, lists: Iterable[NbestList], options: Mapping[str, str]) -> int:
    """Writes JSON lines."""
    count = 0
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode
    with atomic_text(path) as stream:
        for nbest in lists:
            place = Place(path, utt_id=nbest.utt_id)
            entry: dict[str, Any] = {"utt_id": nbest.utt_id}
            if nbest.ref is not None:
                entry["ref"] = join_words(nbest.ref, place)
            if nbest.recording is not None:
                entry["recording"] = nbest.recording
            entry["hyps"] = [
                {
                    "words": join_words(hyp.words, place),
                    "scores": {name: float(value) for name, value in hyp.scores.items()},
                }
                for hyp in nbest.hyps
            ]
            stream.write(encode(entry) + "\n")
            count += 1
    return count
