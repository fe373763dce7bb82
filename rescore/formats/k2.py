"""k2's lattices, in memory and as icefall keeps them: `torch.save(fsa.as_dict(), PATH)` of an Fsa or FsaVec.

Such a dict is read without k2: `arcs` is an int32 tensor, `(arcs, 4)` for one FSA (source, target, label, bits of the
float32 score), and for an FsaVec a flat one: number of FSAs n, 0, n + 1 offsets of their states, n + 1 offsets of
their arcs, and the arcs. Other entries are attributes, one value an arc. Utterance ids are an entry `utt_ids`.

Scores: `lm` is the attribute `lm_scores`, `am` what is left of the arc's score, other floats keep their names.
Words are `aux_labels` (a tensor, or ragged), else `tokens`, else the labels; labels are the `alignments`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from rescore.errors import K2_INSTALL, FormatError, RescoreError
from rescore.files import atomic_path
from rescore.formats.common import OnError, Place, fail
from rescore.formats.symbols import SymbolTable
from rescore.lattice import EPSILON, build_lattice, split_arcs
from rescore.types import Alignments, Lattice

if TYPE_CHECKING:
    import torch

FINAL = -1  # label of the arcs into the final state
UTT_IDS = "utt_ids"
_WORDS = ("aux_labels", "tokens")
_NOT_SCORES = ("lm_scores", "am_scores", "scores")
_VALUES, _SPLITS = "_values", "_row_splits"  # of a ragged attribute, which weights_only loading does not take
_LOADABLE = {
    ("_k2.ragged", "RaggedTensor"),
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    *(("torch", f"{name}Storage") for name in ("Int", "Long", "Float", "Double", "Bool", "Byte")),
}


def write_lattices(lattice: Any, utt_ids: Sequence[str], path: str | Path) -> None:
    """Writes what icefall decoded: call it after `fast_beam_search` or `get_lattice`.

    Args:
      lattice: k2 FsaVec (or Fsa, for one utterance), on any device.
      utt_ids: the id of each FSA, in order.
      path: file to write, `.pt`; the files of one folder are read in the order of their names (`k2:FOLDER`).
    Raises:
      FormatError: there are not as many ids as FSAs.
    """
    import torch

    entries: dict[str, Any] = {}
    for name, value in lattice.as_dict().items():
        if isinstance(value, torch.Tensor):
            entries[name] = value.detach().cpu()
        elif hasattr(value, "values") and hasattr(value, "shape"):  # k2.RaggedTensor
            entries[name + _VALUES] = value.values.detach().cpu()
            entries[name + _SPLITS] = value.shape.row_splits(1).cpu()
        elif isinstance(value, (int, float, str)):
            entries[name] = value
    save(entries, utt_ids, Path(path))


def save(entries: dict[str, Any], utt_ids: Sequence[str], path: Path) -> None:
    """Writes the dict of an FsaVec, with its ids."""
    import torch

    count = len(_offsets(entries["arcs"].numpy())[0]) - 1
    if len(utt_ids) != count:
        raise FormatError(path, f"{len(utt_ids)} utterance ids for {count} lattices")
    with atomic_path(path) as temporary:
        torch.save({**entries, UTT_IDS: list(utt_ids)}, temporary)


def load(path: Path) -> dict[str, Any]:
    """The dict in a file; no code in it is run.

    Raises:
      FormatError: it is no file of torch, or has something else in it than tensors, numbers, text, ragged tensors.
    """
    import torch

    if not path.is_file():
        raise FormatError(path, "no such file, expected an Fsa or FsaVec: torch.save(fsa.as_dict(), PATH)")
    try:
        try:
            entries = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            if "RaggedTensor" not in str(error):
                raise
            entries = _load_ragged(path)
    except FormatError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise FormatError(path, f"cannot be read as torch.save(fsa.as_dict()) ({problem})") from None
    if not isinstance(entries, dict) or not isinstance(entries.get("arcs"), torch.Tensor):
        raise FormatError(path, "no dict with 'arcs', expected torch.save(fsa.as_dict(), PATH)")
    return entries


def _load_ragged(path: Path) -> Any:
    """As torch.load, for files with k2's ragged tensors and nothing else that is not plain."""
    import torch

    try:
        import k2  # noqa: F401
    except ImportError:
        raise FormatError(path, f"has ragged labels, which need k2 to be read; install it: {K2_INSTALL}") from None

    class Restricted(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) not in _LOADABLE:
                raise pickle.UnpicklingError(f"{module}.{name} in the file, expected tensors")
            return super().find_class(module, name)

    return torch.load(path, map_location="cpu", pickle_module=SimpleNamespace(Unpickler=Restricted), weights_only=False)


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
    """
    entries: Mapping[str, Any] = fsas if isinstance(fsas, Mapping) else fsas.as_dict()
    arcs = np.ascontiguousarray(entries["arcs"].detach().cpu().numpy(), dtype=np.int32)
    states, arc_at, rows = _offsets(arcs)
    if len(utt_ids) != len(states) - 1:
        raise FormatError(path or "k2", f"{len(utt_ids)} utterance ids for {len(states) - 1} lattices")
    columns = _Columns(entries, len(rows))
    for number, utt_id in enumerate(utt_ids):
        place = Place(path or Path("k2"), utt_id=utt_id)
        part = slice(int(arc_at[number]), int(arc_at[number + 1]))
        try:
            yield _to_lattice(utt_id, int(states[number + 1] - states[number]), rows[part], columns, part, table)
        except (RescoreError, KeyError) as error:
            on_error(place.format_error(str(error.args[0])))


def _offsets(arcs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets of states and of arcs `(fsas + 1,)`, and the arcs `(arcs, 4)`."""
    if arcs.ndim == 2 and arcs.shape[1] == 4:
        return np.array([0, arcs[:, :2].max(initial=-1) + 1]), np.array([0, len(arcs)]), arcs
    count = int(arcs[0]) if arcs.ndim == 1 and len(arcs) > 3 else -1
    head = 2 + 2 * (count + 1)
    if count < 0 or len(arcs) < head or len(arcs) != head + 4 * int(arcs[head - 1]):
        raise RescoreError("'arcs' is not that of an Fsa or FsaVec")
    return arcs[2 : 3 + count], arcs[3 + count : head], arcs[head:].reshape(-1, 4)


