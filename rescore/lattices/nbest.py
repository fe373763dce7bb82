"""The exact n best distinct word sequences of a lattice.

A best-first (A*) search over word prefixes of the lattice, which is determinised on the fly
(`rescore.lattices.determinised`).  The estimate of what is to come is the exact best score to the end, so that from
the prefix that is best a walk goes straight to the end of a word sequence; only where it might have gone otherwise, and
to one of the n best, there are further prefixes.

Word sequences with the same total come in the order of a queue of prefixes, of which the first of the best is always
taken and its words put behind all that are equally good, highest labels first.  Totals that differ by rounding alone
are different, and which is higher may depend on the way in which they were summed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, cmp_to_key
from itertools import islice

import numpy as np

from lm_zoo.deadline import check_time
from rescore.lattices.determinised import LEAST, Determinised, WordState, WordStep
from rescore.lattices.epsilons import has_inner_epsilons, remove_epsilons
from rescore.lattices.paths import path_hypothesis, rounding
from rescore.lattices.posteriors import checked_totals, through_scores
from rescore.types import Lattice, NbestList

_FEW = 1000  # arcs with the best paths through them, to begin with
_MORE = 4  # times as many where they do not suffice


def _spelled(labels: list[int]) -> bytes:
    """Labels, four bytes each, that are in order as those of the queue, the highest first."""
    return (2**31 - np.array(labels)).astype(">u4").tobytes()


@dataclass(eq=False)
class _Walk:
    """A way from the start to the end of a word sequence; from `root` on its total is that of its level.

    Attributes:
      steps: of all words, and the end.
      root:  how many steps lie before the first of its level; the best way of all has its root at the start.
      level: of how many different totals that of the sequence is.
      rank:  of its root among those of the level.
    """

    steps: list[WordStep]
    root: int
    level: int
    rank: int

    @cached_property
    def _spelled(self) -> bytes:
        return _spelled([step.label for step in self.steps[self.root :]])

    def prefix(self, depth: int) -> bytes:
        """The labels from the root to `depth` steps, as `_spelled`."""
        return self._spelled[: 4 * (depth - self.root)]


@dataclass(eq=False)
class _Branch:
    """Another way to go on behind `depth` steps of a walk.

    Attributes:
      state: behind those steps.
      place: of the other way among what follows the state.
      root, rank: as of a walk that takes it.
      length: steps of its best completions from the root on.
    """

    walk: _Walk
    depth: int
    state: WordState
    place: int
    root: int
    rank: int = 0
    length: int = 0

    def __lt__(self, other: _Branch) -> bool:
        """Which of two of the same level comes first."""
        mine, theirs = (self.length, self.rank), (other.length, other.rank)
        return mine < theirs if mine != theirs else self.spelled() < other.spelled()

    def spelled(self) -> bytes:
        return self.walk.prefix(self.depth) + _spelled([self.state.labels[self.place]])


def _order_of_roots(one: _Branch, other: _Branch) -> int:
    """Which of two branches, both worse than their walks and equally good, was put into the queue first."""
    ones, others = ((each.walk.level, each.depth - each.walk.root, each.walk.rank) for each in (one, other))
    if ones != others:
        return -1 if ones < others else 1
    return -1 if one.spelled() < other.spelled() else 1


class _NbestSearch:
    """One search; `queue` holds `(-total, count, branch)`, of branches that are worse than their walks."""

    def __init__(self, lattice: Lattice, scales: Mapping[str, float], n: int) -> None:
        self.words = Determinised(lattice, scales)
        self.n = n
        self.queue: list[tuple[float, int, _Branch]] = []
        self.pushed = 0
        self.best = [self.words.best]  # heap: totals of up to n different word sequences

    def run(self) -> Iterator[tuple[float, list[int]]]:
        """The best word sequences, best first: the total, and the arcs of the best path."""
        yield from self._level(self.words.best, [])
        level = 0
        while self.queue:
            level += 1
            total = -self.queue[0][0]
            roots = []
            while self.queue and self.queue[0][0] == -total:
                roots.append(heapq.heappop(self.queue)[2])
            yield from self._level(total, roots, level)

    def _level(self, total: float, roots: list[_Branch], level: int = 0) -> Iterator[tuple[float, list[int]]]:
        """All word sequences with that total; without roots from the start of the lattice."""
        if len(roots) > 1:
            roots.sort(key=cmp_to_key(_order_of_roots))
            for rank, branch in enumerate(roots):
                behind = self.words.words_behind(branch.state, branch.place)
                branch.rank, branch.length = rank, 1 + behind
        heapq.heapify(roots)
        if not roots:
            walk = _Walk([], 0, level, 0)
            yield total, self._finish(walk, self.words.first.target, total, roots)
        while roots:
            check_time()
            branch = heapq.heappop(roots)
            step = self.words.step(branch.state, branch.place)
            walk = _Walk([*branch.walk.steps[: branch.depth], step], branch.root, level, branch.rank)
            yield total, self._finish(walk, step.target, total, roots)

    def _finish(self, walk: _Walk, state: WordState | None, total: float, tied: list[_Branch]) -> list[int]:
        """Takes the walk from `state` to the end, its branches into the queue or among the `tied`; the path."""
        words, threshold = self.words, self._threshold()
        branching: list[tuple[int, WordState]] = []
        while state is not None:
            if not state.steps:
                words.open(state, total - threshold)
            losses = state.losses
            if len(losses) > 1 and total - losses[1] >= threshold:
                branching.append((len(walk.steps), state))
            step = state.steps[0] or words.step(state, 0)
            walk.steps.append(step)
            state = step.target
        self._branch(walk, branching, total, tied)
        return self._path(walk.steps)

    def _branch(self, walk: _Walk, branching: list[tuple[int, WordState]], total: float, tied: list[_Branch]) -> None:
        equal: list[_Branch] = []
        for depth, state in branching:
            for place in range(1, len(state.losses)):
                reached = total - state.losses[place]
                if reached < self._threshold():
                    break
                # Each branch is a new word sequence.  `best` keeps the n highest, its root is the n-th.
                if len(self.best) < self.n:
                    heapq.heappush(self.best, reached)
                else:
                    heapq.heappushpop(self.best, reached)
                if reached == total:
                    equal.append(_Branch(walk, depth, state, place, walk.root, walk.rank))
                else:
                    heapq.heappush(self.queue, (-reached, self.pushed, _Branch(walk, depth, state, place, depth)))
                    self.pushed += 1
        for branch in self._first_of(walk, equal):
            heapq.heappush(tied, branch)

    def _first_of(self, walk: _Walk, equal: list[_Branch]) -> list[_Branch]:
        """The first n of branches of the walk that are as good as it is, which are in the order of their depth.

        Of two as long the one that leaves the walk later is the first, unless the other one's word goes before the
        walk's.
        """
        keyed: list[tuple[int, bool, int, int, _Branch]] = []
        for branch in equal:
            behind = self.words.words_behind(branch.state, branch.place)
            branch.length = branch.depth - walk.root + 1 + behind
            before = branch.state.labels[branch.place] > walk.steps[branch.depth].label
            keyed.append((branch.length, not before, branch.depth if before else -branch.depth, branch.place, branch))
        return [branch for *_, branch in sorted(keyed)[: self.n]]

    def _path(self, steps: list[WordStep]) -> list[int]:
        """The arcs of the best path with these words."""
        arcs: list[int] = []
        row = 0
        for step in reversed([self.words.first, *steps]):
            if step.arcs:
                arcs.append(step.arcs[row])
            row = step.previous[row]
        return [arc for arc in reversed(arcs) if arc >= 0]

    def _threshold(self) -> float:
        """What the n-th best word sequence scores at least."""
        return self.best[0] if len(self.best) >= self.n else LEAST


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
