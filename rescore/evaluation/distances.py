"""Word errors between all hypotheses of a list, and the expected errors that follow from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lm_zoo.deadline import in_time
from rescore.types import Words

_BITS = 64
_HELD = 1 << 22  # bits of 64 that are held in one table; the rows of more are done one part after another


def nbest_expected_errors(hyps: Sequence[Words], totals: Sequence[float], scale: float) -> np.ndarray:
    """Expected errors of each hypothesis of a list, float64 `(hyps,)`; the posteriors are `softmax(scale * totals)`."""
    scaled = scale * np.asarray(totals)
    posteriors = np.exp(scaled - scaled.max())
    numbers: dict[Words, int] = {}
    row = np.array([numbers.setdefault(words, len(numbers)) for words in hyps])
    mass = np.bincount(row, posteriors / posteriors.sum())
    result: np.ndarray = (pairwise_distances(list(numbers)) @ mass)[row]
    return result


def pairwise_distances(hyps: Sequence[Words]) -> np.ndarray:
    """The edit distance of every pair, int64 `(hyps, hyps)`."""
    begin, end = _shared(hyps)
    cut = [words[begin : len(words) - end] for words in hyps]
    order = sorted(range(len(cut)), key=lambda i: -len(cut[i]))  # those that still have words come first
    lengths = np.array([len(cut[i]) for i in order], dtype=np.int64)
    numbers: dict[str, int] = {}
    texts = np.zeros((len(cut), int(lengths.max(initial=0))), dtype=np.int64)
    for row, i in enumerate(order):
        texts[row, : len(cut[i])] = [numbers.setdefault(word, len(numbers)) for word in cut[i]]
    blocks = max(1, -(-texts.shape[1] // _BITS))
    step = max(1, _HELD // (blocks * max(len(cut), len(numbers), 1)))
    result = np.empty((len(cut), len(cut)), dtype=np.int64)
    for rows in (slice(first, first + step) for first in range(0, len(cut), step)):
        result[np.ix_(order[rows], order)] = _by_bits(texts[rows], lengths[rows], texts, lengths, len(numbers))
    return result


def _shared(hyps: Sequence[Words]) -> tuple[int, int]:
    """How many words all hypotheses begin with, and how many they end with behind these."""
    shortest = min(map(len, hyps), default=0)
    first = hyps[0] if hyps else ()
    begin = next((n for n in range(shortest) if any(words[n] != first[n] for words in hyps)), shortest)
    most = shortest - begin
    end = next((n for n in range(most) if any(words[-1 - n] != first[-1 - n] for words in hyps)), most)
    return begin, end


def _by_bits(patterns: np.ndarray, sizes: np.ndarray, texts: np.ndarray, lengths: np.ndarray, words: int) -> np.ndarray:
    """The edit distances of patterns to texts, int64 `(patterns, texts)`: a column of all tables in a few operations.

    G. Myers, "A fast bit-vector algorithm for approximate string matching based on dynamic programming", Journal of
    the ACM 46 (1999), as H. Hyyroe, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances",
    Nordic Journal of Computing 10 (2003), Fig. 3, has it.  A bit stands for a word of the pattern, a step for a word of
    the text.  Patterns of more than 64 words have several blocks of bits, each with what the one below it carries
    (Myers, section 4).

    Args:
      patterns, texts: numbers of words below `words`, `(..., longest)`, filled up at the end; longest ones first.
      sizes, lengths: of these.
    """
    reach = [int((sizes > _BITS * block).sum()) for block in range(-(-int(sizes[0]) // _BITS))]  # patterns of a block
    places = np.zeros((len(reach), len(patterns), max(1, words)), dtype=np.uint64)  # of each word in each pattern
    last = np.zeros((len(reach), len(patterns), 1), dtype=np.uint64)
    for n in range(int(sizes[0])):
        rows, block, bit = np.flatnonzero(sizes > n), n // _BITS, np.uint64(1 << n % _BITS)
        places[block, rows, patterns[rows, n]] |= bit
        last[block, sizes == n + 1] = bit
    one, top = np.uint64(1), np.uint64(_BITS - 1)
    shape = (len(reach), len(patterns), len(texts))
    higher, lower = np.full(shape, ~np.uint64(0)), np.zeros(shape, dtype=np.uint64)  # differences down a column
    distances = np.repeat(sizes[:, None], len(texts), axis=1)
    for n in in_time(range(texts.shape[1])):
        left = int((lengths > n).sum())
        below: tuple[np.ndarray, np.ndarray] | None = None  # where the column rises and falls from the block below on
        for block, count in enumerate(reach):
            up, down = higher[block, :count, :left], lower[block, :count, :left]
            equal = places[block, :count][:, texts[:left, n]]
            change = equal | down
            if below is not None:
                equal |= below[1][:count]
            across = (((equal & up) + up) ^ up) | equal
            rise, fall = down | ~(across | up), up & across
            end = last[block, :count]
            distances[:count, :left] += ((rise & end) != 0).astype(np.int64) - ((fall & end) != 0)
            above = rise >> top, fall >> top
            rise, fall = rise << one, fall << one
            if below is None:
                rise |= one  # the first row counts the words of the text
            else:
                rise |= below[0][:count]
                fall |= below[1][:count]
            higher[block, :count, :left] = fall | ~(change | rise)
            lower[block, :count, :left] = rise & change
            below = above
    distances[sizes == 0] = lengths
    return distances
