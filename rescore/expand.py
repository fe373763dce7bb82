"""An n-gram LM over a whole lattice: states are split by LM histories, arcs get the LM's score."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from rescore.errors import ScoreError
from rescore.lattice import (
    EPSILON,
    add_counts,
    arc_ranges,
    backward_scores,
    build_lattice,
    remove_epsilons,
    total_scores,
)
from rescore.nbest import exact_nbest
from rescore.types import Lattice, NbestList

_ROUNDING = 1e-9  # relative; scores of one path summed in different orders differ by less


class WordLM(Protocol):
    """What `lm_zoo.ngram.NgramLM` offers; log-probs are natural, states are hashable and equal if their futures are."""

    def start(self) -> Hashable: ...

    def extend(self, state: Any, word: str) -> tuple[float, Hashable, bool]: ...

    def end(self, state: Any) -> float: ...


class _Histories:
    """Numbers for LM states, and each extension asked of the LM only once."""

    def __init__(self, lm: WordLM, symbols: list[str]) -> None:
        self.lm = lm
        self.symbols = symbols
        self.states: list[Hashable] = []
        self.numbers: dict[Hashable, int] = {}
        self.known: dict[tuple[int, int], tuple[float, int]] = {}
        self.unknown_words: set[int] = set()
        self.start = self._number(lm.start())

    def _number(self, state: Hashable) -> int:
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
        return number

    def extend(self, histories: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
        """Log-prob of the word after each history, float64, and the numbers of the longer histories, int64."""
        if label == EPSILON:
            return np.zeros(len(histories)), histories
        rows = [self.known.get((history, label)) or self._ask(history, label) for history in histories.tolist()]
        logprobs, longer = zip(*rows, strict=True)
        return np.array(logprobs), np.array(longer, dtype=np.int32)

    def _ask(self, history: int, label: int) -> tuple[float, int]:
        logprob, state, in_vocabulary = self.lm.extend(self.states[history], self.symbols[label])
        if not in_vocabulary:
            self.unknown_words.add(label)
        self.known[history, label] = answer = (logprob, self._number(state))
        return answer

    def end(self, histories: np.ndarray) -> np.ndarray:
        """Log-prob of the sentence end after each history, float64."""
        return np.array([self.lm.end(self.states[history]) for history in histories.tolist()])


@dataclass
class _Expanded:
    """The arcs of the lattice between pairs (state, history); pairs are numbered state by state.

    Attributes:
      first_pair: int64 `(states + 1,)`, the pairs of state s are `first_pair[s]` to `first_pair[s + 1] - 1`.
      forward:    float64 `(pairs,)`, best score from the start.
      source, target: int32 `(arcs,)`, pairs, target -1 if that pair was pruned.
      arc:        int32 `(arcs,)`, the lattice's arc.
      logprob:    float64 `(arcs,)`, score of the LM.
      pruned:     number of pairs that the beam left out.
    """

    first_pair: np.ndarray
    forward: np.ndarray
    source: np.ndarray
    target: np.ndarray
    arc: np.ndarray
    logprob: np.ndarray
    pruned: int


def expand_ngram(
    lattice: Lattice, lm: WordLM, name: str, scales: Mapping[str, float], beam: float | None = None
) -> Lattice:
    """The lattice with its states split by LM histories, and the LM's natural-log score on its arcs as `name`.

    The sentence end is scored on the arcs into the final state, epsilons are not scored.  All other scores are kept.
    Epsilons inside are removed first, so of the paths with the same words the best under `scales` counts.

    Args:
      scales: scales of the lattice's scores, of `words`, and of `name`.
      beam: None for all of it (exact), else arcs are left out that are on no path at most this much below the best
        one under `scales`; while the expansion runs, what is still to come is taken from one history for each state,
        and exactly when it is done.  The best path by that estimate always stays, so there always is one.
        `counts` of the result, `pruned_states` and `pruned_arcs`, says how much was left out.
    Raises:
      ScoreError: the lattice has a score `name` already, or `scales` has none for `name`, or one that is not there.
    """
    if name in lattice.scores:
        raise ScoreError(f"lattice '{lattice.utt_id}' has a score '{name}' already; give the LM's another name")
    if name not in scales:
        raise ScoreError(f"no scale for '{name}', the score of the n-gram LM")
    own_scales = {key: scale for key, scale in scales.items() if key != name}
    lattice = remove_epsilons(lattice, own_scales)
    own = total_scores(lattice, own_scales)
    histories = _Histories(lm, lattice.symbols)
    least = None
    if beam is not None:
        to_come, reached = _lookahead(lattice, histories, own, scales[name])
        least = reached - beam - to_come
    expanded = _expand(lattice, histories, own, scales[name], least)
    within = np.arange(len(expanded.arc))
    if beam is not None:
        within = _within_beam(expanded, own[expanded.arc] + scales[name] * expanded.logprob, beam)
    result = _assemble(lattice, expanded, within, name)
    result.counts = add_counts(
        lattice.counts,
        pruned_states=expanded.pruned + len(expanded.forward) - result.num_states,
        pruned_arcs=len(expanded.arc) - result.num_arcs,
        unknown_words=len(histories.unknown_words),
    )
    return result


def _arcs_by_label(lattice: Lattice, ranges: np.ndarray, state: int) -> list[np.ndarray]:
    """The arcs out of a state in groups of the same label."""
    arcs = np.arange(ranges[state], ranges[state + 1])
    labels = lattice.labels[arcs]
    if (labels == labels[:1]).all():
        return [arcs] if len(arcs) else []
    return [arcs[labels == label] for label in np.unique(labels)]


def _lookahead(lattice: Lattice, histories: _Histories, own: np.ndarray, lm_scale: float) -> tuple[np.ndarray, float]:
    """An estimate of the best score from each state to the end, float64 `(states,)`, and the score of some path.

    Each state gets one history, that of the best path into it by this very rule; it decides the LM scores of the arcs.
    The estimate of a state's own best path is the score of a real path, so the second value is never above the best.
    """
    final = lattice.num_states - 1
    ranges = arc_ranges(lattice)
    best = [0.0] + [-np.inf] * final
    history = np.full(lattice.num_states, histories.start)
    totals = own.copy()
    for state in range(final):
        for arcs in _arcs_by_label(lattice, ranges, state):
            logprob, longer = histories.extend(history[state : state + 1], int(lattice.labels[arcs[0]]))
            targets = lattice.dst[arcs]
            totals[arcs] += lm_scale * logprob
            if (targets == final).any():
                totals[arcs[targets == final]] += lm_scale * histories.end(longer)
            for target, score in zip(targets.tolist(), (best[state] + totals[arcs]).tolist(), strict=True):
                if score > best[target]:
                    best[target] = score
                    history[target] = longer[0]
    return backward_scores(lattice, totals), best[final]


class _Ways(NamedTuple):
    """Ways into one lattice state, an entry a way: `(ways,)` each.

    Attributes:
      history: number of the history that it leads to.
      score:   its best score from the start.
      source:  pair that its last arc leaves.
      arc:     that arc.
      logprob: the LM's score of that arc.
    """

    history: np.ndarray
    score: np.ndarray
    source: np.ndarray
    arc: np.ndarray
    logprob: np.ndarray


def _expand(
    lattice: Lattice, histories: _Histories, own: np.ndarray, lm_scale: float, least: np.ndarray | None
) -> _Expanded:
    """Goes through the states in order; pairs whose score from the start is below `least` `(states,)` are pruned."""
    waiting: list[list[_Ways]] = [[] for _ in range(lattice.num_states)]
    nowhere, start = np.array([-1], dtype=np.int32), np.array([histories.start], dtype=np.int32)
    waiting[0] = [_Ways(start, np.zeros(1), nowhere, nowhere, np.zeros(1))]
    ranges = arc_ranges(lattice)
    first_pair, forward, targets, taken, pruned = [0], [], [], [], 0
    for state in range(lattice.num_states):
        if not waiting[state]:  # all that leads here was pruned
            first_pair.append(first_pair[-1])
            continue
        ways = _Ways(*(np.concatenate(column) for column in zip(*waiting[state], strict=True)))
        waiting[state] = []
        present, score, row = _merge(ways, -np.inf if least is None else least[state])
        pruned += len(np.unique(ways.history[row < 0]))
        taken.append((ways.source, ways.arc, ways.logprob))
        targets.append(np.where(row >= 0, row + first_pair[-1], -1).astype(np.int32))
        forward.append(score)
        for arcs in _arcs_by_label(lattice, ranges, state) if len(present) else ():
            for target, onward in _depart(lattice, histories, own, lm_scale, arcs, present, score, first_pair[-1]):
                waiting[target].append(onward)
        first_pair.append(first_pair[-1] + len(present))
    source, by_arc, logprob = (np.concatenate(column)[1:] for column in zip(*taken, strict=True))  # [0]: to the start
    pairs = np.array(first_pair), np.concatenate(forward)
    return _Expanded(*pairs, source, np.concatenate(targets)[1:], by_arc, logprob, pruned)


def _merge(ways: _Ways, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Histories of the pairs that `ways` lead to, their best scores, and for each way its row there, -1 if pruned."""
    present, row = np.unique(ways.history, return_inverse=True)
    score = np.full(len(present), -np.inf)
    np.maximum.at(score, row, ways.score)
    stays = score >= least
    return present[stays], score[stays], np.where(stays, np.cumsum(stays) - 1, -1)[row]


