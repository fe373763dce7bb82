"""The path of a lattice that is nearest to a reference: exact, by edit distance between the lattice and the words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rescore.evaluation.wer import ErrorCounts, count_errors, split_characters
from rescore.lattices.build import EPSILON, normalize_words
from rescore.lattices.paths import arc_ranges, blocks_from_end, path_hypothesis
from rescore.shown import Shown, Table
from rescore.types import Hypothesis, Lattice, Words

_NO_WORD = -1  # stands for epsilon and, among the reference, for the place behind its end
_NOT_IN_LATTICE = -2


@dataclass(frozen=True, repr=False)
class Oracle(Shown):
    """A path with the fewest errors; shown and as a data frame, one row.

    Attributes:
      arcs: the path.
      hyp: its words and scores.
      counts: its errors, as `rescore.evaluation.wer.count_errors` counts them.
    """

    arcs: list[int]
    hyp: Hypothesis
    counts: ErrorCounts

    def _table(self) -> Table:
        counts = self.counts
        numbers = [counts.errors, counts.sub, counts.dele, counts.ins, counts.ref_words]
        scores = {name: score for name, score in self.hyp.scores.items() if name != "words"}
        heads = ["words", "errors", "sub", "del", "ins", "ref_words", *scores]
        return heads, [[" ".join(self.hyp.words), *numbers, *scores.values()]]


def as_characters(lattice: Lattice) -> Lattice:
    """The lattice with the characters of its words as words, a chain of arcs each: for the oracle of characters."""
    return normalize_words(lattice, lambda word: split_characters((word,)))


def oracle(lattice: Lattice, ref: Words) -> Oracle:
    """The path with the fewest word errors against `ref`; of several the one found first."""
    words, ref_words = _as_numbers(lattice, ref)
    to_come = _distances(lattice, words, ref_words)
    arcs = _trace(lattice, words, ref_words, to_come)
    hyp = path_hypothesis(lattice, arcs)
    return Oracle(arcs, hyp, count_errors(ref, hyp.words))


def _as_numbers(lattice: Lattice, ref: Words) -> tuple[np.ndarray, np.ndarray]:
    """The words of the arcs `(arcs,)` and of the reference with the place behind its end, `(ref + 1,)`; int64."""
    numbers: dict[str, int] = {}
    used, place = np.unique(lattice.labels, return_inverse=True)
    for label in used:
        numbers.setdefault(lattice.symbols[label], int(label))  # two labels may have the same word
    of_used = [_NO_WORD if label == EPSILON else numbers[lattice.symbols[label]] for label in used]
    ref_numbers = [numbers.get(word, _NOT_IN_LATTICE) for word in ref]
    return np.array(of_used, dtype=np.int64)[place], np.array([*ref_numbers, _NO_WORD], dtype=np.int64)


def _distances(lattice: Lattice, words: np.ndarray, ref: np.ndarray) -> np.ndarray:
    """Fewest errors from each state to the end against what is left of the reference, int32 `(states, ref + 1)`.

    The Levenshtein recursion over reference positions, for all arcs of a block of independent states at once.
    """
    position = np.arange(len(ref), dtype=np.int32)
    errors = np.empty((lattice.num_states, len(ref)), dtype=np.int32)
    errors[-1] = position[::-1]
    for states, arcs, first in blocks_from_end(lattice):
        behind, word = errors[lattice.dst[arcs]], words[arcs, None]
        through = behind + (word != _NO_WORD)  # the arc's word is an insertion
        np.minimum(through[:, :-1], behind[:, 1:] + (word != ref[:-1]), out=through[:, :-1])  # it stands for ref's
        best = np.minimum.reduceat(through, first)
        # Deletions: the least of errors[k] + (k - position) over k >= position.
        errors[states] = np.minimum.accumulate((best + position)[:, ::-1], axis=1)[:, ::-1] - position
    return errors


def _trace(lattice: Lattice, words: np.ndarray, ref: np.ndarray, to_come: np.ndarray) -> list[int]:
    """The arcs of a path with `to_come[0, 0]` errors."""
    ranges = arc_ranges(lattice)
    arcs: list[int] = []
    state, place = 0, 0
    while state != lattice.num_states - 1:
        out = slice(ranges[state], ranges[state + 1])
        targets = lattice.dst[out]
        ways = [to_come[targets, place] + (words[out] != _NO_WORD)]
        if place + 1 < len(ref):
            ways.append(to_come[targets, place + 1] + (words[out] != ref[place]))
        step, nth = divmod(int(np.argmin(ways)), len(targets))
        if ways[step][nth] > to_come[state, place]:
            place += 1  # a deletion
        else:
            arcs.append(int(ranges[state]) + nth)
            state, place = int(targets[nth]), place + step
    return arcs
