"""k2's lattices, in memory and as icefall keeps them: `torch.save(fsa.as_dict(), PATH)` of an Fsa or FsaVec.

Such a dict is read without k2 (see `rescore.formats.k2_load` for its arcs); other entries are attributes, one value
an arc. Utterance ids are an entry `utt_ids`.

Scores: `lm` is the attribute `lm_scores`, `am` what is left of the arc's score, other floats keep their names.
Words are `aux_labels` (a tensor, or ragged), else `tokens`, else the labels; labels are the `alignments`, but those of
arcs whose attribute `has_id` (int32, of files written here) is 0: they have no id, where 0 alone may be the blank's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_zoo.files import save_torch
from rescore.errors import FormatError, RescoreError
from rescore.formats.common import Place, UniqueIds, named_if_too_large, utterance_id
from rescore.formats.k2_load import SPLITS, VALUES, check_ragged, check_states, offsets
from rescore.formats.symbols import SymbolTable
from rescore.lattices.build import EPSILON, build_lattice, split_arcs
from rescore.skipping import OnError, fail
from rescore.text import short
from rescore.types import Alignments, Lattice

if TYPE_CHECKING:
    import torch

FINAL = -1  # label of the arcs into the final state
UTT_IDS = "utt_ids"
_WORDS = ("aux_labels", "tokens")
_NOT_SCORES = ("lm_scores", "am_scores", "scores")
HAS_ID = "has_id"
_RESERVED = frozenset((*_WORDS, *_NOT_SCORES, "arcs", "labels", HAS_ID, UTT_IDS))  # no names of scores


def write_lattices(lattice: Any, utt_ids: Sequence[str], path: str | Path) -> None:
    """Writes what icefall decoded: call it after `fast_beam_search` or `get_lattice`.

    Args:
      lattice: k2 FsaVec (or Fsa, for one utterance), on any device.
      utt_ids: the id of each FSA, in order.
      path: file to write, `.pt`; the files of one folder are read in the order of their names (`k2:FOLDER`).
    Raises:
      FormatError: it is no FSA; there are not as many ids as FSAs, or ids that a reader would refuse.
    """
    import torch

    entries: dict[str, Any] = {}
    for name, value in _dict_of(lattice, Path(path)).items():
        if isinstance(value, torch.Tensor):
            entries[name] = value.detach().cpu()
        elif hasattr(value, "values") and hasattr(value, "shape"):  # k2.RaggedTensor
            entries[name + VALUES] = value.values.detach().cpu()
            entries[name + SPLITS] = value.shape.row_splits(1).cpu()
        elif isinstance(value, (int, float, str)):
            entries[name] = value
    save(entries, utt_ids, Path(path))


def save(entries: dict[str, Any], utt_ids: Sequence[str], path: Path) -> None:
    """Writes the dict of an FsaVec, with its ids."""
    count = len(offsets(entries["arcs"].numpy())[0]) - 1
    save_torch(path, {**entries, UTT_IDS: _checked_ids(utt_ids, count, path)})


def _dict_of(fsas: Any, path: Path) -> Mapping[str, Any]:
    """The dict of an Fsa or FsaVec, or `fsas` if it is one."""
    if isinstance(fsas, Mapping):
        return fsas
    if not hasattr(fsas, "as_dict"):
        expected = "expected a k2 Fsa or FsaVec (of several Fsa: k2.create_fsa_vec)"
        raise FormatError(path, f"found a {type(fsas).__name__}, {expected}")
    found: Mapping[str, Any] = fsas.as_dict()
    return found


def _checked_ids(utt_ids: Sequence[str], count: int, path: Path) -> list[str]:
    """The ids of `count` lattices; FormatError where they are not as many, or one that cannot be read again."""
    if isinstance(utt_ids, str):
        raise FormatError(path, f"the utterance ids are the string {short(utt_ids)}, expected a list of strings")
    if len(utt_ids) != count:
        raise FormatError(path, f"{len(utt_ids)} utterance ids for {count} lattices")
    unique = UniqueIds()
    for utt_id in utt_ids:
        unique.add(utterance_id(utt_id, Place(path)), Place(path, utt_id=utt_id))
    return list(utt_ids)


def to_lattices(
    fsas: Any,
    utt_ids: Sequence[str],
    table: SymbolTable | None = None,
    path: Path | None = None,
    on_error: OnError = fail,
) -> Iterator[Lattice]:
    """The lattices of an Fsa, an FsaVec, or the dict of one.

    Args:
      table: of words; None if words are to be the ids as text.
      path: for messages.
    Raises:
      FormatError: as of `write_lattices`; what is wrong with one lattice goes to `on_error`.
    """
    where = path or Path("k2")
    entries = _dict_of(fsas, where)
    arcs = np.ascontiguousarray(entries["arcs"].detach().cpu().numpy(), dtype=np.int32)
    states, arc_at, rows = offsets(arcs)
    columns = _Columns(entries, len(rows))
    for number, utt_id in enumerate(_checked_ids(utt_ids, len(states) - 1, where)):
        place = Place(where, utt_id=utt_id)
        part = slice(int(arc_at[number]), int(arc_at[number + 1]))
        try:
            with named_if_too_large():
                lattice = _to_lattice(
                    utt_id, int(states[number + 1] - states[number]), rows[part], columns, part, table
                )
            yield lattice
        except (RescoreError, KeyError) as error:
            on_error(place.format_error(str(error.args[0])))


class _Columns:
    """The attributes of all arcs."""

    def __init__(self, entries: Mapping[str, Any], num_arcs: int) -> None:
        self.floats: dict[str, np.ndarray] = {}
        self.words: tuple[np.ndarray, np.ndarray] | None = None  # values and offsets
        value: Any
        for name, value in entries.items():
            if getattr(value, "dtype", None) is None or not hasattr(value, "numpy"):
                continue
            if value.is_floating_point() and tuple(value.shape) == (num_arcs,):
                self.floats[name] = value.detach().cpu().double().numpy()  # numpy knows no bfloat16
            elif name == "lm_scores":
                raise RescoreError(f"'lm_scores' has the shape {tuple(value.shape)}, expected {num_arcs} numbers")
        for name in reversed(_WORDS):
            self.words = _labels(entries, name, num_arcs) or self.words
        has_id = _labels(entries, HAS_ID, num_arcs)
        self.has_id = None if has_id is None else has_id[0] > 0


def _labels(entries: Mapping[str, Any], name: str, num_arcs: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Values and offsets `(arcs + 1,)` of an attribute with one whole number an arc, or with any number if ragged."""
    value: Any = entries.get(name)
    if name + SPLITS in entries:
        parts = [entries.get(name + VALUES), entries[name + SPLITS]]
    elif hasattr(value, "values") and hasattr(value, "tot_size"):  # k2.RaggedTensor
        parts = [value.values, value.shape.row_splits(1)]
    elif value is None:
        return None
    else:
        parts = [value]
    if not all(hasattr(part, "detach") for part in parts):
        raise RescoreError(f"'{name}' is no tensor, expected labels of {num_arcs} arcs")
    values, *splits = (part.detach().cpu().numpy() for part in parts)
    offsets_of = splits[0] if splits else np.arange(values.size + 1)
    check_ragged(values, offsets_of, num_arcs)
    return values, offsets_of