def _depart(
    lattice: Lattice,
    histories: _Histories,
    own: np.ndarray,
    lm_scale: float,
    arcs: np.ndarray,
    present: np.ndarray,
    score: np.ndarray,
    first_pair: int,
) -> Iterator[tuple[int, _Ways]]:
    """Ways by `arcs`, all with one label, to the states behind; `present`, `score`: `(pairs,)`, the state's own."""
    logprob, longer = histories.extend(present, int(lattice.labels[arcs[0]]))
    score = score + lm_scale * logprob
    source = np.arange(first_pair, first_pair + len(present), dtype=np.int32)
    for arc, target in zip(arcs.tolist(), lattice.dst[arcs].tolist(), strict=True):
        column = np.full(len(present), arc, dtype=np.int32)
        if target == lattice.num_states - 1:  # the sentence end; histories do not matter any more
            end = histories.end(longer)
            yield target, _Ways(np.zeros_like(longer), score + own[arc] + lm_scale * end, source, column, logprob + end)
        else:
            yield target, _Ways(longer, score + own[arc], source, column, logprob)


def _within_beam(expanded: _Expanded, totals: np.ndarray, beam: float) -> np.ndarray:
    """The arcs, int64 `(kept,)`, that are on a path at most `beam` below the best one; `totals` are the arcs'."""
    backward = np.full(len(expanded.forward), -np.inf)
    backward[-1] = 0.0
    order = np.argsort(expanded.source, kind="stable")
    order = order[expanded.target[order] >= 0]
    source, target, score = expanded.source[order], expanded.target[order], totals[order]
    bounds = np.searchsorted(source, expanded.first_pair)
    for low, high in zip(bounds[-2::-1].tolist(), bounds[:0:-1].tolist(), strict=True):
        np.maximum.at(backward, source[low:high], score[low:high] + backward[target[low:high]])
    rounding = _ROUNDING * (1.0 + abs(float(backward[0])))
    return order[expanded.forward[source] + score + backward[target] >= backward[0] - beam - rounding]