class _Columns:
    """The attributes of all arcs."""

    def __init__(self, entries: Mapping[str, Any], num_arcs: int) -> None:
        self.floats: dict[str, np.ndarray] = {}
        self.words: tuple[np.ndarray, np.ndarray] | None = None  # values and offsets
        value: Any
        for name, value in entries.items():
            if getattr(value, "dtype", None) is None or not hasattr(value, "numpy"):
                continue
            column = value.detach().cpu().numpy()
            if column.dtype.kind == "f" and column.shape == (num_arcs,):
                self.floats[name] = column.astype(np.float64)
        for name in reversed(_WORDS):
            value = entries.get(name)
            if name + _VALUES in entries:
                self.words = entries[name + _VALUES].numpy(), entries[name + _SPLITS].numpy()
            elif hasattr(value, "values") and hasattr(value, "tot_size"):  # ragged
                self.words = value.values.cpu().numpy(), value.shape.row_splits(1).cpu().numpy()
            elif value is not None and tuple(value.shape) == (num_arcs,):
                self.words = value.detach().cpu().numpy(), np.arange(num_arcs + 1)
        if self.words is not None and len(self.words[1]) != num_arcs + 1:
            raise RescoreError(f"labels for {len(self.words[1]) - 1} arcs, found {num_arcs} arcs")


