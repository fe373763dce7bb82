"""Kaldi's lattices as they lie in archives: OpenFst vector FSTs over `compactlattice44` or `lattice4` weights.

A binary record is OpenFst's header, then for each state its final weight, its number of arcs (int64) and the arcs:
two labels, weight, next state (int32 each).  A weight is two float32 costs, graph and acoustic; in a compact lattice a
string of transition ids follows, int32 length and int32 each.  All is little-endian, and everything behind the header
is a multiple of 4 bytes, so a record is read as an array of int32: one cheap walk from arc to arc finds where they
begin, since strings differ in length, and everything else is numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lm_zoo.ngram.openfst import MAGIC, NO_STATE, Details, Header, HeaderError, ShortHeader, format_header, parse_header
from rescore.types import Alignments

COMPACT, PLAIN = "compactlattice44", "lattice4"
FIRST_BYTES = MAGIC + struct.pack("<i", 6) + b"vector"
_MOST = 1 << 24  # transition ids of a string, arcs of a state; more is a sign of a corrupt record


class RecordError(Exception):
    """A record is not a lattice; the message says why."""


class ShortRecord(Exception):
    """A record goes on behind the bytes that are there."""


@dataclass
class RawLattice:
    """One record.  States and arcs stand in the order of the file; costs are as in the file (lower is better).

    Attributes:
      arc_type: COMPACT or PLAIN.
      start: start state, NO_STATE in an empty lattice.
      finals: float32 `(states, 2)`, graph and acoustic cost of the final weight, inf where a state is not final.
      final_strings: transition ids of the final weights, an entry a state (empty ones in a plain lattice).
      counts: int64 `(states,)`, arcs out of each state; the arcs follow state by state.
      ilabels, olabels: int32 `(arcs,)`; equal (word ids) in a compact lattice, else transition ids and word ids.
      costs: float32 `(arcs, 2)`, graph and acoustic.
      strings: transition ids of the arcs (empty ones in a plain lattice).
      next_states: int32 `(arcs,)`.
    """

    utt_id: str
    arc_type: str
    start: int
    finals: np.ndarray
    final_strings: Alignments
    counts: np.ndarray
    ilabels: np.ndarray
    olabels: np.ndarray
    costs: np.ndarray
    strings: Alignments
    next_states: np.ndarray
    details: Details = field(default_factory=Details)

    @property
    def num_states(self) -> int:
        return len(self.counts)


def parse_binary(utt_id: str, data: bytes, begin: int) -> tuple[RawLattice, int]:
    """The record whose header begins at `data[begin]`, and where it ends.

    Raises:
      RecordError: it is no lattice, or corrupt.
      ShortRecord: it goes on behind the end of `data`.
    """
    header, body = _header(data, begin)
    arc_type, states = header.arc_type, header.states
    words = memoryview(data)[body : body + (len(data) - body) // 4 * 4].cast("i")
    walk = _walk_compact if arc_type == COMPACT else _walk_plain
    try:
        final_at, counts, arc_at, length = walk(words, states)
    except IndexError:
        raise ShortRecord from None
    if length > len(words):
        raise ShortRecord
    values = np.frombuffer(data, "<i4", length, body)
    has_string = arc_type == COMPACT
    finals, final_strings, _ = _weights(values, np.asarray(final_at, dtype=np.int64), has_string)
    arcs = np.asarray(arc_at, dtype=np.int64)
    costs, strings, behind = _weights(values, arcs + 2, has_string)
    raw = RawLattice(
        utt_id,
        arc_type,
        header.start,
        finals,
        final_strings,
        np.asarray(counts, dtype=np.int64),
        values[arcs],
        values[arcs + 1],
        costs,
        strings,
        values[behind],
        header.details,
    )
    check(raw)
    return raw, body + 4 * length


def _header(data: bytes, begin: int) -> tuple[Header, int]:
    """The header of a lattice, and where the first state begins."""
    try:
        header, body = parse_header(data, begin)
    except ShortHeader:
        raise ShortRecord from None
    except HeaderError as error:
        raise RecordError(str(error)) from None
    if header.fst_type != "vector" or header.arc_type not in (COMPACT, PLAIN):
        found = f"FST type '{header.fst_type}', arc type '{header.arc_type}'"
        raise RecordError(f"{found}, expected vector, {COMPACT} or {PLAIN}")
    if header.has_symbols:
        raise RecordError("a symbol table in the lattice, which is not read; write lattices without it")
    if header.states < 0 or not NO_STATE <= header.start < header.states:
        raise RecordError(f"start state {header.start} of {header.states} states")
    return header, body


_Walk = tuple[Sequence[int], Sequence[int], Sequence[int], int]


def _walk_compact(words: memoryview, states: int) -> _Walk:
    """Where final weights begin, arcs of each state, where arcs begin, and the end; counted in `words` (int32)."""
    final_at: list[int] = []
    counts: list[int] = []
    arc_at: list[int] = []
    add_arc = arc_at.append
    at = 0
    for state in range(states):
        final_at.append(at)
        length = words[at + 2]
        if not 0 <= length <= _MOST:
            raise RecordError(f"state {state} has a final string of {length} ids")
        at += 3 + length
        count = _arc_count(words, at, state)
        counts.append(count)
        at += 2
        for _ in range(count):
            add_arc(at)
            length = words[at + 4]
            if not 0 <= length <= _MOST:
                raise RecordError(f"an arc out of state {state} has a string of {length} ids")
            at += 6 + length
            if not 0 <= words[at - 1] < states:
                raise RecordError(f"an arc out of state {state} leads to state {words[at - 1]} of {states} states")
    return final_at, counts, arc_at, at


def _walk_plain(words: memoryview, states: int) -> _Walk:
    """As `_walk_compact`; arcs have 5 words each, so the walk goes from state to state."""
    final_at, counts = [], []
    at = 0
    for state in range(states):
        final_at.append(at)
        count = _arc_count(words, at + 2, state)
        if at + 4 + 5 * count > len(words):
            raise ShortRecord
        if count and not 0 <= words[at + 8] < states:
            raise RecordError(f"an arc out of state {state} leads to state {words[at + 8]} of {states} states")
        counts.append(count)
        at += 4 + 5 * count
    before = np.repeat(4 * np.arange(1, states + 1), counts)
    return final_at, counts, before + 5 * np.arange(len(before)), at  # type: ignore[return-value]


def _arc_count(words: memoryview, at: int, state: int) -> int:
    count, high = words[at], words[at + 1]
    if not 0 <= count <= _MOST or high != 0:
        raise RecordError(f"state {state} has {count + (high << 32)} arcs")
    return count


def _weights(values: np.ndarray, at: np.ndarray, has_string: bool) -> tuple[np.ndarray, Alignments, np.ndarray]:
    """Costs and strings of the weights that begin `at`, and where they end."""
    costs = values[at[:, None] + np.arange(2)].view(np.float32)
    if not has_string:
        return costs, _no_strings(len(at)), at + 2
    lengths = values[at + 2].astype(np.int64)
    strings = Alignments.of_lengths(values[:0], lengths)
    first = np.repeat(at + 3 - strings.offsets[:-1], lengths)
    strings.ids = values[first + np.arange(len(first))]
    return costs, strings, at + 3 + lengths


def _no_strings(count: int) -> Alignments:
    return Alignments(np.empty(0, np.int32), np.zeros(count + 1, np.int64))


def check(raw: RawLattice) -> None:
    """Raises RecordError where a record can be read but makes no sense."""
    if len(raw.next_states) and not (raw.next_states.min() >= 0 and raw.next_states.max() < raw.num_states):
        bad = raw.next_states[(raw.next_states < 0) | (raw.next_states >= raw.num_states)][0]
        raise RecordError(f"an arc leads to state {bad} of {raw.num_states} states")
    if len(raw.olabels) and min(raw.ilabels.min(), raw.olabels.min()) < 0:
        raise RecordError(f"an arc has label {min(raw.ilabels.min(), raw.olabels.min())}, expected ids from 0")
    for what, costs in (("an arc", raw.costs), ("a final state", raw.finals)):
        if not (costs > -np.inf).all():
            raise RecordError(f"a cost of {what} is NaN or minus infinity")


def format_binary(raw: RawLattice) -> bytes:
    """The record from its header on, without its key."""
    has_string = int(raw.arc_type == COMPACT)
    arc_sizes = 5 + has_string * (1 + raw.strings.lengths)
    final_sizes = 2 + has_string * (1 + raw.final_strings.lengths)
    arc_ends = np.append(0, np.cumsum(arc_sizes))
    last_arcs = np.append(0, np.cumsum(raw.counts))
    own = final_sizes + 2 + np.diff(arc_ends[last_arcs])
    final_at = np.cumsum(own) - own
    arc_at = arc_ends[:-1] + np.repeat(np.cumsum(final_sizes + 2), raw.counts)
    values = np.zeros(int(own.sum()), dtype="<i4")
    _put_weights(values, final_at, raw.finals, raw.final_strings, has_string)
    values[final_at + final_sizes] = raw.counts
    values[arc_at], values[arc_at + 1] = raw.ilabels, raw.olabels
    _put_weights(values, arc_at + 2, raw.costs, raw.strings, has_string)
    values[arc_at + arc_sizes - 1] = raw.next_states
    return format_header(Header(raw.arc_type, raw.start, raw.num_states, raw.details)) + values.tobytes()


def _put_weights(values: np.ndarray, at: np.ndarray, costs: np.ndarray, strings: Alignments, has_string: int) -> None:
    values[at[:, None] + np.arange(2)] = np.ascontiguousarray(costs, dtype="<f4").view("<i4")
    if has_string:
        lengths = strings.lengths
        values[at + 2] = lengths
        first = np.repeat(at + 3 - strings.offsets[:-1], lengths)
        values[first + np.arange(len(first))] = strings.ids
