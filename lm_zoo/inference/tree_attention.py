"""Self-attention and Transformer layers over trees of prefixes, a span of paths at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lm_zoo.deadline import in_time
from lm_zoo.inference.tree import Tree

if TYPE_CHECKING:
    from lm_zoo.layers.transformer import CausalSelfAttention, TransformerLayer


def attention(module: CausalSelfAttention, x: Tensor, tree: Tree) -> Tensor:
    """Self-attention over a tree: x `(nodes, dim)` -> `(nodes, dim)`; in bfloat16 where products are not in float32."""
    nodes, dim = x.shape
    heads, size = module.heads, dim // module.heads
    between = getattr(module.in_proj, "between", x.dtype)
    parts = module.in_proj(x).to(between).view(nodes, 3, heads, size).permute(1, 2, 0, 3).contiguous()
    # Keys and values of every slot, (2, heads, slots, size): those of the nodes before stand in the store already.
    kept = parts[1:]
    if tree.store is not None:
        kept = tree.space(module, (2, heads, size), parts)
        kept[:, :, tree.first :] = parts[1:]
    mixed = torch.empty(nodes, dim, dtype=x.dtype, device=x.device)
    for span in in_time(tree.spans):
        # Keys are gathered once a path, (2, heads, paths, K, size), for all of its queries, (heads, paths, Q, size).
        paths, width = span.keys.shape
        keys, values = kept.index_select(2, span.keys.flatten()).view(2, heads, paths, width, size)
        queries = parts[0].index_select(1, span.queries.flatten()).view(heads, paths, -1, size)
        # Every query sees the nodes above it and itself: scores and weights (heads, paths, Q, K).
        scores = torch.matmul(queries, keys.transpose(2, 3)).float().div_(math.sqrt(size))
        scores.masked_fill_(~span.allowed, -math.inf)
        weights = scores.softmax(dim=-1).to(between)
        # Of (paths * Q, dim) only the nodes that the path adds are taken, so that every node is written once.
        found = torch.matmul(weights, values).permute(1, 2, 0, 3).reshape(-1, dim)
        mixed[span.nodes] = found[span.own].to(x.dtype)
    return module.out_proj(mixed)


def transformer_layer(layer: TransformerLayer, x: Tensor, tree: Tree) -> Tensor:
    """A Transformer layer over a tree: x `(nodes, dim)` -> `(nodes, dim)`."""
    return layer.rest(x, attention(layer.attention, layer.norm1(x) if layer.pre else x, tree))
