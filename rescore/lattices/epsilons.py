"""Lattices without arcs that have no word."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lm_zoo.deadline import in_time
from rescore.lattices.build import EPSILON, build_lattice
from rescore.lattices.paths import best_of_parallel, total_scores
from rescore.types import Alignments, Lattice


def remove_epsilons(lattice: Lattice, scales: Mapping[str, float]) -> Lattice:
    """A lattice with the same word sequences, whose only epsilon arcs leave the start state (itself if it is such).

    Of all ways to pass from one word to the next through epsilons the best under `scales` is kept with all its scores,
    as is one of several arcs between the same states with the same word.  So the best path of every word sequence under
    `scales` survives with its scores; other paths need not.
    """
    totals = total_scores(lattice, scales)
    if not ((lattice.labels == EPSILON) & (lattice.src != 0)).any():
        return lattice
    # What is summed along paths, (arcs, 1 + scores): the total under the scales, then every score by name.
    names = list(lattice.scores)
    columns = np.stack([totals, *(lattice.scores[name] for name in names)], axis=1)
    # Only the end and states that words leave are arrived at; for every state, the best silent way to each of those.
    is_word = lattice.labels != EPSILON
    stays = np.zeros(lattice.num_states, dtype=bool)
    stays[lattice.src[is_word]] = True
    stays[-1] = True
    closures = _epsilon_closures(lattice, columns, stays)
    # An arc of the result is a word's arc and then a silent way out of its target: `rows` `(pairs,)` are the ways of
    # each arc in turn, `begin` to `begin + size - 1`.  One more is the ways out of the start, with no word before them.
    arcs = np.flatnonzero(is_word)
    onward = np.append(lattice.dst[arcs], 0)
    counts = closures.size[onward]
    rows = np.repeat(closures.begin[onward] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    src = np.repeat(np.append(lattice.src[arcs], 0), counts)
    dst = closures.target[rows]
    labels = np.repeat(np.append(lattice.labels[arcs], EPSILON), counts)
    # Scores (pairs, 1 + scores) of both together; of those with the same ends and word the best stays.
    before = np.concatenate([columns[arcs], np.zeros((1, columns.shape[1]))])
    gathered = np.repeat(before, counts, axis=0) + closures.gained[rows]
    best = best_of_parallel(src, dst, labels, gathered[:, 0])
    best = best[src[best] != dst[best]]  # the start reaches itself
    scores = {name: gathered[best, 1 + index] for index, name in enumerate(names)}
    # States that only epsilons reached drop out of every path here; that is no loss, so it is not counted.
    result = build_lattice(
        lattice.utt_id,
        lattice.num_states,
        src[best],
        dst[best],
        labels[best],
        scores,
        lattice.symbols,
        start=0,
        final=lattice.num_states - 1,
        times=lattice.times,
        alignments=_joined_strings(lattice, closures, np.repeat(np.append(arcs, -1), counts)[best], rows[best]),
    )
    result.counts = dict(lattice.counts)
    return result


class _Closures(NamedTuple):
    """States that epsilons reach from each state (itself too) with the best way to each, a row a way.

    Attributes:
      begin, size: int64 `(states,)`, the ways from state s are rows `begin[s]` to `begin[s] + size[s] - 1`.
      target: int64 `(rows,)`, the state that the way reaches.
      first:  int64 `(rows,)`, the way's first arc, -1 for the state itself.
      rest:   int64 `(rows,)`, the row that goes on after that arc, -1 for the state itself.
      gained: float64 `(rows, 1 + scores)`, total and scores by name of the way.
    """

    begin: np.ndarray
    size: np.ndarray
    target: np.ndarray
    first: np.ndarray
    rest: np.ndarray
    gained: np.ndarray


def _epsilon_closures(lattice: Lattice, columns: np.ndarray, stays: np.ndarray) -> _Closures:
    """The closure of each state, of states marked in `stays`; `columns`: float64 `(arcs, 1 + scores)`, total first."""
    silent = np.flatnonzero(lattice.labels == EPSILON)
    ranges = np.searchsorted(lattice.src[silent], np.arange(lattice.num_states + 1)).tolist()
    arcs, onto, gains = silent.tolist(), lattice.dst[silent].tolist(), columns[silent, 0].tolist()
    begin, size, kept = [0] * lattice.num_states, [0] * lattice.num_states, stays.tolist()
    target: list[int] = []
    totals: list[float] = []
    first: list[int] = []
    rest: list[int] = []
    depth: list[int] = []
    # From the end backwards: the ways out of a state are its silent arcs, each before all ways out of the arc's target.
    for state in in_time(range(lattice.num_states - 1, -1, -1)):
        ways: dict[int, tuple[float, int, int]] = {}  # state reached -> total, first arc, row of the rest
        for silent_arc in range(ranges[state], ranges[state + 1]):
            low = begin[onto[silent_arc]]
            for row in range(low, low + size[onto[silent_arc]]):
                total, old = gains[silent_arc] + totals[row], ways.get(target[row])
                if old is None or total > old[0]:
                    ways[target[row]] = (total, arcs[silent_arc], row)
        if kept[state]:
            ways[state] = (0.0, -1, -1)
        begin[state], size[state] = len(target), len(ways)
        for reached, (total, arc, row) in ways.items():
            target.append(reached)
            totals.append(total)
            first.append(arc)
            rest.append(row)
            depth.append(depth[row] + 1 if row >= 0 else 0)
    starts, sizes, targets, firsts, rests = (
        np.array(column, dtype=np.int64) for column in (begin, size, target, first, rest)
    )
    return _Closures(starts, sizes, targets, firsts, rests, _gained(columns, firsts, rests, np.array(depth)))


def _gained(columns: np.ndarray, first: np.ndarray, rest: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Scores along the ways, float64 `(rows, 1 + scores)`; `depth` `(rows,)` is the number of arcs of each."""
    # Ways of one arc first, then of two, ...: the rest of a way has one arc less, so it is summed already.
    gained = np.zeros((len(first), columns.shape[1]))
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, depth.max(initial=0) + 2))
    for low, high in pairwise(bounds.tolist()):
        rows = order[low:high]
        gained[rows] = columns[first[rows]] + gained[rest[rows]]
    return gained


def _joined_strings(lattice: Lattice, closures: _Closures, arcs: np.ndarray, rows: np.ndarray) -> Alignments | None:
    """The strings along `arcs` `(n,)` (-1: none, from the start) and the ways `rows` `(n,)` behind them."""
    if lattice.alignments is None:
        return None
    ways: list[int] = []
    bounds = [0]
    first, rest = closures.first.tolist(), closures.rest.tolist()
    for arc, row in zip(arcs.tolist(), rows.tolist(), strict=True):
        if arc >= 0:
            ways.append(arc)
        while first[row] >= 0:
            ways.append(first[row])
            row = rest[row]
        bounds.append(len(ways))
    return lattice.alignments.join(np.array(ways, dtype=np.int64), np.array(bounds))
