"""Operations on word lattices (`rescore.types.Lattice`), vectorised over the arcs of a state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rescore.errors import RescoreError, ScoreError
from rescore.types import Alignments, Hypothesis, Lattice

if TYPE_CHECKING:
    from rescore.text import TextNormalizer

EPSILON = 0  # label of the empty word


def build_lattice(
    utt_id: str,
    num_states: int,
    src: np.ndarray,
    dst: np.ndarray,
    labels: np.ndarray,
    scores: Mapping[str, np.ndarray],
    symbols: Sequence[str],
    start: int,
    final: int,
    times: np.ndarray | None = None,
    counts: Mapping[str, int] | None = None,
    alignments: Alignments | None = None,
) -> Lattice:
    """A Lattice from arcs over arbitrarily numbered states `0 .. num_states - 1`.

    States that are not on a path from `start` to `final` are removed, with their arcs, and counted
    (`counts["removed_states"]`, `counts["removed_arcs"]`); the others are renumbered in topological order.  Time and
    memory are those of the arcs, however high states are numbered.

    Raises:
      RescoreError: there is a cycle, or no path from `start` to `final`; the message does not name the file.
    """
    first, last = start, final
    if num_states <= 4 * (len(src) + 1):
        used = np.arange(num_states)
    else:
        used = np.unique(np.concatenate([[start, final], src, dst]))
        first, last = np.searchsorted(used, [start, final]).tolist()
        src, dst = np.searchsorted(used, src), np.searchsorted(used, dst)
    order = _topological_order(used, src, dst, first, last)
    if not len(order):
        raise RescoreError(f"no path from start node {start} to end node {final}")
    number = np.full(len(used), -1, dtype=np.int64)
    number[order] = np.arange(len(order))
    keep = np.flatnonzero((number[src] >= 0) & (number[dst] >= 0))
    keep = keep[np.argsort(number[src[keep]], kind="stable")]
    return Lattice(
        utt_id,
        len(order),
        number[src[keep]].astype(np.int32),
        number[dst[keep]].astype(np.int32),
        labels[keep].astype(np.int32),
        {name: np.asarray(column, dtype=np.float64)[keep] for name, column in scores.items()},
        list(symbols),
        None if times is None else times[used[order]],
        None if alignments is None else alignments.take(keep),
        add_counts(counts or {}, removed_states=num_states - len(order), removed_arcs=len(src) - len(keep)),
    )


def add_counts(counts: Mapping[str, int], **more: int) -> dict[str, int]:
    """`counts` with `more` added name by name."""
    return {**counts, **{name: counts.get(name, 0) + value for name, value in more.items()}}


def _topological_order(states: np.ndarray, src: np.ndarray, dst: np.ndarray, start: int, final: int) -> np.ndarray:
    """States between `start` and `final` so that every arc goes forward; empty if `final` is not reached.

    States are counted in `states`, which has their numbers for messages.
    """
    num_states = len(states)
    if (src < dst).all():
        return _states_between(num_states, src, dst, start, final)
    following: list[list[int]] = [[] for _ in range(num_states)]
    preceding: list[list[int]] = [[] for _ in range(num_states)]
    for source, target in zip(src.tolist(), dst.tolist(), strict=True):
        following[source].append(target)
        preceding[target].append(source)
    useful = _reachable(following, start) & _reachable(preceding, final)
    if start not in useful:
        return np.empty(0, dtype=np.int64)
    waiting = {state: sum(source in useful for source in preceding[state]) for state in useful}
    order = [start] if waiting[start] == 0 else []
    for state in order:  # grows while it is walked (Kahn)
        for target in following[state]:
            if target in useful:
                waiting[target] -= 1
                if waiting[target] == 0:
                    order.append(target)
    if len(order) < len(useful):
        cyclic = min(state for state in useful if waiting[state] > 0)
        raise RescoreError(f"the lattice has a cycle (at or before node {states[cyclic]}), expected an acyclic graph")
    order.remove(final)  # no useful arc leaves the final state, so it may stand last
    return np.asarray([*order, final], dtype=np.int64)


def _states_between(num_states: int, src: np.ndarray, dst: np.ndarray, start: int, final: int) -> np.ndarray:
    """As `_topological_order`, for states that are numbered so already."""
    order = np.argsort(src, kind="stable")
    sources, targets = src[order].tolist(), dst[order].tolist()
    after, before = bytearray(num_states), bytearray(num_states)
    after[start] = before[final] = 1
    for source, target in zip(sources, targets, strict=True):
        if after[source]:
            after[target] = 1
    for source, target in zip(reversed(sources), reversed(targets), strict=True):
        if before[target]:
            before[source] = 1
    return np.flatnonzero(np.frombuffer(after, dtype=np.uint8) & np.frombuffer(before, dtype=np.uint8))


def _reachable(following: list[list[int]], start: int) -> set[int]:
    seen = {start}
    todo = [start]
    while todo:
        for target in following[todo.pop()]:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


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


def arc_ranges(lattice: Lattice) -> np.ndarray:
    """int64 `(states + 1,)`: the arcs out of state s are `ranges[s]:ranges[s + 1]` (arcs are sorted by `src`)."""
    return np.searchsorted(lattice.src, np.arange(lattice.num_states + 1))


def backward_scores(lattice: Lattice, totals: np.ndarray, combine: np.ufunc = np.maximum) -> np.ndarray:
    """Best score from each state to the final state, float64 `(states,)`, where `totals` are the arcs' scores.

    Runs over blocks of neighbouring states without arcs among them, each in one step.

    Args:
      totals: float64 `(arcs,)`, or `(arcs, points)` for a result `(states, points)`.
      combine: `np.logaddexp` for the log of the summed probability of all ways instead of the best one.
    """
    best = np.full((lattice.num_states, *totals.shape[1:]), -np.inf)
    best[-1] = 0.0
    ranges = arc_ranges(lattice)
    bounds = independent_blocks(lattice, ranges)
    for low, high in zip(reversed(bounds[:-1]), reversed(bounds[1:]), strict=True):
        arcs = slice(ranges[low], ranges[high])
        through = totals[arcs] + best[lattice.dst[arcs]]
        best[low:high] = combine.reduceat(through, ranges[low:high] - ranges[low])
    return best


def forward_scores(lattice: Lattice, totals: np.ndarray, combine: np.ufunc = np.maximum) -> np.ndarray:
    """Best score from the start to each state; arguments and result as those of `backward_scores`."""
    best = np.full((lattice.num_states, *totals.shape[1:]), -np.inf)
    best[0] = 0.0
    order = np.argsort(lattice.dst, kind="stable")
    ranges = np.searchsorted(lattice.dst[order], np.arange(lattice.num_states + 1))
    bounds = [*independent_blocks(lattice, arc_ranges(lattice)), lattice.num_states]
    for low, high in pairwise([1, *(bound for bound in bounds if bound > 1)]):
        arcs = order[ranges[low] : ranges[high]]
        through = totals[arcs] + best[lattice.src[arcs]]
        best[low:high] = combine.reduceat(through, ranges[low:high] - ranges[low])
    return best


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
    words = tuple(lattice.symbols[label] for label in lattice.labels[chosen] if label != EPSILON)
    scores = {name: float(column[chosen].sum()) for name, column in lattice.scores.items()}
    return Hypothesis(words, {**scores, "words": float(len(words))})


def count_paths(lattice: Lattice) -> int:
    """Number of paths from start to end (not of distinct word sequences), exact however large."""
    paths = [0] * lattice.num_states
    paths[0] = 1
    for source, target in zip(lattice.src.tolist(), lattice.dst.tolist(), strict=True):
        paths[target] += paths[source]  # arcs are sorted by source and states topologically: paths[source] is complete
    return paths[-1]


def normalize_words(lattice: Lattice, normalizer: TextNormalizer) -> Lattice:
    """The lattice with every word passed through `normalizer`.

    An arc whose word becomes several words becomes a chain of arcs, the first of which carries all its scores (and its
    alignment); one whose word becomes none becomes an epsilon arc.
    """
    symbols = [""]
    index = {"": EPSILON}
    pieces: list[list[int]] = []
    for word in lattice.symbols:
        pieces.append([index.setdefault(piece, len(index)) for piece in (normalizer(word) if word else ()) if piece])
    symbols = list(index)
    first = np.array([chain[0] if chain else EPSILON for chain in pieces], dtype=np.int32)
    lengths = np.array([max(1, len(chain)) for chain in pieces])
    if (lengths == 1).all():
        return replace(lattice, labels=first[lattice.labels], symbols=symbols)
    return split_arcs(lattice, first, lengths, pieces, symbols)


def split_arcs(
    lattice: Lattice, first: np.ndarray, lengths: np.ndarray, pieces: list[list[int]], symbols: list[str]
) -> Lattice:
    """Replaces arcs by chains; `pieces[label]` are the new labels of an old one."""
    src, dst, labels = [lattice.src.copy()], [lattice.dst.copy()], [first[lattice.labels]]
    num_states = lattice.num_states
    parts = lengths[lattice.labels]
    times = None if lattice.times is None else [lattice.times]
    for arc in np.flatnonzero(parts > 1):
        chain = pieces[lattice.labels[arc]][1:]
        new = np.arange(num_states, num_states + len(chain))
        dst[0][arc] = new[0]
        src.append(new)
        dst.append(np.append(new[1:], lattice.dst[arc]))
        labels.append(np.array(chain))
        num_states += len(chain)
        if times is not None and lattice.times is not None:
            begin, end = lattice.times[lattice.src[arc]], lattice.times[lattice.dst[arc]]
            times.append(begin + (end - begin) * np.arange(1, len(chain) + 1) / (len(chain) + 1))
    added = num_states - lattice.num_states
    return build_lattice(
        lattice.utt_id,
        num_states,
        np.concatenate(src),
        np.concatenate(dst),
        np.concatenate(labels),
        {name: np.append(column, np.zeros(added)) for name, column in lattice.scores.items()},
        symbols,
        start=0,
        final=lattice.num_states - 1,
        times=None if times is None else np.concatenate(times),
        counts=lattice.counts,
        alignments=None
        if lattice.alignments is None
        else lattice.alignments.take(np.append(np.arange(lattice.num_arcs), np.full(added, -1))),
    )


def remove_epsilons(lattice: Lattice, scales: Mapping[str, float]) -> Lattice:
    """A lattice with the same word sequences, whose only epsilon arcs leave the start state (itself if it is such).

    Of all ways to pass from one word to the next through epsilons the best under `scales` is kept with all its scores,
    as is one of several arcs between the same states with the same word.  So the best path of every word sequence under
    `scales` survives with its scores; other paths need not.
    """
    totals = total_scores(lattice, scales)
    if not ((lattice.labels == EPSILON) & (lattice.src != 0)).any():
        return lattice
    names = list(lattice.scores)
    columns = np.stack([totals, *(lattice.scores[name] for name in names)], axis=1)
    is_word = lattice.labels != EPSILON
    stays = np.zeros(lattice.num_states, dtype=bool)  # states that an arc of the result may lead to
    stays[lattice.src[is_word]] = True
    stays[-1] = True
    closures = _epsilon_closures(lattice, columns, stays)
    arcs = np.flatnonzero(is_word)
    onward = np.append(lattice.dst[arcs], 0)  # the last: epsilons out of the start
    counts = closures.size[onward]
    rows = np.repeat(closures.begin[onward] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    src = np.repeat(np.append(lattice.src[arcs], 0), counts)
    dst = closures.target[rows]
    labels = np.repeat(np.append(lattice.labels[arcs], EPSILON), counts)
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
    for state in range(lattice.num_states - 1, -1, -1):
        found: dict[int, tuple[float, int, int]] = {}
        for place in range(ranges[state], ranges[state + 1]):
            low = begin[onto[place]]
            for row in range(low, low + size[onto[place]]):
                total, old = gains[place] + totals[row], found.get(target[row])
                if old is None or total > old[0]:
                    found[target[row]] = (total, arcs[place], row)
        if kept[state]:
            found[state] = (0.0, -1, -1)
        begin[state], size[state] = len(target), len(found)
        for reached, (total, arc, row) in found.items():
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


def best_of_parallel(*keys_and_total: np.ndarray) -> np.ndarray:
    """Rows with the highest total (the last argument) among those with the same keys (the other arguments)."""
    *keys, total = keys_and_total
    order = np.lexsort((-total, *reversed(keys)))
    is_first = np.zeros(len(order), dtype=bool)
    is_first[:1] = True
    for key in keys:
        is_first[1:] |= key[order][1:] != key[order][:-1]
    return order[is_first]
