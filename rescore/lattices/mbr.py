"""Minimum Bayes risk decoding: the words with the fewest expected errors, with confidences, and confusion networks.

Lattices: H. Xu, D. Povey, L. Mangu and J. Zhu, "Minimum Bayes Risk decoding and system combination based on a recursion
for edit distance", Computer Speech & Language 25 (2011).  The expected edit distance between the lattice and a word
sequence follows from one recursion over states (their eq. 11 to 13); it is exact where one path leads into each state
(and the last one), and an upper bound elsewhere, since arcs of one state share one alignment.  The statistics of the
same alignment give the words at each place, and the sequence is improved place by place until nothing changes.
N-best lists: exact, over the hypotheses of the list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from lm_zoo.deadline import in_time
from rescore.errors import ScoreError
from rescore.files import atomic_text
from rescore.lattices.build import EPSILON
from rescore.lattices.paths import best_arcs, blocks_from_start, forward_scores
from rescore.lattices.posteriors import checked_totals
from rescore.shown import Shown, Table
from rescore.types import Lattice, Words

FLOOR = 1e-4  # words less probable than this at their place are left out of confusion networks
_TIE = 1e-5  # extra cost of an insertion, so that of two alignments the one that puts words into places wins
_ROUNDING = 1e-9  # expected errors that differ by less are equal
_MOST_ROUNDS = 100


@dataclass(frozen=True)
class Slot:
    """A place of a confusion network: the words that may stand there, most probable first ("" for none).

    Attributes:
      words: word and posterior; those below FLOOR are left out.
      begin, end: seconds, means over the paths, or None if the lattice has no times.
    """

    words: list[tuple[str, float]]
    begin: float | None
    end: float | None


@dataclass(frozen=True, repr=False)
class MbrResult(Shown):
    """The answer for one lattice; shown and as a data frame, a word a row.

    Attributes:
      words: the words with the fewest expected errors (a local minimum, from the best path).
      confidences: posterior of each word at its place.
      times: begin and end of each word in seconds, without overlaps; None if the lattice has no times.
      network: the places where some word may stand.
      risk: expected number of errors of `words` by the recursion.
    """

    utt_id: str
    words: Words
    confidences: list[float]
    times: list[tuple[float, float]] | None
    network: list[Slot]
    risk: float

    def _table(self) -> Table:
        times: Sequence[tuple[float | None, float | None]] = self.times or [(None, None)] * len(self.words)
        rows = [[*row, *time] for *row, time in zip(self.words, self.confidences, times, strict=True)]
        return ["word", "confidence", "begin", "end"], rows

    def _caption(self) -> str:
        return f"utterance {self.utt_id}, {self.risk:.4g} errors expected"


def mbr_decode(lattice: Lattice, scales: Mapping[str, float]) -> MbrResult:
    """Minimum Bayes risk over the whole lattice; posteriors are those of `arc_posteriors` under `scales`.

    Raises:
      ScoreError: as `rescore.lattices.posteriors.checked_totals`.
    """
    totals = checked_totals(lattice, scales)
    recursion = _Recursion(lattice, totals)
    path = lattice.labels[best_arcs(lattice, totals)]
    words = np.searchsorted(recursion.labels, path[path != EPSILON])
    for _ in range(_MOST_ROUNDS):
        hyp = _with_gaps(words)
        stats = recursion.statistics(hyp)
        held = stats.mass[hyp, np.arange(len(hyp))]
        better = np.where(held >= stats.mass.max(axis=0) - _ROUNDING, hyp, stats.mass.argmax(axis=0))
        if (better == hyp).all():
            break
        words = better[better != EPSILON]
    return _result(lattice, recursion.labels, hyp, stats)


def _with_gaps(words: np.ndarray) -> np.ndarray:
    """`(n,)` words with an epsilon before, between and behind them, `(2 n + 1,)`: places where more may stand."""
    hyp = np.full(2 * len(words) + 1, EPSILON, dtype=np.int64)
    hyp[1::2] = words
    return hyp


@dataclass
class _Statistics:
    """Posteriors of words at the places of a hypothesis, `(labels, places)` each.

    Attributes:
      mass: posterior; each place sums to 1.
      begin, end: posterior times seconds; zeros without times.
      risk: expected errors of the hypothesis.
    """

    mass: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    risk: float


class _Block:
    """The arcs into a run of independent states, and the orders in which their rows are summed."""

    def __init__(self, states: slice, arcs: np.ndarray, first: np.ndarray, src: np.ndarray, word: np.ndarray) -> None:
        self.states, self.arcs, self.first = states, arcs, first
        self.src, self.word = src[arcs], word[arcs]

    @cached_property
    def by_src(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _groups(self.src)

    @cached_property
    def by_word(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _groups(self.word)


def _groups(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct keys, the order that sorts by them, and where each begins in that order."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    return distinct, order, first


def _add_rows(target: np.ndarray, groups: tuple[np.ndarray, np.ndarray, np.ndarray], rows: np.ndarray) -> None:
    distinct, order, first = groups
    target[distinct] += np.add.reduceat(rows[order], first, axis=0)


def _delete(rows: np.ndarray, deleted: np.ndarray) -> tuple[slice, np.ndarray]:
    """Moves what has a deleted word before it to before that word, and on over all that are deleted there.

    Args:
      rows: posteriors, `(arcs, places + 1)`, which are changed.
      deleted: bool, of the same shape; nothing is before the first.
    Returns:
      the places of words, and how much of each of these was deleted, `(arcs, places)`.
    """
    live = np.flatnonzero(rows.any(axis=0))
    if not len(live):
        return slice(0), np.zeros((len(rows), 0))
    stop = live[-1] + 1
    start = live[0] - np.argmin(deleted[:, live[0] :: -1].any(axis=0))  # nothing moves on from there
    held, leaves = rows[:, start:stop], deleted[:, start:stop]
    total = np.cumsum(held[:, ::-1], axis=1)  # from the right, of all that may come to a place
    stayed = np.maximum.accumulate(np.where(leaves[:, ::-1], 0.0, total), axis=1)
    gone = np.where(leaves, (total - stayed)[:, ::-1], 0.0)[:, 1:]
    held[leaves] = 0.0
    held[:, :-1] += np.where(leaves[:, :-1], 0.0, gone)
    return slice(start, stop - 1), gone


class _Recursion:
    """The recursion for one lattice.

    Attributes:
      labels: the labels of the lattice that are used, epsilon first; words are their numbers in this order.
      share:  float64 `(arcs,)`, the probability that a path which is in an arc's target came by this arc.
    """

    def __init__(self, lattice: Lattice, totals: np.ndarray) -> None:
        self.num_states = lattice.num_states
        self.labels = np.union1d([EPSILON], lattice.labels)
        forward = forward_scores(lattice, totals, np.logaddexp)
        possible = np.isfinite(forward[lattice.dst])
        self.share = np.zeros(lattice.num_arcs)
        came = forward[lattice.src[possible]] + totals[possible] - forward[lattice.dst[possible]]
        self.share[possible] = np.exp(came)
        times = lattice.times if lattice.times is not None else np.zeros(lattice.num_states)
        self.times, self.src, self.dst = times, lattice.src, lattice.dst
        word = np.searchsorted(self.labels, lattice.labels)
        self.blocks = [_Block(*block, lattice.src, word) for block in blocks_from_start(lattice)]

    def distances(self, hyp: np.ndarray) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        """Expected errors of the paths into each state against each beginning of `hyp`, `(states, places + 1)`.

        Also, for each block, how its arcs are aligned best, bool `(arcs, places + 1)` each: the arc's word stands at
        the place before (else it is an insertion), and the place before is a deletion (which goes before the first).
        """
        missing = np.append(0.0, np.cumsum(hyp != EPSILON))  # errors if nothing stands for the beginning of hyp
        errors = np.zeros((self.num_states, len(missing)))
        errors[0] = missing
        aligned = []
        for block in in_time(self.blocks):
            before = errors[block.src]
            way = before + (1.0 + _TIE) * (block.word != EPSILON)[:, None]  # an insertion
            placed = before[:, :-1] + (block.word[:, None] != hyp)
            stands = np.zeros(way.shape, dtype=bool)
            stands[:, 1:] = placed <= way[:, 1:] + _ROUNDING
            np.minimum(way[:, 1:], placed, out=way[:, 1:])
            least = np.minimum.accumulate(way - missing, axis=1)
            aligned.append((stands, least < way - missing - _ROUNDING))
            rows = self.share[block.arcs, None] * (least + missing)
            errors[block.states] = np.add.reduceat(rows, block.first, axis=0)
        return errors, aligned

    def statistics(self, hyp: np.ndarray) -> _Statistics:
        """Goes back along the alignments of `distances` with the posterior of each."""
        errors, aligned = self.distances(hyp)
        shape = len(self.labels), len(hyp)
        mass, begin, end = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        flow = np.zeros(errors.shape)  # posterior of being in a state with so much of hyp behind
        flow[-1, -1] = 1.0
        for block, (stands, deleted) in in_time(zip(reversed(self.blocks), reversed(aligned), strict=True)):
            target = self.dst[block.arcs]
            rows = self.share[block.arcs, None] * flow[target]
            places, gone = _delete(rows, deleted)
            mass[EPSILON, places] += gone.sum(axis=0)
            begin[EPSILON, places] += self.times[target] @ gone
            end[EPSILON, places] += self.times[target] @ gone
            placed = np.where(stands, rows, 0.0)
            rows -= placed
            rows[:, :-1] += placed[:, 1:]
            _add_rows(flow, block.by_src, rows)
            _add_rows(mass, block.by_word, placed[:, 1:])
            _add_rows(begin, block.by_word, placed[:, 1:] * self.times[block.src, None])
            _add_rows(end, block.by_word, placed[:, 1:] * self.times[target, None])
        skipped = np.cumsum(flow[0, :0:-1])[::-1]  # places before the first arc
        for sums, factor in ((mass, 1.0), (begin, self.times[0]), (end, self.times[0])):
            sums[EPSILON] += factor * skipped
        return _Statistics(mass, begin, end, float(errors[-1, -1]))


def _result(lattice: Lattice, labels: np.ndarray, hyp: np.ndarray, stats: _Statistics) -> MbrResult:
    timed = lattice.times is not None
    places = np.flatnonzero(hyp != EPSILON)
    held = hyp[places], places
    mass = np.minimum(stats.mass[held], 1.0)  # rounding
    words = tuple(lattice.symbols[label] for label in labels[hyp[places]])
    times = None
    if timed:
        times = _without_overlaps((stats.begin[held] / mass).tolist(), (stats.end[held] / mass).tolist())
    network = []
    for place in range(len(hyp)):
        order = np.argsort(-stats.mass[:, place], kind="stable")
        likely = [row for row in order if stats.mass[row, place] >= FLOOR]
        if any(row != EPSILON for row in likely):
            total = stats.mass[:, place].sum()
            ends = [float(sums[:, place].sum() / total) for sums in (stats.begin, stats.end)] if timed else [None, None]
            entries = [(lattice.symbols[labels[row]], min(1.0, float(stats.mass[row, place]))) for row in likely]
            network.append(Slot(entries, *ends))
    return MbrResult(lattice.utt_id, words, mass.tolist(), times, network, stats.risk)


def _without_overlaps(begins: list[float], ends: list[float]) -> list[tuple[float, float]]:
    """Words that overlap meet in the middle of what they share."""
    times: list[tuple[float, float]] = []
    for begin, end in zip(begins, ends, strict=True):
        if times and begin < times[-1][1]:
            middle = max(times[-1][0], 0.5 * (begin + times[-1][1]))
            times[-1] = times[-1][0], middle
            begin = middle
        times.append((begin, max(begin, end)))
    return times


def ctm_lines(result: MbrResult) -> list[str]:
    """NIST CTM: `utterance 1 begin duration word confidence`, seconds; for a result with times."""
    assert result.times is not None
    rows = zip(result.words, result.confidences, result.times, strict=True)
    return [
        f"{result.utt_id} 1 {begin:.3f} {end - begin:.3f} {word} {confidence:.4f}"
        for word, confidence, (begin, end) in rows
    ]


def network_json(result: MbrResult) -> str:
    """One line: `{"utt_id", "risk", "places": [{"begin", "end", "words": [[word, posterior], ...]}, ...]}`."""
    places = [
        {
            **({} if place.begin is None else {"begin": round(place.begin, 3), "end": round(place.end or 0.0, 3)}),
            "words": [[word, round(posterior, 5)] for word, posterior in place.words],
        }
        for place in result.network
    ]
    return json.dumps({"utt_id": result.utt_id, "risk": round(result.risk, 4), "places": places}, ensure_ascii=False)


@dataclass(frozen=True)
class MbrLines:
    """What is written of a lattice's result: its words, lines of CTM, and the confusion network as JSON."""

    utt_id: str
    words: Words
    ctm: list[str]
    network: str