def _to_lattice(
    utt_id: str, states: int, arcs: np.ndarray, columns: _Columns, part: slice, table: SymbolTable | None
) -> Lattice:
    if states < 2 or not len(arcs):
        raise RescoreError("an empty lattice: no arcs")
    labels = arcs[:, 2]
    total = np.ascontiguousarray(arcs[:, 3]).view(np.float32).astype(np.float64)
    extra = {name: column[part] for name, column in columns.floats.items() if name not in _NOT_SCORES}
    scores = {"am": total, **extra}
    if "lm_scores" in columns.floats:
        lm = columns.floats["lm_scores"][part]
        scores = {"am": np.where(np.isfinite(total), total - lm, total), "lm": lm, **extra}
    for name, column in scores.items():
        if not (column < np.inf).all():
            raise RescoreError(f"an arc has a score '{name}' of {column[~(column < np.inf)][0]}, expected a number")
    phrases = _phrases(labels, columns, part)
    numbers: dict[tuple[int, ...], int] = {(): EPSILON}
    of_arc = np.array([numbers.setdefault(phrase, len(numbers)) for phrase in phrases])
    finite = np.flatnonzero(np.min([*scores.values()], axis=0) > -np.inf)
    strings = Alignments.of_lengths(labels[labels != FINAL], labels != FINAL)
    lattice = build_lattice(
        utt_id,
        states,
        arcs[finite, 0],
        arcs[finite, 1],
        of_arc[finite],
        {name: column[finite] for name, column in scores.items()},
        [],
        0,
        states - 1,
        counts={"removed_arcs": len(arcs) - len(finite)},
        alignments=strings.take(finite),
    )
    return _name_words(lattice, list(numbers), table or SymbolTable())


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
    """The dict of an FsaVec; `k2.Fsa.from_dict` makes it one.

    An arc's score is `am + lm`; `lm` is the attribute `lm_scores`, other scores are attributes of their names.  Labels
    are the alignments where no arc has more than one id (0 for none; see `one_id_an_arc`), else the words; a final
    state is added where words or ids lead to it.

    Raises:
      FormatError: lattices that do not have the same scores.
      KeyError: a word that `table` does not have.
    """
    import torch

    parts = [_to_arcs(lattice, table or SymbolTable()) for lattice in lattices]
    names = parts[0][2].keys()
    for lattice, (_, _, scores, _) in zip(lattices, parts, strict=True):
        if scores.keys() != names:
            raise RescoreError(
                f"lattice '{lattice.utt_id}' has scores {', '.join(scores)}, expected {', '.join(names)}"
            )
    states = np.cumsum([0, *(part[3] for part in parts)])
    arcs = np.cumsum([0, *(len(part[0]) for part in parts)])
    head = np.concatenate([[len(parts), 0], states, arcs])
    flat = np.concatenate([head, *(part[0].reshape(-1) for part in parts)]).astype(np.int32)
    found = {"arcs": torch.from_numpy(flat), "aux_labels": torch.from_numpy(np.concatenate([p[1] for p in parts]))}
    for name in names:
        column = np.concatenate([part[2][name] for part in parts]).astype(np.float32)
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


def _to_arcs(lattice: Lattice, table: SymbolTable) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], int]:
    """Arcs int32 `(arcs, 4)`, word ids int32 `(arcs,)`, scores by name, number of states."""
    src, dst, states = lattice.src, lattice.dst, lattice.num_states
    words = table.to_ids(lattice.labels, lattice.symbols)
    scores = {name: column.astype(np.float64) for name, column in lattice.scores.items()}
    strings = lattice.alignments
    labels = words.copy()
    final = dst == states - 1
    if strings is not None and (strings.lengths <= 1).all():
        labels = np.zeros_like(words)
        labels[strings.lengths == 1] = strings.ids
    silent = (words[final] == 0).all() and (strings is None or (strings.lengths[final] == 0).all())
    if not silent or not len(src):
        src, dst, words = np.append(src, states - 1), np.append(dst, states), np.append(words, 0)
        labels = np.append(labels, 0)
        scores = {name: np.append(column, 0.0) for name, column in scores.items()}
        states += 1
    final = dst == states - 1
    labels[final], words[final] = FINAL, FINAL
    total = scores.get("am", np.zeros(len(src))) + scores.get("lm", np.zeros(len(src)))
    bits = total.astype(np.float32).view(np.int32)
    return np.stack([src, dst, labels, bits], axis=1).astype(np.int32), words.astype(np.int32), scores, states