def _to_lattice(
    utt_id: str, states: int, arcs: np.ndarray, columns: _Columns, part: slice, table: SymbolTable | None
) -> Lattice:
    if states < 2 or not len(arcs):
        raise RescoreError("an empty lattice: no arcs")
    check_states(arcs, states)
    labels = arcs[:, 2]
    total = np.ascontiguousarray(arcs[:, 3]).view(np.float32).astype(np.float64)
    extra = {name: column[part] for name, column in columns.floats.items() if name not in _NOT_SCORES}
    scores = {"am": total, **extra}
    if "lm_scores" in columns.floats:
        lm = columns.floats["lm_scores"][part]
        scores = {"am": np.subtract(total, lm, out=total.copy(), where=np.isfinite(total)), "lm": lm, **extra}
    for name, column in scores.items():
        if not (column < np.inf).all():
            raise RescoreError(f"an arc has a score '{name}' of {column[~(column < np.inf)][0]}, expected a number")
    phrases = _phrases(labels, columns, part)
    numbers: dict[tuple[int, ...], int] = {(): EPSILON}
    of_arc = np.array([numbers.setdefault(phrase, len(numbers)) for phrase in phrases])
    strings = _strings(labels, columns, part)
    ends = arcs[:, 0], arcs[:, 1]
    lattice = build_lattice(utt_id, states, *ends, of_arc, scores, [], 0, states - 1, alignments=strings, possible=True)
    return _name_words(lattice, list(numbers), table or SymbolTable())


