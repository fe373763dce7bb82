"""LMs of the zoo over whole lattices: states are split by LM histories, arcs get the score of every LM by name.

The lattices of a group go forward together, a block of states at a time; what each asks of an LM is answered in one
batch, and equal histories of all of them are evaluated once (`lm_zoo.histories`).  Histories that end in the same
`context` words share a state (all of them kept apart with `context=None`, which is exact).  What is still to come
after a state is estimated from the lattice's own scores, so that the beam can be small.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lm_zoo.histories import ROOT, Histories
from rescore.errors import ScoreError
from rescore.lattice import (
    EPSILON,
    add_counts,
    arc_ranges,
    backward_scores,
    build_lattice,
    independent_blocks,
    remove_epsilons,
    total_scores,
)
from rescore.types import Lattice


@dataclass
class LatticeLM:
    """Settings of a pass of LMs over lattices.

    Attributes:
      lms: name of the score -> LM of the zoo.
      scales: scales of the lattice's scores, of `words` and of the new ones.
      context: words of history by which states are told apart; None for all of them.
      beam: histories that are this much worse than the best one under way are left out (None: none are).
      most: at most so many histories a lattice state (None: no limit).
      proxy: score of the lattice that stands for the new ones in the estimate of what is still to come.
    """

    lms: Mapping[str, Any]
    scales: Mapping[str, float]
    context: int | None = None
    beam: float | None = None
    most: int | None = None
    proxy: str | None = None
    evaluations: int = field(default=0, init=False)  # histories that LMs were run on so far

    def __post_init__(self) -> None:
        for name, lm in self.lms.items():
            if name not in self.scales:
                raise ScoreError(f"no scale for '{name}', the score of an LM")
            if getattr(lm, "pseudo_likelihood", False):
                raise ScoreError(f"'{name}' is a masked LM, which scores whole sentences: it is for N-best lists only")

    def __call__(self, lattices: Sequence[Lattice]) -> list[Lattice]:
        """The lattices with their states split by histories, and with the LMs' scores.

        Epsilons inside are removed first: of paths with the same words the best under the own scores counts.

        Raises:
          ScoreError: a lattice has one of the new scores already, or lacks one that has a scale.
        """
        words = list(dict.fromkeys(word for lattice in lattices for word in lattice.symbols))
        words.insert(0, words.pop(words.index("")))
        number = {word: place for place, word in enumerate(words)}
        histories = [Histories(lm, words) for lm in self.lms.values()]
        searches = [_Search(lattice, self, number) for lattice in lattices]
        runs = [(search, search.run()) for search in searches]
        asked = [(search, run, next(run, None)) for search, run in runs]
        while asked := [item for item in asked if item[2] is not None]:
            answers = _answer(histories, [question for _, _, question in asked if question is not None])
            asked = [(s, run, _send(run, answer)) for (s, run, _), answer in zip(asked, answers, strict=True)]
            for place, lm in enumerate(histories):
                lm.keep(np.concatenate([np.zeros(1, int), *(search.live_nodes(place) for search in searches)]))
        self.evaluations += sum(lm.evaluations for lm in histories)
        return [search.result() for search in searches]


class _Question(NamedTuple):
    """Words after histories: nodes `(pairs, lms)`, words `(pairs,)`, whether the sentence ends then `(pairs,)`."""

    nodes: np.ndarray
    words: np.ndarray
    ends: np.ndarray


_Answer = tuple[np.ndarray, np.ndarray]  # scores (pairs, lms), longer histories (pairs, lms)


def _send(run: Generator[_Question, _Answer, None], answer: _Answer) -> _Question | None:
    try:
        return run.send(answer)
    except StopIteration:
        return None


def _answer(histories: list[Histories], questions: list[_Question]) -> list[_Answer]:
    nodes, words, ends = (np.concatenate(column) for column in zip(*questions, strict=True))
    scores, longer = np.empty(nodes.shape), np.empty(nodes.shape, dtype=np.int64)
    for place, lm in enumerate(histories):
        distinct, back = np.unique(np.stack([nodes[:, place], words, ends]), axis=1, return_inverse=True)
        found = lm.extend(distinct[0], distinct[1], distinct[2].astype(bool))
        scores[:, place], longer[:, place] = (column[back.reshape(-1)] for column in found)
    cuts = np.cumsum([len(question.words) for question in questions])[:-1]
    return list(zip(np.split(scores, cuts), np.split(longer, cuts), strict=True))


class _Ways(NamedTuple):
    """Ways into lattice states, an entry a way.

    Attributes:
      state: the lattice's state that it leads to.
      context: number of the last words.
      score: of the best path that it ends, from the start.
      source: pair (state, context) that it leaves, -1 at the start.
      arc: the lattice's arc, -1 at the start.
      lm: `(ways, lms)`, the LMs' scores of that arc.
      nodes: `(ways, lms)`, the LMs' histories.
    """

    state: np.ndarray
    context: np.ndarray
    score: np.ndarray
    source: np.ndarray
    arc: np.ndarray
    lm: np.ndarray
    nodes: np.ndarray

    def pick(self, rows: np.ndarray) -> _Ways:
        return _Ways(*(column[rows] for column in self))


class _Search:
    """The pass over one lattice."""

    def __init__(self, lattice: Lattice, plan: LatticeLM, number: Mapping[str, int]) -> None:
        for name in plan.lms:
            if name in lattice.scores:
                raise ScoreError(f"lattice '{lattice.utt_id}' has a score '{name}' already; give the LM another name")
        own_scales = {name: scale for name, scale in plan.scales.items() if name not in plan.lms}
        self.plan = plan
        self.lattice = lattice = remove_epsilons(lattice, own_scales)
        self.scale = np.array([plan.scales[name] for name in plan.lms])
        self.own = total_scores(lattice, own_scales)
        ahead = self.own
        if plan.proxy is not None:
            ahead = total_scores(
                lattice, {**own_scales, plan.proxy: own_scales.get(plan.proxy, 0.0) + self.scale.sum()}
            )
        self.to_come = backward_scores(lattice, ahead)
        self.word = np.array([number[word] for word in lattice.symbols])
        self.contexts: dict[Any, int] = {}
        self.context_words: list[Any] = []
        none, count = np.zeros(1, dtype=int), len(plan.lms)
        begin = np.array([self._context_number(())])
        self.waiting = _Ways(
            none, begin, np.zeros(1), none - 1, none - 1, np.zeros((1, count)), np.full((1, count), ROOT)
        )
        self.pair_state: list[np.ndarray] = []
        self.taken: list[tuple[np.ndarray, ...]] = []  # source pair, target pair, arc, LM scores
        self.pairs = self.pruned = 0

    def live_nodes(self, place: int) -> np.ndarray:
        """The histories of one LM that the pass may go on from."""
        return self.waiting.nodes[:, place]

    def run(self) -> Generator[_Question, _Answer, None]:
        """Asks for the scores of words after histories until the lattice is through."""
        lattice, ranges = self.lattice, arc_ranges(self.lattice)
        bounds = independent_blocks(lattice, ranges)
        final = lattice.num_states - 1
        for high in [*bounds[1:], lattice.num_states]:
            here, first_pair = self._arrive(high)
            if high == lattice.num_states or not len(here.state):
                continue
            pair, arc = _departures(here.state, ranges)
            labels = lattice.labels[arc]
            asking = np.flatnonzero(labels != EPSILON)
            ends = lattice.dst[arc] == final
            scores, nodes = np.zeros((len(arc), len(self.scale))), here.nodes[pair]
            if len(asking):
                question = _Question(nodes[asking], self.word[labels[asking]], ends[asking])
                scores[asking], nodes[asking] = yield question
            silent = np.flatnonzero((labels == EPSILON) & ends)
            if len(silent):  # the empty sentence: its end alone, scored after no word
                scores[silent], _ = yield _Question(nodes[silent], np.zeros(len(silent), int), ends[silent])
            context = self._longer_contexts(here.context[pair], labels, nodes)
            score = here.score[pair] + self.own[arc] + scores @ self.scale
            self._wait(_Ways(lattice.dst[arc], context, score, first_pair + pair, arc, scores, nodes))

    def _wait(self, ways: _Ways) -> None:
        self.waiting = _Ways(*(np.concatenate(columns) for columns in zip(self.waiting, ways, strict=True)))

    def _arrive(self, high: int) -> tuple[_Ways, int]:
        """Takes the ways into states below `high`, merges and prunes them; the pairs, and the number of the first."""
        everything = self.waiting
        estimate = everything.score + self.to_come[everything.state]
        now = np.flatnonzero(everything.state < high)
        ways = everything.pick(now)
        self.waiting = everything.pick(np.flatnonzero(everything.state >= high))
        context = np.where(ways.state == self.lattice.num_states - 1, 0, ways.context)  # the end forgets
        order = np.lexsort((-ways.score, context, ways.state))
        first = np.ones(len(order), dtype=bool)
        first[1:] = (np.diff(ways.state[order]) != 0) | (np.diff(context[order]) != 0)
        heads = order[first]
        stays = self._stays(ways.state[heads], estimate[now][heads], estimate.max(initial=-np.inf))
        target = np.empty(len(order), dtype=np.int64)
        target[order] = np.where(stays, self.pairs + np.cumsum(stays) - 1, -1)[np.cumsum(first) - 1]
        self.taken.append((ways.source, target, ways.arc, ways.lm))
        here, first_pair = ways.pick(heads[stays]), self.pairs
        self.pairs += len(here.state)
        self.pruned += len(heads) - len(here.state)
        self.pair_state.append(here.state)
        return here, first_pair

    def _stays(self, state: np.ndarray, estimate: np.ndarray, best: float) -> np.ndarray:
        """Which pairs the beam and the limit a state keep; `state` does not fall."""
        stays = np.ones(len(state), dtype=bool)
        if self.plan.beam is not None:
            stays = estimate >= best - self.plan.beam
        if self.plan.most is not None:
            order = np.lexsort((-estimate, state))
            begin = np.searchsorted(state, state)  # of the state's pairs, in `order` as well
            stays[order[np.arange(len(state)) - begin[order] >= self.plan.most]] = False
        return stays

    def _context_number(self, key: Any) -> int:
        number = self.contexts.setdefault(key, len(self.contexts))
        if number == len(self.context_words):
            self.context_words.append(key)
        return number

    def _longer_contexts(self, context: np.ndarray, labels: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """The contexts after one more word, or all of the histories if contexts are not cut."""
        if self.plan.context is None:
            return np.array([self._context_number(key) for key in map(tuple, nodes.tolist())])
        if self.plan.context == 0:
            return np.zeros_like(context)
        keys = [
            old if label == EPSILON else (*old, label)[-self.plan.context :]
            for old, label in zip((self.context_words[c] for c in context.tolist()), labels.tolist(), strict=True)
        ]
        return np.array([self._context_number(key) for key in keys])

    def result(self) -> Lattice:
        """The lattice over the pairs."""
        source, target, arc, scores = (np.concatenate(column) for column in zip(*self.taken, strict=True))
        kept = np.flatnonzero((source >= 0) & (target >= 0))
        source, target, arc, scores = source[kept], target[kept], arc[kept], scores[kept]
        old, states = self.lattice, np.concatenate(self.pair_state)
        columns = {name: column[arc] for name, column in old.scores.items()}
        columns |= {name: scores[:, place] for place, name in enumerate(self.plan.lms)}
        times = None if old.times is None else old.times[states]
        made = build_lattice(
            old.utt_id, self.pairs, source, target, old.labels[arc], columns, old.symbols, 0, self.pairs - 1, times
        )
        made.counts = add_counts(old.counts, pruned_states=self.pruned)
        return made


def _departures(states: np.ndarray, ranges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For pairs at `states` `(pairs,)` all (pair, arc out of its state), int64 each."""
    counts = ranges[states + 1] - ranges[states]
    pair = np.repeat(np.arange(len(states)), counts)
    within = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    return pair, ranges[states][pair] + within
