"""Word histories of an LM, grown word by word, each distinct one evaluated once.

This is what lattice rescoring and shallow fusion need of an LM: the histories are not known beforehand as those of an
N-best list are (`lm_zoo.inference.trie`), they come up as the search goes on.  Neural LMs evaluate all new prefixes
of a request in one pass behind those that they have seen (`lm_zoo.inference.tree`); others step over them by levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from lm_zoo.base import LanguageModel, WordLM
from lm_zoo.deadline import in_time
from lm_zoo.inference.interpolation import InterpolatedLM
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.inference.softmax import log_normalisers, logits_of, tiles
from lm_zoo.inference.state import State
from lm_zoo.inference.store import Store
from lm_zoo.inference.tree import Tree
from lm_zoo.text.view import View

ROOT = 0
NODES = 8192  # evaluated at once
SLACK = 1024  # slots that may wait to be given back


class Seen(Protocol):
    """The evaluated prefixes of one LM, by slots in the order of their evaluation; parents come first."""

    def add(self, parents: np.ndarray, tokens: np.ndarray, depths: np.ndarray, first: int) -> None:
        """Evaluates the slots from `first` on, sorted by depth.

        Args:
          parents, tokens, depths: int64 `(slots,)`, of all slots; parents are slots, -1 for the root.
        """

    def log_probs(self, slots: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """float64 `(pairs,)`: natural logs of tokens `(pairs,)` after the prefixes `slots` `(pairs,)`."""

    def rows(self, slots: np.ndarray) -> np.ndarray:
        """float32 `(slots, vocab)`: natural logs of all tokens after the prefixes `slots`."""

    def keep(self, slots: np.ndarray) -> None:
        """Only these slots are left, sorted, in this order."""

    @property
    def held(self) -> int:
        """Bytes."""


class Histories:
    """A trie of token prefixes below the begin of sentence (node 0).

    Attributes:
      evaluations: prefixes that the LM was run on so far, the begin of sentence included.
    """

    def __init__(
        self,
        lm: LanguageModel,
        words: Sequence[str] | None = None,
        nodes: int = NODES,
        view: View | None = None,
    ) -> None:
        """
        Args:
          words: the words that histories are made of; word i is `words[i]`, "" for none.  None: `number` gives them.
          nodes: at most so many prefixes are evaluated at once.
          view: what the LM sees of each word, all of which follows where the word does; None: the word.
        """
        self.lm, self.nodes, self.evaluations = lm, nodes, 0
        seen = [view.word(word) if view else (word,) for word in words or ()]
        self.tokens = [tuple(token for part in parts if part for token in lm.vocab.encode_word(part)) for parts in seen]
        self.numbers: dict[tuple[int, ...], int] = {}
        used = sorted({token for tokens in self.tokens for token in tokens} | {lm.vocab.eos})
        self.seen = _seen(lm, None if words is None else np.array(used))
        # parents (slots), tokens and depths by slot, with room for more
        self.columns = np.empty((3, 0), dtype=np.int64)
        self.children: dict[tuple[int, int], int] = {}
        self.parent, self.token, self.depth = [-1], [lm.vocab.bos], [0]
        self.slot = [-1]  # of a node, once evaluated
        self.evaluated: list[int] = []  # the node of each slot
        self.kept = 0  # slots after the last `keep`

    @property
    def held(self) -> int:
        """Bytes that the LM keeps of the histories."""
        return self.seen.held

    def extend(self, nodes: np.ndarray, words: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores words after histories.

        Args:
          nodes: int `(pairs,)`, histories.
          words: int `(pairs,)`, the word that follows each.
          ends: bool `(pairs,)`, whether the sentence ends after that word (its end is then scored too).
        Returns:
          float64 `(pairs,)`, natural logs; int64 `(pairs,)`, the longer histories.
        """
        pairs, before, tokens, longer = [], [], [], []
        for pair, (node, word, end) in enumerate(zip(nodes.tolist(), words.tolist(), ends.tolist(), strict=True)):
            for token in self.tokens[word]:
                pairs.append(pair)
                before.append(node)
                tokens.append(token)
                node = self.child(node, token)
            if end:
                pairs.append(pair)
                before.append(node)
                tokens.append(self.lm.vocab.eos)
            longer.append(node)
        if not before:  # words of no token alone
            return np.zeros(len(nodes)), np.array(longer, dtype=np.int64)
        self._evaluate(before)
        slots = np.array([self.slot[node] for node in before], dtype=np.int64)
        found = self.seen.log_probs(slots, np.array(tokens, dtype=np.int64))
        total = np.bincount(np.array(pairs, dtype=np.int64), found, minlength=len(nodes))
        return total, np.array(longer, dtype=np.int64)

    def number(self, tokens: tuple[int, ...]) -> int:
        """What stands for a word of these tokens in `extend`."""
        found = self.numbers.setdefault(tokens, len(self.tokens))
        if found == len(self.tokens):
            self.tokens.append(tokens)
        return found

    def rows(self, nodes: Sequence[int]) -> np.ndarray:
        """float32 `(nodes, vocab)`: natural logs of all tokens after the histories (no `words` given at first)."""
        self._evaluate(nodes)
        return self.seen.rows(np.array([self.slot[node] for node in nodes], dtype=np.int64))

    def child(self, node: int, token: int) -> int:
        """The history with one more token."""
        child = self.children.get((node, token))
        if child is None:
            child = self.children[node, token] = len(self.parent)
            self.parent.append(node)
            self.token.append(token)
            self.depth.append(self.depth[node] + 1)
            self.slot.append(-1)
        return child

    def _evaluate(self, nodes: Iterable[int]) -> None:
        """Runs the LM on those of the nodes, and of their ancestors, that have no slot."""
        missing = set()
        for node in nodes:
            while node >= 0 and self.slot[node] < 0 and node not in missing:
                missing.add(node)
                node = self.parent[node]
        ordered = sorted(missing, key=lambda node: (self.depth[node], node))
        for start in range(0, len(ordered), self.nodes):
            self._add(ordered[start : start + self.nodes])

    def _add(self, nodes: list[int]) -> None:
        first = len(self.evaluated)
        for slot, node in enumerate(nodes, start=first):
            self.slot[node] = slot
        self.evaluated += nodes
        self._grow(first + len(nodes))
        for slot, node in enumerate(nodes, start=first):
            parent = self.parent[node]
            self.columns[:, slot] = self.slot[parent] if parent >= 0 else -1, self.token[node], self.depth[node]
        parents, tokens, depths = self.columns[:, : len(self.evaluated)]
        self.seen.add(parents, tokens, depths, first)
        self.evaluations += len(nodes)

    def _grow(self, slots: int) -> None:
        if self.columns.shape[1] < slots:
            more = np.empty((3, slots), dtype=np.int64)
            self.columns = np.concatenate([self.columns, more], axis=1)

    def keep(self, nodes: Iterable[int]) -> None:
        """Gives back what is held of all histories but `nodes` and their ancestors; what comes back is run again.

        Nothing is done before there are twice as many (and SLACK more) as were left the last time.
        """
        if len(self.evaluated) < 2 * self.kept + SLACK:
            return
        live = set()
        for node in nodes:
            while node >= 0 and node not in live:
                live.add(node)
                node = self.parent[node]
        slots = np.array([slot for slot, node in enumerate(self.evaluated) if node in live], dtype=np.int64)
        self.seen.keep(slots)
        for node in self.evaluated:
            self.slot[node] = -1
        self.evaluated = [self.evaluated[slot] for slot in slots.tolist()]
        for slot, node in enumerate(self.evaluated):
            self.slot[node] = slot
        parents, tokens, depths = self.columns[:, slots]
        moved = np.append(np.searchsorted(slots, parents[1:]), -1) if len(slots) else slots
        self.columns = np.stack([np.roll(moved, 1), tokens, depths])
        self.kept = len(slots)


