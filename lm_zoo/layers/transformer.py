"""Transformer layers (Vaswani et al. 2017; TransfoRNN paper, Eqs. 5-9) and the fused output loss.

Every layer runs in two ways that agree: `forward` over whole padded sentences, and `step` over one new token of many
tree nodes with cached keys and values.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm_zoo.layers.dropout import Dropout, dropout
from lm_zoo.layers.linear import Linear
from lm_zoo.layers.positions import angles

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class CausalSelfAttention(nn.Module):
    """Multi-head self-attention in which position t sees positions <= t (Eq. 5)."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim {dim} is not a multiple of heads {heads}")
        self.heads = heads
        self.in_proj = Linear(dim, 3 * dim)
        self.out_proj = Linear(dim, dim)
        self.dropout = dropout

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, time, dim) -> queries, keys, values, each (batch, heads, time, dim / heads)."""
        batch, time, dim = x.shape
        parts = self.in_proj(x).view(batch, time, 3, self.heads, dim // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        return queries, keys, values

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, dim) -> (batch, time, dim)."""
        queries, keys, values = self._split(x)
        mixed = causal_attention(queries, keys, values, self.dropout if self.training else 0.0)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))

    def after(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """A window of running text, x (batch, time, dim), behind the keys and values of the window before.

        The cache is (batch, 2, heads, time before, dim / heads).  Returns the output (batch, time, dim) and the cache
        of this window alone.
        """
        queries, keys, values = self._split(x)
        fresh = torch.stack([keys, values], dim=1)
        seen = torch.cat([cache.to(fresh.dtype), fresh], dim=3)
        mixed = causal_attention(queries, seen[:, 0], seen[:, 1], self.dropout if self.training else 0.0)
        return self.out_proj(mixed.transpose(1, 2).flatten(2)), fresh

    def step(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """One new token a node: x (nodes, dim), cache (nodes, 2, heads, time, dim / heads) of its ancestors.

        Returns the output (nodes, dim) and the cache with the new token's key and value appended.
        """
        queries, keys, values = self._split(x.unsqueeze(1))
        cache = torch.cat([cache, torch.stack([keys, values], dim=1)], dim=3)
        weights = torch.matmul(queries, cache[:, 0].transpose(2, 3)) / math.sqrt(queries.shape[-1])
        mixed = torch.matmul(weights.softmax(dim=-1), cache[:, 1])
        return self.out_proj(mixed.flatten(1)), cache


def causal_attention(queries: Tensor, keys: Tensor, values: Tensor, dropped: float = 0.0) -> Tensor:
    """Scaled dot-product attention under a causal mask; tensors (batch, heads, time, dim).

    Keys and values may be of more positions than the queries, which then are the last ones.  On the CPU written out:
    for sentences (some tens of tokens) that is faster than torch's fused kernel.
    """
    time, seen = queries.shape[2], keys.shape[2]
    if queries.is_cuda and time == seen and hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropped, is_causal=True)
    scores = torch.matmul(queries, keys.transpose(2, 3)) / math.sqrt(queries.shape[-1])
    future = torch.full((time, seen), float("-inf"), device=scores.device).triu(1 + seen - time)
    weights = dropout((scores + future.to(scores.dtype)).softmax(dim=-1), dropped)
    return torch.matmul(weights.to(values.dtype), values)


class TransformerLayer(nn.Module):
    """Self-attention and feed-forward, each with a residual connection.

    LayerNorm follows each sum (`norm="post"`, Eqs. 7-9) or stands before each of the two (`norm="pre"`).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        feedforward: int,
        dropout: float,
        activation: str = "relu",
        norm: str = "post",
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation '{activation}' is not one of {', '.join(ACTIVATIONS)}")
        if norm not in ("post", "pre"):
            raise ValueError(f"norm '{norm}' is not one of post, pre")
        self.attention = CausalSelfAttention(dim, heads, dropout)
        self.norm1 = nn.LayerNorm(dim, norm_eps)
        self.linear1 = Linear(dim, feedforward)
        self.linear2 = Linear(feedforward, dim)
        self.norm2 = nn.LayerNorm(dim, norm_eps)
        self.dropout = Dropout(dropout)
        self.activation = ACTIVATIONS[activation]
        self.pre = norm == "pre"

    def _feed(self, x: Tensor) -> Tensor:
        return self.dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(attended)
        if self.pre:
            return x + self._feed(self.norm2(x))
        x = self.norm1(x)
        return self.norm2(x + self._feed(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(x, self.attention(self.norm1(x) if self.pre else x))

    def after(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """`forward` behind the window before; see `CausalSelfAttention.after`."""
        attended, cache = self.attention.after(self.norm1(x) if self.pre else x, cache)
        return self.rest(x, attended), cache

    def step(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        attended, cache = self.attention.step(self.norm1(x) if self.pre else x, cache)
        return self.rest(x, attended), cache


class InputEmbedding(nn.Module):
    """Token embedding times sqrt(dim), plus sinusoidal positions if asked for (Eq. 6).

    With `word_dropout`, a share of the vocabulary has no embedding in a training batch (Gal and Ghahramani 2016, "A
    Theoretically Grounded Application of Dropout in Recurrent Neural Networks"; Merity et al. 2018, AWD-LSTM).
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        positions: bool,
        dropout: float,
        word_dropout: float = 0.0,
        locked: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.positions = positions
        self.dropout = Dropout(dropout, locked)
        self.word_dropout = word_dropout
        self.scale = math.sqrt(dim)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """int64 (batch, time), the first token at position `start` -> (batch, time, dim)."""
        x = self.embedding(tokens) * self.scale
        if self.training and self.word_dropout:
            x = x * dropout(x.new_ones(self.embedding.num_embeddings, 1), self.word_dropout)[tokens]
        if self.positions:
            x = x + sinusoids(start, tokens.shape[1], x.shape[-1], x.device).to(x.dtype)
        return self.dropout(x)

    def at(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Tokens at any positions, both int64 `(nodes,)` -> `(nodes, dim)`; without dropout."""
        x = self.embedding(tokens) * self.scale
        if self.positions and len(positions):
            x += sinusoids(0, int(positions.max()) + 1, x.shape[-1]).to(x).index_select(0, positions)
        return x


def sinusoids(start: int, time: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Position codes of positions `start ... start + time - 1`, (time, dim): sine and cosine in turn."""
    angle = angles(torch.arange(start, start + time, device=device), dim)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :dim]
