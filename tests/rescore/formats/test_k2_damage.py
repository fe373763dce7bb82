"""Files of k2 lattices that are damaged or made to harm: one error, no code run, no memory by what they say."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rescore.errors import FormatError
from rescore.formats import read_lattices
from rescore.lattices.paths import best_path

torch = pytest.importorskip("torch")

ARCS = [[0, 1, 5, 0], [0, 1, 6, 0], [1, 2, 7, 0], [2, 3, -1, 0]]


def entries(arcs: list[list[int]] | None = None, states: int = 4, **more: Any) -> dict[str, Any]:
    """The dict of an FsaVec with one FSA."""
    rows = ARCS if arcs is None else arcs
    flat = [1, 0, 0, states, 0, len(rows), *(value for row in rows for value in row)]
    return {"arcs": torch.tensor(flat, dtype=torch.int32), "utt_ids": ["u"], **more}


def source(path: Path, contents: Any) -> str:
    torch.save(contents, path / "lat.pt")
    return f"k2:{path / 'lat.pt'}?words=ids"


class Runs:
    """Pickles as a call of `os.system`."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


@pytest.fixture
def ragged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes what pickles as k2's RaggedTensor does: its class, no arguments, (row splits, "row_ids1", values)."""
    module: Any = ModuleType("_k2.ragged")

    class RaggedTensor:
        def __init__(self, *state: Any) -> None:
            self.state = state

        def __getstate__(self) -> tuple[Any, ...]:
            return self.state

        def __setstate__(self, state: Any) -> None: ...

    RaggedTensor.__module__, RaggedTensor.__qualname__, module.RaggedTensor = "_k2.ragged", "RaggedTensor", RaggedTensor
    monkeypatch.setitem(sys.modules, "_k2", ModuleType("_k2"))
    monkeypatch.setitem(sys.modules, "_k2.ragged", module)
    return RaggedTensor


def test_a_ragged_tensor_opens_no_door_to_other_names(tmp_path: Path, ragged: Callable[..., Any]) -> None:
    """The file names k2's RaggedTensor first and then a function to call."""
    target = tmp_path / "made"
    name = source(tmp_path, {"r": ragged(1, 2, 3), "x": Runs(target)} | entries())
    with pytest.raises(FormatError, match=r"lat.pt: cannot be read .*system in the file, expected tensors"):
        list(read_lattices(name))
    assert not target.exists()


def test_ragged_labels_need_no_k2(tmp_path: Path, ragged: Callable[..., Any]) -> None:
    splits, values = (torch.tensor(part, dtype=torch.int32) for part in ([0, 2, 2, 2, 3], [8, 9, -1]))
    (lattice,) = read_lattices(source(tmp_path, entries(aux_labels=ragged(splits, "row_ids1", values))))
    assert best_path(lattice, {"words": 1.0}).words == ("8", "9")
    for state, message in (
        ((splits, "row_ids1", splits, "row_ids2", values), "a ragged tensor of more than two axes"),
        ((splits, "row_ids1", 7), "'aux_labels' is no tensor"),
    ):
        with pytest.raises(FormatError, match=f"lat.pt: .*{message}"):
            list(read_lattices(source(tmp_path, entries(aux_labels=ragged(*state)))))