def mbr_lines(ctm: bool, network: bool) -> Callable[[Lattice, Mapping[str, float]], MbrLines]:
    """Gives of a lattice under its scales what is to be written, CTM and network if asked to.

    It raises ScoreError as `mbr_decode`, or if there are no times for CTM.
    """

    def decode(lattice: Lattice, scales: Mapping[str, float]) -> MbrLines:
        if ctm and lattice.times is None:
            raise ScoreError(f"lattice '{lattice.utt_id}' has no times, which a CTM file needs; leave --ctm out")
        result = mbr_decode(lattice, scales)
        lines, line = ctm_lines(result) if ctm else [], network_json(result) if network else ""
        return MbrLines(result.utt_id, result.words, lines, line)

    return decode


def write_mbr(results: Iterable[MbrLines], ctm: Path | None = None, network: Path | None = None) -> dict[str, Words]:
    """The words of each lattice; writes a CTM file and confusion networks (JSON lines) where a path is given."""
    hyps: dict[str, Words] = {}
    with ExitStack() as stack:
        times = stack.enter_context(atomic_text(ctm)) if ctm else None
        places = stack.enter_context(atomic_text(network)) if network else None
        for result in results:
            hyps[result.utt_id] = result.words
            if times:
                times.writelines(line + "\n" for line in result.ctm)
            if places:
                places.write(result.network + "\n")
    return hyps
