"""Multi-head self-attention with the relative positions of Transformer-XL (Dai et al. 2019, Sec. 3.3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from asr.masks import window


def sinusoids(first: int, last: int, like: Tensor, dim: int) -> Tensor:
    """Embeddings of the distances `first`, `first` - 1, ..., `last`: `(first - last + 1, dim)`, sines then cosines."""
    distance = torch.arange(first, last - 1, -1, device=like.device, dtype=torch.float32)
    speed = torch.exp(torch.arange(0, dim, 2, device=like.device, dtype=torch.float32) * (-math.log(1e4) / dim))
    angle = distance.unsqueeze(1) * speed
    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :dim].to(like.dtype)


class RelativeAttention(nn.Module):
    """LN and attention; score of query i and key j: (q_i + u) k_j + (q_i + v) r_{i-j}, divided by sqrt(d)."""

    def __init__(self, dim: int, heads: int, causal: bool, left_context: int | None) -> None:
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.causal, self.left_context = causal, left_context
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.position = nn.Linear(dim, dim, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, self.size))
        self.position_bias = nn.Parameter(torch.zeros(heads, self.size))
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """x `(B, T, dim)`, inside bool `(B, T)` -> `(B, T, dim)`."""
        query, key, value = self.project(x)
        return self.attend(query, key, value, self.allowed(inside))

    def step(
        self, x: Tensor, lengths: Tensor, held: Tensor, size: int, cache: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The causal model on some more frames.

        Args:
          x: `(B, C, dim)` of which the first `lengths` `(B,)` count.
          held: how many frames of the cache count, `(B,)`: its last ones.
          size: frames that the next cache is to have.
          cache: keys and values `(B, M, dim)` of the frames before.

        Returns:
          `(B, C, dim)` and the next cache.
        """
        query, *new = self.project(x)
        key, value = (torch.cat([old, recent.to(old.dtype)], dim=1) for old, recent in zip(cache, new, strict=True))
        past, frames = cache[0].shape[1], x.shape[1]
        place = torch.arange(past + frames, device=x.device)
        distance = place[past:].unsqueeze(1) - place  # (C, M + C)
        near = distance >= 0
        if self.left_context is not None:
            near &= distance <= self.left_context
        allowed = near & (place >= past - held.unsqueeze(1))[:, None, None, :]
        y = self.attend(query.to(key.dtype), key, value, allowed)
        return y, (window(key, past + lengths - size, size), window(value, past + lengths - size, size))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`(B, T, dim)` -> query, key, value, each `(B, T, dim)`; the queries are divided by sqrt(d)."""
        query, key, value = self.qkv(self.norm(x)).chunk(3, dim=-1)
        return query, key, value

    def allowed(self, inside: Tensor) -> Tensor:
        """bool `(B or 1, 1, T, T)`: which keys each query may see."""
        time = torch.arange(inside.shape[1], device=inside.device)
        distance = time.unsqueeze(1) - time
        near = torch.ones_like(distance, dtype=torch.bool)
        if self.left_context is not None:
            near &= distance <= self.left_context
        if self.causal:  # then nobody sees the padding, which comes last
            return (near & (distance >= 0))[None, None]
        return near & inside[:, None, None, :]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
        """The last query stands where the last key stands.

        query `(B, Q, dim)`, key and value `(B, K, dim)`, allowed bool, to be broadcast to `(B, heads, Q, K)`
        -> `(B, Q, dim)`.
        """
        batch, queries, keys = len(query), query.shape[1], key.shape[1]
        query = query.view(batch, queries, self.heads, self.size) / math.sqrt(self.size)
        scale = 1 / math.sqrt(self.size)
        content = (query + self.content_bias * scale).transpose(1, 2)
        place = (query + self.position_bias * scale).transpose(1, 2)
        key = key.view(batch, keys, self.heads, self.size).permute(0, 2, 3, 1)
        value = value.view(batch, keys, self.heads, self.size).transpose(1, 2)
        scores = content @ key + self._by_distance(place, keys)
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        mixed = torch.softmax(scores, dim=-1).to(value.dtype) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _by_distance(self, query: Tensor, keys: int) -> Tensor:
        """(q_i + v) r_{i-j} `(B, heads, Q, K)`; wrong where j > i in the causal model, which does not look there.

        The products with all distances, from K - 1 down, are `(Q, P)`; that of query i and key j stands in row i,
        column Q - 1 - i + j.  Read with a row length of P - 1, that is row i, column j (Dai et al. 2019, Appendix B).
        """
        batch, heads, queries, size = query.shape
        table = sinusoids(keys - 1, -1 if self.causal else -queries, self.position.weight, heads * size)
        distances = self.position(table).view(-1, heads, size).permute(1, 2, 0)
        products = (query @ distances).flatten(2)
        row = len(table) - 1
        shifted = products[..., queries - 1 : queries - 1 + queries * row]
        return shifted.view(batch, heads, queries, row)[..., :keys]
