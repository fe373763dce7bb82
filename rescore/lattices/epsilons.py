"""Lattices without arcs that have no word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from lm_zoo.deadline import in_time
from rescore.lattices.build import EPSILON, build_lattice
from rescore.lattices.paths import best_of_parallel, total_scores
from rescore.types import Alignments, Lattice, WordEnds

AT_ONCE = 1 << 12  # arcs of a result whose strings are joined at a time


def has_inner_epsilons(lattice: Lattice) -> bool:
    """Whether there are epsilons that do not leave the start state."""
    return bool(((lattice.labels == EPSILON) & (lattice.src != 0)).any())


def remove_epsilons(
    lattice: Lattice, scales: Mapping[str, float], kept: np.ndarray | None = None, keep_ends: bool = False
) -> Lattice:
    """A lattice with the same word sequences, whose only epsilon arcs leave the start state (itself if it is such).

    Of all ways to pass from one word to the next through epsilons the best under `scales` is kept with all its scores,
    as is one of several arcs between the same states with the same word.  So the best path of every word sequence under
    `scales` survives with its scores; other paths need not.

    Args:
      kept: bool `(arcs,)`, arcs of whole paths, in a lattice with inner epsilons; others count for nothing.
      keep_ends: the result says where words end, for `rescore.lattices.silences.with_silences`.
    """
    totals = total_scores(lattice, scales)
    if not has_inner_epsilons(lattice):
        return lattice
    counting = np.ones(lattice.num_arcs, dtype=bool) if kept is None else kept
    # What is summed along paths, (arcs, 1 + scores): the total under the scales, then every score by name.
    names = list(lattice.scores)
    columns = np.stack([totals, *(lattice.scores[name] for name in names)], axis=1)
    # Only the end and states that words leave are arrived at; for every state, the best silent way to each of those.
    is_word = (lattice.labels != EPSILON) & counting
    stays = np.zeros(lattice.num_states, dtype=bool)
    stays[lattice.src[is_word]] = True
    stays[-1] = True
    closures = _epsilon_closures(lattice, columns, stays, counting)
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
    joined = np.repeat(np.append(arcs, -1), counts)[best]
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
        alignments=_joined_strings(lattice, closures, joined, rows[best]),
        word_ends=_word_ends(lattice, joined, dst[best]) if keep_ends else None,
    )
    result.counts = dict(lattice.counts)
    return result


def _word_ends(lattice: Lattice, arcs: np.ndarray, dst: np.ndarray) -> WordEnds | None:
    """Where the words of `arcs` `(n,)` end (-1: no word), of arcs that go on in silence to the states `dst` `(n,)`."""
    if lattice.times is None:
        return None
    none = np.zeros(lattice.num_arcs, dtype=np.int64)
    own = WordEnds(lattice.times[lattice.dst], none if lattice.alignments is None else lattice.alignments.lengths)
    found = (own if lattice.word_ends is None else lattice.word_ends).take(arcs)
    return WordEnds(np.where(arcs < 0, lattice.times[dst], found.times), found.ids)


class _Closures(NamedTuple):
    """States that epsilons reach from each state (itself too) with the best way to each, a row a way.

    Attributes:
      silent: the epsilons that the ways are made of.
      begin, size: int64 `(states,)`, the ways from state s are rows `begin[s]` to `begin[s] + size[s] - 1`.
      target: int64 `(rows,)`, the state that the way reaches.
      first:  int64 `(rows,)`, the way's first one of `silent`, -1 for the state itself.
      rest:   int64 `(rows,)`, the row that goes on after that, -1 for the state itself.
      gained: float64 `(rows, 1 + scores)`, total and scores by name of the way.
    """

    silent: _Silent
    begin: np.ndarray
    size: np.ndarray
    target: np.ndarray
    first: np.ndarray
    rest: np.ndarray
    gained: np.ndarray


class _Silent(NamedTuple):
    """Epsilons, those out of states with no other way in than one epsilon drawn back to where that begins.

    Of such a state nothing but what leads to it needs the ways out; so a chain of them has an epsilon to each, and not
    from each a way to all behind it.

    Attributes:
      arc:    int64 `(epsilons,)`, the lattice's arc, ascending.
      before: int64 `(epsilons,)`, which of these goes before that arc, -1 if none.
      src:    int64 `(epsilons,)`, where the first of them all begins.
      gained: float64 `(epsilons, 1 + scores)`, of them all.
    """

    arc: np.ndarray
    before: np.ndarray
    src: np.ndarray
    gained: np.ndarray


def _drawn_back(lattice: Lattice, columns: np.ndarray, counting: np.ndarray) -> _Silent:
    """The lattice's epsilons among those `counting`; `columns`: float64 `(arcs, 1 + scores)`, total first."""
    arc = np.flatnonzero((lattice.labels == EPSILON) & counting)
    sole = np.bincount(lattice.dst, minlength=lattice.num_states)[lattice.dst[arc]] == 1
    entered_by = np.full(lattice.num_states, -1)
    entered_by[lattice.dst[arc[sole]]] = np.flatnonzero(sole)
    before = entered_by[lattice.src[arc]]
    src, gained, up = lattice.src[arc].astype(np.int64), columns[arc], before
    while len(later := np.flatnonzero(up >= 0)):  # each time the ways in front are twice as long
        src[later], gained[later] = src[up[later]], gained[up[later]] + gained[later]
        up = np.where(up >= 0, up[up], -1)
    return _Silent(arc, before, src, gained)


