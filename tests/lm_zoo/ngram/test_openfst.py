"""The header of OpenFst's binary files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from lm_zoo.ngram.openfst import Details, Header, HeaderError, ShortHeader, format_header, parse_header
from tests.lm_zoo.grammar_fst import write_fst

HEADER = Header("standard", 3, 1 << 40, Details(2, 0, 2**64 - 1, 7))


def test_a_header_is_read_as_it_was_written() -> None:
    written = format_header(HEADER)
    assert parse_header(b"key " + written + b"states", 4) == (HEADER, 4 + len(written))
    assert not HEADER.has_symbols and Header("standard", 0, 0, Details(flags=2)).has_symbols


def test_it_is_the_header_of_openfst(tmp_path: Path) -> None:
    kaldifst = pytest.importorskip("kaldifst")
    write_fst(tmp_path / "g.fst", [(0.5, [(1, 1, 0.25, 1)]), (0.0, [])], start=1)
    fst = kaldifst.StdVectorFst.read(str(tmp_path / "g.fst"))
    fst.write(str(tmp_path / "theirs.fst"))
    header, _ = parse_header((tmp_path / "theirs.fst").read_bytes())
    assert (header.fst_type, header.arc_type, header.start, header.states) == ("vector", "standard", 1, 2)


@pytest.mark.parametrize("end", range(4, len(format_header(HEADER))))
def test_a_header_that_is_cut_off_is_told_from_a_bad_one(end: int) -> None:
    with pytest.raises(ShortHeader, match=f"there are {end}"):
        parse_header(format_header(HEADER)[:end])


@pytest.mark.parametrize("length", [-1, 0, 65, 1 << 30])
def test_lengths_are_not_trusted(length: int) -> None:
    data = bytearray(format_header(HEADER))
    data[4:8] = struct.pack("<i", length)
    with pytest.raises(HeaderError, match=f"the name of the FST type has length {length}"):
        parse_header(bytes(data))


def test_other_files_are_told() -> None:
    with pytest.raises(HeaderError, match=r"no binary FST here \(found b'some'\)"):
        parse_header(b"some text")
