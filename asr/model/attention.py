"""Multi-head self-attention with the relative positions of Transformer-XL (Dai et al. 2019, Sec. 3.3)."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr.model.cached_module import Remembering
from asr.model.masks import window
from lm_zoo.layers.positions import angles


@lru_cache(maxsize=8)  # all layers ask for the same
def distance_codes(first: int, last: int, dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Embeddings of the distances `first`, `first` - 1, ..., `last`: `(first - last + 1, dim)`, sines then cosines."""
    with torch.inference_mode(False):  # training may find it in the cache
        angle = angles(torch.arange(first, last - 1, -1, device=device), dim)
        return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :dim].to(dtype)


class RelativeAttention(Remembering):
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
        if self.causal and self.left_context and x.shape[1] > 2 * self.left_context:
            return self.attend_in_blocks(query, key, value, self.left_context)
        return self.attend(query, key, value, self.allowed(inside))

    def step(self, x: Tensor, lengths: Tensor, allowed: Tensor, size: int, cache: Tensor) -> tuple[Tensor, Tensor]:
        """The causal model on some more frames.

        Args:
          x: `(B, C, dim)` of which the first `lengths` `(B,)` count.
          allowed: of `allowed_behind`.
          size: frames that the next cache is to have.
          cache: key, then value `(B, M, 2 * dim)` of the frames before.

        Returns:
          `(B, C, dim)` and the next cache.
        """
        dim = x.shape[2]
        query, new = self.qkv(self.norm(x)).split([dim, 2 * dim], dim=-1)
        joined = torch.cat([cache, new.to(cache.dtype)], dim=1)
        key, value = joined.chunk(2, dim=-1)
        y = self.attend(query.to(key.dtype), key, value, allowed)
        return y, window(joined, cache.shape[1] + lengths - size, size)

    def allowed_behind(self, held: Tensor, past: int, frames: int) -> Tensor:
        """bool `(B, frames, past + frames)`: the keys of each query of `step`; of the past, the last `held` `(B,)`."""
        place = torch.arange(past + frames, device=held.device)
        near = self.near(place[past:].unsqueeze(1) - place)
        return near & (place >= past - held.unsqueeze(1))[:, None, :]

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`(B, T, dim)` -> query, key, value, each `(B, T, dim)`."""
        query, key, value = self.qkv(self.norm(x)).chunk(3, dim=-1)
        return query, key, value

    def allowed(self, inside: Tensor) -> Tensor:
        """bool `(B or 1, T, T)`: which keys each query may see."""
        time = torch.arange(inside.shape[1], device=inside.device)
        near = self.near(time.unsqueeze(1) - time)
        return near[None] if self.causal else near & inside[:, None, :]  # the padding, which is last, is never past

    def near(self, distance: Tensor) -> Tensor:
        """Whether a query may see a key so many frames before it."""
        near = torch.ones_like(distance, dtype=torch.bool)
        if self.left_context is not None:
            near = distance <= self.left_context
        return near & (distance >= 0) if self.causal else near

    def attend_in_blocks(self, query: Tensor, key: Tensor, value: Tensor, size: int) -> Tensor:
        """`attend` where no query sees more than `size` frames back: `size` queries at once look at 2 * `size` keys.

        query, key, value `(B, T, dim)` -> `(B, T, dim)`; memory and time grow with T, not with its square.
        """
        batch, length, dim = query.shape
        blocks = -(-length // size)
        after = blocks * size - length
        query = F.pad(query, (0, 0, 0, after)).view(batch * blocks, size, dim)
        parts = []
        for rows in (key, value):
            rows = F.pad(rows, (0, 0, size, after)).view(batch, blocks + 1, size, dim)
            parts.append(torch.cat([rows[:, :-1], rows[:, 1:]], dim=2).view(batch * blocks, 2 * size, dim))
        place = torch.arange(2 * size, device=key.device)
        allowed = self.near(size + place[:size].unsqueeze(1) - place).repeat(blocks, 1, 1)
        allowed[0, :, :size] = False  # nothing stands before the first block
        y = self.attend(query, parts[0], parts[1], allowed.repeat(batch, 1, 1))
        return y.view(batch, blocks * size, dim)[:, :length]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
        """The last query stands where the last key stands.

        query `(B, Q, dim)`, key and value `(B, K, dim)`, allowed bool `(B or 1, Q, K)` -> `(B, Q, dim)`.
        """
        batch, queries, keys = len(query), query.shape[1], key.shape[1]
        scale = 1 / math.sqrt(self.size)
        query = query.view(batch, queries, self.heads, self.size) * scale
        content = (query + self.content_bias * scale).permute(2, 0, 1, 3)
        place = (query + self.position_bias * scale).permute(2, 0, 1, 3)
        key = key.view(batch, keys, self.heads, self.size).permute(2, 0, 3, 1)
        value = value.view(batch, keys, self.heads, self.size).permute(2, 0, 1, 3)
        scores = content @ key + self.by_distance(place, keys)  # (heads, B, Q, K)
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        mixed = torch.softmax(scores, dim=-1).to(value.dtype) @ value
        return self.out(mixed.permute(1, 2, 0, 3).flatten(2))

    def by_distance(self, query: Tensor, keys: int) -> Tensor:
        """(q_i + v) r_{i-j} `(heads, B, Q, K)`; wrong where j > i in the causal model, which does not look there.

        The products with all distances, from K - 1 down, are `(Q, P)`; that of query i and key j stands in row i,
        column Q - 1 - i + j.  Read with a row length of P - 1, that is row i, column j (Dai et al. 2019, Appendix B).
        """
        heads, batch, queries, size = query.shape
        weight = self.position.weight
        table = distance_codes(keys - 1, -1 if self.causal else -queries, heads * size, weight.dtype, weight.device)
        distances = self.remembered("distances", (len(table), keys), lambda: self.project_positions(table))
        products = (query.reshape(heads, batch * queries, size) @ distances).view(heads, batch, -1)
        row = len(table) - 1
        shifted = products[..., queries - 1 : queries - 1 + queries * row]
        return shifted.view(heads, batch, queries, row)[..., :keys]

    def project_positions(self, table: Tensor) -> Tensor:
        """Embeddings of P distances `(P, dim)` -> r `(heads, size, P)`, in their dtype whatever autocast says."""
        with torch.autocast(table.device.type, enabled=False):
            return self.position(table).view(-1, self.heads, self.size).permute(1, 2, 0)
