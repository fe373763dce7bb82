"""Neural LMs over prefix trees: every linear layer sees all distinct prefixes of many lists in one product.

A node of a tree attends to its ancestors and itself.  The nodes are divided into spans: what a sequence adds to those
before it, a run of nodes one below the other.  A span's queries attend to one path from the root
(`lm_zoo.inference.spans`), so that a path's keys are gathered once for all nodes that it adds
(`lm_zoo.inference.tree_attention`).  LSTMs go level by level; their input products do not
(`lm_zoo.inference.lstm_cells`).  The output layer gives the logits of the children alone and the logarithm of the
normaliser, in tiles: no (nodes, vocabulary) matrix is kept (`lm_zoo.inference.softmax`).

A tree may go on from nodes that were evaluated before, whose keys, values and states a `Store` keeps
(`lm_zoo.inference.history_cache`).  `lm_zoo.inference.scoring.score` equals `lm_zoo.inference.trie.score_trie`, which
goes by single steps, and `LanguageModel.score` of every sequence.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lm_zoo.inference.spans import make_spans
from lm_zoo.inference.store import Store
from lm_zoo.inference.trie import Trie
from lm_zoo.layers.output import SoftmaxLayer
from lm_zoo.text.vocabulary import Vocabulary


class Tree:
    """New nodes `0 ... nodes - 1`, sorted by depth, behind those that have slots already (none, for a trie alone).

    Attributes:
      first: the slot of node 0; the new nodes have the slots from there on.
      inputs: int64 `(nodes,)`, the token that a node has read last (the begin of sentence at the root).
      depths: int64 `(nodes,)`, tokens read before that one.
      parents: int64 `(nodes,)`, slots; the root's is its own.
      levels: the nodes of each depth, as slices.
      spans: see `lm_zoo.inference.spans.Span`.
    """

    def __init__(
        self,
        parents: np.ndarray,
        tokens: np.ndarray,
        depths: np.ndarray,
        first: int = 0,
        store: Store | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """
        Args:
          parents, tokens, depths: int64 `(slots,)`, of the nodes before as well; the root's parent is -1.
        """
        self.first, self.store, self.device = first, store, torch.device(device)
        self._parents, self._tokens = np.maximum(parents, 0), tokens
        new = depths[first:]
        self.inputs, self.depths = self.tensor(tokens[first:]), self.tensor(new)
        self.parents = self.tensor(self._parents[first:])
        cuts = [0, *(np.flatnonzero(np.diff(new)) + 1).tolist(), len(new)]
        self.levels = [slice(a, b) for a, b in pairwise(cuts)]
        self.spans = make_spans(parents, depths, first, self.device)

    @classmethod
    def of(cls, trie: Trie, bos: int, device: torch.device | str = "cpu") -> Tree:
        """All of a trie."""
        depths = np.repeat(np.arange(len(trie.levels) - 1), np.diff(trie.levels))
        return cls(trie.parents, np.concatenate([[bos], trie.tokens[1:]]), depths, device=device)

    def tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def history(self, order: int) -> Tensor:
        """The last `order` tokens that every node has read, newest last, 0 before the first: int64 `(nodes, order)`."""
        slots = np.arange(self.first, len(self._tokens))
        columns, left = [], self.depths.cpu().numpy()
        for back in range(order):
            columns.append(np.where(left >= back, self._tokens[slots], 0))
            slots = self._parents[slots]
        return self.tensor(np.stack(columns[::-1], axis=1))

    def space(self, key: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Where a layer puts what it keeps of the nodes: `(*shape[:-1], slots, shape[-1])`, that of earlier ones there.

        Args:
          key: of the layer, the same for every tree.
        """
        slots = len(self._tokens)
        if self.store is not None:
            return self.store.space(key, slots, shape, like)
        return torch.empty(*shape[:-1], slots, shape[-1], dtype=like.dtype, device=like.device)


class TreeLM(Protocol):
    """What evaluates all prefixes of a tree at once."""

    vocab: Vocabulary

    @property
    def boundary(self) -> tuple[int, ...]:
        """The tokens between two sentences of running text."""

    @property
    def most_tokens(self) -> int:
        """Tokens that a sentence may have with what stands before it, without begin and end."""

    @property
    def output(self) -> SoftmaxLayer: ...

    @property
    def device(self) -> torch.device: ...

    def tree_hidden(self, prefixes: Tree) -> Tensor:
        """What predicts the next token at every node: `(nodes, dim)`."""
