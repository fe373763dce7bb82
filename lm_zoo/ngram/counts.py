"""Counting the n-grams of a text in vectorised numpy.

Every n-gram has an id within its order: the rank of the pair (id of its first n-1 words, last word).  The positions
where the n-grams of one order end, sorted by n-gram, need only be sorted by the next word within each n-gram to give
those of the next order; this is done for as many n-grams at a time as fit into the processor's cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lm_zoo.errors import TextError

UNK, BOS, EOS = range(3)
SPECIAL_WORDS = ("<unk>", "<s>", "</s>")
MOST_TOKENS = (1 << 31) - 1  # of a text: places and counts are int32
PART_BITS = 18  # up to 2 to the power of this many occurrences are sorted at once

Remark = Callable[[str], None]


@dataclass
class NgramTypes:
    """The distinct n-grams of one order, all arrays `(types,)`, sorted by (context, word).

    Attributes:
      context: int32, id of the first n-1 words among the (n-1)-grams; zeros for unigrams.
      word:    int32, id of the last word.
      suffix:  int32, id of the last n-1 words among the (n-1)-grams; zeros for unigrams.
      count:   int32, occurrences in the text; `<s>` has 0.
    """

    context: np.ndarray
    word: np.ndarray
    suffix: np.ndarray
    count: np.ndarray

    def __len__(self) -> int:
        return len(self.word)


def read_ids(sentences: Iterable[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    """Words in the order of their first occurrence after the special words, and the text as their ids.

    Returns:
      the words by id, and int32 `(tokens,)`: `<s> w w ... </s> <s> w ... </s>`.
    Raises:
      TextError: no sentence, more than `MOST_TOKENS` tokens, or `<s>` or `</s>` as a word.
    """
    from array import array

    ids: defaultdict[str, int] = defaultdict()
    ids.default_factory = ids.__len__
    for word in SPECIAL_WORDS:
        ids[word]
    look_up, text = ids.__getitem__, array("i")
    count = 0
    for sentence in sentences:
        count += 1
        text.append(BOS)
        text.extend(map(look_up, sentence))
        text.append(EOS)
    if not text:
        raise TextError("the text has no sentence")
    if len(text) > MOST_TOKENS:
        found = f"{len(text)} tokens with sentence begins and ends, expected {MOST_TOKENS} at most"
        raise TextError(f"the text has {found}: give less of it, or estimate with KenLM's lmplz")
    result = np.frombuffer(text, dtype=np.int32)
    if any(np.count_nonzero(result == marker) != count for marker in (BOS, EOS)):
        raise TextError("the text has <s> or </s> as a word; sentence begins and ends are added here: remove them")
    return list(ids), result


def count_ngram_types(text: np.ndarray, vocab_size: int, order: int, say: Remark) -> list[NgramTypes]:
    """Distinct n-grams of the orders 1 to `order`; none of them has `<s>` but in first place.

    Args:
      text: int32 `(tokens,)`, see `read_ids`.
    """
    count = np.bincount(text, minlength=vocab_size).astype(np.int32)
    zeros = np.zeros(vocab_size, np.int32)
    types = [NgramTypes(zeros, np.arange(vocab_size, dtype=np.int32), zeros, count)]
    ids = text.copy()  # of the n-gram that ends at each position; meaningless where the sentence is too short for it
    ends = _positions_by_word(text, count)
    for n in range(2, order + 1):
        goes_on = types[-1].word != EOS
        ends = ends[np.repeat(goes_on, types[-1].count)]
        ends += 1
        longer = _count_longer(text, ids, ends, np.where(goes_on, types[-1].count, 0), _bits(vocab_size))
        types.append(longer)
        if n < order:
            ids[ends] = np.repeat(np.arange(len(longer), dtype=np.int32), longer.count)
        say(f"{n}-grams: {len(longer)} counted")
    count[BOS] = 0
    return types


def _positions_by_word(text: np.ndarray, count: np.ndarray) -> np.ndarray:
    """int32 `(tokens,)`: the positions of word 0, then those of word 1, and so on.

    Args:
      count: int32 `(vocab,)`, how many there are.
    """
    result = np.empty(len(text), np.int32)
    free = np.cumsum(count, dtype=np.int64) - count  # where the next position of each word goes
    for start in range(0, len(text), 1 << PART_BITS):
        part = text[start : start + (1 << PART_BITS)].astype(np.int64)
        keys = part << PART_BITS | np.arange(len(part))
        keys.sort()
        words = keys >> PART_BITS
        starts = np.flatnonzero(np.diff(words, prepend=-1))
        found, size = words[starts], np.diff(starts, append=len(words))
        result[np.repeat(free[found] - starts, size) + np.arange(len(words))] = start + (keys & ((1 << PART_BITS) - 1))
        free[found] += size
    return result


def _count_longer(text: np.ndarray, ids: np.ndarray, ends: np.ndarray, count: np.ndarray, word_bits: int) -> NgramTypes:
    """The n-grams that are one word longer than some others.

    A key packs an n-gram, the word after it and the place of the occurrence, so that numbers are sorted and not
    their places, which takes a fraction of the time of an `argsort`.

    Args:
      ids: int32 `(tokens,)`, the id of the shorter n-gram that ends at each position.
      ends: int32 `(occurrences,)`, the last position of every longer n-gram, sorted by its first words; sorted by all
        of it when this is done.
      count: int32 `(types,)`, how often each of the shorter n-grams is followed by a word.
    """
    begins = np.concatenate([[0], np.cumsum(count, dtype=np.int64)])
    columns, size = np.empty((4, len(ends)), np.int32), 0  # what stays empty takes no memory
    for first, last in _parts(begins, 1 << min(PART_BITS, (63 - word_bits) // 2)):
        here = ends[begins[first] : begins[last]]
        place_bits = _bits(len(here))
        keys = np.repeat(np.arange(last - first), count[first:last]) << word_bits
        keys = (keys | text[here]) << place_bits | np.arange(len(here))
        keys.sort()
        here[:] = here[keys & ((1 << place_bits) - 1)]
        keys >>= place_bits
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        found = keys[starts]
        part = columns[:, size : size + len(found)]
        part[0], part[1] = (found >> word_bits) + first, found & ((1 << word_bits) - 1)
        part[2], part[3] = ids[here[starts]], np.diff(starts, append=len(keys))
        size += len(found)
    return NgramTypes(*columns[:, :size])


def _parts(begins: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Spans of n-grams that have up to `most` occurrences, or a single n-gram with more.

    Args:
      begins: int64 `(types + 1,)`, where the occurrences of each n-gram begin; the last one is where they end.
    """
    first, end = 0, len(begins) - 1
    while first < end:
        last = int(np.searchsorted(begins, begins[first] + most, side="right")) - 1
        last = min(max(last, first + 1), first + most)
        if begins[last] > begins[first]:
            yield first, last
        first = last


def _bits(size: int) -> int:
    """Of the numbers below `size`."""
    return (size - 1).bit_length()
