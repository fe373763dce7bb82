"""An n-gram LM over the part of a lattice that is near its best path; what is farther away is never looked at.

Plain loops over few pairs (lattice state, LM history), which is faster here than numpy over a state's few arcs.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

import numpy as np

from rescore.lattice import EPSILON, arc_ranges
from rescore.types import Lattice

_ROUNDING = 1e-9  # relative; scores of one path summed in different orders differ by less
_FIRST = 0.25  # of the beam: that of the first search, which is for a better estimate of what is to come
_END = 0  # number of the pair of the final state, which has no history


class WordLM(Protocol):
    """What `lm_zoo.ngram.NgramLM` offers; log-probs are natural, states are hashable and equal if their futures are."""

    def start(self) -> Hashable: ...

    def extend(self, state: Any, word: str) -> tuple[float, Hashable, bool]: ...

    def end(self, state: Any) -> float: ...


class Histories:
    """Numbers for LM states (0: the begin of sentence), and each extension asked of the LM only once."""

    def __init__(self, lm: WordLM, symbols: list[str]) -> None:
        self.lm = lm
        self.symbols = symbols
        self.states: list[Hashable] = [lm.start()]
        self.numbers: dict[Hashable, int] = {self.states[0]: 0}
        self.known: list[dict[int, tuple[float, int]]] = [{}]  # of each history: word -> log-prob, longer history
        self.ends: dict[int, float] = {}
        self.unknown_words: set[int] = set()

    def ask(self, history: int, label: int) -> tuple[float, int]:
        """Log-prob of a word that is not among `known[history]`, and the longer history."""
        logprob, state, in_vocabulary = self.lm.extend(self.states[history], self.symbols[label])
        if not in_vocabulary:
            self.unknown_words.add(label)
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.known.append({})
        self.known[history][label] = answer = (logprob, number)
        return answer

    def end(self, history: int) -> float:
        """Log-prob of the sentence end."""
        logprob = self.ends.get(history)
        if logprob is None:
            logprob = self.ends[history] = self.lm.end(self.states[history])
        return logprob


class NearArcs(NamedTuple):
    """Arcs between pairs (state, history) that are within the beam.

    Attributes:
      state:  int64 `(pairs,)`, the lattice's state of each pair; pair 0 is the end, pair 1 the start.
      source, target: int64 `(arcs,)`, pairs.
      arc:     int64 `(arcs,)`, the lattice's arc.
      logprob: float64 `(arcs,)`, score of the LM.
      left:    arcs looked at or passed by that are not among these.
    """

    state: np.ndarray
    source: np.ndarray
    target: np.ndarray
    arc: np.ndarray
    logprob: np.ndarray
    left: int


def near_arcs(lattice: Lattice, histories: Histories, own: np.ndarray, lm_scale: float, beam: float) -> NearArcs:
    """The arcs on paths at most `beam` below the best one that was found.

    What is still to come after a state is estimated by one history for each state; a first search with a small beam
    raises the estimate where it has been.  What is `beam` below a path that is good by that estimate is not looked at.
    That path always stays.

    Args:
      own: float64 `(arcs,)`, totals without the LM.
    """
    return _NearBest(lattice, histories, own, lm_scale).run(beam)


class _NearBest:
    def __init__(self, lattice: Lattice, histories: Histories, own: np.ndarray, lm_scale: float) -> None:
        self.lattice, self.histories, self.scale = lattice, histories, lm_scale
        self.own = own
        self.final = lattice.num_states - 1
        self.ranges = arc_ranges(lattice).tolist()
        self.columns = (lattice.src.tolist(), lattice.dst.tolist(), lattice.labels.tolist(), own.tolist())
        self.to_come, self.reached = self._lookahead()

    def _lookahead(self) -> tuple[list[float], float]:
        """An estimate of the best score from each state to the end, and the score of some path.

        Each state gets one history, that of the best path into it by this very rule, which decides the LM's scores.
        """
        ask, known, end = self.histories.ask, self.histories.known, self.histories.end
        scale, final = self.scale, self.final
        best, history = [0.0] + [-np.inf] * final, [0] * (final + 1)
        totals = []
        for source, target, label, score in zip(*self.columns, strict=True):
            after = history[source]
            if label != EPSILON:
                logprob, after = known[after].get(label) or ask(after, label)
                score += scale * logprob
            if target == final:
                score += scale * end(after)
            totals.append(score)
            score += best[source]
            if score > best[target]:
                best[target], history[target] = score, after
        to_come = [-np.inf] * final + [0.0]
        sources, targets = self.columns[0], self.columns[1]
        for source, target, score in zip(reversed(sources), reversed(targets), reversed(totals), strict=True):
            to_come[source] = max(to_come[source], score + to_come[target])
        return to_come, best[final]

    def run(self, beam: float) -> NearArcs:
        found, arrays, pairs, _ = self._search(_FIRST * beam)
        backward = self._backward(arrays, len(pairs))
        for pair, state in enumerate(pairs):
            self.to_come[state] = max(self.to_come[state], backward[pair])
        found, arrays, pairs, passed = self._search(beam)
        after = np.array(self._backward(arrays, len(pairs)))
        source, target, arc, logprob, totals = arrays
        within = np.array(found)[source] + totals + after[target] >= after[1] - beam - self._rounding()
        left = passed + len(within) - int(within.sum())
        return NearArcs(np.array(pairs), source[within], target[within], arc[within], logprob[within], left)

    def _rounding(self) -> float:
        return _ROUNDING * (1.0 + abs(self.reached))

    def _search(self, beam: float) -> tuple[list[float], tuple[np.ndarray, ...], list[int], int]:
        """Goes through the states in order, from pairs that may be within the beam.

        Returns:
          best score from the start of each pair; source, target, arc, LM's score and total of the arcs among them;
          state of each pair; number of arcs passed by.
        """
        ask, known, end = self.histories.ask, self.histories.known, self.histories.end
        to_come, scale, final, ranges = self.to_come, self.scale, self.final, self.ranges
        _, targets, labels, own = self.columns
        ahead = self.own + np.array(to_come)[self.lattice.dst] if scale >= 0 else np.full(len(self.own), np.inf)
        order, hopes = np.lexsort((-ahead, self.lattice.src)).tolist(), ahead.tolist()
        least = self.reached - beam - self._rounding()
        numbers: list[dict[int, int]] = [{} for _ in range(final)]  # of each state: history -> pair
        numbers[0][0] = 1
        forward, states, passed = [-np.inf, 0.0], [final, 0], 0
        arcs: list[tuple[int, int, int, float]] = []
        for state in range(final):
            leaving = order[ranges[state] : ranges[state + 1]] if numbers[state] else []
            for history, pair in numbers[state].items():
                score, words = forward[pair], known[history]
                for place, arc in enumerate(leaving):
                    if score + hopes[arc] < least:  # even if the word were certain; so are those that follow
                        passed += len(leaving) - place
                        break
                    target, label, logprob, after = targets[arc], labels[arc], 0.0, history
                    if label != EPSILON:
                        logprob, after = words.get(label) or ask(history, label)
                    if target == final:
                        logprob += end(after)
                    through = score + own[arc] + scale * logprob
                    if through + to_come[target] < least:
                        passed += 1
                        continue
                    onward = _END if target == final else numbers[target].setdefault(after, len(states))
                    if onward == len(states):
                        states.append(target)
                        forward.append(through)
                    elif through > forward[onward]:
                        forward[onward] = through
                    arcs.append((pair, onward, arc, logprob))
        source, onto, by, logprobs = (np.array(column) for column in zip(*arcs, strict=True))
        return forward, (source, onto, by, logprobs, self.own[by] + scale * logprobs), states, passed

    def _backward(self, arrays: tuple[np.ndarray, ...], num_pairs: int) -> list[float]:
        """Best score from each pair to the end along the arcs."""
        source, target, _, _, totals = (column[::-1].tolist() for column in arrays)
        best = [-np.inf] * num_pairs
        best[_END] = 0.0
        for begin, onward, score in zip(source, target, totals, strict=True):
            best[begin] = max(best[begin], score + best[onward])
        return best
