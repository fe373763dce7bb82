"""Our own JSON lines, one utterance a line; also lists in the style of Hugging Face and Whisper.

    {"utt_id": "a", "ref": "HE SAID", "hyps": [{"words": "HE SAID", "scores": {"am": -7.1, "lm": -3.2}}, ...]}

`ref` may be left out or null; `recording` names what the utterance is a part of.  Written is `words` as a string; read
is a list of strings as well.  Also read are `id` for `utt_id`, integers for ids, `nbest` for `hyps`, `text` for
`words`, a single number `score` or `sequences_scores` (the column `score`), a bare string for a hypothesis without
scores, and with bare strings a list `sequences_scores` beside them, a number a hypothesis.  Other keys (`tokens`,
`start`, ...) are kept and written back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lm_zoo.reading import BLANKS, kaldi_fields, parse_json
from rescore.console import remark_on_source
from rescore.errors import FormatError, ScoreError
from rescore.files import atomic_binary, read_lines, want_of_memory
from rescore.formats.common import (
    SCORE,
    CountedErrors,
    Place,
    UniqueIds,
    encoded,
    finite_score,
    formed,
    id_of_json,
    join_words,
    make_list,
    put,
)
from rescore.skipping import OnError, fail
from rescore.text import short
from rescore.types import LARGEST, Hypothesis, NbestList, Words

_ID_KEYS = ("utt_id", "id")
_LIST_KEYS = ("hyps", "nbest")
_DEEPEST = 50  # levels of other values that are kept: what is read can be written, too
_GENERATED = "sequences_scores"  # of transformers' generate
_SCORE_KEYS = ("scores", SCORE, _GENERATED)


def read(path: Path, options: Mapping[str, str], on_error: OnError = fail) -> Iterator[NbestList]:
    """Reads JSON lines; keys that are not known are kept, counted and remarked on.

    Args:
      on_error: gets the error of a line that is no list or does not fit into memory; if it returns, the next one is
        read.
    """
    left_out = CountedErrors(on_error)
    unique = UniqueIds()
    kept: Counter[str] = Counter()
    number = 0
    for number, line in read_lines(path, on_error=left_out):
        place = Place(path, number)
        try:
            made = _list(_parse_line(line, place), place)
            unique.add(made.utt_id, Place(path, number, made.utt_id))
        except (FormatError, ScoreError) as error:
            left_out(error)
            continue
        except MemoryError:
            problem = want_of_memory(line, len(line))
            del line
            left_out(FormatError(path, problem, number))
            continue
        for extra in (made.extra, *(hyp.extra for hyp in made.hyps)):
            kept.update([*(extra or ())])
        yield made
    if number == left_out.count == 0:
        raise FormatError(path, "empty file, expected a JSON object a line")
    if kept:
        found = ", ".join(f"{name} ({count} times)" for name, count in sorted(kept.items()))
        remark_on_source(f"{path}: keys that are kept for JSON lines, and not used: {found}")


def _list(entry: dict[str, Any], place: Place) -> NbestList:
    id_key = next((key for key in _ID_KEYS if key in entry), None)
    if id_key is None:
        raise place.format_error(f"no 'utt_id' (and no 'id'); found: {', '.join(entry) or 'nothing'}")
    place = Place(place.path, place.line, id_of_json(entry[id_key], place))
    list_key = _list_key(entry, place)
    known = {id_key, list_key, "ref", "recording"}
    found = entry[list_key]
    if isinstance(entry.get(_GENERATED), list) and all(isinstance(hyp, str) for hyp in found):
        known.add(_GENERATED)
        found = _with_generated(found, entry[_GENERATED], place)
    hyps = [_hypothesis(hyp, rank, place) for rank, hyp in enumerate(found, start=1)]
    ref = entry.get("ref")
    made = make_list(place.utt_id or "", hyps, None if ref is None else _words(ref, "ref", place), place)
    if entry.get("recording") is not None:
        made.recording = id_of_json(entry["recording"], place, "recording")
    made.extra = _extra(entry, known, place)
    return made


def _with_generated(texts: list[str], scores: list[Any], place: Place) -> list[dict[str, Any]]:
    """Bare hypotheses with the scores that stand beside them."""
    if len(texts) != len(scores):
        raise place.score_error(f"{len(scores)} '{_GENERATED}' for {len(texts)} hypotheses, expected one for each")
    return [{"text": text, SCORE: score} for text, score in zip(texts, scores, strict=True)]


def _extra(entry: dict[str, Any], known: Iterable[str], place: Place) -> dict[str, Any] | None:
    """What is in `entry` beside the keys `known`; None for nothing."""
    if entry.keys() <= (known := set(known)):
        return None
    extra = {name: value for name, value in entry.items() if name not in known}
    layer: list[Any] = [extra]
    for _ in range(_DEEPEST):
        layer = [one for each in layer if isinstance(each, (dict, list)) for one in _within(each)]
    if layer:
        names = ", ".join(f"'{name}'" for name in extra)
        raise place.format_error(f"values nested more than {_DEEPEST} deep in {names}, which cannot be kept")
    try:
        json.dumps(extra, allow_nan=False)
    except ValueError:
        names = ", ".join(f"'{name}'" for name in extra)
        raise place.format_error(f"NaN or an infinite number in {names}, which is no JSON") from None
    return extra


def _parse_line(line: str, place: Place) -> dict[str, Any]:
    if not line.strip(BLANKS):
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


def _within(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _hypothesis(hyp: object, rank: int, place: Place) -> Hypothesis:
    if isinstance(hyp, str):
        return Hypothesis(tuple(kaldi_fields(hyp)))
    if not isinstance(hyp, dict):
        raise place.format_error(f"hypothesis {rank} is {short(hyp)}, expected an object with 'words' and 'scores'")
    words_key = "words" if "words" in hyp else "text"
    if words_key not in hyp:
        raise place.format_error(f"hypothesis {rank} has no 'words' (and no 'text'); found: {', '.join(hyp)}")
    score_key = next((key for key in _SCORE_KEYS if key in hyp), None)
    if score_key is None:
        found = f"neither 'scores' nor 'score'; found: {', '.join(hyp)}"
        named = '"scores": {"am": -7.1}, natural logs'
        raise place.score_error(f"hypothesis {rank} has no score: {found}; name it: {named}")
    scores = hyp[score_key]
    if score_key != "scores":
        scores = {SCORE: finite_score(scores, score_key, rank, place)}
    elif not isinstance(scores, dict):
        raise place.format_error(f"hypothesis {rank} has scores {short(scores)}, expected an object of named numbers")
    for name, value in scores.items():
        if type(value) is not float or not abs(value) <= LARGEST:
            scores[name] = finite_score(value, name, rank, place)
    words = _words(hyp[words_key], f"hypothesis {rank}", place)
    return Hypothesis(words, scores, None if len(hyp) == 2 else _extra(hyp, (words_key, score_key), place))


def _words(value: object, what: str, place: Place) -> Words:
    if isinstance(value, str):
        return tuple(kaldi_fields(value))
    if not isinstance(value, list):
        raise place.format_error(f"{what} is {short(value)}, expected a string or a list of words")
    for word in value:
        if not isinstance(word, str) or kaldi_fields(word) != [word]:
            raise place.format_error(f"{what} has the word {word!r}, expected a string without white space")
    return tuple(value)


def write(path: Path, lists: Iterable[NbestList], options: Mapping[str, str], on_error: OnError = fail) -> int:
    """Writes JSON lines; `on_error` as for `formed`."""
    count = 0
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode
    with atomic_binary(path) as stream:
        for line in formed(lists, partial(_line, encode, path), path, on_error):
            put(stream, line)
            count += 1
    return count


def _line(encode: Callable[[object], str], path: Path, nbest: NbestList) -> bytes:
    try:
        text = encode(_entry(nbest, path))
    except (TypeError, ValueError) as error:
        problem = f"something that JSON cannot hold ({error})"
        raise Place(path, utt_id=nbest.utt_id).format_error(problem) from None
    return encoded(text + "\n")


def _entry(nbest: NbestList, path: Path) -> dict[str, Any]:
    place = Place(path, utt_id=nbest.utt_id)
    entry: dict[str, Any] = {"utt_id": nbest.utt_id}
    if nbest.ref is not None:
        entry["ref"] = join_words(nbest.ref, place)
    if nbest.recording is not None:
        entry["recording"] = nbest.recording
    entry["hyps"] = [
        {
            **(hyp.extra or {}),
            "words": join_words(hyp.words, place),
            "scores": {name: float(value) for name, value in hyp.scores.items()},
        }
        for hyp in nbest.hyps
    ]
    return {**(nbest.extra or {}), **entry}
