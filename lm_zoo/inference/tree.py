"""Neural LMs over prefix trees: every linear layer sees all distinct prefixes of many lists in one product.

A node of a tree attends to its ancestors and itself.  The nodes are divided into spans: what a sequence adds to those
before it, a run of nodes one below the other.  A span's queries attend to one path from the root (`Span`), so that a
path's keys are gathered once for all nodes that it adds.  LSTMs go level by level; their input products do not.  The
output layer gives the logits of the children alone and the logarithm of the normaliser, in tiles: no
(nodes, vocabulary) matrix is kept.

A tree may go on from nodes that were evaluated before, whose keys, values and states a `Store` keeps
(`lm_zoo.inference.history_cache`).  `lm_zoo.inference.scoring.score` equals
`lm_zoo.inference.trie.score_trie`, which goes by single steps, and `LanguageModel.score` of every sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lm_zoo.inference.softmax import KEYS
from lm_zoo.inference.trie import Trie

if TYPE_CHECKING:
    from lm_zoo.layers.transformer import CausalSelfAttention, TransformerLayer

QUERIES = 128  # nodes that a path adds at most: bounds the (queries, keys) matrices of very long paths


@dataclass
class Span:
    """Runs of nodes at the ends of paths; all paths are right-aligned.

    Attributes:
      keys: int64 `(paths, K)`, the slots of each path from the root on, behind some zeros.
      queries: int64 `(paths, Q)`, the last nodes of each path, more than it adds in some (any node in their place).
      allowed: bool `(paths, Q, K)`: the keys that a query sees.
      own: int64 `(nodes,)`, places in `(paths * Q,)` of those that the path adds; every node is added by one path.
      nodes: int64 `(nodes,)`, those nodes.
    """

    keys: Tensor
    queries: Tensor
    allowed: Tensor
    own: Tensor
    nodes: Tensor


class Store:
    """What the layers keep of evaluated nodes, by layer: tensors `(..., slots, size)`, a slot a node."""

    def __init__(self) -> None:
        self.tensors: dict[Any, Tensor] = {}

    def space(self, key: Any, slots: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Room for `slots` slots, `(*shape[:-1], slots, shape[-1])`; what was there before stays."""
        held = self.tensors.get(key)
        if held is None or held.shape[-2] < slots:
            room = max(slots, 256 if held is None else 2 * held.shape[-2])
            made = torch.empty(*shape[:-1], room, shape[-1], dtype=like.dtype, device=like.device)
            if held is not None:
                made[..., : held.shape[-2], :] = held
            held = self.tensors[key] = made
        return held[..., :slots, :]

    def keep(self, slots: Tensor) -> None:
        """Only these slots, int64 `(slots,)`, are left, in this order."""
        self.tensors = {key: held.index_select(-2, slots.to(held.device)) for key, held in self.tensors.items()}

    @property
    def held(self) -> int:
        """Bytes."""
        return sum(held.numel() * held.element_size() for held in self.tensors.values())