def test_a_torchscript_file_is_refused(tmp_path: Path) -> None:
    torch.jit.script(torch.nn.Linear(1, 1)).save(str(tmp_path / "lat.pt"))
    with pytest.raises(FormatError, match=r"lat.pt: .*a TorchScript file"):
        list(read_lattices(f"k2:{tmp_path / 'lat.pt'}?words=ids"))


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (lambda: entries([[0, 1, 5, 0], [1, 9, -1, 0]], states=3), "an arc has the state 9 of 3 states"),
        (lambda: entries([[0, -1, 5, 0], [1, 2, -1, 0]], states=3), "an arc has the state -1 of 3 states"),
        (lambda: entries(states=-4), "offsets do not ascend"),
        (lambda: entries() | {"arcs": torch.tensor([1, 0, 0, 4, 4, 4, *np.ravel(ARCS)], dtype=torch.int32)}, "ascend"),
        (lambda: entries() | {"arcs": entries()["arcs"].float()}, "no dict with 'arcs' of int32"),
        (lambda: entries() | {"arcs": torch.tensor(3, dtype=torch.int32)}, "not that of an Fsa"),
        (lambda: entries(lm_scores=torch.zeros(3)), r"'lm_scores' has the shape \(3,\), expected 4 numbers"),
        (lambda: entries(aux_labels=torch.zeros(4)), "labels are not whole numbers"),
        (lambda: entries(**_ragged([0, 2, 1, 3, 3])), "row splits of ragged labels do not ascend"),
        (lambda: entries(**_ragged([0, 2, 2, 3, 9])), "row splits of ragged labels do not ascend"),
        (lambda: entries(**_ragged([0, 2, 3])), "labels for 2 arcs, found 4 arcs"),
        (lambda: entries(aux_labels="x"), "aux_labels"),
        (lambda: entries() | {"utt_ids": ["a\x00b"]}, "without white space and control characters"),
        (lambda: entries() | {"utt_ids": ["a b"]}, "without white space and control characters"),
        (lambda: entries() | {"utt_ids": [7]}, "utterance id 7, expected a string"),
        (lambda: entries(x=Path("x")), "Path in the file, expected tensors"),
        (lambda: entries(aux_labels=torch.zeros(3, dtype=torch.int32)), "labels for 3 arcs, found 4 arcs"),
        (lambda: entries(tokens=None, aux_labels_row_splits=torch.zeros(5)), "'aux_labels' is no tensor"),
        (lambda: entries() | {1: 2}, "keys are not all text"),
        (lambda: [1], "no dict with 'arcs'"),
    ],
)
def test_entries_that_make_no_sense(tmp_path: Path, contents: Callable[[], Any], message: str) -> None:
    with pytest.raises(FormatError, match=f"lat.pt: .*{message}"):
        list(read_lattices(source(tmp_path, contents())))


def _ragged(splits: list[int]) -> dict[str, Any]:
    values = torch.tensor([8, 9, 7], dtype=torch.int32)
    return {"aux_labels_values": values, "aux_labels_row_splits": torch.tensor(splits, dtype=torch.int32)}


def test_states_of_a_billion_take_no_memory(tmp_path: Path) -> None:
    """1 kB that says so would take gigabytes where a table has a row a state."""
    top = 2_000_000_000
    arcs = [[0, top - 9, 5, 0], [top - 9, top - 2, 7, 0], [top - 2, top - 1, -1, 0]]
    (lattice,) = read_lattices(source(tmp_path, entries(arcs, states=top)))
    assert lattice.num_states == 4 and best_path(lattice, {"am": 1.0}).words == ("5", "7")
    assert lattice.counts["removed_states"] == top - 4


def test_flipped_bits_are_found_by_the_checksum(tmp_path: Path) -> None:
    """1,018 of 2,000 were read as other lattices."""
    name = source(tmp_path, entries(lm_scores=torch.tensor([0.5, 1.0, 2.0, 0.0])))
    path = tmp_path / "lat.pt"
    data = path.read_bytes()
    (right,) = read_lattices(name)
    refused = 0
    for place in range(0, 8 * len(data), 61):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            (found,) = read_lattices(name)
        except FormatError:
            refused += 1
        else:
            assert np.array_equal(found.scores["lm"], right.scores["lm"]) and found.symbols == right.symbols, place
    assert refused > len(data) // 40


def test_graphs_are_checked_before_k2_sees_them(tmp_path: Path) -> None:
    pytest.importorskip("k2")
    from rescore.formats.k2_load import load_fsa

    path = tmp_path / "lat.pt"
    source(tmp_path, entries(**_ragged([0, 2, 2, 3, 3])))
    assert load_fsa(path).aux_labels.tolist() == [[8, 9], [], [7], []]
    source(tmp_path, entries([[0, 1, 5, 0], [1, 1 << 20, -1, 0]], states=3))
    with pytest.raises(FormatError, match=r"an arc has the state 1048576 of 3 states"):
        load_fsa(path)
    source(tmp_path, entries(**_ragged([0, 2, 2, 3, 1 << 20])))
    with pytest.raises(FormatError, match=r"row splits"):
        load_fsa(path)
