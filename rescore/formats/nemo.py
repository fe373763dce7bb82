"""The beams of NeMo's beam search: lines `text<TAB>score`, `n` of them an utterance, utterances in manifest order.

The file has neither utterance ids nor a mark between utterances, so `n` must be given: `nemo:beams.tsv?n=10`.  With
`&manifest=FILE`, NeMo's JSON lines, the id is `utt_id`, or else `id`, or else the name of `audio_filepath` without
folder and suffix, and the reference is `text`, as `rescore.files.read_kaldi_text` has them; without it the ids are
`utt000001` and so on.  Ids and references are not written.

A manifest whose lines have `beams`, `[[text, score], ...]`, as NeMo's `transcribe_speech.py` writes them with
`extract_nbest=true`, is read as it is: `nemo:FILE`; its lists may be of any length.

With `&characters=yes` hypotheses get a score `characters`, the length of their text with its blanks: its scale is the
`beta` of NeMo's neural rescorer, as that of the LM is its `alpha`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lm_zoo.reading import kaldi_fields, parse_json
from rescore.console import remark
from rescore.errors import FormatError, UsageError
from rescore.files import MARK, atomic_text, is_manifest, named_in, read_lines, whole_number
from rescore.formats.common import (
    SCORE,
    Place,
    UniqueIds,
    finite_score,
    id_of_json,
    join_words,
    make_list,
    single_score,
    text_score,
)
from rescore.text import short
from rescore.types import Hypothesis, NbestList, Words


def read(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    """Reads `n` lines an utterance; `n` and `manifest` are options, `score` names the score; or a manifest of beams."""
    if is_manifest(path):
        yield from _read_beams(path, options)
        return
    size = _size(path, options)
    name = options.get("score", SCORE)
    count_characters = _yes(path, options, "characters")
    manifest = Path(options["manifest"]) if "manifest" in options else None
    ids = _read_manifest(manifest) if manifest else _numbered_ids()
    lines = read_lines(path, ended=True)
    count = 0
    while group := list(itertools.islice(lines, size)):
        utt_id, ref = next(ids, (None, None))
        if utt_id is None:
            raise FormatError(path, f"more than the {count} utterances of {manifest} at n={size}", line=group[0][0])
        if len(group) < size:
            problem = f"the last utterance has {len(group)} lines, expected n={size}; is n right?"
            raise Place(path, group[-1][0], utt_id).format_error(problem)
        places = [Place(path, number, utt_id) for number, _ in group]
        hyps = [_hypothesis(group[k][1], name, k + 1, places[k], count_characters) for k in range(size)]
        yield make_list(utt_id, hyps, ref, places[0])
        count += 1
    if not count:
        raise FormatError(path, "empty file, expected text<TAB>score a line")
    if manifest and next(ids, None):
        raise FormatError(path, f"{count} utterances at n={size}, but {manifest} has more")


def _size(path: Path, options: Mapping[str, str]) -> int:
    text = options.get("n")
    if text is None:
        raise UsageError(f"{path}: the number of lines an utterance must be given: nemo:{path}?n=NUMBER")
    size = whole_number(text)
    if not size:
        raise UsageError(f"{path}: n is '{text}', expected a number from 1")
    return size


def _yes(path: Path, options: Mapping[str, str], name: str) -> bool:
    if options.get(name, "yes") != "yes":
        raise UsageError(f"{path}: {name} is '{options[name]}', expected yes")
    return name in options


def _hypothesis(line: str, name: str, rank: int, place: Place, count_characters: bool) -> Hypothesis:
    text, _, score = line.rpartition("\t")
    if "\t" not in line:
        raise place.score_error(f"hypothesis {rank} has no score, expected text<TAB>score")
    return _with_length(text, {name: text_score(score.strip(), name, rank, place)}, count_characters)


def _with_length(text: str, scores: dict[str, float], count_characters: bool) -> Hypothesis:
    if count_characters:
        scores["characters"] = float(len(text))
    return Hypothesis(tuple(kaldi_fields(text)), scores)


def _read_beams(path: Path, options: Mapping[str, str]) -> Iterator[NbestList]:
    for option in ("n", "manifest"):
        if option in options:
            raise UsageError(f"{path}: {option}= is for TSV files, and this is a manifest, whose lines have beams")
    name, count_characters = options.get("score", SCORE), _yes(path, options, "characters")
    for place, entry, ref in _entries(path):
        beams = entry.get("beams")
        if not isinstance(beams, list):
            advice = "transcribe_speech.py writes them with extract_nbest=true, or beam.return_best_hypothesis=false"
            raise place.format_error(f"no 'beams' in this line of a manifest; {advice}")
        hyps = []
        for rank, beam in enumerate(beams, start=1):
            if not isinstance(beam, list) or len(beam) != 2 or not isinstance(beam[0], str):
                raise place.format_error(f"hypothesis {rank} is {short(beam)}, expected [text, score]")
            scores = {name: finite_score(beam[1], name, rank, place)}
            hyps.append(_with_length(beam[0], scores, count_characters))
        yield make_list(place.utt_id or "", hyps, ref, place)


def _numbered_ids() -> Iterator[tuple[str, Words | None]]:
    for number in itertools.count(1):
        yield f"utt{number:06d}", None


def _read_manifest(path: Path) -> Iterator[tuple[str, Words | None]]:
    for place, _, ref in _entries(path):
        yield place.utt_id or "", ref


def _entries(path: Path) -> Iterator[tuple[Place, dict[str, Any], Words | None]]:
    """Where it is, with its utterance id, what it says, and its reference: of each line of a manifest."""
    unique = UniqueIds()
    for number, line in read_lines(path):
        place = Place(path, number)
        try:
            entry = parse_json(line)
        except ValueError as error:
            raise place.format_error(f"not JSON ({error}), expected a line of a NeMo manifest") from None
        named = named_in(entry) if isinstance(entry, dict) else None
        if named is None:
            raise place.format_error("no 'utt_id' and no 'audio_filepath', expected a line of a NeMo manifest")
        utt_id = id_of_json(named, place)
        place = Place(path, number, utt_id)
        unique.add(utt_id, place, "; parts of one audio file need an 'utt_id' each")
        text = entry.get("text")
        yield place, entry, tuple(kaldi_fields(text)) if isinstance(text, str) else None


def write(path: Path, lists: Iterable[NbestList], options: Mapping[str, str]) -> int:
    """Writes lists that all have the same number of hypotheses (`n`); see `single_score` for which score."""
    size = _size(path, options) if "n" in options else 0
    count = 0
    with atomic_text(path) as stream:
        for nbest in lists:
            place = Place(path, utt_id=nbest.utt_id)
            size = size or len(nbest.hyps)
            if len(nbest.hyps) != size:
                raise place.format_error(f"{len(nbest.hyps)} hypotheses, expected {size} as NeMo's TSV has no gaps")
            if not count and "".join(nbest.hyps[0].words).startswith(MARK):
                raise place.format_error("the first word begins with a byte order mark, which would be lost; remove it")
            for hyp, score in zip(nbest.hyps, single_score(nbest, options, place), strict=True):
                stream.write(f"{join_words(hyp.words, place)}\t{score!r}\n")
            count += 1
    remark(f"{path}: NeMo's TSV has no utterance ids; read it with ?n={size}")
    return count
