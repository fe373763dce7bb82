"""PFSG lattices of SRILM: words of nodes, costs as natural logs, a message for each kind of damage."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest

from rescore.errors import FormatError, RescoreError, UsageError
from rescore.formats import parse_spec, read_lattices, write_lattices
from rescore.formats.pfsg import UNIT, read_lattice
from rescore.types import Lattice
from tests.rescore.lattices.test_paths import assert_well_formed, score_sums

TEXT = """name u1
nodes 6 NULL the a cat NULL dog
initial 0
final 4
transitions 7
0 1 -10000.5
0 2 -20001
1 3 -5000.25
2 3 0
3 4 -10000.5
1 5 -30001.5
0 5 -1
"""
PATHS = {(("the", "cat"), -2.5), (("a", "cat"), -3.0)}  # node 5 leads nowhere


def write(tmp_path: Path, text: str, name: str = "u1.pfsg") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_words_belong_to_transitions_that_end_at_their_nodes(tmp_path: Path) -> None:
    lattice = read_lattice(write(tmp_path, TEXT))
    assert_well_formed(lattice)
    assert lattice.utt_id == "u1" and score_sums(lattice) == PATHS
    assert lattice.counts == {"removed_states": 1, "removed_arcs": 2}
    assert math.isclose(UNIT, 1 / math.log(1.0001), rel_tol=1e-6)


def test_words_on_the_first_and_the_last_node(tmp_path: Path) -> None:
    lattice = read_lattice(write(tmp_path, TEXT.replace("6 NULL the a cat NULL", "6 so the a cat then")))
    assert_well_formed(lattice)
    assert score_sums(lattice) == {(("so", *words, "then"), score) for words, score in PATHS}
    one = read_lattice(write(tmp_path, "name x\nnodes 1 hello\ninitial 0\nfinal 0\ntransitions 0\n"))
    assert score_sums(one) == {(("hello",), 0.0)}
    empty = read_lattice(write(tmp_path, "name x\nnodes 1 NULL\ninitial 0\nfinal 0\ntransitions 0\n"))
    assert score_sums(empty) == {((), 0.0)}


def test_tags_of_sentences_are_no_words(tmp_path: Path) -> None:
    tagged = read_lattice(write(tmp_path, TEXT.replace("6 NULL the a cat NULL", "6 <s> the a cat </s>")))
    assert_well_formed(tagged)
    assert score_sums(tagged) == PATHS


def test_folders_and_other_formats(tmp_path: Path) -> None:
    folder = tmp_path / "lattices"
    folder.mkdir()
    for name in ("b.pfsg", "a.pfsg.gz"):
        write(folder, TEXT, name)
    assert parse_spec(str(folder))[0] == parse_spec("x.pfsg.gz")[0] == "pfsg"
    assert [lattice.utt_id for lattice in read_lattices(str(folder))] == ["a", "b"]
    write_lattices(f"slf:{tmp_path / 'slf'}", read_lattices(str(folder)))
    for lattice in read_lattices(f"slf:{tmp_path / 'slf'}"):
        assert score_sums(lattice) == PATHS
    with pytest.raises(UsageError, match=r"pfsg is read only; write another format, such as slf:PATH"):
        write_lattices(f"pfsg:{tmp_path / 'out'}", read_lattices(str(folder)))
    write(folder, "name x\n", "aa.pfsg")
    errors: list[RescoreError] = []
    found: list[Lattice] = list(read_lattices(str(folder), errors.append))
    assert [lattice.utt_id for lattice in found] == ["a", "b"] and len(errors) == 1
    write(folder, TEXT, "b.pfsg.gz")
    with pytest.raises(FormatError, match=r"two files for utterance 'b': b.pfsg, b.pfsg.gz"):
        list(read_lattices(str(folder)))
    with pytest.raises(FormatError, match=r"no lattice in this folder, expected files named \*.pfsg"):
        list(read_lattices(f"pfsg:{tmp_path / 'slf'}"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (TEXT, "", "no line 'initial', expected a PFSG of SRILM"),
        ("nodes 6 NULL the a cat NULL dog\n", "", r"u1.pfsg:5: node 0, but there are 0 nodes"),
        ("nodes 6", "nodes 7", r"u1.pfsg:2: 7 nodes are stated, found 6 words"),
        ("initial 0\n", "", "no line 'initial'"),
        ("final 4", "final 9", "final is 9, but there are 6 nodes, from 0"),
        ("transitions 7", "transitions 8", "8 transitions are stated, found 7; the file is incomplete"),
        ("transitions 7", "transitions x", r"u1.pfsg:5: found 'x', expected a whole number"),
        ("0 1 -10000.5", "0 9 -10000.5", r"u1.pfsg:6: node 9, but there are 6 nodes, from 0"),
        ("0 1 -10000.5", "0 1000000000000 1", "expected a whole number from 0"),
        ("0 1 -10000.5", "0 1 nan", r"u1.pfsg:6: found the cost 'nan', expected a finite number"),
        ("0 1 -10000.5", "0 1", r"u1.pfsg:6: found '0 1', expected a PFSG"),
        ("3 4 -10000.5", "3 1 -10000.5", r"u1.pfsg: "),
        ("0 5 -1\n", "0 5 -1\nname u2\n", r"u1.pfsg:13: a second grammar in the file"),
    ],
)
def test_damage(tmp_path: Path, old: str, new: str, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        read_lattice(write(tmp_path, TEXT.replace(old, new)))
