"""Lattices from arcs in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rescore.errors import RescoreError
from rescore.types import LARGEST, Alignments, Lattice, WordEnds

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
    possible: bool = False,
    word_ends: WordEnds | None = None,
) -> Lattice:
    """A Lattice from arcs over arbitrarily numbered states `0 .. num_states - 1`.

    States that are not on a path from `start` to `final` are removed, with their arcs, and counted
    (`counts["removed_states"]`, `counts["removed_arcs"]`); the others are renumbered by the arcs on their longest ways
    from the start, so that passes over `independent_blocks` have few steps.  Time and memory are those of the arcs.

    Args:
      possible: arcs with a score of -inf are removed and counted, too.
    Raises:
      RescoreError: a score beyond `LARGEST`, a cycle, no path, or arcs where `start` is `final`; names no file.
    """
    _check_sizes(scores)
    rows = np.arange(len(src))
    if possible:
        rows = np.flatnonzero(np.min([np.zeros(len(src)), *scores.values()], axis=0) > -np.inf)
        src, dst = src[rows], dst[rows]
    if start == final and len(src):
        raise RescoreError(f"node {start} is both start and end, so that no arc is on a path")
    used, src, dst, first, last = _squeezed(num_states, src, dst, start, final)
    states = _topological_order(used, src, dst, first, last)
    if not len(states):
        raise RescoreError(
            f"no path from start node {start} to end node {final}, so that it holds no hypothesis; decode it with a "
            "wider beam, or leave it out (--on-error skip)"
        )
    number = np.full(len(used), -1, dtype=np.int64)
    number[states] = np.arange(len(states))
    keep = np.flatnonzero((number[src] >= 0) & (number[dst] >= 0))
    keep = keep[np.argsort(number[src[keep]], kind="stable")]
    rows = rows[keep]
    return Lattice(
        utt_id,
        len(states),
        number[src[keep]].astype(np.int32),
        number[dst[keep]].astype(np.int32),
        labels[rows].astype(np.int32),
        {name: np.asarray(column, dtype=np.float64)[rows] for name, column in scores.items()},
        list(symbols),
        None if times is None else times[used[states]],
        None if alignments is None else alignments.take(rows),
        add_counts(counts or {}, removed_states=num_states - len(states), removed_arcs=len(labels) - len(rows)),
        None if word_ends is None else word_ends.take(rows),
    )


def _squeezed(
    num_states: int, src: np.ndarray, dst: np.ndarray, start: int, final: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
    """States that occur, and arcs, start and end numbered by them; all states, where these are not far more."""
    if num_states <= 4 * (len(src) + 1):
        return np.arange(num_states), src, dst, start, final
    used = np.unique(np.concatenate([[start, final], src, dst]))
    first, last = np.searchsorted(used, [start, final]).tolist()
    return used, np.searchsorted(used, src), np.searchsorted(used, dst), first, last


def _check_sizes(scores: Mapping[str, np.ndarray]) -> None:
    for name, column in scores.items():
        sizes = np.abs(column)
        if len(beyond := np.flatnonzero((sizes > LARGEST) & (sizes < np.inf))):
            found = f"a score {name} of {np.asarray(column)[beyond[0]]:g}"
            raise RescoreError(f"{found}, expected numbers from -{LARGEST:g} to {LARGEST:g}")


def with_an_arc(lattice: Lattice) -> Lattice:
    """A lattice of one state as one of two with an epsilon between, which can have scores; others as they are."""
    if lattice.num_arcs:
        return lattice
    ends = np.arange(2, dtype=np.int32)
    return replace(
        lattice,
        num_states=2,
        src=ends[:1],
        dst=ends[1:],
        labels=np.full(1, EPSILON, dtype=np.int32),
        scores={name: np.zeros(1) for name in lattice.scores},
        times=None if lattice.times is None else np.repeat(lattice.times, 2),
        alignments=None if lattice.alignments is None else lattice.alignments.take(np.full(1, -1)),
    )


def add_counts(counts: Mapping[str, int], **more: int) -> dict[str, int]:
    """`counts` with `more` added name by name."""
    return {**counts, **{name: counts.get(name, 0) + value for name, value in more.items()}}


def _topological_order(states: np.ndarray, src: np.ndarray, dst: np.ndarray, start: int, final: int) -> np.ndarray:
    """States between `start` and `final` by their longest way from `start`; empty if `final` is not reached.

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
    for state in order:  # grows while it is walked (Kahn; first come first served is by longest ways)
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
    """As `_topological_order`, for states whose arcs go forward already."""
    order = np.argsort(src, kind="stable")
    sources, targets = src[order].tolist(), dst[order].tolist()
    level, before = [-1] * num_states, bytearray(num_states)  # level: arcs on the longest way from the start
    level[start], before[final] = 0, 1
    for source, target in zip(sources, targets, strict=True):
        here = level[source]
        if 0 <= here >= level[target]:
            level[target] = here + 1
    for source, target in zip(reversed(sources), reversed(targets), strict=True):
        if before[target]:
            before[source] = 1
    levels = np.array(level)
    states = np.flatnonzero((levels >= 0) & np.frombuffer(before, dtype=bool))
    return states[np.argsort(levels[states], kind="stable")]


def _reachable(following: list[list[int]], start: int) -> set[int]:
    seen = {start}
    todo = [start]
    while todo:
        for target in following[todo.pop()]:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def normalize_words(lattice: Lattice, normalizer: Callable[[str], Sequence[str]]) -> Lattice:
    """The lattice with every word passed through `normalizer`, which gives its words.

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
