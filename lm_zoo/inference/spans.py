"""The spans of a tree: paths from the root, side by side, each adding a run of nodes at its end.

Self-attention wants few large products.  A node sees its ancestors and itself, so that the nodes of one path can share
one gathered row of keys.  The tree is cut into paths that add every node once, and paths that add like numbers of nodes
are padded to one size.  With the sequences `a b c` and `a d`, the first path is `<s> a b c` and adds all four nodes;
the second is `<s> a d` and adds `d` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lm_zoo.inference.softmax import KEYS

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


@dataclass
class Paths:
    """Paths that go into one span.

    Attributes:
      ends: int64 `(paths,)`, their last nodes.
      added: int64 `(paths,)`, how many of its last nodes each adds.
      depths: int64 `(paths,)`, of their last nodes.
    """

    ends: np.ndarray
    added: np.ndarray
    depths: np.ndarray


def make_spans(parents: np.ndarray, depths: np.ndarray, first: int, device: torch.device) -> list[Span]:
    """The spans of the nodes in the slots from `first` on.

    Args:
      parents, depths: int64 `(slots,)`, of the nodes before as well; the root's parent is -1.
    """
    local = np.where(parents[first:] < first, -1, parents[first:] - first)
    above = np.maximum(parents, 0)
    return [_span(above, first, paths, device) for paths in _paths(local, depths[first:])]


def _span(parents: np.ndarray, first: int, paths: Paths, device: torch.device) -> Span:
    width, size = int(paths.depths.max()) + 1, int(paths.added.max())
    # Walk up from the last nodes, all paths in step: keys (paths, K), the root at the left of the longest path.
    keys = np.zeros((len(paths.ends), width), dtype=np.int64)
    node = paths.ends + first
    for column in range(width - 1, -1, -1):
        keys[:, column] = node
        node = parents[node]
    # The queries stand in the last Q columns; a query sees the columns from the root of its path up to its own:
    # (paths, Q, K).  One before the first node of its path sees itself, so that it is a number.
    columns = np.arange(width)
    query = np.arange(width - size, width)[:, None]
    begin = (width - 1 - paths.depths)[:, None, None]
    allowed = ((columns <= query) & (columns >= begin)) | (columns == query)
    # Of the Q queries of a path those count that it adds itself: (paths, Q); the others fill up to one size.
    own = np.arange(size) >= size - paths.added[:, None]
    queries = np.maximum(keys[:, width - size :] - first, 0)
    arrays = (keys, queries, allowed, np.flatnonzero(own), queries[own])
    return Span(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays))


def _paths(parents: np.ndarray, depths: np.ndarray) -> Iterator[Paths]:
    """Paths that add every node once, in groups.

    A path goes down from a node that no path has added, by first children, to a leaf or for QUERIES nodes.

    Args:
      parents: int64 `(nodes,)`, -1 where it is none of the nodes.
      depths: int64 `(nodes,)`.
    """
    starts, ends = _runs(parents)
    added = depths[ends] - depths[starts] + 1
    # Paths of like sizes go together (Q is at most twice what a path adds), the shortest first.
    size = 1 << np.ceil(np.log2(added)).astype(np.int64)
    order = np.lexsort((depths[ends], size))
    # A group ends where the size changes, or where its keys, (paths, K), would be more than KEYS.
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
        yield Paths(ends[rows], added[rows], depths[ends[rows]])
        begin = stop


def _runs(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last nodes, int64 `(paths,)` each, of the runs of nodes that paths add."""
    count = len(parents)
    # Every node's first child, (nodes,): the smallest is written last.
    first_child = np.full(count, -1)
    children = np.flatnonzero(parents >= 0)[::-1]
    first_child[parents[children]] = children
    # Downwards: a first child goes on with its parent's path until that has QUERIES nodes; all others begin one.
    added_before = np.zeros(count, dtype=np.int64)  # by the path that adds a node
    for node in range(count):  # children come behind their parents
        if first_child[node] >= 0:
            added_before[first_child[node]] = (added_before[node] + 1) % QUERIES
    starts = added_before == 0
    # Upwards: the last node of the path that adds each node, (nodes,).
    ends = np.arange(count)
    for node in range(count - 1, -1, -1):
        child = first_child[node]
        if child >= 0 and not starts[child]:
            ends[node] = ends[child]
    return np.flatnonzero(starts), ends[starts]
