"""The exact n best distinct word sequences of a lattice.

A best-first (A*) search over word prefixes of the lattice, which is determinised on the fly
(`rescore.lattices.determinised`).  The estimate of what is to come is the exact best score to the end, so that from
the prefix that is best a walk goes straight to the end of a word sequence; only where it might have gone otherwise, and
to one of the n best, there are further prefixes.

Word sequences with the same total come in the order in which the search meets them, the same each time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from lm_zoo.deadline import check_time
from rescore.lattices.determinised import LEAST, Determinised, WordState, WordStep
from rescore.lattices.epsilons import has_inner_epsilons, remove_epsilons
from rescore.lattices.paths import path_hypothesis, rounding
from rescore.lattices.posteriors import checked_totals, through_scores
from rescore.types import Lattice, NbestList

_FEW = 1000  # arcs with the best paths through them, to begin with
_MORE = 4  # times as many where they do not suffice


class _Branch(NamedTuple):
    """Another way to go on behind the first `depth` of the steps of a word sequence.

    Attributes:
      state: behind those steps.
      place: of the other way among what follows the state.
    """

    steps: list[WordStep]
    depth: int
    state: WordState
    place: int


class _NbestSearch:
    """One search; `queue` holds `(-total, count, branch)`."""

    def __init__(self, lattice: Lattice, scales: Mapping[str, float], n: int) -> None:
        self.words = Determinised(lattice, scales)
        self.n = n
        self.queue: list[tuple[float, int, _Branch]] = []
        self.pushed = 0
        self.best = [self.words.best]  # heap: the highest totals of different word sequences so far, up to n

    def run(self) -> Iterator[tuple[float, list[int]]]:
        """The best word sequences, best first: the total, and the arcs of the best path."""
        total, steps = self.words.best, [self.words.first]
        yield total, self._finish(steps, total)
        while self.queue:
            check_time()
            negative, _, branch = heapq.heappop(self.queue)
            total, steps = -negative, branch.steps[: branch.depth]
            steps.append(self.words.step(branch.state, branch.place))
            yield total, self._finish(steps, total)

    def _finish(self, steps: list[WordStep], total: float) -> list[int]:
        """Takes the best way to the end, its branches into the queue; the path."""
        words = self.words
        while (state := steps[-1].target) is not None:
            if not state.steps:
                words.open(state, total - self._threshold())
            for place in range(1, len(state.losses)):
                reached = total - state.losses[place]
                if reached <= self._threshold():
                    break
                self._push(reached, _Branch(steps, len(steps), state, place))
            steps.append(state.steps[0] or words.step(state, 0))
        return _path(steps)

    def _push(self, total: float, branch: _Branch) -> None:
        """Each branch is a new word sequence, and one of the n best so far."""
        heapq.heappush(self.queue, (-total, self.pushed, branch))
        self.pushed += 1
        heapq.heappush(self.best, total)
        if len(self.best) > self.n:
            heapq.heappop(self.best)

    def _threshold(self) -> float:
        """What the n-th best word sequence scores at least."""
        return self.best[0] if len(self.best) == self.n else LEAST


def _path(steps: list[WordStep]) -> list[int]:
    """The arcs of the best path with these words."""
    arcs: list[int] = []
    row = 0
    for step in reversed(steps):
        if step.arcs:
            arcs.append(step.arcs[row])
        row = step.previous[row]
    return [arc for arc in reversed(arcs) if arc >= 0]


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
    """As `exact_nbest`: a lattice without inner epsilons, and the arcs in it of each path, best first.

    Without its epsilons a lattice may have very many arcs; so those with the best paths through them come first, and
    more where a path that was left out might be one of the n best.
    """
    if n < 1:
        raise ValueError(f"n = {n}, expected at least 1")
    totals = checked_totals(lattice, scales)
    if lattice.num_arcs > _FEW and has_inner_epsilons(lattice):
        through = through_scores(lattice, totals)
        few = _FEW
        while few < lattice.num_arcs:
            least = -float(np.partition(-through, few)[few])
            slack = rounding(least)
            if not least > -np.inf:
                break
            near = remove_epsilons(lattice, scales, through >= least - slack)
            found = list(islice(_NbestSearch(near, scales, n).run(), n))
            if len(found) == n and found[-1][0] > least + slack:
                return near, [path for _, path in found]
            few *= _MORE
    lattice = remove_epsilons(lattice, scales)
    return lattice, [path for _, path in islice(_NbestSearch(lattice, scales, n).run(), n)]