class Tree:
    """New nodes `0 ... nodes - 1`, sorted by depth, behind those that have slots already (none, for a trie alone).

    Attributes:
      first: the slot of node 0; the new nodes have the slots from there on.
      inputs: int64 `(nodes,)`, the token that a node has read last (the begin of sentence at the root).
      depths: int64 `(nodes,)`, tokens read before that one.
      parents: int64 `(nodes,)`, slots; the root's is its own.
      levels: the nodes of each depth, as slices.
      spans: see `Span`.
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
        local = np.where(parents[first:] < first, -1, parents[first:] - first)
        self.spans = [self._span(*rows) for rows in _grouped(local, new)]

    @classmethod
    def of(cls, trie: Trie, bos: int, device: torch.device | str = "cpu") -> Tree:
        """All of a trie."""
        depths = np.repeat(np.arange(len(trie.levels) - 1), np.diff(trie.levels))
        return cls(trie.parents, np.concatenate([[bos], trie.tokens[1:]]), depths, device=device)

    def tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def _span(self, ends: np.ndarray, added: np.ndarray, depths: np.ndarray) -> Span:
        """The paths to the nodes `ends`, each adding so many of its last nodes."""
        width, size = int(depths.max()) + 1, int(added.max())
        keys = np.zeros((len(ends), width), dtype=np.int64)
        node = ends + self.first
        for column in range(width - 1, -1, -1):
            keys[:, column] = node
            node = self._parents[node]
        place = np.arange(width)
        query = np.arange(width - size, width)[:, None]
        first = (width - 1 - depths)[:, None, None]  # of each path
        own = np.arange(size) >= size - added[:, None]  # (paths, Q)
        # (paths, Q, K); a query before the first node of its path sees itself, so that it is a number
        allowed = ((place <= query) & (place >= first)) | (place == query)
        queries = np.maximum(keys[:, width - size :] - self.first, 0)
        arrays = (keys, queries, allowed, np.flatnonzero(own), queries[own])
        return Span(*map(self.tensor, arrays))

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


def _grouped(parents: np.ndarray, depths: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Paths that add every node once: their last nodes, how many nodes they add, and their depths; in groups.

    A path goes down from a node that no path has added, by first children, to a leaf or for QUERIES nodes.

    Args:
      parents: int64 `(nodes,)`, -1 where it is none of the nodes.
    """
    count = len(parents)
    first_child = np.full(count, -1)
    children = np.flatnonzero(parents >= 0)[::-1]
    first_child[parents[children]] = children  # the smallest child is written last
    added_before = np.zeros(count, dtype=np.int64)  # by the path that adds a node
    for node in range(count):  # children come behind their parents
        if first_child[node] >= 0:
            added_before[first_child[node]] = (added_before[node] + 1) % QUERIES
    starts = added_before == 0
    ends = np.arange(count)
    for node in range(count - 1, -1, -1):
        child = first_child[node]
        if child >= 0 and not starts[child]:
            ends[node] = ends[child]
    ends = ends[starts]
    added = depths[ends] - depths[np.flatnonzero(starts)] + 1
    size = 1 << np.ceil(np.log2(added)).astype(np.int64)  # like sizes go together
    order = np.lexsort((depths[ends], size))
    begin = 0
    while begin < len(order):
        stop = begin + 1
        while (
            stop < len(order)
            and size[order[stop]] == size[order[begin]]
            and (stop + 1 - begin) * (depths[ends[order[stop]]] + 1) <= KEYS
        ):
            stop += 1
        rows = order[begin:stop]
        yield ends[rows], added[rows], depths[ends[rows]]
        begin = stop


def attention(module: CausalSelfAttention, x: Tensor, tree: Tree) -> Tensor:
    """Self-attention over a tree: x `(nodes, dim)` -> `(nodes, dim)`; in bfloat16 where products are not in float32."""
    nodes, dim = x.shape
    heads, size = module.heads, dim // module.heads
    between = getattr(module.in_proj, "between", x.dtype)
    parts = module.in_proj(x).to(between).view(nodes, 3, heads, size).permute(1, 2, 0, 3).contiguous()
    kept = parts[1:]  # (2, heads, nodes, size)
    if tree.store is not None:
        kept = tree.space(module, (2, heads, size), parts)
        kept[:, :, tree.first :] = parts[1:]
    mixed = torch.empty(nodes, dim, dtype=x.dtype, device=x.device)
    for span in tree.spans:
        paths, width = span.keys.shape
        keys, values = kept.index_select(2, span.keys.flatten()).view(2, heads, paths, width, size)
        queries = parts[0].index_select(1, span.queries.flatten()).view(heads, paths, -1, size)
        scores = torch.matmul(queries, keys.transpose(2, 3)).float().div_(math.sqrt(size))
        scores.masked_fill_(~span.allowed, -math.inf)
        weights = scores.softmax(dim=-1).to(between)
        found = torch.matmul(weights, values).permute(1, 2, 0, 3).reshape(-1, dim)
        mixed[span.nodes] = found[span.own].to(x.dtype)
    return module.out_proj(mixed)


def transformer_layer(layer: TransformerLayer, x: Tensor, tree: Tree) -> Tensor:
    """A Transformer layer over a tree: x `(nodes, dim)` -> `(nodes, dim)`."""
    return layer.rest(x, attention(layer.attention, layer.norm1(x) if layer.pre else x, tree))
