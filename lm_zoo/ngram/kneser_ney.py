"""Interpolated modified Kneser-Ney n-gram estimation in vectorised numpy.

Chen and Goodman, "An empirical study of smoothing techniques for language modeling", 1998, section 4.1.6 and
equation 26; pruning and all conventions as in KenLM's lmplz (Heafield et al., "Scalable modified Kneser-Ney language
model estimation", ACL 2013), whose probabilities and back-offs it gives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lm_zoo.errors import LMError
from lm_zoo.ngram.counts import BOS, SPECIAL_WORDS, NgramTypes, Remark, count_ngram_types, read_ids

MAX_ORDER = 6
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)  # lmplz's default
PART = 1 << 18  # n-grams that are computed with at a time


@dataclass
class NgramTable:
    """The n-grams of one order that the model keeps.

    Attributes:
      kept:     int32 `(kept,)`, ids of the kept n-grams.
      log_prob: float32 `(kept,)`, log10 of the interpolated probability.
      backoff:  float32 `(kept,)`, log10 of the back-off weight; None at the highest order.
    """

    types: NgramTypes
    kept: np.ndarray
    log_prob: np.ndarray
    backoff: np.ndarray | None


@dataclass
class KneserNeyModel:
    """An estimated model: `words[id]`, and one table an order from 1.  Written by `lm_zoo.ngram.arpa.write_arpa`."""

    words: list[str]
    tables: list[NgramTable]
    discounts: list[np.ndarray]  # for adjusted counts 0, 1, 2, 3 and more, one row an order

    @property
    def order(self) -> int:
        return len(self.tables)

    def word_ids(self, order: int, kept: np.ndarray) -> np.ndarray:
        """int32 `(len(kept), order)`: the words of n-grams given by their ids."""
        columns = []
        for table in self.tables[order - 1 :: -1]:
            columns.append(table.types.word[kept])
            kept = table.types.context[kept]
        return np.stack(columns[::-1], axis=1)


def estimate(
    sentences: Iterable[Sequence[str]],
    order: int,
    prune: Sequence[int] = (),
    vocab: Collection[str] | None = None,
    discount_fallback: Sequence[float] | None = None,
    remark: Remark | None = None,
) -> KneserNeyModel:
    """Estimates an n-gram LM.

    `<unk>` in the text is an ordinary word; if it does not occur, its probability is what interpolation with the
    uniform distribution gives, as for lmplz.

    Args:
      order: 1 to 6.
      prune: n-grams of order n that occur `prune[n - 1]` times or fewer are left out; the last value holds for all
        higher orders; never decreasing; `<unk>`, `<s>` and `</s>` always stay.
      vocab: n-grams with a word that is not in it are left out (their mass goes to the back-off), as by lmplz's
        `--limit_vocab_file`; None keeps all words.
      discount_fallback: discounts of adjusted counts 1, 2, and 3 or more, for orders where the text is too small to
        estimate them, above 0 and at most 1, 2 and 3; None raises an error there.
      remark: takes lines about the progress.
    Raises:
      LMError: order, thresholds or discounts out of range, discounts that cannot be estimated, or no word of the text
        in `vocab`.
      TextError: no sentence, `<s>` or `</s>` within a sentence, or more tokens than can be counted.
    """
    thresholds = check_thresholds(prune, order)
    _check_fallback(discount_fallback)
    say = remark or (lambda message: None)
    words, text = read_ids(sentences)
    say(f"{len(text)} tokens with sentence begins and ends, {len(words)} words in the vocabulary")
    outside = _outside(words, vocab)
    types = count_ngram_types(text, len(words), order, say)
    adjusted = [adjusted_counts(types, n) for n in range(1, order + 1)]
    discounts = []
    for n, frequencies in enumerate(_frequencies(types, adjusted, text), start=1):
        discounts.append(_discounts(frequencies, n, discount_fallback, say))
    del text
    pruned = _pruned(types, thresholds, outside)
    tables = _interpolate(types, adjusted, pruned, discounts)
    for n, table in enumerate(tables, start=1):
        say(f"{n}-grams: {len(table.kept)} of {len(table.types)} kept, discounts " + _format(discounts[n - 1][1:]))
    return KneserNeyModel(words, tables, discounts)


def check_thresholds(prune: Sequence[int], order: int) -> list[int]:
    """One pruning threshold an order.

    Raises:
      LMError: the order is not 1 to 6, or thresholds are negative, decrease, or are more than orders.
    """
    if not 1 <= order <= MAX_ORDER:
        raise LMError(f"order {order}: expected 1 to {MAX_ORDER}")
    values = list(prune) or [0]
    if len(values) > order:
        raise LMError(f"{len(values)} pruning thresholds for a model of order {order}: expected {order} or fewer")
    if min(values) < 0 or sorted(values) != values:
        raise LMError(f"pruning thresholds {' '.join(map(str, values))}: expected numbers from 0 that never decrease")
    return values + [values[-1]] * (order - len(values))


def _check_fallback(discounts: Sequence[float] | None) -> None:
    if discounts is None:
        return
    values = list(discounts)
    if len(values) != 3 or not all(0 < value <= count for count, value in enumerate(values, start=1)):
        raise LMError(f"fixed discounts {values}: expected three above 0, at most 1, 2 and 3")


def adjusted_counts(types: list[NgramTypes], order: int) -> np.ndarray:
    """int32 `(types,)`: in how many different words' company an n-gram occurs on its left.

    The highest order, and n-grams that begin with `<s>`, have nothing on their left: they keep their occurrences.
    """
    lower = types[order - 1]
    if order == len(types):
        return lower.count
    left = np.bincount(types[order].suffix, minlength=len(lower)).astype(np.int32)
    begin = lower.word == BOS if order == 1 else _begins(types, order)
    return np.where(begin, lower.count, left)


def _begins(types: list[NgramTypes], order: int) -> np.ndarray:
    """bool `(types,)`: n-grams that begin with `<s>`."""
    first = types[0].word == BOS
    for lower in types[1:order]:
        first = first[lower.context]
    return first


def _frequencies(types: list[NgramTypes], adjusted: list[np.ndarray], text: np.ndarray) -> list[np.ndarray]:
    """For each order int64 `(5,)`: how many n-grams have an adjusted count of 0, 1, 2, 3, 4.

    As in lmplz, which takes the occurrences instead for the last n-gram in the order of reversed words.
    """
    result = []
    last = _last_ngram(text, len(types))
    for n, (ngrams, counts) in enumerate(zip(types, adjusted, strict=True), start=1):
        frequencies = np.bincount(np.minimum(counts, 5), minlength=6)[:5]
        if n < len(types) and n <= len(last):
            index = _find(types[:n], last[-n:])
            for value, change in ((counts[index], -1), (ngrams.count[index], 1)):
                if value < 5:
                    frequencies[value] += change
        result.append(frequencies)
    return result


def _last_ngram(text: np.ndarray, order: int) -> list[int]:
    """Words of the n-gram that is last in the order of reversed words; shorter than `order` if it begins with `<s>`."""
    ends = np.flatnonzero(text == text.max())
    words: list[int] = []
    while len(words) < order and BOS not in words[:1]:
        found = text[ends - len(words)]
        words.insert(0, int(found.max()))
        ends = ends[found == words[0]]
    return words


def _find(types: list[NgramTypes], words: Sequence[int]) -> int:
    """The id of an n-gram."""
    found = words[0]
    for ngrams, word in zip(types[1:], words[1:], strict=True):
        start, end = np.searchsorted(ngrams.context, [found, found + 1])
        found = start + int(np.searchsorted(ngrams.word[start:end], word))
    return found


def _discounts(frequencies: np.ndarray, order: int, fallback: Sequence[float] | None, say: Remark) -> np.ndarray:
    """float64 `(4,)`: discounts of adjusted counts 0 (none), 1, 2, and 3 or more; Chen and Goodman, equation 26."""
    counts = frequencies.astype(float)
    if (counts[1:4] > 0).all():
        y = counts[1] / (counts[1] + 2 * counts[2])
        j = np.arange(1, 4)
        found = j - (j + 1) * y * counts[2:] / counts[1:4]
        if (found > 0).all():  # of 0, a context would leave nothing to its back-off; none is above j
            return np.concatenate([[0.0], found])
        problem = f"the discounts {_format(found)} are out of range"
    else:
        seen = ", ".join(f"{frequencies[j]:.0f} with {j}" for j in range(1, 4))
        problem = f"too few {order}-grams by adjusted count: {seen}"
    if fallback is None:
        raise LMError(
            f"cannot estimate the discounts of order {order}: {problem}; the text is too small or artificial: "
            "give more text, a lower order, or fixed discounts (--discount-fallback)"
        )
    say(f"order {order}: {problem}; fixed discounts {_format(fallback)} instead")
    return np.array([0.0, *fallback])


def _format(values: Iterable[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def _outside(words: list[str], vocab: Collection[str] | None) -> np.ndarray | None:
    """bool `(vocab,)`: words to leave out; None if there are none.

    Raises:
      LMError: all are to be left out.
    """
    if vocab is None:
        return None
    keep = set(vocab).union(SPECIAL_WORDS)
    own = words[len(SPECIAL_WORDS) :]
    if own and keep.isdisjoint(own):
        found = f"{len(own)} words, such as '{own[0]}', none of which is among the {len(vocab)} of the vocabulary"
        raise LMError(f"the text has {found}; expected words of the text, in its letter case")
    return np.array([word not in keep for word in words])


def _pruned(types: list[NgramTypes], thresholds: list[int], outside: np.ndarray | None) -> list[np.ndarray]:
    """For each order bool `(types,)`: n-grams that the model leaves out."""
    result, left_out = [], outside
    for n, (ngrams, threshold) in enumerate(zip(types, thresholds, strict=True), start=1):
        pruned = ngrams.count <= threshold
        if outside is not None and left_out is not None:
            if n > 1:
                left_out = left_out[ngrams.context] | outside[ngrams.word]
            pruned |= left_out
        if n == 1:
            pruned[: len(SPECIAL_WORDS)] = False
        result.append(pruned)
    return result


def _interpolate(
    types: list[NgramTypes], adjusted: list[np.ndarray], pruned: list[np.ndarray], discounts: list[np.ndarray]
) -> list[NgramTable]:
    """p(w | c) = (a(c w) - D(a(c w))) / a(c *) + gamma(c) p(w | c without its first word); gamma is the back-off."""
    tables: list[NgramTable] = []
    orders = zip(types, adjusted, pruned, discounts, strict=True)
    lower = np.array([1.0 / (np.count_nonzero(~pruned[0]) - 1)])  # uniform over all words but <s>
    for n, (ngrams, counts, left_out, discount) in enumerate(orders, start=1):
        total, gamma = _contexts(ngrams, counts, left_out, discount, len(lower))
        if n > 1:
            tables[-1].backoff = _backoffs(gamma, tables[-1].kept)
        kept = np.flatnonzero(~left_out).astype(np.int32)
        log_prob, probs = np.empty(len(kept), np.float32), np.zeros(len(ngrams) if n < len(types) else 0)
        for part in _parts(len(kept)):
            ids = kept[part]
            context, count = ngrams.context[ids], counts[ids]
            prob = (count - discount[np.minimum(count, 3)]) / total[context]
            prob += gamma[context] * lower[ngrams.suffix[ids]]
            log_prob[part] = np.minimum(_log10(prob), 0)
            if n < len(types):
                probs[ids] = prob
        if n == 1:
            log_prob[BOS], probs[BOS : BOS + 1] = 0.0, 0.0  # context only; there are no probs at order 1
        lower = probs
        tables.append(NgramTable(ngrams, kept, log_prob, None))
    return tables


def _backoffs(gamma: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """float32 `(kept,)`, log10."""
    result = np.empty(len(kept), np.float32)
    for part in _parts(len(kept)):
        result[part] = _log10(gamma[kept[part]])
    return result


def _contexts(
    ngrams: NgramTypes, counts: np.ndarray, left_out: np.ndarray, discount: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """a(c *) and gamma(c) of every context, float64 `(size,)`."""
    total, subtracted = np.zeros(size), np.zeros(size)
    for part in _parts(len(ngrams)):
        context, count = ngrams.context[part], counts[part]
        first, last = context[0], context[-1] + 1
        total[first:last] += np.bincount(context - first, count)
        lost = np.where(left_out[part], count, discount[np.minimum(count, 3)])
        subtracted[first:last] += np.bincount(context - first, lost)
    gamma = np.divide(subtracted, total, out=subtracted, where=total > 0)
    gamma[total == 0] = 1.0
    return total, gamma


def _parts(size: int) -> Iterator[slice]:
    for start in range(0, size, PART):
        yield slice(start, min(start + PART, size))


def _log10(values: np.ndarray) -> np.ndarray:
    return (np.log10(values) + 0.0).astype(np.float32)