def _strings(labels: np.ndarray, columns: _Columns, part: slice) -> Alignments | None:
    """The labels as strings of one id; None where the file says that they are no ids."""
    given = labels != FINAL
    if columns.has_id is not None:
        given &= columns.has_id[part]
        if not given.any():
            return None
    return Alignments.of_lengths(labels[given], given)


def _phrases(labels: np.ndarray, columns: _Columns, part: slice) -> list[tuple[int, ...]]:
    """The ids of the words on each arc, without epsilons."""
    if columns.words is None:
        return [(label,) if label > 0 else () for label in labels.tolist()]
    values, splits = columns.words
    first, bounds = int(splits[part.start]), splits[part.start : part.stop + 1].tolist()
    ids = values[first : bounds[-1]].tolist()
    return [tuple(word for word in ids[low - first : high - first] if word > 0) for low, high in pairwise(bounds)]


def _name_words(lattice: Lattice, phrases: list[tuple[int, ...]], table: SymbolTable) -> Lattice:
    """Labels that number `phrases` (ids of words) become words, a chain of arcs where there are several."""
    used = np.unique(lattice.labels)
    words, symbols = table.compact(np.array([word for label in used for word in phrases[label]], dtype=np.int64))
    pieces: list[list[int]] = [[] for _ in phrases]
    given = iter(words.tolist())
    for label in used:
        pieces[label] = [next(given) for _ in phrases[label]]
    first = np.array([piece[0] if piece else EPSILON for piece in pieces], dtype=np.int32)
    lengths = np.array([max(1, len(piece)) for piece in pieces])
    if (lengths == 1).all():
        lattice.labels, lattice.symbols = first[lattice.labels], symbols
        return lattice
    return split_arcs(lattice, first, lengths, pieces, symbols)


def to_dict(lattices: Sequence[Lattice], table: SymbolTable | None = None) -> dict[str, torch.Tensor]:
    """The dict of an FsaVec; `k2.Fsa.from_dict` makes it one.  See `joined`.

    Raises:
      RescoreError: lattices that do not have the same scores, or one whose name is taken.
      KeyError: a word that `table` does not have.
    """
    return joined([to_arcs(lattice, table or SymbolTable()) for lattice in lattices])


@dataclass(frozen=True)
class Arcs:
    """A lattice as k2 has it.

    Attributes:
      arcs: int32 `(arcs, 4)`.
      words: ids, int32 `(arcs,)`.
      scores: `(arcs,)` by name.
      states: how many.
      has_id: int32 `(arcs,)`, whether an arc has one.
    """

    utt_id: str
    arcs: np.ndarray
    words: np.ndarray
    scores: dict[str, np.ndarray]
    states: int
    has_id: np.ndarray


def joined(parts: Sequence[Arcs]) -> dict[str, torch.Tensor]:
    """The dict of an FsaVec of these.

    An arc's score is `am + lm`; `lm` is the attribute `lm_scores`, other scores are attributes of their names.  Labels
    are the alignments where no arc has more than one id (0 for none; see `one_id_an_arc`), else the words; a final
    state is added where words or ids lead to it.

    Raises:
      RescoreError: they do not have the same scores.
    """
    import torch

    names = parts[0].scores.keys()
    for part in parts:
        if part.scores.keys() != names:
            raise RescoreError(
                f"lattice '{part.utt_id}' has scores {', '.join(part.scores)}, expected {', '.join(names)}"
            )
    states = np.cumsum([0, *(part.states for part in parts)])
    arcs = np.cumsum([0, *(len(part.arcs) for part in parts)])
    head = np.concatenate([[len(parts), 0], states, arcs])
    flat = np.concatenate([head, *(part.arcs.reshape(-1) for part in parts)]).astype(np.int32)
    found = {"arcs": torch.from_numpy(flat), "aux_labels": torch.from_numpy(np.concatenate([p.words for p in parts]))}
    found[HAS_ID] = torch.from_numpy(np.concatenate([part.has_id for part in parts]))
    for name in names:
        column = np.concatenate([_as_float32(part.scores[name], part.utt_id) for part in parts])
        if name != "am":
            found["lm_scores" if name == "lm" else name] = torch.from_numpy(column)
    return found


