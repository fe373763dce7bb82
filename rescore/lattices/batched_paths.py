"""Lattices side by side, so that one numpy operation serves all of them: best paths at many places along a line.

States are numbered by levels: a state's level is the length of the longest way from it to the end of its lattice, so
that level after level can be worked off at once in all lattices, from the ends to the starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rescore.lattices.paths import blocks_from_end
from rescore.types import Lattice

BATCH = 1 << 21  # arcs times places that are searched at a time


class Forest:
    """Lattices side by side; arcs of all of them are numbered one after another, lattice by lattice.

    Attributes:
      bounds: int64 `(lattices + 1,)`, the arcs of lattice i are `bounds[i]` to `bounds[i + 1] - 1`.
      lattice: int64 `(arcs,)`, which lattice an arc is of.
    """

    def __init__(self, lattices: Sequence[Lattice]) -> None:
        self.bounds = np.cumsum([0, *(lattice.num_arcs for lattice in lattices)])
        self.lattice = np.repeat(np.arange(len(lattices)), np.diff(self.bounds))
        states = np.cumsum([0, *(lattice.num_states for lattice in lattices)])
        level = np.concatenate([_levels_to_end(lattice) for lattice in lattices])
        order = np.argsort(level, kind="stable")  # the ends come first, in the order of their lattices
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        shift = np.repeat(states[:-1], np.diff(self.bounds))
        src = number[np.concatenate([lattice.src for lattice in lattices]) + shift]
        dst = number[np.concatenate([lattice.dst for lattice in lattices]) + shift]
        self._arcs = np.argsort(src, kind="stable")  # place in the order of levels -> arc
        self._dst = dst[self._arcs]
        self._starts = number[states[:-1]]
        self._first = np.searchsorted(src[self._arcs], np.arange(len(order) + 1))  # a state's first place
        self._levels = np.searchsorted(level[order], np.arange(level.max() + 2))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def paths_at(
        self,
        base: np.ndarray,
        slope: np.ndarray,
        lattice: np.ndarray,
        place: np.ndarray,
        above: np.ndarray | None = None,
    ) -> list[np.ndarray | None]:
        """The best paths (the first of equals) of lattices where the arcs' totals are `base + place * slope`.

        Args:
          base, slope: float64 `(arcs,)`.
          lattice, place: `(n,)`, one question each; the lattices in ascending order.
          above: `(n,)`; None instead of a path where the best total is not above this.

        Returns:
          `n` arrays of arcs.
        """
        column = np.arange(len(lattice)) - np.searchsorted(lattice, lattice)  # of the lattice's questions
        answers: list[np.ndarray | None] = [None] * len(lattice)
        columns = int(column.max(initial=-1)) + 1
        base, slope, owner = base[self._arcs], slope[self._arcs], self.lattice[self._arcs]
        for part in np.array_split(np.arange(columns), 1 + columns * len(base) // BATCH):
            asked = np.flatnonzero(np.isin(column, part))
            places = np.zeros((len(self), len(part)))
            places[lattice[asked], column[asked] - part[0]] = place[asked]
            totals = base[:, None] + slope[:, None] * places[owner]
            self._answer(totals, asked, lattice[asked], column[asked] - part[0], above, answers)
        return answers

    def paths(self, totals: np.ndarray) -> list[list[np.ndarray]]:
        """For each column of `totals` `(arcs, points)` the best paths of all lattices, as arrays of arcs."""
        result: list[list[np.ndarray]] = []
        for part in np.array_split(totals, 1 + totals.size // BATCH, axis=1):
            points = part.shape[1]
            lattice = np.tile(np.arange(len(self)), points)
            column = np.repeat(np.arange(points), len(self))
            answers: list[np.ndarray | None] = [None] * len(lattice)
            self._answer(part[self._arcs], np.arange(len(lattice)), lattice, column, None, answers)
            found = [path for path in answers if path is not None]
            result += [found[start : start + len(self)] for start in range(0, len(found), len(self))]
        return result

    def _answer(
        self,
        totals: np.ndarray,
        asked: np.ndarray,
        lattice: np.ndarray,
        column: np.ndarray,
        above: np.ndarray | None,
        answers: list[np.ndarray | None],
    ) -> None:
        """Writes into `answers[asked]` the best paths of `lattice` under the columns of `totals` (in level order)."""
        to_come = self._to_come(totals)
        if above is not None:
            higher = to_come[self._starts[lattice], column] > above[asked]
            asked, lattice, column = asked[higher], lattice[higher], column[higher]
        for question, path in zip(asked.tolist(), self._trace(totals, to_come, lattice, column), strict=True):
            answers[question] = path

    def _to_come(self, totals: np.ndarray) -> np.ndarray:
        """Best total from each state to its end, `(states, columns)`."""
        result = np.zeros((len(self._first) - 1, totals.shape[1]))
        for low, high in zip(self._levels[1:-1].tolist(), self._levels[2:].tolist(), strict=True):
            begin, end = self._first[low], self._first[high]
            through = totals[begin:end] + result[self._dst[begin:end]]
            np.maximum.reduceat(through, self._first[low:high] - begin, axis=0, out=result[low:high])
        return result

    def _trace(
        self, totals: np.ndarray, to_come: np.ndarray, lattice: np.ndarray, column: np.ndarray
    ) -> list[np.ndarray]:
        """The best paths from the starts, all of them a step at a time."""
        taken = np.full((len(self._levels), len(lattice)), -1)
        state, going = self._starts[lattice], np.arange(len(lattice))
        for step in range(len(taken)):
            going = going[state[going] >= len(self)]  # the others are at their ends
            if not len(going):
                break
            low = self._first[state[going]]
            counts = self._first[state[going] + 1] - low
            begin = np.cumsum(counts) - counts
            row = np.repeat(np.arange(len(going)), counts)
            arc = np.arange(len(row)) + (low - begin)[row]
            through = totals[arc, column[going][row]] + to_come[self._dst[arc], column[going][row]]
            best = np.flatnonzero(through == np.maximum.reduceat(through, begin)[row])
            first = best[np.searchsorted(row[best], np.arange(len(going)))]
            taken[step, going] = self._arcs[arc[first]]
            state[going] = self._dst[arc[first]]
        return [path[path >= 0] for path in taken.T]


def _levels_to_end(lattice: Lattice) -> np.ndarray:
    """Arcs on the longest way from each state to the end, int64 `(states,)`."""
    level = np.zeros(lattice.num_states, dtype=np.int64)
    for states, arcs, first in blocks_from_end(lattice):
        level[states] = 1 + np.maximum.reduceat(level[lattice.dst[arcs]], first)
    return level