def _assemble(lattice: Lattice, expanded: _Expanded, within: np.ndarray, name: str) -> Lattice:
    """The lattice over the pairs that has the arcs `within`, without the pairs that these leave without a path."""
    order = within[np.argsort(expanded.source[within], kind="stable")]
    arc, num_pairs = expanded.arc[order], len(expanded.forward)
    times = lattice.times
    result = Lattice(
        lattice.utt_id,
        num_pairs,
        expanded.source[order],
        expanded.target[order],
        lattice.labels[arc],
        {**{key: column[arc] for key, column in lattice.scores.items()}, name: expanded.logprob[order]},
        lattice.symbols,
        None if times is None else np.repeat(times, np.diff(expanded.first_pair)),
        None if lattice.alignments is None else lattice.alignments.take(arc),
    )
    if len(within) == len(expanded.arc):
        return result  # every pair is on a path, as every state of the lattice is
    return build_lattice(**{**vars(result), "counts": None, "start": 0, "final": num_pairs - 1})


def ngram_nbest(
    lattice: Lattice, lm: WordLM, name: str, scales: Mapping[str, float], n: int, beam: float | None = None
) -> tuple[NbestList, dict[str, int]]:
    """The `n` best word sequences after an n-gram pass, and the counts of that pass (see `expand_ngram`).

    With a beam the pass is repeated with a beam twice as wide as long as it leaves fewer than `n` sequences.
    """
    while True:
        expanded = expand_ngram(lattice, lm, name, scales, beam)
        nbest = exact_nbest(expanded, scales, n)
        if len(nbest.hyps) >= n or beam is None or not expanded.counts["pruned_arcs"]:
            return nbest, expanded.counts
        beam *= 2