def has_long_strings(lattice: Lattice) -> bool:
    """Whether some arc has a string of more than one id, which k2 has no place for."""
    return lattice.alignments is not None and bool((lattice.alignments.lengths > 1).any())


def one_id_an_arc(lattice: Lattice) -> Lattice:
    """The lattice with a chain of arcs for each one that has several ids; word and scores stand on the first."""
    strings = lattice.alignments
    assert strings is not None
    lengths = np.maximum(strings.lengths, 1)
    ends = np.cumsum(lengths - 1) + lattice.num_states  # behind the new states of each arc
    arc = np.repeat(np.arange(lattice.num_arcs), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(arc))  # arcs of the chain from here on
    first = left == lengths[arc]
    return build_lattice(
        lattice.utt_id,
        lattice.num_states + int((lengths - 1).sum()),
        np.where(first, lattice.src[arc], ends[arc] - left),
        np.where(left == 1, lattice.dst[arc], ends[arc] - left + 1),
        np.where(first, lattice.labels[arc], EPSILON),
        {name: np.where(first, column[arc], 0.0) for name, column in lattice.scores.items()},
        lattice.symbols,
        start=0,
        final=lattice.num_states - 1,
        counts=lattice.counts,
        alignments=Alignments.of_lengths(strings.ids, np.where(first, np.minimum(strings.lengths, 1)[arc], 1)),
    )


def to_arcs(lattice: Lattice, table: SymbolTable) -> Arcs:
    """The lattice for `joined`.

    Raises:
      KeyError: a word that `table` does not have.
      RescoreError: a score whose name k2, or the file, has for something else.
    """
    for name in lattice.scores:
        if name in _RESERVED or name.endswith((VALUES, SPLITS)):
            raise RescoreError(
                f"lattice '{lattice.utt_id}' has a score '{name}', a name that k2's files have for something else; "
                "rename the score, or write another format"
            )
    src, dst, states = lattice.src, lattice.dst, lattice.num_states
    words = table.to_ids(lattice.labels, lattice.symbols)
    scores = {name: column.astype(np.float64) for name, column in lattice.scores.items()}
    strings = lattice.alignments
    labels, has_id = words.copy(), np.zeros(len(words), dtype=np.int32)
    final = dst == states - 1
    if strings is not None and (strings.lengths <= 1).all():
        labels, has_id = np.zeros_like(words), strings.lengths.astype(np.int32)
        labels[has_id == 1] = strings.ids
    silent = (words[final] == 0).all() and (strings is None or (strings.lengths[final] == 0).all())
    if not silent or not len(src):
        src, dst, words = np.append(src, states - 1), np.append(dst, states), np.append(words, 0)
        labels, has_id = np.append(labels, 0), np.append(has_id, 0).astype(np.int32)
        scores = {name: np.append(column, 0.0) for name, column in scores.items()}
        states += 1
    final = dst == states - 1
    labels[final], words[final] = FINAL, FINAL
    total = scores.get("am", np.zeros(len(src))) + scores.get("lm", np.zeros(len(src)))
    bits = _as_float32(total, lattice.utt_id).view(np.int32)
    arcs = np.stack([src, dst, labels, bits], axis=1).astype(np.int32)
    return Arcs(lattice.utt_id, arcs, words.astype(np.int32), scores, states, has_id)


def _as_float32(column: np.ndarray, utt_id: str) -> np.ndarray:
    """The scores as k2 holds them; RescoreError where one is none of its numbers."""
    with np.errstate(over="ignore"):
        made = column.astype(np.float32)
    if len(beyond := np.flatnonzero(np.isinf(made) & np.isfinite(column))):
        found = f"a score of {column[beyond[0]]:g}"
        raise RescoreError(f"lattice '{utt_id}' has {found}, which float32, in which k2 has scores, cannot hold")
    return made
