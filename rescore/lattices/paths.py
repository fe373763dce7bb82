"""Best paths and scores of word lattices (`rescore.types.Lattice`), computed over blocks of states at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from rescore.errors import ScoreError
from rescore.lattices.build import EPSILON
from rescore.types import Hypothesis, Lattice


def total_scores(lattice: Lattice, scales: Mapping[str, float]) -> np.ndarray:
    """float64 `(arcs,)`: `sum_k scale_k * score_k` of every arc; the scale of `words` is paid by each non-epsilon arc.

    Raises:
      ScoreError: `scales` names a score that the lattice does not have (0 leaves a score out, there or not).
    """
    total = np.zeros(lattice.num_arcs)
    for name, scale in scales.items():
        if name == "words":
            total += scale * (lattice.labels != EPSILON)
        elif name in lattice.scores:
            total += scale * lattice.scores[name] if scale else 0.0  # 0 leaves a score out, be it -inf
        elif scale:
            known = ", ".join([*lattice.scores, "words"])
            raise ScoreError(f"lattice '{lattice.utt_id}' has no score '{name}'; it has: {known}")
    return total


def rounding(total: float) -> float:
    """By how much scores of about `total` may differ that were summed in different orders (0 if it is infinite)."""
    return 1e-9 * (1.0 + abs(total)) if np.isfinite(total) else 0.0


def arc_ranges(lattice: Lattice) -> np.ndarray:
    """int64 `(states + 1,)`: the arcs out of state s are `ranges[s]:ranges[s + 1]` (arcs are sorted by `src`)."""
    return np.searchsorted(lattice.src, np.arange(lattice.num_states + 1))


def backward_scores(lattice: Lattice, totals: np.ndarray, combine: np.ufunc = np.maximum) -> np.ndarray:
    """Best score from each state to the final state, float64 `(states,)`, where `totals` are the arcs' scores.

    Args:
      totals: float64 `(arcs,)`, or `(arcs, points)` for a result `(states, points)`.
      combine: `np.logaddexp` for the log of the summed probability of all ways instead of the best one.
    """
    best = np.full((lattice.num_states, *totals.shape[1:]), -np.inf)
    best[-1] = 0.0
    for states, arcs, first in blocks_from_end(lattice):
        best[states] = combine.reduceat(totals[arcs] + best[lattice.dst[arcs]], first)
    return best


def forward_scores(lattice: Lattice, totals: np.ndarray, combine: np.ufunc = np.maximum) -> np.ndarray:
    """Best score from the start to each state; arguments and result as those of `backward_scores`."""
    best = np.full((lattice.num_states, *totals.shape[1:]), -np.inf)
    best[0] = 0.0
    for states, arcs, first in blocks_from_start(lattice):
        best[states] = combine.reduceat(totals[arcs] + best[lattice.src[arcs]], first)
    return best


def blocks_from_end(lattice: Lattice) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """The states before the final one in runs of neighbours without arcs among them, the last run first.

    Yields:
      the states; the arcs out of them; `(states,)`, where those of each state begin among these.
    """
    ranges = arc_ranges(lattice)
    for low, high in reversed(list(pairwise(independent_blocks(lattice, ranges)))):
        yield slice(low, high), slice(ranges[low], ranges[high]), ranges[low:high] - ranges[low]


def blocks_from_start(lattice: Lattice) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """The states behind the start in runs of neighbours without arcs among them, the first run first.

    Yields:
      the states; int64 `(arcs,)`, the arcs into them; `(states,)`, where those of each state begin among these.
    """
    order = np.argsort(lattice.dst, kind="stable")
    ranges = np.searchsorted(lattice.dst[order], np.arange(lattice.num_states + 1))
    bounds = [*independent_blocks(lattice, arc_ranges(lattice)), lattice.num_states]
    for low, high in pairwise([1, *(bound for bound in bounds if bound > 1)]):
        yield slice(low, high), order[ranges[low] : ranges[high]], ranges[low:high] - ranges[low]


def independent_blocks(lattice: Lattice, ranges: np.ndarray) -> list[int]:
    """Bounds of runs of states (the final one left out) such that no arc leads from a run into itself."""
    if not lattice.num_arcs:
        return [0]
    nearest = np.minimum.reduceat(lattice.dst, ranges[:-2]).tolist()
    bounds = [0]
    limit = nearest[0]
    for state, target in enumerate(nearest):
        if state >= limit:
            bounds.append(state)
            limit = target
        limit = min(limit, target)
    return [*bounds, len(nearest)]


def best_path(lattice: Lattice, scales: Mapping[str, float]) -> Hypothesis:
    """The path with the highest total under `scales`: its words, its scores by name, and `words`."""
    return path_hypothesis(lattice, best_arcs(lattice, total_scores(lattice, scales)))


def best_arcs(lattice: Lattice, totals: np.ndarray) -> list[int]:
    """The arcs of the path with the highest sum of `totals` `(arcs,)` (the first of equals)."""
    through = totals + backward_scores(lattice, totals)[lattice.dst]
    ranges = arc_ranges(lattice)
    arcs: list[int] = []
    state = 0
    while state != lattice.num_states - 1:
        arcs.append(int(ranges[state] + through[ranges[state] : ranges[state + 1]].argmax()))
        state = int(lattice.dst[arcs[-1]])
    return arcs


def best_path_words(lattice: Lattice, scales: Mapping[str, float]) -> Counter[str]:
    """How often each word is on the best path under those of the scales whose scores the lattice has (none: all by 1).

    The words that a lattice is about: most of those on its arcs are none at all where a recogniser of pieces made it.
    """
    here = {name: scale for name, scale in scales.items() if name in lattice.scores}
    return Counter(best_path(lattice, here or dict.fromkeys(lattice.scores, 1.0)).words)


def path_hypothesis(lattice: Lattice, arcs: Sequence[int]) -> Hypothesis:
    """Words and scores by name of the path along `arcs`; `words` is the number of words."""
    chosen = np.asarray(arcs, dtype=np.int64)
    words = tuple(lattice.symbols[label] for label in lattice.labels[chosen].tolist() if label != EPSILON)
    scores = {name: float(column[chosen].sum()) for name, column in lattice.scores.items()}
    return Hypothesis(words, {**scores, "words": float(len(words))})


def best_of_parallel(*keys_and_total: np.ndarray) -> np.ndarray:
    """Rows with the highest total (the last argument) among those with the same keys (the other arguments)."""
    *keys, total = keys_and_total
    order = np.lexsort((-total, *reversed(keys)))
    is_first = np.zeros(len(order), dtype=bool)
    is_first[:1] = True
    for key in keys:
        is_first[1:] |= key[order][1:] != key[order][:-1]
    return order[is_first]
