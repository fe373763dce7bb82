"""Names of files from ids: always inside the folder, one for each id."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rescore.errors import FormatError
from rescore.file_names import file_name, is_file_name, split_name
from rescore.formats import write_lattices
from tests.rescore.lattices.test_words import chain

IDS = [
    "../../../x",
    "/etc/x",
    "..",
    ".",
    "a/b",
    "a\x00b",
    "a\nb",
    "",
    "ü" * 300,
    "x" + "ü" * 300,
    "x" * 300,
    "\udcff",
    "%2F",
    ".hidden",
]


@given(st.text(), st.text())
@example("a/b", "a%2Fb")
@example("x" * 300, "x" * 301)
@example("", "%")
def test_names_are_safe_and_differ(one: str, two: str) -> None:
    for name in (one, two, *IDS):
        safe = file_name(name)
        path = Path("/out") / safe
        assert path.parent == Path("/out") and path.name == safe and safe not in ("", ".", "..")
        assert len(safe.encode()) <= 200
        assert not any(ord(char) < 32 or ord(char) == 127 for char in safe)
    assert (file_name(one) == file_name(two)) == (one == two)


def test_usual_names_stay() -> None:
    for name in ("1462-170138-0003", "sp0.9-a_b.c", "ä b", "a:b#c"):
        assert file_name(name) == name and is_file_name(name)


@pytest.mark.parametrize("utt_id", ["../../../x", "/etc/x", "x" * 300, "a\x00b", "\udcff"])
def test_lattices_are_not_written_elsewhere(tmp_path: Path, utt_id: str) -> None:
    lattice = chain(["A"])
    lattice.utt_id = utt_id
    with pytest.raises(FormatError, match=r"utterance id .* (cannot be the name of a file|expected a string)"):
        write_lattices(f"slf:{tmp_path / 'a' / 'b' / 'out'}", [lattice])
    assert not list(tmp_path.rglob("*.gz"))


def test_a_suffix_within_an_id_stays(tmp_path: Path) -> None:
    from rescore.formats import read_lattices

    lattice = chain(["A"])
    lattice.utt_id = "a.lat"
    write_lattices(f"slf:{tmp_path / 'out'}", [lattice])
    assert next(read_lattices(f"slf:{tmp_path / 'out'}")).utt_id == "a.lat"


def test_a_name_stands_before_the_first_equals_sign() -> None:
    assert split_name("big=exp/lstm") == ("big", "exp/lstm") and split_name("big=exp/lr=0.1") == ("big", "exp/lr=0.1")
    for path in ("exp/lstm", "exp/lr=0.1/lm", "./lr=0.1", r"C:\lms\a=b", "module:lms:Mine?size=3", "=x"):
        assert split_name(path) == (None, path)
