"""Word errors between all hypotheses of a list, and the expected errors that follow from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lm_zoo.deadline import in_time
from rescore.evaluation.wer import edit_distance
from rescore.types import Words

_BITS = 64


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
    if max(map(len, cut), default=0) <= _BITS:
        return _by_bits(cut)
    distances = np.zeros((len(cut), len(cut)), dtype=np.int64)
    for i, words in enumerate(cut):
        for j in in_time(range(i)):
            distances[i, j] = distances[j, i] = edit_distance(words, cut[j])
    return distances


def _shared(hyps: Sequence[Words]) -> tuple[int, int]:
    """How many words all hypotheses begin with, and how many they end with behind these."""
    shortest = min(map(len, hyps), default=0)
    first = hyps[0] if hyps else ()
    begin = next((n for n in range(shortest) if any(words[n] != first[n] for words in hyps)), shortest)
    most = shortest - begin
    end = next((n for n in range(most) if any(words[-1 - n] != first[-1 - n] for words in hyps)), most)
    return begin, end


def _by_bits(hyps: Sequence[Words]) -> np.ndarray:
    """Of hypotheses of at most 64 words: a column of all tables of distances in a few operations on bits.

    G. Myers, "A fast bit-vector algorithm for approximate string matching based on dynamic programming", Journal of
    the ACM 46 (1999), as H. Hyyroe, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances",
    Nordic Journal of Computing 10 (2003), Fig. 3, has it.  A bit stands for a word of the hypothesis of the row, a
    step for a word of the hypothesis of the column.
    """
    order = sorted(range(len(hyps)), key=lambda i: -len(hyps[i]))  # those that still have words come first
    lengths = np.array([len(hyps[i]) for i in order], dtype=np.int64)
    numbers: dict[str, int] = {}
    texts = np.zeros((len(hyps), int(lengths.max(initial=0))), dtype=np.int64)
    for row, i in enumerate(order):
        texts[row, : len(hyps[i])] = [numbers.setdefault(word, len(numbers)) for word in hyps[i]]
    places = np.zeros((len(hyps), max(1, len(numbers))), dtype=np.uint64)  # of each word in each hypothesis
    for n in range(texts.shape[1]):
        rows = np.flatnonzero(lengths > n)
        places[rows, texts[rows, n]] |= np.uint64(1 << n)
    last = np.where(lengths > 0, np.uint64(1) << np.maximum(lengths - 1, 0).astype(np.uint64), np.uint64(0))[:, None]
    one, shape = np.uint64(1), (len(hyps), len(hyps))
    higher, lower = np.full(shape, ~np.uint64(0)), np.zeros(shape, dtype=np.uint64)  # differences down a column
    distances = np.repeat(lengths[:, None], len(hyps), axis=1)
    for n in range(texts.shape[1]):
        left = int((lengths > n).sum())
        up, down = higher[:, :left], lower[:, :left]
        equal = places[:, texts[:left, n]]
        across = (((equal & up) + up) ^ up) | equal
        rise, fall = down | ~(across | up), up & across
        distances[:, :left] += ((rise & last) != 0).astype(np.int64) - ((fall & last) != 0)
        rise = (rise << one) | one
        fall = fall << one
        change = equal | down
        higher[:, :left] = fall | ~(change | rise)
        lower[:, :left] = rise & change
    distances[lengths == 0] = lengths
    result = np.empty(shape, dtype=np.int64)
    result[np.ix_(order, order)] = distances
    return result
