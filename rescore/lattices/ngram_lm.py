"""An n-gram LM over a whole lattice: states are split by LM histories, arcs get the LM's score.

All of it is expanded, a block of states at a time; a beam cuts the result.  So what is cut is known to be outside the
beam: bounds of what is still to come, good enough to cut on the way, would need the LM's answers to the same questions,
which are most of the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lm_zoo.base import WordLM
from lm_zoo.deadline import in_time
from rescore.errors import ScoreError
from rescore.lattices.build import add_counts, build_lattice, with_an_arc
from rescore.lattices.epsilons import remove_epsilons
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.ngram_states import NgramHistories
from rescore.lattices.paths import arc_ranges, independent_blocks, rounding, total_scores
from rescore.lattices.posteriors import checked_totals
from rescore.types import Lattice, NbestList

__all__ = ["WordLM", "expand_ngram", "ngram_nbest"]

SPARSE = 32  # places of a table for each key, from where on sorting is better


def expand_ngram(
    lattice: Lattice, lm: WordLM, name: str, scales: Mapping[str, float], beam: float | None = None
) -> Lattice:
    """The lattice with its states split by LM histories, and the LM's natural-log score on its arcs as `name`.

    The sentence end is scored on the arcs into the final state, epsilons are not scored.  All other scores are kept.
    Epsilons inside are removed first, so of the paths with the same words the best under `scales` counts.  Words that
    the LM gives -inf get LOG_ZERO and are counted (`impossible_words`).

    Args:
      scales: scales of the lattice's scores, of `words`, and of `name`.
      beam: None for all of it; else exactly those arcs stay that are on a path at most this much below the best one
        under `scales`.  `pruned_arcs` in the `counts` of the result says how many arcs did not.
    Raises:
      ScoreError: the lattice has a score `name` already, or `scales` has none for `name`, or one that is not there; a
        total is not finite (see `checked_totals`); the LM gave NaN.
    """
    return _Expanded.of(lattice, lm, name, scales).within(beam)


def ngram_nbest(
    lattice: Lattice, lm: WordLM, name: str, scales: Mapping[str, float], n: int, beam: float | None = None
) -> tuple[NbestList, dict[str, int]]:
    """The `n` best word sequences after an n-gram pass, and the counts of that pass (see `expand_ngram`).

    With a beam fewer paths are searched for them; it is widened as long as it leaves fewer than `n` sequences
    (`widened` counts), so the list is the same.  Where it is widened in vain, as at scores of -1e300, the next one
    reaches to the next arc, however far that is.
    """
    expanded = _Expanded.of(replace(lattice, alignments=None), lm, name, scales)
    impossible = 0 if beam is None else expanded.impossible_arcs()
    widened, before = 0, -1
    while True:
        near = expanded.within(beam)
        nbest = exact_nbest(near, scales, n)
        if len(nbest.hyps) >= n or beam is None or near.counts["pruned_arcs"] <= impossible:
            return nbest, add_counts(near.counts, widened=widened)
        next_one = expanded.next_beam(beam) if near.counts["pruned_arcs"] == before else 0.0
        before = near.counts["pruned_arcs"]
        beam = max(2 * beam + 1.0, next_one)
        widened += 1


@dataclass
class _Expanded:
    """The arcs of a lattice between pairs (state, history); pairs are numbered state by state, the last is the end.

    Attributes:
      lattice: the lattice without inner epsilons.
      name: of the LM's score.
      blocks: the first arcs of runs of pairs without arcs among them, and the number of arcs.
      state: int64 `(pairs,)`, the lattice's state of each pair.
      source, target: int32 `(arcs,)`, pairs; sorted by `source`.
      arc: int32 `(arcs,)`, the lattice's arc.
      logprob: float64 `(arcs,)`, score of the LM.
      total: float64 `(arcs,)`, scores of the lattice and of the LM under the scales.
      counts: words that the LM does not know, or holds for impossible.
    """

    lattice: Lattice
    name: str
    blocks: list[int]
    state: np.ndarray
    source: np.ndarray
    target: np.ndarray
    arc: np.ndarray
    logprob: np.ndarray
    total: np.ndarray
    counts: dict[str, int]

    @classmethod
    def of(cls, lattice: Lattice, lm: WordLM, name: str, scales: Mapping[str, float]) -> _Expanded:
        """Expands all of the lattice; raises what `expand_ngram` raises."""
        if name in lattice.scores:
            raise ScoreError(f"lattice '{lattice.utt_id}' has a score '{name}' already; give the LM's another name")
        if name not in scales:
            raise ScoreError(f"no scale for '{name}', the score of the n-gram LM")
        own_scales = {key: scale for key, scale in scales.items() if key != name}
        checked_totals(lattice, own_scales)
        lattice = remove_epsilons(with_an_arc(lattice), own_scales, keep_ends=True)
        histories = NgramHistories(lm, lattice.symbols, name, f"lattice '{lattice.utt_id}'")
        blocks, (state, source, target, arc, logprob) = _Expansion(lattice, histories).run()
        total = total_scores(lattice, own_scales)[arc] + scales[name] * logprob
        counts = {"unknown_words": len(histories.unknown_words), "impossible_words": histories.impossible}
        return cls(lattice, name, blocks, state, source, target, arc, logprob, total, counts)

    def within(self, beam: float | None) -> Lattice:
        """The lattice over the pairs; arcs outside the beam are left out, as are pairs that are on no path then."""
        old = self.lattice
        kept = np.arange(len(self.arc)) if beam is None else self._near(beam)
        arc = self.arc[kept]
        scores = {key: column[arc] for key, column in old.scores.items()} | {self.name: self.logprob[kept]}
        times = None if old.times is None else old.times[self.state]
        strings = None if old.alignments is None else old.alignments.take(arc)
        ends = None if old.word_ends is None else old.word_ends.take(arc)
        columns = self.source[kept], self.target[kept], old.labels[arc], scores, old.symbols
        if len(kept) == len(self.arc):  # all pairs are on a path, as every state of the lattice is
            result = Lattice(old.utt_id, len(self.state), *columns, times, strings, word_ends=ends)
        else:
            final = len(self.state) - 1
            result = build_lattice(old.utt_id, final + 1, *columns, 0, final, times, alignments=strings, word_ends=ends)
        result.counts = add_counts(old.counts, pruned_arcs=len(self.arc) - len(kept), **self.counts)
        return result

    def impossible_arcs(self) -> int:
        """How many arcs no beam keeps, however wide: all paths through them have a score of -inf."""
        return len(self.arc) - len(self._near(float(np.finfo(np.float64).max)))

    def next_beam(self, beam: float) -> float:
        """The least that keeps more arcs than `beam` does; infinite if there is none."""
        lost = self._lost(np.inf)
        return float(lost[(lost > beam + rounding(self.to_come[0])) & (lost < np.inf)].min(initial=np.inf))

    def _near(self, beam: float) -> np.ndarray:
        """The arcs on paths at most `beam` below the best one, ascending; the best path is always among them."""
        beam += rounding(self.to_come[0])
        near: np.ndarray = np.flatnonzero(self._lost(beam) <= beam)
        return near

    def _lost(self, most: float) -> np.ndarray:
        """By how much the best path through each arc is below the best of all, float64 `(arcs,)`; NaN where none is.

        What is more than `most` may be too much.
        """
        to_come = self.to_come
        with np.errstate(invalid="ignore"):  # from where no possible path leads on: NaN, which no beam keeps
            loss = to_come[self.source] - (self.total + to_come[self.target])  # against the best way on
        behind = np.full(len(self.state), np.inf)  # how much the best way into a pair has lost
        behind[0] = 0.0
        for begin, end in pairwise(self.blocks):
            loss[begin:end] += behind[self.source[begin:end]]
            near = begin + np.flatnonzero(loss[begin:end] <= most)
            np.minimum.at(behind, self.target[near], loss[near])
        return loss

    @cached_property
    def to_come(self) -> np.ndarray:
        """Best total from each pair to the end, float64 `(pairs,)`."""
        best = np.zeros(len(self.state))
        first = np.searchsorted(self.source, np.arange(len(best)))
        for begin, end in reversed(list(pairwise(self.blocks))):
            through = self.total[begin:end] + best[self.target[begin:end]]
            low, high = self.source[begin], self.source[end - 1] + 1
            np.maximum.reduceat(through, first[low:high] - begin, out=best[low:high])
        return best


class _Expansion:
    """Goes through a lattice a block of states at a time, such that no arc leads from a block into itself.

    Pairs are numbered, and their histories known, when their block is reached; until then what leads to them waits.
    """

    def __init__(self, lattice: Lattice, histories: NgramHistories) -> None:
        self.lattice, self.histories = lattice, histories
        self.final = lattice.num_states - 1
        self.ranges = arc_ranges(lattice)
        self.degrees = np.diff(self.ranges)
        self.bounds = [*independent_blocks(lattice, self.ranges), lattice.num_states]  # the last block: the end
        self.block = np.searchsorted(self.bounds, np.arange(lattice.num_states), side="right") - 1
        self.order = np.lexsort((self.block[lattice.dst], self.block[lattice.src]))  # a block's arcs, by their targets'
        self.waiting: list[list[_Arrivals]] = [[] for _ in self.bounds[1:]]
        self.first_pair = np.zeros(lattice.num_states + 1, dtype=np.int64)  # of each state

    def run(self) -> tuple[list[int], list[np.ndarray]]:
        """`blocks` of `_Expanded`; its `state`, `source`, `target`, `arc` and `logprob`."""
        start = np.zeros(1, dtype=np.int64)
        self.waiting[0].append(_Arrivals(start, start, start.copy(), start))
        none = np.zeros(0, dtype=np.int32)
        blocks, states = [0], []
        parts: list[tuple[np.ndarray, ...]] = [(none, none, none, np.zeros(0))]
        for number, (low, high) in enumerate(in_time(pairwise(self.bounds))):
            state, history = self._arrive(number, low, high)
            states.append(state)
            if low < self.final:
                parts.append(self._leave(low, high, state, history))
                blocks.append(blocks[-1] + len(parts[-1][0]))
        return blocks, [np.concatenate(states), *map(np.concatenate, zip(*parts, strict=True))]

    def _arrive(self, number: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        """State and history of each pair of a block, `(pairs,)`; tells what waits the numbers of the pairs."""
        arrivals, self.waiting[number] = self.waiting[number], []
        width = len(self.histories.states)
        keys = [(arrival.state.astype(np.int64) - low) * width + arrival.history for arrival in arrivals]
        present, place = _distinct(np.concatenate(keys), (high - low) * width)
        begin = self.first_pair[low]
        self.first_pair[low : high + 1] = begin + np.searchsorted(present, width * np.arange(high - low + 1))
        place, done = place + begin, 0
        for arrival in arrivals:
            arrival.target[arrival.rows] = place[done : done + len(arrival.rows)]
            done += len(arrival.rows)
        return low + present // width, present % width

    def _leave(self, low: int, high: int, state: np.ndarray, history: np.ndarray) -> tuple[np.ndarray, ...]:
        """`source`, `target`, `arc` and `logprob` of the arcs out of a block; the targets are filled in later.

        Args:
          state, history: `(pairs,)`, of the block's pairs.
        """
        lattice, begin = self.lattice, self.first_pair[low]
        arcs = self.order[self.ranges[low] : self.ranges[high]]
        first = self.first_pair[lattice.src[arcs]] - begin
        counts = self.first_pair[lattice.src[arcs] + 1] - begin - first
        ends = np.cumsum(counts)
        which = np.repeat(np.arange(len(arcs)), counts)  # arc by arc, for all pairs at its source
        pair, arc = np.arange(ends[-1]) + (first - ends + counts)[which], arcs[which]
        logprob, longer = self._extend(history, pair, lattice.labels[arcs], which)
        self._end(logprob, longer, lattice.dst[arc] == self.final)
        leaving = self.degrees[state]
        rows = (np.cumsum(leaving) - leaving)[pair] + arc - self.ranges[lattice.src[arc]]  # in the order of pairs
        source, target, by, scores = (np.empty(len(rows), dtype=kind) for kind in (np.int32, np.int32, np.int32, float))
        source[rows], by[rows], scores[rows] = begin + pair, arc, logprob
        onto = self.block[lattice.dst[arcs]]
        cuts = [0, *ends[np.flatnonzero(np.diff(onto))].tolist(), int(ends[-1])]
        for cut in map(slice, cuts, cuts[1:]):
            arrivals = _Arrivals(lattice.dst[arc[cut]], longer[cut], target, rows[cut])
            self.waiting[self.block[arrivals.state[0]]].append(arrivals)
        return source, target, by, scores

    def _extend(
        self, history: np.ndarray, pair: np.ndarray, labels: np.ndarray, which: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores of `labels[which]` after `history[pair]`, and the longer histories; each is asked for once."""
        olds, row = np.unique(history, return_inverse=True)
        words, column = np.unique(labels, return_inverse=True)
        asked, found = _distinct(row[pair] * len(words) + column[which], len(olds) * len(words))
        answers = self.histories.extend(olds[asked // len(words)].tolist(), words[asked % len(words)].tolist())
        return answers[0][found], answers[1][found]

    def _end(self, logprob: np.ndarray, longer: np.ndarray, at_end: np.ndarray) -> None:
        """In place: the sentence ends where it says so; histories do not matter any more then."""
        if at_end.any():
            distinct, back = np.unique(longer[at_end], return_inverse=True)
            logprob[at_end] += np.array([self.histories.end(history) for history in distinct.tolist()])[back]
            longer[at_end] = 0


def _distinct(keys: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The different keys, ascending, and the place of each key among them; keys are from 0, below `size`.

    By a table where the keys fill a good part of it, as they mostly do, without sorting all; else, as in lattices whose
    states stand side by side by the thousand, the table would grow with the square of the lattice.
    """
    if size > SPARSE * len(keys):
        present, place = np.unique(keys, return_inverse=True)
        return present, place
    rows, table = np.arange(len(keys)), np.empty(size, dtype=np.int64)  # what was not written is not read
    table[keys] = rows
    present = np.sort(keys[table[keys] == rows])
    table[present] = np.arange(len(present))
    return present, table[keys]


class _Arrivals(NamedTuple):
    """Arcs into a block: state and history that they lead to, and where the number of the pair is to be written.

    Attributes:
      state: int32 `(arcs,)`, of the lattice.
      history: int64 `(arcs,)`.
      target: int32, numbers of pairs, those of `rows` are written.
      rows: int64 `(arcs,)`.
    """

    state: np.ndarray
    history: np.ndarray
    target: np.ndarray
    rows: np.ndarray
