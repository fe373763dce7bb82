"""Word histories of an LM, grown word by word and evaluated in batches, each distinct one once.

This is what lattice rescoring needs of an LM: the histories are not known beforehand as those of an N-best list are
(`lm_zoo.trie`), they come up as the search goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_zoo.base import LanguageModel
from lm_zoo.neural import State

ROOT = 0


class Histories:
    """A trie of token prefixes below the begin of sentence (node 0).

    Attributes:
      evaluations: prefixes that the LM was run on so far, the begin of sentence included.
    """

    def __init__(self, lm: LanguageModel, words: Sequence[str], rows: int = 2048) -> None:
        """
        Args:
          words: the words that histories are made of; word i is `words[i]`, "" for none.
          rows: at most so many prefixes are evaluated at once.
        """
        self.lm, self.rows, self.evaluations = lm, rows, 0
        self.tokens = [lm.vocab.encode_word(word) if word else () for word in words]
        used = sorted({token for tokens in self.tokens for token in tokens} | {lm.vocab.eos})
        self.used = torch.tensor(used)
        self.column = {token: place for place, token in enumerate(used)}
        self.children: dict[tuple[int, int], int] = {}
        self.parent, self.token, self.depth = [-1], [lm.vocab.bos], [0]
        self.batch, self.row = [-1], [0]  # where a node's state is; batch -1: nowhere
        self.scores: list[np.ndarray | None] = [None]  # log p(used token | prefix), once evaluated
        self.states: dict[int, Any] = {-1: lm.initial_state()}
        self.held = 0  # bytes of the states
        self.batches = 0

    @torch.no_grad()
    def extend(self, nodes: np.ndarray, words: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores words after histories.

        Args:
          nodes: int `(pairs,)`, histories.
          words: int `(pairs,)`, the word that follows each.
          ends: bool `(pairs,)`, whether the sentence ends after that word (its end is then scored too).
        Returns:
          float64 `(pairs,)`, natural logs; int64 `(pairs,)`, the longer histories.
        """
        total, current = np.zeros(len(nodes)), np.array(nodes, dtype=np.int64)
        left = [(pair, self.tokens[word]) for pair, word in enumerate(words.tolist())]
        place = 0
        while left := [(pair, tokens) for pair, tokens in left if place < len(tokens)]:
            self._evaluate(current[[pair for pair, _ in left]])
            for pair, tokens in left:
                total[pair] += self._score(int(current[pair]), tokens[place])
                current[pair] = self._child(int(current[pair]), tokens[place])
            place += 1
        if ends.any():
            self._evaluate(current[ends])
            eos = self.lm.vocab.eos
            total[ends] += [self._score(node, eos) for node in current[ends].tolist()]
        return total, current

    def _score(self, node: int, token: int) -> float:
        row = self.scores[node]
        assert row is not None
        return float(row[self.column[token]])

    def _child(self, node: int, token: int) -> int:
        child = self.children.get((node, token))
        if child is None:
            child = self.children[node, token] = len(self.parent)
            self.parent.append(node)
            self.token.append(token)
            self.depth.append(self.depth[node] + 1)
            self.batch.append(-1)
            self.row.append(0)
            self.scores.append(None)
        return child

    def _evaluate(self, nodes: np.ndarray) -> None:
        """Runs the LM on those of the nodes that it has not seen; nodes of one depth go together."""
        missing = [node for node in np.unique(nodes).tolist() if self.scores[node] is None]
        for depth in sorted({self.depth[node] for node in missing}):
            level = [node for node in missing if self.depth[node] == depth]
            self._restore([self.parent[node] for node in level])
            for start in range(0, len(level), self.rows):
                self._step(level[start : start + self.rows])

    def _restore(self, nodes: Iterable[int]) -> None:
        """Makes the states of evaluated nodes anew where they were given back."""
        lost = sorted({node for node in nodes if node >= 0 and self.batch[node] not in self.states})
        if lost:
            self._restore([self.parent[node] for node in lost])
            for start in range(0, len(lost), self.rows):
                self._step(lost[start : start + self.rows])

    def _step(self, nodes: list[int]) -> None:
        """One step of the LM for nodes of one depth whose parents have states."""
        parents = [self.parent[node] for node in nodes]
        places = [(self.batch[parent], self.row[parent]) if parent >= 0 else (-1, 0) for parent in parents]
        order, parts = _grouped(places)
        state = join_states([(self.states[batch], torch.tensor(rows)) for batch, rows in parts])
        tokens = torch.tensor([self.token[nodes[place]] for place in order])
        state, log_probs = self.lm.step(state, torch.arange(len(nodes)), tokens)
        kept = log_probs[:, self.used.to(log_probs.device)].float().cpu().numpy()
        self.states[self.batches] = state
        self.held += _size(state)
        for row, place in enumerate(order):
            node = nodes[place]
            self.batch[node], self.row[node], self.scores[node] = self.batches, row, kept[row]
        self.batches += 1
        self.evaluations += len(nodes)

    def keep(self, nodes: np.ndarray) -> None:
        """Gives back the states of all histories but `nodes` and their parents; what comes back is run again."""
        live = {-1}
        for node in np.unique(nodes).tolist():
            live.add(self.batch[node])
            live.add(self.batch[self.parent[node]] if self.parent[node] >= 0 else -1)
        for batch in [batch for batch in self.states if batch not in live]:
            self.held -= _size(self.states.pop(batch))


def _size(state: Any) -> int:
    """Bytes of the tensors of a state."""
    if isinstance(state, State):
        return sum(column.numel() * column.element_size() for column in state.memory)
    return sum(map(_size, state)) if isinstance(state, tuple) else 0


def _grouped(places: list[tuple[int, int]]) -> tuple[list[int], list[tuple[int, list[int]]]]:
    """The order of the places sorted by batch, and each batch with its rows."""
    order = sorted(range(len(places)), key=places.__getitem__)
    parts: list[tuple[int, list[int]]] = []
    for place in order:
        batch, row = places[place]
        if not parts or parts[-1][0] != batch:
            parts.append((batch, []))
        parts[-1][1].append(row)
    return order, parts


def join_states(parts: Sequence[tuple[Any, Tensor]]) -> Any:
    """One state with the given nodes, int64 `(nodes,)` each, of several states that have all read as many tokens."""
    first = parts[0][0]
    if isinstance(first, State):
        chosen = [state.select(nodes.to(state.memory[0].device) if state.memory else nodes) for state, nodes in parts]
        columns = zip(*(state.memory for state in chosen), strict=True)
        return State(first.time, tuple(torch.cat(column) for column in columns))
    if isinstance(first, tuple):  # of an interpolated LM: a state an LM
        return tuple(join_states([(state[k], nodes) for state, nodes in parts]) for k in range(len(first)))
    return [state[node] for state, nodes in parts for node in nodes.tolist()]
