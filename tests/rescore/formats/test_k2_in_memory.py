"""Lattices of k2 in memory: written, given to Python, and back; what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rescore as rs
from rescore.errors import FormatError, RescoreError
from rescore.formats.k2 import to_dict, to_lattices, write_lattices
from rescore.formats.symbols import read_symbols


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("ab", "the utterance ids are the string 'ab', expected a list"),
        (["a"], "1 utterance ids for 2 lattices"),
        (["a", "a"], "utterance 'a': this utterance id occurs a second time"),
        (["a", "b c"], "utterance id 'b c', expected a string without white space"),
        ([1, 2], "utterance id 1, expected a string"),
    ],
)
def test_ids_that_could_not_be_read_again_are_not_written(k2: Any, tmp_path: Path, ids: Any, message: str) -> None:
    """A decoding of hours told of them when its lattices were read."""
    fsa = k2.Fsa.from_str("0 1 1 1 -1.0\n1 2 -1 -1 0\n2", aux_label_names=["aux_labels"])
    fsas = k2.create_fsa_vec([fsa, fsa])
    with pytest.raises(FormatError, match=message):
        write_lattices(fsas, ids, tmp_path / "lattices.pt")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FormatError, match=message):
        list(to_lattices(fsas, ids))


def test_what_is_no_fsa(k2: Any, tmp_path: Path) -> None:
    fsa = k2.Fsa.from_str("0 1 1 -1.0\n1 2 -1 0\n2")
    with pytest.raises(FormatError, match="found a list, expected a k2 Fsa or FsaVec"):
        write_lattices([fsa], ["a"], tmp_path / "lattices.pt")
    with pytest.raises(FormatError, match="found a list, expected a k2 Fsa or FsaVec"):
        list(to_lattices([fsa], ["a"]))
    for given in (fsa, [fsa], k2.create_fsa_vec([fsa])):  # k2 itself fails an assertion, or gives its parts
        with pytest.raises(RescoreError, match=r"rescore\.formats\.k2\.to_lattices"):
            rs.Lattices(given)
    with pytest.raises(RescoreError, match="lattices are a int, expected a sequence"):
        rs.Lattices(5)  # type: ignore[arg-type]


def test_lattices_in_memory(k2: Any, tmp_path: Path) -> None:
    """As docs/lattices.md has it: to Python's lattices, and back."""
    fsa = k2.Fsa.from_str("0 1 1 1 -1.0\n0 1 2 2 -1.5\n1 2 -1 -1 -0.25\n2", aux_label_names=["aux_labels"])
    (tmp_path / "words.txt").write_text("<eps> 0\nA 1\nB 2\n")
    table = read_symbols(tmp_path / "words.txt")
    lattices = rs.Lattices(to_lattices(k2.create_fsa_vec([fsa, fsa]), ["a", "b"], table))  # type: ignore[arg-type]
    assert lattices.best_path() == {"a": ("A",), "b": ("A",)}
    back = k2.Fsa.from_dict(to_dict(list(lattices), table))
    assert k2.shortest_path(back, True).aux_labels.tolist() == [1, -1, 1, -1]
    assert back.scores.tolist() == [-1.0, -1.5, -0.25] * 2