def _epsilon_closures(lattice: Lattice, columns: np.ndarray, stays: np.ndarray, counting: np.ndarray) -> _Closures:
    """The closure of each state, of states marked in `stays`; `columns`: float64 `(arcs, 1 + scores)`, total first.

    By epsilons among the arcs marked in `counting`.

    That of a state with no other way in than one epsilon has the state itself alone.
    """
    silent = _drawn_back(lattice, columns, counting)
    dst = lattice.dst[silent.arc]
    begin, size = np.zeros((2, lattice.num_states), dtype=np.int64)
    row = [("target", np.int64), ("first", np.int64), ("rest", np.int64), ("gained", np.float64, columns.shape[1:])]
    ways, count = np.empty(lattice.num_states, dtype=row), 0
    # From the end backwards: the ways out of a state are its silent arcs, each before all ways out of the arc's target.
    for states, arcs in in_time(_silent_levels(lattice.num_states, silent.src, dst)):
        own = states[stays[states]]
        onto = dst[arcs]
        ends = np.cumsum(size[onto])
        rest = np.repeat(begin[onto] - ends + size[onto], size[onto]) + np.arange(ends[-1] if len(arcs) else 0)
        first = np.repeat(arcs, size[onto])
        state = np.append(own, silent.src[first])
        found = np.zeros(len(state), dtype=row)
        found["target"] = np.append(own, ways["target"][rest])
        found["first"], found["rest"] = (np.append(np.full(len(own), -1), column) for column in (first, rest))
        found["gained"][len(own) :] = silent.gained[first] + ways["gained"][rest]
        best = best_of_parallel(state, found["target"], found["gained"][:, 0])
        begin[states] = count + np.searchsorted(state[best], states)
        size[states] = count + np.searchsorted(state[best], states, side="right") - begin[states]
        if count + len(best) > len(ways):
            ways = np.append(ways, np.empty(max(len(ways), len(best)), dtype=row))
        ways[count : count + len(best)] = found[best]
        count += len(best)
    return _Closures(silent, begin, size, *(ways[name][:count] for name in ("target", "first", "rest", "gained")))


def _silent_levels(num_states: int, src: np.ndarray, dst: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """States from which no epsilon leads on, then those with one more on their longest way, ...; with their epsilons.

    States and epsilons ascend.
    """
    backwards = np.argsort(-src, kind="stable")
    level = [0] * num_states
    for source, target in zip(src[backwards].tolist(), dst[backwards].tolist(), strict=True):
        level[source] = max(level[source], level[target] + 1)
    of_state = np.array(level)
    of_arc = of_state[src]
    states, arcs = np.argsort(of_state, kind="stable"), np.argsort(of_arc, kind="stable")
    numbers = np.arange(1, of_state.max() + 1)
    cuts = np.searchsorted(of_state[states], numbers), np.searchsorted(of_arc[arcs], numbers)
    return zip(np.split(states, cuts[0]), np.split(arcs, cuts[1]), strict=True)


def _joined_strings(lattice: Lattice, closures: _Closures, arcs: np.ndarray, rows: np.ndarray) -> Alignments | None:
    """The strings along `arcs` `(n,)` (-1: none, from the start) and the ways `rows` `(n,)` behind them."""
    if lattice.alignments is None:
        return None
    if not len(lattice.alignments.ids):
        return Alignments.of_lengths(lattice.alignments.ids, np.zeros(len(arcs), dtype=np.int64))
    blocks = [slice(begin, begin + AT_ONCE) for begin in range(0, max(1, len(arcs)), AT_ONCE)]
    joined = [_joined_block(lattice.alignments, closures, arcs[block], rows[block]) for block in blocks]
    lengths = np.concatenate([strings.lengths for strings in joined])
    return Alignments.of_lengths(np.concatenate([strings.ids for strings in joined]), lengths)


def _joined_block(strings: Alignments, closures: _Closures, arcs: np.ndarray, rows: np.ndarray) -> Alignments:
    """As `_joined_strings`; what it takes beside the result grows with the length of the ways."""
    which = np.flatnonzero(arcs >= 0)
    steps = [(which, arcs[which])]
    which = np.arange(len(rows))
    while len(which := which[closures.first[rows] >= 0]):
        rows = rows[closures.first[rows] >= 0]
        steps += reversed(list(_steps_back(closures.silent, which, closures.first[rows])))
        rows = closures.rest[rows]
    which, along = (np.concatenate(column) for column in zip(*steps, strict=True))
    bounds = np.append(0, np.cumsum(np.bincount(which, minlength=len(arcs))))
    return strings.join(along[np.argsort(which, kind="stable")], bounds)


def _steps_back(silent: _Silent, which: np.ndarray, last: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The arcs of the epsilons `last` `(n,)`, then of those before them, and so on; with what each is for, `which`."""
    while len(last):
        yield which, silent.arc[last]
        which, last = which[silent.before[last] >= 0], silent.before[last]
        last = last[last >= 0]
