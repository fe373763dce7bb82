"""A lattice determinised on demand: a state for all states that a word sequence leads to, opened where it is asked for.

Mohri and Riley, "An efficient algorithm for the n-best-strings problem", ICSLP 2002.  Word sequences that lead to the
same states by the same distances share one state, so what follows them is looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lm_zoo.deadline import check_time
from rescore.lattices.build import EPSILON
from rescore.lattices.paths import (
    arc_ranges,
    backward_scores,
    best_of_parallel,
    rounding,
    total_scores,
)
from rescore.types import Lattice

END = -1  # in place of a label: the word sequence ends here
LEAST = float(np.finfo(np.float64).min)  # above -inf, the total of what is impossible


class WordStep(NamedTuple):
    """A word, or the end.

    Attributes:
      target:   the state behind it, None behind the end.
      arcs:     of each of the target's lattice states the last arc of the best path into it, -1 for none (the start).
      previous: where that arc's source stands among the states of the step's source.
    """

    target: WordState | None
    arcs: list[int]
    previous: list[int]


@dataclass(eq=False)
class WordState:
    """States of the lattice with the best scores into them, and once it is open, what may follow, best first.

    Attributes:
      states:    int `(states,)`, ascending.
      scores:    float64 `(states,)`, up to a constant.
      labels:    of the words that may follow, and END; of equal losses the highest first.
      losses:    by how much the best completion by each is worse than the best of all.
      steps:     by each, None where nobody has asked yet.
      end:       where the final state stands among the states, -1 if it is not one of them.
      next_arcs: int64 `(next,)`, arcs that may follow, sorted by label.
      from_row:  int64 `(next,)`, where the source of each stands among the states.
      through:   float64 `(next,)`, best score through each.
    """

    states: np.ndarray
    scores: np.ndarray
    labels: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    steps: list[WordStep | None] = field(default_factory=list)
    end: int = -1
    next_arcs: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    from_row: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    through: np.ndarray = field(default_factory=lambda: np.empty(0))


class Determinised:
    """The states of a lattice without inner epsilons; `first` is the step into the first one.

    `best` is the total of the best path.
    """

    def __init__(self, lattice: Lattice, scales: Mapping[str, float]) -> None:
        self.lattice = lattice
        self.totals = total_scores(lattice, scales)  # finite, or -inf: see `exact_paths`
        self.backward = backward_scores(lattice, self.totals)
        self.ranges = arc_ranges(lattice)
        self.to_come = self.backward[lattice.dst]  # behind each arc
        self.best = float(self.backward[0])
        self.tolerance = rounding(float(np.abs(self.backward[self.backward > -np.inf]).max()))
        self._known: dict[object, WordState] = {}
        epsilons = np.flatnonzero(lattice.labels == EPSILON)  # all leave the start state
        epsilons = epsilons[best_of_parallel(lattice.dst[epsilons], self.totals[epsilons])]
        states, scores = np.append(0, lattice.dst[epsilons]), np.append(0.0, self.totals[epsilons])
        arcs = [-1, *epsilons.tolist()]
        self.first = WordStep(self._state(states, scores), arcs, [0] * len(arcs))

    def open(self, state: WordState, most: float) -> None:
        """Finds what may follow `state` and loses at most `most`."""
        check_time()
        # All arcs out of the states, (arcs,) each: the arc, and which of the states it leaves.
        states, scores = state.states, state.scores
        low = self.ranges[states]
        counts = self.ranges[states + 1] - low
        ends = counts.cumsum()
        from_row = np.arange(len(states)).repeat(counts)
        next_arcs = np.arange(ends[-1]) + (low - ends + counts).repeat(counts)
        # Best score through each arc so far, and of the whole path; those that lose little enough, by label.
        through = scores[from_row] + self.totals[next_arcs]
        reached = through + self.to_come[next_arcs]
        if states[-1] == self.lattice.num_states - 1:
            state.end = len(states) - 1
        ended = float(scores[-1]) if state.end >= 0 else -np.inf
        best = float(reached.max(initial=ended))
        labels = self.lattice.labels[next_arcs]
        wanted = ((reached >= max(best - most - self.tolerance, LEAST)) & (labels != EPSILON)).nonzero()[0]
        wanted = wanted[labels[wanted].argsort(kind="stable")]
        state.next_arcs, state.from_row, state.through = next_arcs[wanted], from_row[wanted], through[wanted]
        # Each word is offered once, (words,), with the score of the best completion over its arcs; so is the end.
        offers = [] if state.end < 0 else [(best - ended, -END)]
        if len(wanted):
            labels = labels[wanted]
            firsts = np.concatenate([[0], (labels[1:] != labels[:-1]).nonzero()[0] + 1])
            losses = best - np.maximum.reduceat(reached[wanted], firsts)
            offers += zip(losses.tolist(), (-labels[firsts]).tolist(), strict=True)
        offers.sort()
        state.losses, state.labels = [loss for loss, _ in offers], [-label for _, label in offers]
        state.steps = [None] * len(offers)

    def step(self, state: WordState, place: int) -> WordStep:
        """The step by `state.labels[place]`: of the arcs into one state the best counts."""
        known = state.steps[place]
        if known is None:
            known = state.steps[place] = self._step(state, state.labels[place])
        return known

    def _step(self, state: WordState, label: int) -> WordStep:
        if label == END:
            return WordStep(None, [], [state.end])
        rows = np.arange(*self.lattice.labels[state.next_arcs].searchsorted((label, label + 1)))
        if len(rows) > 1:
            rows = rows[best_of_parallel(self.lattice.dst[state.next_arcs[rows]], state.through[rows])]
        arcs = state.next_arcs[rows]
        target = self._state(self.lattice.dst[arcs], state.through[rows])
        return WordStep(target, arcs.tolist(), state.from_row[rows].tolist())

    def _state(self, states: np.ndarray, scores: np.ndarray) -> WordState:
        if len(states) == 1:
            key: object = int(states[0])
            scores = np.zeros(1)
        else:
            scores = scores - scores[(scores + self.backward[states]).argmax()]
            key = states.tobytes(), scores.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = WordState(states, scores)
        return found
