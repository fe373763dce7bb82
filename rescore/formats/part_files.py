"""What the parts of a work are written as: N-best lists as our JSON lines, lattices whole, with nothing rounded."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_zoo.reading import parse_json
from rescore.errors import FormatError
from rescore.files import atomic_binary, atomic_text, read_chunks, read_lines
from rescore.formats import jsonl
from rescore.formats.common import Place, encoded, formed, named_if_too_large, put
from rescore.skipping import OnError, fail
from rescore.types import Alignments, Lattice, NbestList

if TYPE_CHECKING:
    from lm_zoo.inference.perplexity import WordScores


@dataclass(frozen=True)
class PartFile:
    """How the results in a part are written and read; `suffix` is the end of its name.

    `write(path, items, on_error)`, `read(path, on_error)`: see `formed` for `on_error`, which may be left out.
    """

    suffix: str
    write: Callable[..., object]
    read: Callable[..., Iterator[Any]]


@contextmanager
def damage_told(path: Path, number: int) -> Iterator[None]:
    """Raises a FormatError if line `number` of a part is not what was written there."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise FormatError(path, f"damaged ({error!r}); remove it and run its share again", number) from None


def utt_id_of(item: NbestList | Lattice) -> str:
    return item.utt_id


def _write_lists(path: Path, lists: Iterable[NbestList], on_error: OnError = fail) -> None:
    jsonl.write(path, lists, {}, on_error)


def _read_lists(path: Path, on_error: OnError = fail) -> Iterator[NbestList]:
    if next(read_chunks(path, 1), None) is not None:  # all of a part may have been left out
        yield from jsonl.read(path, {}, on_error)


def _write_lattices(path: Path, lattices: Iterable[Lattice], on_error: OnError = fail) -> None:
    with atomic_binary(path) as stream:
        for line in formed(lattices, _lattice_line, path, on_error):
            put(stream, line)


def _lattice_line(lattice: Lattice) -> bytes:
    return encoded(json.dumps(lattice_to_json(lattice), ensure_ascii=False) + "\n")


def _read_lattices(path: Path, on_error: OnError = fail) -> Iterator[Lattice]:
    for number, line in read_lines(path, ended=True, on_error=on_error):
        try:
            with named_if_too_large(Place(path, number)), damage_told(path, number):
                lattice = lattice_from_json(parse_json(line))
        except FormatError as error:
            on_error(error)
        else:
            yield lattice


def lattice_to_json(lattice: Lattice) -> dict[str, Any]:
    strings = lattice.alignments
    return {
        **{name: _packed(getattr(lattice, name)) for name in ("src", "dst", "labels", "times")},
        "utt_id": lattice.utt_id,
        "num_states": lattice.num_states,
        "scores": {name: _packed(values) for name, values in lattice.scores.items()},
        "symbols": lattice.symbols,
        "alignments": None if strings is None else [_packed(strings.ids), _packed(strings.offsets)],
        "counts": {name: int(count) for name, count in lattice.counts.items()},
    }


def lattice_from_json(found: dict[str, Any]) -> Lattice:
    strings = found["alignments"]
    arrays = {name: _unpacked(found[name]) for name in ("src", "dst", "labels", "times")}
    return Lattice(
        utt_id=found["utt_id"],
        num_states=found["num_states"],
        scores={name: _unpacked(values) for name, values in found["scores"].items()},
        symbols=found["symbols"],
        alignments=None if strings is None else Alignments(*map(_unpacked, strings)),
        counts=found["counts"],
        **arrays,
    )


def _packed(values: np.ndarray | None) -> list[str] | None:
    return None if values is None else [values.dtype.str, base64.b64encode(values.tobytes()).decode()]


def _unpacked(packed: list[str] | None) -> Any:
    return None if packed is None else np.frombuffer(base64.b64decode(packed[1]), np.dtype(packed[0])).copy()


@dataclass(frozen=True)
class ScoredText:
    """Sentences, each its words with blanks between them, and the scores of their words."""

    sentences: list[str]
    scores: WordScores


def _write_texts(path: Path, texts: Iterable[ScoredText], on_error: OnError = fail) -> None:
    with atomic_text(path) as stream:
        for text in texts:
            arrays = {name: _packed(getattr(text.scores, name).ravel()) for name in ("log_probs", "known", "tokens")}
            stream.write(json.dumps({"sentences": text.sentences, **arrays}, ensure_ascii=False) + "\n")


def _read_texts(path: Path, on_error: OnError = fail) -> Iterator[ScoredText]:
    from lm_zoo.inference.perplexity import WordScores

    for number, line in read_lines(path, ended=True):
        with damage_told(path, number):
            found = parse_json(line)
            log_probs, known, tokens = (_unpacked(found[name]) for name in ("log_probs", "known", "tokens"))
            shape = len(tokens), -1
            scores = WordScores(log_probs.reshape(shape), known.reshape(shape), tokens, len(found["sentences"]))
        yield ScoredText(found["sentences"], scores)


LISTS = PartFile(".jsonl.gz", _write_lists, _read_lists)
LATTICES = PartFile(".lattices.gz", _write_lattices, _read_lattices)
TEXTS = PartFile(".text.gz", _write_texts, _read_texts)
PARTS = {"lists": LISTS, "lattices": LATTICES, "texts": TEXTS}
