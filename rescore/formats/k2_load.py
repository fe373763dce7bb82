"""Reading files of k2's FSAs, `torch.save(fsa.as_dict(), PATH)`: no code in them is run, and what they say is checked.

`arcs` is an int32 tensor, `(arcs, 4)` for one FSA (source, target, label, bits of the float32 score), and for an
FsaVec a flat one: number of FSAs n, 0, n + 1 offsets of their states, n + 1 offsets of their arcs, and the arcs.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lm_zoo.reading import is_read_once
from rescore.errors import FormatError, RescoreError

VALUES, SPLITS = "_values", "_row_splits"  # the two tensors of a ragged attribute


class Ragged:
    """k2's RaggedTensor of two axes, as its pickle gives it."""

    def __setstate__(self, state: Any) -> None:
        if len(state) != 3:
            raise ValueError("a ragged tensor of more than two axes")
        self.splits, _, self.values = state


def load(path: Path) -> dict[str, Any]:
    """The dict in a file.  A ragged attribute NAME is two entries, its values and its row splits.

    Raises:
      FormatError: a pipe; it is no file of torch, it is damaged, it has something else in it than tensors, numbers,
        text and ragged tensors, or its arcs are not those of an Fsa or FsaVec.
    """
    import torch

    from lm_zoo.errors import ModelError
    from lm_zoo.safe_unpickle import read_torch_file

    if is_read_once(path):
        raise FormatError(path, "a pipe, and files of torch are not read from one; write it to a file first")
    if not path.is_file():
        raise FormatError(path, "no such file, expected an Fsa or FsaVec: torch.save(fsa.as_dict(), PATH)")
    try:
        entries = read_torch_file(path, {("_k2.ragged", "RaggedTensor"): Ragged}, strict=True)
    except ModelError as error:
        problem = str(error).removeprefix(f"{path}: ")
        raise FormatError(path, f"cannot be read as torch.save(fsa.as_dict()): {problem}") from None
    arcs = entries.get("arcs") if isinstance(entries, dict) else None
    if not isinstance(arcs, torch.Tensor) or arcs.dtype != torch.int32:
        raise FormatError(path, "no dict with 'arcs' of int32, expected torch.save(fsa.as_dict(), PATH)")
    if not all(isinstance(name, str) for name in entries):
        raise FormatError(path, "a dict whose keys are not all text, expected torch.save(fsa.as_dict(), PATH)")
    for name in [name for name, value in entries.items() if isinstance(value, Ragged)]:
        ragged = entries.pop(name)
        entries |= {name + VALUES: ragged.values, name + SPLITS: ragged.splits}
    try:
        offsets(arcs.numpy())
    except RescoreError as error:
        raise FormatError(path, str(error)) from None
    return entries


def load_fsa(path: Path) -> Any:
    """The Fsa or FsaVec in a file as k2's own, ragged attributes too.

    Raises:
      FormatError: as `load`, or its attributes or states are not those of its arcs.
    """
    import k2
    import torch

    entries = load(path)
    states, arc_at, rows = offsets(entries["arcs"].numpy())
    try:
        for number, (low, high) in enumerate(pairwise(arc_at.tolist())):
            check_states(rows[low:high], int(states[number + 1] - states[number]))
        for name in [name.removesuffix(SPLITS) for name in entries if name.endswith(SPLITS)]:
            values, splits = entries.pop(name + VALUES, None), entries.pop(name + SPLITS)
            if not isinstance(values, torch.Tensor) or not isinstance(splits, torch.Tensor):
                raise RescoreError(f"'{name}' is no ragged tensor")
            check_ragged(values.numpy(), splits.numpy(), len(rows))
            entries[name] = k2.RaggedTensor(k2.ragged.create_ragged_shape2(splits, None, len(values)), values)
    except RescoreError as error:
        raise FormatError(path, str(error)) from None
    return k2.Fsa.from_dict(entries)


def offsets(arcs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets of states and of arcs `(fsas + 1,)`, and the arcs `(arcs, 4)`.

    Raises:
      RescoreError: `arcs` is not that of an Fsa or FsaVec.
    """
    if arcs.ndim == 2 and arcs.shape[1] == 4:
        return np.array([0, int(arcs[:, :2].max(initial=-1)) + 1]), np.array([0, len(arcs)]), arcs
    count = int(arcs[0]) if arcs.ndim == 1 and len(arcs) > 3 else -1
    head = 2 + 2 * (count + 1)
    if count < 0 or len(arcs) < head or len(arcs) != head + 4 * int(arcs[head - 1]):
        raise RescoreError("'arcs' is not that of an Fsa or FsaVec")
    states, arc_at = arcs[2 : 3 + count].astype(np.int64), arcs[3 + count : head].astype(np.int64)
    for found in (states, arc_at):
        if found[0] != 0 or (np.diff(found) < 0).any():
            raise RescoreError("'arcs' is not that of an FsaVec: its offsets do not ascend from 0")
    return states, arc_at, arcs[head:].reshape(-1, 4)


def check_states(arcs: np.ndarray, states: int) -> None:
    """Raises RescoreError if an arc of one FSA `(arcs, 4)` is not between two of its states."""
    ends = arcs[:, :2]
    if ((ends < 0) | (ends >= states)).any():
        raise RescoreError(f"an arc has the state {ends[(ends < 0) | (ends >= states)][0]} of {states} states")


def check_ragged(values: np.ndarray, splits: np.ndarray, num_arcs: int) -> None:
    """Raises RescoreError if a ragged attribute is not one of so many arcs."""
    if splits.ndim != 1 or values.ndim != 1 or not splits.dtype.kind == values.dtype.kind == "i":
        raise RescoreError("labels are not whole numbers, one dimension of them")
    if len(splits) != num_arcs + 1:
        raise RescoreError(f"labels for {len(splits) - 1} arcs, found {num_arcs} arcs")
    if splits[0] != 0 or splits[-1] != len(values) or (np.diff(splits) < 0).any():
        raise RescoreError(f"the row splits of ragged labels do not ascend from 0 to {len(values)}")
