"""LMs of the zoo over whole lattices: states are split by LM histories, arcs get the score of every LM by name.

The lattices of a group go forward together, from states to later states; what each asks of an LM is answered in one
batch, and equal histories of all of them are evaluated once (`lm_zoo.inference.history_cache`).  Histories that end in
the same `context` words share a state, and go on as the best path into it, so that the scores of the best path are
exact, those of others nearly; with `context=None` all are kept apart, which is exact.  What is still to come after a
state is estimated from the lattice's own scores, so that the beam can be small; the estimate is no bound, so a beam may
lose the best path.  The best of all ways under way always goes on, so that no beam leaves nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lm_zoo.base import LanguageModel, WordLM
from lm_zoo.deadline import check_time
from lm_zoo.inference.history_cache import ROOT, Histories
from rescore.errors import ScoreError
from rescore.lattices.build import EPSILON, add_counts, build_lattice, with_an_arc
from rescore.lattices.epsilons import remove_epsilons
from rescore.lattices.log_zero import without_infinities
from rescore.lattices.paths import arc_ranges, backward_scores, total_scores
from rescore.types import Lattice
from rescore.weights import WORDS_COLUMN

HELD = 1 << 30  # bytes of an LM's states; beyond, those that no way waits for are given back


@dataclass
class LatticeLM:
    """Settings of a pass of LMs over lattices.

    Attributes:
      lms: name of the score -> LM of the zoo.
      scales: scales of the lattices' scores, of `words` and of the new ones; of those alone that a lattice has.
      context: words of history by which states are told apart; None for all of them.
      beam: histories that are this much worse than the best one under way are left out, by
        an estimate that may lose the best path (None: none are).
      most: at most so many histories a lattice state (None: no limit).
      views: name of the score -> what that LM sees of the lattices' words (`lm_zoo.text.view.View`); none: the words.
      proxies: the first of these scores that a lattice has stands for the new ones in the estimate of what is still to
        come.
    """

    lms: Mapping[str, LanguageModel]
    scales: Mapping[str, float]
    context: int | None = None
    beam: float | None = None
    most: int | None = None
    proxies: Sequence[str] = ()
    views: Mapping[str, Any] = field(default_factory=dict)
    evaluations: int = field(default=0, init=False)  # histories that LMs were run on so far

    def __post_init__(self) -> None:
        for name, lm in self.lms.items():
            if name not in self.scales:
                raise ScoreError(f"no scale for '{name}', the score of an LM")
            if lm.pseudo_likelihood:
                raise ScoreError(f"'{name}' is a masked LM, which scores whole sentences: it is for N-best lists only")
            if not lm.has_tokens():
                use = "it is for N-best lists only (rescore lattice nbest, then rescore nbest)"
                raise ScoreError(
                    f"'{name}' ({type(lm).__name__}) scores words, and cannot be asked token by token: "
                    + ("give it with --ngram (in Python ngram=...)" if isinstance(lm, WordLM) else use)
                )

    def __call__(self, lattices: Sequence[Lattice]) -> list[Lattice]:
        """The lattices with their states split by histories, and with the LMs' scores.

        Epsilons inside are removed first: of paths with the same words the best under the own scores counts.

        Raises:
          ScoreError: a lattice has one of the new scores already; an LM gave NaN.
        """
        words = list(dict.fromkeys(word for lattice in lattices for word in lattice.symbols))
        words.insert(0, words.pop(words.index("")))
        number = {word: place for place, word in enumerate(words)}
        histories = [Histories(lm, words, view=self.views.get(name)) for name, lm in self.lms.items()]
        searches = [_LatticePass(lattice, self, number) for lattice in lattices]
        runs = [(search, search.run()) for search in searches]
        asked = [(search, run, next(run, None)) for search, run in runs]
        while asked := [item for item in asked if item[2] is not None]:
            check_time()
            answers = _answer(histories, [question for _, _, question in asked if question is not None])
            asked = [(s, run, _send(run, answer)) for (s, run, _), answer in zip(asked, answers, strict=True)]
            for place, lm in enumerate(histories):
                if lm.held > HELD:
                    lm.keep(np.concatenate([search.live_nodes(place) for search in searches]).tolist())
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


class _LatticePass:
    """The pass over one lattice."""

    def __init__(self, lattice: Lattice, plan: LatticeLM, number: Mapping[str, int]) -> None:
        for name in plan.lms:
            if name in lattice.scores:
                raise ScoreError(f"lattice '{lattice.utt_id}' has a score '{name}' already; give the LM another name")
        own_scales = {name: scale for name, scale in plan.scales.items() if name in {*lattice.scores, WORDS_COLUMN}}
        self.plan = plan
        self.lattice = lattice = remove_epsilons(with_an_arc(lattice), own_scales, keep_ends=True)
        self.scale = np.array([plan.scales[name] for name in plan.lms])
        self.own = total_scores(lattice, own_scales)
        ahead = self.own
        proxy = next((name for name in plan.proxies if name in lattice.scores), None)
        if proxy is not None:
            ahead = total_scores(lattice, {**own_scales, proxy: own_scales.get(proxy, 0.0) + self.scale.sum()})
        self.ahead, self.to_come = ahead, backward_scores(lattice, ahead)
        self.word = np.array([number[word] for word in lattice.symbols])
        self.contexts: dict[Any, int] = {}
        self.context_words: list[Any] = []
        none, count = np.zeros(1, dtype=int), len(plan.lms)
        begin = np.array([self._context_number(())])
        start = _Ways(none, begin, np.zeros(1), none - 1, none - 1, np.zeros((1, count)), np.full((1, count), ROOT))
        self.level = _levels_from_start(lattice)
        self.waiting: dict[int, list[_Ways]] = {0: [start]}  # by the level of the state that they lead to
        self.best: dict[int, float] = {0: -np.inf}  # estimate of the best path through each level's ways
        self.pair_state: list[int] = []
        self.end = -1  # the pair at the end of the lattice
        self.taken: list[tuple[np.ndarray, ...]] = []  # source pair, target pair, arc, LM scores
        self.pruned = self.passed_by = self.impossible = 0

    def live_nodes(self, place: int) -> np.ndarray:
        """The histories of one LM that the pass may go on from."""
        nodes = [ways.nodes[:, place] for level in self.waiting.values() for ways in level]
        return np.concatenate([np.zeros(0, dtype=np.int64), *nodes])

    def run(self) -> Generator[_Question, _Answer, None]:
        """Asks for the scores of words after histories, level by level of the lattice."""
        lattice, ranges = self.lattice, arc_ranges(self.lattice)
        final = lattice.num_states - 1
        while self.waiting:
            here, pairs = self._arrive(min(self.waiting))
            place, arc = self._worth_asking(here, *_departures(here.state, ranges))
            if not len(arc):
                continue
            labels = lattice.labels[arc]
            asking = np.flatnonzero(labels != EPSILON)
            ends = lattice.dst[arc] == final
            scores, nodes = np.zeros((len(arc), len(self.scale))), here.nodes[place]
            if len(asking):
                question = _Question(nodes[asking], self.word[labels[asking]], ends[asking])
                scores[asking], nodes[asking] = yield question
            silent = np.flatnonzero((labels == EPSILON) & ends)
            if len(silent):  # the empty sentence: its end alone, scored after no word
                scores[silent], _ = yield _Question(nodes[silent], np.zeros(len(silent), int), ends[silent])
            self._take_out_infinities(scores)
            context = self._longer_contexts(here.context[place], labels, nodes)
            context[ends] = 0  # the end forgets
            score = here.score[place] + self.own[arc] + scores @ self.scale
            self._wait(_Ways(lattice.dst[arc], context, score, pairs[place], arc, scores, nodes))

    def _worth_asking(self, here: _Ways, place: np.ndarray, arc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the arcs `arc` out of `here.state[place]` those that the beam keeps before an LM has seen them."""
        if self.plan.beam is None or not len(arc):
            return place, arc
        estimate = here.score[place] + self.ahead[arc] + self.to_come[self.lattice.dst[arc]]
        best = max([float(estimate.max()), *self.best.values()])
        good = estimate >= best - self.plan.beam
        self.passed_by += int((~good).sum())
        return place[good], arc[good]

    def _wait(self, ways: _Ways) -> None:
        """Keeps ways until all ways into their states are there."""
        levels = self.level[ways.state]
        estimate = ways.score + self.to_come[ways.state]
        for level in np.unique(levels).tolist():
            rows = np.flatnonzero(levels == level)
            self.waiting.setdefault(level, []).append(ways.pick(rows))
            self.best[level] = max(self.best.get(level, -np.inf), float(estimate[rows].max()))

    def _take_out_infinities(self, scores: np.ndarray) -> None:
        """In place, of new scores `(arcs, lms)`."""
        for place, name in enumerate(self.plan.lms):
            scores[:, place], count = without_infinities(scores[:, place], name, f"lattice '{self.lattice.utt_id}'")
            self.impossible += count

    def _arrive(self, level: int) -> tuple[_Ways, np.ndarray]:
        """Merges and prunes all ways into the states of a level; those from which the pass goes on, and their pairs."""
        ways = _Ways(*(np.concatenate(column) for column in zip(*self.waiting.pop(level), strict=True)))
        best = max(self.best.values())  # of all ways that wait, here or further on
        del self.best[level]
        order = np.lexsort((-ways.score, ways.context, ways.state))
        first = np.ones(len(order), dtype=bool)
        first[1:] = (np.diff(ways.state[order]) != 0) | (np.diff(ways.context[order]) != 0)
        heads = order[first]
        state = ways.state[heads]
        stays = self._stays(state, ways.score[heads] + self.to_come[state], best)
        number = np.where(stays, len(self.pair_state) + np.cumsum(stays) - 1, -1)
        self.pair_state.extend(state[stays].tolist())
        self.pruned += int((~stays).sum())
        if level == self.level[-1] and stays.any():
            self.end = int(number[stays][0])
        target = np.empty(len(order), dtype=np.int64)
        target[order] = number[np.cumsum(first) - 1]
        self.taken.append((ways.source, target, ways.arc, ways.lm))
        return ways.pick(heads[stays]), number[stays]

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
        old, states = self.lattice, np.array(self.pair_state)
        columns = {name: column[arc] for name, column in old.scores.items()}
        columns |= {name: scores[:, place] for place, name in enumerate(self.plan.lms)}
        times = None if old.times is None else old.times[states]
        strings = None if old.alignments is None else old.alignments.take(arc)
        made = build_lattice(
            old.utt_id,
            len(states),
            source,
            target,
            old.labels[arc],
            columns,
            old.symbols,
            0,
            self.end,
            times,
            alignments=strings,
            word_ends=None if old.word_ends is None else old.word_ends.take(arc),
        )
        made.counts = add_counts(
            old.counts, pruned_states=self.pruned, pruned_arcs=self.passed_by, impossible_words=self.impossible
        )
        return made


def _levels_from_start(lattice: Lattice) -> np.ndarray:
    """Arcs on the longest way from the start to each state, int64 `(states,)`: ways lead to higher levels only."""
    level = np.zeros(lattice.num_states, dtype=np.int64)
    for src, dst in zip(lattice.src.tolist(), lattice.dst.tolist(), strict=True):
        level[dst] = max(level[dst], level[src] + 1)
    return level


def _departures(states: np.ndarray, ranges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For pairs at `states` `(pairs,)` all (pair, arc out of its state), int64 each."""
    counts = ranges[states + 1] - ranges[states]
    pair = np.repeat(np.arange(len(states)), counts)
    within = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    return pair, ranges[states][pair] + within
