"""HTK SLF: what links and nodes say, their scores, words and times, several in a field, or fields that are not read."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from rescore.errors import FormatError
from rescore.formats import write_lattices
from rescore.formats.slf import read_lattice
from rescore.lattices.paths import best_path
from tests.rescore.formats.test_slf import HTK_NODES, HTK_PATHS, write
from tests.rescore.lattices.test_paths import score_sums

SEVERAL = HTK_NODES.replace("a=-10.5", "i=-1.5,-2 n=-1,-4 a=-10.5").replace("a=-11.5", "i=-2.5,-3 n=-2,-8 a=-11.5")
for _rest in ("a=-20.0", "a=-20.5", "a=-1.0"):
    SEVERAL = SEVERAL.replace(_rest, f"i=0.5,0 n=0,0 {_rest}")


def test_several_scores_in_one_field(tmp_path: Path) -> None:
    """As lattice-rescore writes them: one number for each of its models; am, i1, i2, lm, n1, n2 of each path."""
    lattice = read_lattice(write(tmp_path, SEVERAL))
    assert sorted(lattice.scores) == ["am", "i1", "i2", "lm", "n1", "n2"]
    expected = {
        (("the", "cat"), -31.5, -0.5, -2.0, -4.25, -1.0, -4.0),
        (("a", "cat"), -33.0, -1.5, -3.0, -2.75, -2.0, -8.0),
    }
    assert score_sums(lattice) == expected
    assert write_lattices(f"slf:{tmp_path / 'again'}", [lattice]) == 1
    assert score_sums(read_lattice(tmp_path / "again" / "u1.slf.gz")) == expected
    one = read_lattice(write(tmp_path, SEVERAL.replace(",-2 ", " ").replace(",-3 ", " ").replace(",0 n", " n")))
    assert "i" in one.scores and "i1" not in one.scores


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("i=-2.5,-3 ", "i=-2.5 ", r"link J=1 has i=-2.5, expected as many scores as on the first link, 2"),
        ("i=-2.5,-3 ", "", r"link J=1 has no i=, which other links have"),
        ("i=-2.5,-3 ", "i=-2.5,x ", r"a link has i= with something that is not a number"),
        ("i=-2.5,-3 ", "i=-2.5,nan ", r"link J=1 has i=-2.5,nan, expected a log score below infinity"),
        ("i=-1.5,-2 ", "i=-1.5 ", r"link J=1 has i=-2.5,-3, expected as many scores as on the first link, 1"),
    ],
)
def test_damage_in_fields_of_several_scores(tmp_path: Path, old: str, new: str, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        read_lattice(write(tmp_path, SEVERAL.replace(old, new)))


def test_fields_that_are_not_read_are_counted(tmp_path: Path) -> None:
    assert "unread_fields" not in read_lattice(write(tmp_path, SEVERAL)).counts
    assert read_lattice(write(tmp_path, HTK_NODES.replace("l=-1.0", "l=-1.0 y=3"))).counts["unread_fields"] == 1


def test_times_are_scaled(tmp_path: Path) -> None:
    lattice = read_lattice(write(tmp_path, "tscale=0.01\n" + HTK_NODES.replace("t=0.", "t=").replace("t=1.", "t=1")))
    assert lattice.times is not None
    np.testing.assert_allclose(lattice.times, [0.0, 0.3, 0.3, 0.8, 1.0])


ON_NODES = HTK_NODES
for _arc, _node in (("a=-10.5 ", "W=the v=1"), ("a=-11.5 ", "W=a v=1"), ("a=-1.0 ", "t=1.00 W=!NULL")):
    ON_NODES = ON_NODES.replace(_arc, "").replace(_node, f"{_node} {_arc.strip()}")


def test_scores_on_nodes_are_those_of_links_without_their_own(tmp_path: Path) -> None:
    """As SRILM reads them, and writes them (`lattice-tool -htk-scores-on-nodes`)."""
    assert score_sums(read_lattice(write(tmp_path, ON_NODES))) == HTK_PATHS
    assert score_sums(read_lattice(write(tmp_path, ON_NODES.replace("W=cat", "W=cat a=-99")))) == HTK_PATHS
    with pytest.raises(FormatError, match="link J=1 has no a=, which other links have"):
        read_lattice(write(tmp_path, ON_NODES.replace(" a=-11.5", "")))
    with pytest.raises(FormatError, match="a link has a= that is not a number"):
        read_lattice(write(tmp_path, ON_NODES.replace("a=-11.5", "a=x")))


def test_a_first_word_with_scores(tmp_path: Path) -> None:
    lattice = read_lattice(write(tmp_path, HTK_NODES.replace("I=0 t=0.00 W=!NULL", "I=0 t=0.00 W=so a=-5")))
    assert score_sums(lattice) == {(("so", "the", "cat"), -36.5, -4.25), (("so", "a", "cat"), -38.0, -2.75)}
    with pytest.raises(FormatError, match="the first or last node has a=nan, expected a log score"):
        read_lattice(write(tmp_path, HTK_NODES.replace("I=0 t=0.00 W=!NULL", "I=0 t=0.00 W=so a=nan")))


def test_words_on_nodes_of_a_lattice_with_dir_b(tmp_path: Path) -> None:
    """SRILM: with dir=b, what a node says is of the links that start there."""
    text = HTK_NODES.replace("I=4 t=1.00 W=!NULL", "I=4 t=1.00 W=sat").replace("N=5", "dir=b\nN=5")
    lattice = read_lattice(write(tmp_path, text.replace("W=a v=1", "W=a(2) a=-7")))
    assert score_sums(lattice) == {(("the", "cat", "sat"), -31.5, -4.25), (("a(2)", "cat", "sat"), -33.0, -2.75)}


def test_a_lattice_with_dir_f_may_be_numbered_in_any_order(tmp_path: Path) -> None:
    text = HTK_NODES
    for old, new in zip("01234", "43210", strict=True):
        text = re.sub(rf"\b([ISE])={old}\b", rf"\1=new{new}", text)
    text = text.replace("new", "").replace("N=5", "dir=f\nN=5")
    assert score_sums(read_lattice(write(tmp_path, text))) == HTK_PATHS


def test_words_on_links_and_on_nodes(tmp_path: Path) -> None:
    text = HTK_NODES.replace("E=1 a", "E=1 W=the a").replace("E=2 a", "E=2 W=!NULL a").replace("E=4 a", "E=4 W=!NULL a")
    assert score_sums(read_lattice(write(tmp_path, text))) == HTK_PATHS
    text = text.replace("I=0 t=0.00 W=!NULL", "I=0 t=0.00 W=so")  # SRILM takes none from there
    assert score_sums(read_lattice(write(tmp_path, text))) == HTK_PATHS


def test_links_without_word_may_lack_scores(tmp_path: Path) -> None:
    """SRILM leaves scores out where a node has no word."""
    lattice = read_lattice(write(tmp_path, HTK_NODES.replace("a=-1.0 l=-0.25", "")))
    assert score_sums(lattice) == {(("the", "cat"), -30.5, -4.0), (("a", "cat"), -32.0, -2.5)}
    text = "base=0\n" + HTK_NODES.replace("=-", "=").replace("a=1.0 l=0.25", "")
    best = best_path(read_lattice(write(tmp_path, text)), {"am": 1})
    assert best.scores["am"] == pytest.approx(math.log(11.5 * 20.5))


def test_fields_of_nodes_that_are_not_read_are_counted(tmp_path: Path) -> None:
    assert "unread_fields" not in read_lattice(write(tmp_path, HTK_NODES.replace("v=1", "v=1 s=tag"))).counts
    assert read_lattice(write(tmp_path, HTK_NODES.replace("W=the", "W=the y=3"))).counts["unread_fields"] == 1