def _seen(lm: LanguageModel, used: np.ndarray | None) -> Seen:
    if isinstance(lm, InterpolatedLM):
        _ = lm.vocab  # the LMs share it
        return _Mixed([_seen(part, used) for part in lm.lms], lm.weights)
    return _Grown(lm) if isinstance(lm, NeuralLM) else _Stepped(lm, used)


class _Grown:
    """Of a neural LM: keys, values and states of each prefix once, all new prefixes in one pass."""

    def __init__(self, lm: NeuralLM) -> None:
        self.lm, self.store = lm, Store()

    @torch.no_grad()
    def add(self, parents: np.ndarray, tokens: np.ndarray, depths: np.ndarray, first: int) -> None:
        tree = Tree(parents, tokens, depths, first, self.store, self.lm.device)
        hidden = self.lm.tree_hidden(tree)
        tree.space("hidden", (hidden.shape[1],), hidden)[first:] = hidden
        tree.space("normalisers", (1,), hidden)[first:, 0] = log_normalisers(self.lm.output, hidden)

    def _of(self, key: str, slots: np.ndarray) -> Tensor:
        held = self.store.tensors[key]
        return held.index_select(0, torch.from_numpy(slots).to(held.device))

    @torch.no_grad()
    def log_probs(self, slots: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        rows, columns = (torch.from_numpy(part).to(self.lm.device) for part in (slots, tokens))
        logits = logits_of(self.lm.output, self.store.tensors["hidden"], rows, columns)
        return (logits - self._of("normalisers", slots)[:, 0]).double().cpu().numpy()  # type: ignore[no-any-return]

    @torch.no_grad()
    def rows(self, slots: np.ndarray) -> np.ndarray:
        hidden = self._of("hidden", slots)
        logits = torch.cat([tile(hidden) for tile in tiles(self.lm.output)], dim=1)
        return (logits.float() - self._of("normalisers", slots)).cpu().numpy()  # type: ignore[no-any-return]

    def keep(self, slots: np.ndarray) -> None:
        self.store.keep(torch.from_numpy(slots))

    @property
    def held(self) -> int:
        return self.store.held


class _Mixed:
    """Of an interpolation of LMs over the same tokens."""

    def __init__(self, parts: list[Seen], weights: np.ndarray) -> None:
        self.parts, self.logs = parts, np.log(weights)

    def add(self, parents: np.ndarray, tokens: np.ndarray, depths: np.ndarray, first: int) -> None:
        for part in self.parts:
            part.add(parents, tokens, depths, first)

    def log_probs(self, slots: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        return self._mixed([part.log_probs(slots, tokens) for part in self.parts])

    def rows(self, slots: np.ndarray) -> np.ndarray:
        return self._mixed([part.rows(slots) for part in self.parts]).astype(np.float32)

    def _mixed(self, values: list[np.ndarray]) -> np.ndarray:
        shifted = [log + value for log, value in zip(self.logs, values, strict=True)]
        return np.logaddexp.reduce(shifted)  # type: ignore[no-any-return]

    def keep(self, slots: np.ndarray) -> None:
        for part in self.parts:
            part.keep(slots)

    @property
    def held(self) -> int:
        return sum(part.held for part in self.parts)


class _Place(NamedTuple):
    """A node of a state of any form."""

    state: Any
    node: int


class _Stepped:
    """Of any LM, by steps of a depth each: of keys and values a prefix keeps its own, of other states all.

    Of a state of unknown form, a node is known by its number alone; nodes of several states take a step for each.
    """

    def __init__(self, lm: LanguageModel, used: np.ndarray | None = None) -> None:
        """
        Args:
          used: int64, sorted: the only tokens that will be asked for; None for all.
        """
        self.lm, self.used = lm, used
        self.scores: list[np.ndarray] = []  # by slot
        self.states: list[Any] = []  # by slot: of an n-gram its states, of others `_Place`; of keys and values: nothing
        self.store = Store()
        self.parents = np.zeros(0, dtype=np.int64)

    @torch.no_grad()
    def add(self, parents: np.ndarray, tokens: np.ndarray, depths: np.ndarray, first: int) -> None:
        self.parents = parents
        cuts = [first, *(first + 1 + np.flatnonzero(np.diff(depths[first:]))).tolist(), len(depths)]
        for begin, stop in in_time(pairwise(cuts)):
            scores = dict[int, np.ndarray]()
            for slots, state, nodes in self._before(begin, parents[begin:stop], int(depths[begin])):
                state, rows = self.lm.step(state, nodes, torch.from_numpy(tokens[slots]))
                self._put(state, slots)
                columns = slice(None) if self.used is None else torch.from_numpy(self.used).to(rows.device)
                scores.update(zip(slots.tolist(), rows[:, columns].float().cpu().numpy(), strict=True))
            self.scores += [scores[slot] for slot in range(begin, stop)]

    def _before(self, begin: int, parents: np.ndarray, depth: int) -> Iterator[tuple[np.ndarray, Any, Tensor]]:
        """What a step each is for: slots from `begin` on, a state, and for each slot the node of it that is extended.

        Args:
          parents: int64 `(slots,)`, which have all read `depth` tokens.
        """
        slots = np.arange(begin, begin + len(parents))
        if not depth or not self.states or isinstance(self.lm, WordLM):
            yield slots, self._state(parents, depth), torch.arange(len(parents))
            return
        places: list[_Place] = [self.states[parent] for parent in parents.tolist()]
        groups: dict[int, list[int]] = {}
        for number, place in enumerate(places):
            groups.setdefault(id(place.state), []).append(number)
        for numbers in groups.values():
            nodes = torch.tensor([places[number].node for number in numbers])
            yield slots[numbers], places[numbers[0]].state, nodes

    def _state(self, parents: np.ndarray, depth: int) -> Any:
        """The state of nodes that have all read `depth` tokens."""
        if not depth:
            return self.lm.initial_state()
        if self.states:
            return [self.states[parent] for parent in parents.tolist()]
        path = np.empty((len(parents), depth), dtype=np.int64)
        for column in range(depth - 1, -1, -1):
            path[:, column], parents = parents, self.parents[parents]
        held = self.store.tensors.values()
        return State(depth, tuple(part[:, torch.from_numpy(path).to(part.device)].transpose(0, 1) for part in held))

    def _put(self, state: Any, slots: np.ndarray) -> None:
        """Keeps what a step has given for `slots`; of keys and values, `(nodes, heads, time, size)` each, the last."""
        begin, stop = int(slots[0]), int(slots[-1]) + 1
        if isinstance(self.lm, WordLM):
            self.states += state
            return
        if not (isinstance(state, State) and all(memory.ndim == 4 for memory in state.memory)):
            self.states += [None] * (stop - len(self.states))
            for node, slot in enumerate(slots.tolist()):
                self.states[slot] = _Place(state, node)
            return
        for number, memory in enumerate(state.memory):
            shape = (memory.shape[1], memory.shape[3])
            self.store.space(number, stop, shape, memory)[:, begin:stop] = memory[:, :, -1].transpose(0, 1)

    def log_probs(self, slots: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        columns = tokens if self.used is None else np.searchsorted(self.used, tokens)
        pairs = zip(slots.tolist(), columns.tolist(), strict=True)
        return np.array([self.scores[slot][column] for slot, column in pairs], dtype=np.float64)

    def rows(self, slots: np.ndarray) -> np.ndarray:
        return np.stack([self.scores[slot] for slot in slots.tolist()])

    def keep(self, slots: np.ndarray) -> None:
        self.scores = [self.scores[slot] for slot in slots.tolist()]
        if self.states:
            self.states = [self.states[slot] for slot in slots.tolist()]
        self.store.keep(torch.from_numpy(slots))

    @property
    def held(self) -> int:
        return self.store.held + (len(self.scores) * self.scores[0].nbytes if self.scores else 0)  # rows are alike
