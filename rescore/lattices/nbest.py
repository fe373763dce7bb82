"""The exact n best distinct word sequences of a lattice.

Best-first (A*) search over word prefixes: a hypothesis is a word sequence with all states in which it can end, that
is, the lattice is determinised on the fly (Mohri and Riley, "An efficient algorithm for the n-best-strings problem",
ICSLP 2002).  The estimate of what is to come is the exact best score to the end, so a prefix is taken up only if it
begins one of the n best.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from lm_zoo.deadline import check_time
from rescore.lattices.build import EPSILON
from rescore.lattices.epsilons import remove_epsilons
from rescore.lattices.paths import (
    arc_ranges,
    backward_scores,
    best_of_parallel,
    path_hypothesis,
    rounding,
    total_scores,
)
from rescore.lattices.posteriors import checked_totals
from rescore.types import Lattice, NbestList

_END = -1  # in place of a label: the word sequence ends here
_LEAST = float(np.finfo(np.float64).min)  # above -inf, the total of what is impossible


@dataclass
class _Prefix:
    """A word sequence: the best way into each state in which it can end, and the arcs that may follow.

    Attributes:
      parent:    the sequence without its last word, None for the empty one.
      arcs:      int64 `(states,)`, last arc of the best path into each state, -1 for none (the start state).
      previous:  int64 `(states,)`, where that arc's source stands among the parent's states.
      next_arcs: int64 `(next,)`, arcs out of the states, sorted by label.
      from_row:  int64 `(next,)`, where the source of each stands among the states.
      scores:    float64 `(next,)`, best score from the start through each.
      end:       where the final state stands among the states, -1 if it is not one of them.
    """

    parent: _Prefix | None
    arcs: np.ndarray
    previous: np.ndarray
    next_arcs: np.ndarray
    from_row: np.ndarray
    scores: np.ndarray
    end: int

    def path(self) -> list[int]:
        """The arcs of the best path that ends in the final state."""
        arcs: list[int] = []
        prefix: _Prefix | None = self
        row = self.end
        while prefix is not None:
            arcs.append(int(prefix.arcs[row]))
            row = int(prefix.previous[row])
            prefix = prefix.parent
        return [arc for arc in reversed(arcs) if arc >= 0]


class _NbestSearch:
    """One search; `queue` holds `(-score of the best completion, count, prefix, next label)`."""

    def __init__(self, lattice: Lattice, scales: Mapping[str, float], n: int) -> None:
        self.lattice = lattice
        self.totals = total_scores(lattice, scales)  # finite, or -inf: see `exact_paths`
        self.backward = backward_scores(lattice, self.totals)
        self.ranges = arc_ranges(lattice)
        self.to_come = self.backward[lattice.dst]  # behind each arc
        self.tolerance = rounding(float(np.abs(self.backward[self.backward > -np.inf]).max()))
        self.n = n
        self.queue: list[tuple[float, int, _Prefix, int]] = []
        self.pushed = 0
        self.best = [float(self.backward[0])]  # heap: scores of up to n completions of different word sequences

    def run(self) -> Iterator[list[int]]:
        """Yields the arcs of the best paths of the best word sequences, best first."""
        self._open_empty()
        while self.queue:
            check_time()
            _, _, prefix, label = heapq.heappop(self.queue)
            if label == _END:
                yield prefix.path()
            else:
                self._open_extended(prefix, label)

    def _open_empty(self) -> None:
        epsilons = np.flatnonzero(self.lattice.labels == EPSILON)  # all leave the start state
        epsilons = epsilons[best_of_parallel(self.lattice.dst[epsilons], self.totals[epsilons])]
        arcs = np.append(-1, epsilons)
        states = np.append(0, self.lattice.dst[epsilons])
        self._open(None, arcs, np.full(len(arcs), -1), states, np.append(0.0, self.totals[epsilons]))

    def _open_extended(self, prefix: _Prefix, label: int) -> None:
        """The prefix one word longer: of the arcs into one state the best counts."""
        begin, end = self.lattice.labels[prefix.next_arcs].searchsorted((label, label + 1))
        rows = np.arange(begin, end)
        if len(rows) > 1:
            rows = rows[best_of_parallel(self.lattice.dst[prefix.next_arcs[rows]], prefix.scores[rows])]
        arcs = prefix.next_arcs[rows]
        self._open(prefix, arcs, prefix.from_row[rows], self.lattice.dst[arcs], prefix.scores[rows])

    def _open(
        self, parent: _Prefix | None, arcs: np.ndarray, previous: np.ndarray, states: np.ndarray, scores: np.ndarray
    ) -> None:
        """Queues the words that may follow in `states` `(states,)`, ascending, reached with `scores` by `arcs`."""
        # All arcs out of the states, (arcs,) each: the arc, and which of the states it leaves.
        low = self.ranges[states]
        counts = self.ranges[states + 1] - low
        ends = counts.cumsum()
        from_row = np.arange(len(states)).repeat(counts)
        next_arcs = np.arange(ends[-1]) + (low - ends + counts).repeat(counts)
        # Best score through each arc so far, and of the whole path; those that can be among the n best, by label.
        through = scores[from_row] + self.totals[next_arcs]
        reached = through + self.to_come[next_arcs]
        labels = self.lattice.labels[next_arcs]
        wanted = ((reached >= self._threshold()) & (labels != EPSILON)).nonzero()[0]
        wanted = wanted[labels[wanted].argsort(kind="stable")]
        end_row = len(states) - 1 if states[-1] == self.lattice.num_states - 1 else -1
        prefix = _Prefix(parent, arcs, previous, next_arcs[wanted], from_row[wanted], through[wanted], end_row)
        # Each word is offered once, (words,), with the score of the best completion over its arcs; so is the end.
        offers: list[tuple[float, int]] = []
        if len(wanted):
            labels = labels[wanted]
            firsts = np.concatenate([[0], (labels[1:] != labels[:-1]).nonzero()[0] + 1])
            best = np.maximum.reduceat(reached[wanted], firsts)
            offers = list(zip(best.tolist(), labels[firsts].tolist(), strict=True))
        if end_row >= 0:
            offers.append((float(scores[end_row]), _END))
        self._push(prefix, sorted(offers, reverse=True))

    def _push(self, prefix: _Prefix, offers: list[tuple[float, int]]) -> None:
        """Queues `(score, label)` in descending order; the first stands for the prefix, whose score is counted."""
        for rank, (score, label) in enumerate(offers):
            if score < self._threshold():
                return
            # The best offer continues the completion that `best` holds for the prefix already; each other one is a new
            # word sequence.  `best` keeps the n highest, its root is the n-th.
            if rank > 0 and len(self.best) < self.n:
                heapq.heappush(self.best, score)
            elif rank > 0:
                heapq.heappushpop(self.best, score)
            heapq.heappush(self.queue, (-score, self.pushed, prefix, label))
            self.pushed += 1

    def _threshold(self) -> float:
        """What the n-th best word sequence scores at least."""
        return self.best[0] - self.tolerance if len(self.best) >= self.n else _LEAST


def exact_nbest(lattice: Lattice, scales: Mapping[str, float], n: int) -> NbestList:
    """The `n` best distinct word sequences under `scales`, best first, each with the scores of its best path.

    Exact, not sampled.  A lattice with fewer than `n` word sequences gives all of them: compare `len(result.hyps)`.
    The scale of `words` is the reward for each word; every hypothesis has `words` among its scores.  Paths with a total
    of -inf are impossible and not among them.

    Raises:
      ScoreError: `scales` names a score that the lattice does not have, or leads to a total of NaN or +inf, or every
        path has one of -inf.
      ValueError: `n` is below 1.
    """
    lattice, paths = exact_paths(replace(lattice, alignments=None), scales, n)
    return NbestList(lattice.utt_id, [path_hypothesis(lattice, path) for path in paths])


def exact_paths(lattice: Lattice, scales: Mapping[str, float], n: int) -> tuple[Lattice, list[list[int]]]:
    """As `exact_nbest`: the lattice without inner epsilons, and the arcs in it of each path, best first."""
    if n < 1:
        raise ValueError(f"n = {n}, expected at least 1")
    checked_totals(lattice, scales)
    lattice = remove_epsilons(lattice, scales)
    return lattice, list(islice(_NbestSearch(lattice, scales, n).run(), n))
