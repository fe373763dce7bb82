"""The tables of a KenLM binary file, which KenLM maps and trusts: do their numbers stay within the file?

The format is that of KenLM's version 5 (lm/binary_format.cc, vocab.cc, search_hashed.hh, trie.cc, bhiksha.cc,
quantize.hh): a header, the vocabulary, then hash tables ("probing") or a trie, whose records point into the next
order's.  Looked at is what KenLM follows: numbers of words, pointers, and an empty place in each hash table, at which
a search ends.  Probabilities may be anything.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lm_zoo.errors import ModelError
from lm_zoo.ngram.arpa import BINARY_HEADER, BINARY_PARAMETERS, BINARY_UNK

PROBING, REST, TRIE, QUANTISED, ARRAYS, QUANTISED_ARRAYS = range(6)  # model types
_CHUNK = 1 << 20  # records looked at at a time


class _Damage(Exception):
    """What is wrong with a file."""


@dataclass
class _Tables:
    """A file in memory, and where the next table starts.

    Attributes:
      counts: n-grams of each order, that of the unigrams first.
      multiplier: places of a hash table for each of its n-grams.
    """

    data: mmap.mmap
    counts: tuple[int, ...]
    multiplier: float
    kind: int
    at: int

    def take(self, size: int, what: str) -> int:
        """The place of the next table, which has so many bytes."""
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise _Damage(f"{what} would end at byte {self.at}, the file has {len(self.data)}")
        return start

    def array(self, dtype: str, start: int, count: int, stride: int) -> np.ndarray:
        """`(count,)` numbers, `stride` bytes from one to the next; no copy."""
        return np.ndarray((count,), dtype, self.data, start, (stride,))


def check_tables(path: Path) -> None:
    """Looks at the tables of a KenLM binary file of version 5.

    Raises:
      ModelError: a number leads out of its table; names the table.
    """
    try:
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check(data)
    except (_Damage, struct.error) as damage:
        raise ModelError(f"{path}: a damaged KenLM binary file ({damage}); build it again") from None


def _check(data: mmap.mmap) -> None:
    order, multiplier, kind, has_words, _ = BINARY_PARAMETERS.unpack_from(data, BINARY_HEADER)
    if not (order > 1 and PROBING <= kind <= QUANTISED_ARRAYS and 1.0 <= multiplier < 1e6):
        raise _Damage(f"order {order}, type {kind}, multiplier {multiplier:g}")
    counts = struct.unpack_from(f"<{order}Q", data, BINARY_HEADER + BINARY_PARAMETERS.size)
    tables = _Tables(data, counts, multiplier, kind, _aligned(BINARY_HEADER + BINARY_PARAMETERS.size + 8 * order))
    if kind in (PROBING, REST):
        _check_hashed(tables)
    else:
        _check_trie(tables)
    if has_words and data[tables.at : tables.at + len(BINARY_UNK)] != BINARY_UNK:
        raise _Damage("its words are not where the tables end")


def _check_hashed(tables: _Tables) -> None:
    words = tables.counts[0] + 1  # one more where the ARPA file had no <unk>
    bound = struct.unpack_from("<I", tables.data, tables.take(8, "the vocabulary") + 4)[0]
    if bound > words:
        raise _Damage(f"the vocabulary says {bound} words, the header {tables.counts[0]}")
    start, places = _hash_table(tables, tables.counts[0], 12, "the vocabulary")
    for first in range(0, places, _CHUNK):
        numbers = tables.array("<u4", start + 8 + 12 * first, min(_CHUNK, places - first), 12)
        if (largest := int(numbers.max(initial=0))) >= max(bound, 1):
            raise _Damage(f"the vocabulary has a word of number {largest}, there are {bound}")
    weights = 8 if tables.kind == PROBING else 12
    tables.take(words * weights, "the unigrams")
    for order, count in enumerate(tables.counts[1:], start=2):
        size = 8 + (weights if order < len(tables.counts) else 4)
        _hash_table(tables, count, size, f"the {order}-grams")


def _hash_table(tables: _Tables, count: int, size: int, what: str) -> tuple[int, int]:
    """Start and places of a hash table of records of so many bytes, a key of 8 first, 0 where a place is empty."""
    places = max(count + 1, int(np.float32(tables.multiplier) * np.float32(count)))
    start = tables.take(places * size, what)
    for first in range(0, places, _CHUNK):
        if (tables.array("<u8", start + size * first, min(_CHUNK, places - first), size) == 0).any():
            return start, places
    raise _Damage(f"the table of {what} has no empty place")


def _check_trie(tables: _Tables) -> None:
    data, counts = tables.data, tables.counts
    words = struct.unpack_from("<Q", data, tables.take(8 + 8 * counts[0], "the vocabulary"))[0]
    if words > counts[0]:
        raise _Damage(f"the vocabulary says {words} words, the header {counts[0]}")
    middle, longest = 63, 31  # bits of weights: a probability without its sign, and a back-off
    if tables.kind in (QUANTISED, QUANTISED_ARRAYS):
        prob, backoff = struct.unpack_from("<BB", data, tables.at + 1)
        if not (0 < prob <= 25 and 0 < backoff <= 25):
            raise _Damage(f"quantised to {prob} and {backoff} bits")
        middle, longest = prob + backoff, prob
        tables.take((len(counts) - 2) * 4 * (2**backoff + 2**prob) + 4 * 2**prob + 8, "the quantised values")
    start = tables.take(16 * (counts[0] + 2), "the unigrams")
    last = 0
    for first in range(0, counts[0] + 1, _CHUNK):
        pointers = tables.array("<u8", start + 8 + 16 * first, min(_CHUNK, counts[0] + 1 - first), 16)
        last = _check_pointers(pointers, last, counts[1], "the unigrams")
    arrays = tables.kind in (ARRAYS, QUANTISED_ARRAYS)
    spare = data[tables.at + 1] if arrays and len(counts) > 2 and tables.at + 1 < len(data) else 0
    for order in range(2, len(counts)):
        _check_middle(tables, order, middle, spare if arrays else None)
    tables.take(_packed(counts[-1], counts[0], longest), "the longest n-grams")


def _check_middle(tables: _Tables, order: int, bits: int, spare: int | None) -> None:
    """Records of the n-grams of an order: word, `bits` of weights, pointer; `spare` bits at most are in an array."""
    count, most, what = tables.counts[order - 1], tables.counts[order], f"the {order}-grams"
    inline, high = most.bit_length(), np.zeros(1, np.uint64)
    if spare is not None:
        needed, entries = inline, count + 1
        inline -= min(range(min(needed, spare) + 1), key=lambda cut: (most >> (needed - cut)) * 64 - entries * cut)
        length = (most >> inline) + 1
        start = tables.take(8 * (1 + length) + 7, f"the pointers of {what}")
        # KenLM aligns the address in memory, and the file is mapped from its beginning.
        high = tables.array("<u8", _aligned(start) + 8, length, 8)
        if high[0] or (high[1:] < high[:-1]).any():
            raise _Damage(f"the pointers of {what} are out of order")
    record = tables.counts[0].bit_length() + bits + inline
    start = tables.take(_packed(count, tables.counts[0], bits + inline), what)
    around = tables.array("<u8", start, (count + 1) * record // 8 + 1, 1)  # the eight bytes from each on
    last = 0
    for first in range(0, count + 1, _CHUNK):
        numbers = np.arange(first, min(first + _CHUNK, count + 1), dtype=np.uint64)
        places = numbers * np.uint64(record) + np.uint64(record - inline)
        pointers = around[places >> np.uint64(3)] >> (places & np.uint64(7)) & np.uint64((1 << inline) - 1)
        if spare is not None:
            above = np.searchsorted(high, numbers, side="right").astype(np.uint64) - np.uint64(1)
            pointers |= above << np.uint64(inline)
        last = _check_pointers(pointers, last, most, what)


def _packed(count: int, words: int, bits: int) -> int:
    """Bytes of bit-packed records, each a word and so many bits, with one more at the end."""
    return ((1 + count) * (words.bit_length() + bits) + 7) // 8 + 8


def _check_pointers(pointers: np.ndarray, last: int, most: int, what: str) -> int:
    """Raises unless they rise from `last` on, to `most` at most; returns the last one."""
    if int(pointers[0]) < last or (pointers[1:] < pointers[:-1]).any() or int(pointers[-1]) > most:
        raise _Damage(f"{what} point out of the n-grams that are one word longer")
    return int(pointers[-1])


def _aligned(place: int) -> int:
    return -(-place // 8) * 8
