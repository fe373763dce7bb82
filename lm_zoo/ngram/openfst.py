"""The header of OpenFst's binary files: of Kaldi's grammars (`lm_zoo.ngram.grammar_fst`) and of Kaldi's lattices.

A magic number, the names of the FST's and of the arcs' type, each behind its length, then `_FIXED`.  All is
little-endian.  No number in it is taken at its word: whoever reads on looks whether so many bytes are there.
"""

# Ours, not kaldifst: of a damaged file, that takes 2 GB for a name, says no reason, and lets arcs lead to no state.

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = struct.pack("<i", 2125659606)
NO_STATE = -1
_FIXED = struct.Struct("<iiQqqq")  # version, flags, properties, start, states, arcs
_LENGTH = struct.Struct("<i")
_LONGEST_NAME = 64
_SYMBOL_TABLES = 3  # the flags that say that tables of symbols follow the header
_EXPANDED_AND_MUTABLE = 3  # the properties that hold for every vector FST; the others are "not known"


class HeaderError(ValueError):
    """Bytes are no header of OpenFst; the message says why."""


class ShortHeader(HeaderError):
    """A header goes on behind the bytes that are there."""


@dataclass
class Details:
    """What the header holds beside types, start and states; a record is written as it was read."""

    version: int = 2
    flags: int = 0
    properties: int = _EXPANDED_AND_MUTABLE
    arcs: int = 0  # Kaldi writes 0, however many there are


@dataclass
class Header:
    """A header.

    Attributes:
      arc_type: "standard", "compactlattice44", ...
      start:    start state, NO_STATE in an empty FST.
      fst_type: that of all FSTs that Kaldi writes is "vector".
    """

    arc_type: str
    start: int
    states: int
    details: Details
    fst_type: str = "vector"

    @property
    def has_symbols(self) -> bool:
        """Whether tables of symbols stand between the header and the states."""
        return bool(self.details.flags & _SYMBOL_TABLES)


def parse_header(data: bytes, begin: int = 0) -> tuple[Header, int]:
    """The header at `data[begin]`, and where what follows it begins.

    Raises:
      HeaderError: it is none.
      ShortHeader: it goes on behind the end of `data`.
    """
    if data[begin : begin + 4] != MAGIC:
        raise HeaderError(f"no binary FST here (found {data[begin : begin + 4]!r})")
    at = begin + len(MAGIC)
    names = []
    for what in ("FST type", "arc type"):
        (length,) = _LENGTH.unpack(_bytes(data, at, _LENGTH.size))
        if not 0 < length <= _LONGEST_NAME:
            raise HeaderError(f"the name of the {what} has length {length}")
        at += _LENGTH.size
        names.append(_bytes(data, at, length).decode("ascii", "replace"))
        at += length
    version, flags, properties, start, states, arcs = _FIXED.unpack(_bytes(data, at, _FIXED.size))
    fst_type, arc_type = names
    return Header(arc_type, start, states, Details(version, flags, properties, arcs), fst_type), at + _FIXED.size


def _bytes(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise ShortHeader(f"the header needs {at + length} bytes, there are {len(data)}")
    return data[at : at + length]


def format_header(header: Header) -> bytes:
    """The bytes that `parse_header` reads."""
    names = b"".join(_LENGTH.pack(len(name)) + name.encode() for name in (header.fst_type, header.arc_type))
    more = header.details
    fixed = _FIXED.pack(more.version, more.flags, more.properties, header.start, header.states, more.arcs)
    return MAGIC + names + fixed
