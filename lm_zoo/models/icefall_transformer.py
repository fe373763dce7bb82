"""The Transformer LM of icefall's `transformer_lm`: relative positions, no LayerNorm, its own scalings folded away.

Positions are relative as in Dai et al., "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context"
(2019), Section 3.3 and Appendix B: query i scores key j by

    (q_i / sqrt(d) + u) k_j + (q_i / sqrt(d) + v) P r_(i-j)

with the sinusoids r, one matrix P a layer, and the vectors u and v a head (unlike in the paper, not divided by
sqrt(d)).  A layer is `x += attention(x); x += feed-forward(x); x = norm(x)`, the norm is
`x / sqrt(mean(x^2) + exp(log_eps))` with a trained `log_eps`, and the activation is `x sigmoid(x - 1)`.  icefall keeps
most weights as `weight * exp(weight_scale)`; here they are the products; `lm_zoo.icefall.checkpoints` has the names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lm_zoo.deadline import in_time
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.inference.state import State
from lm_zoo.inference.tree import Tree
from lm_zoo.layers.output import SoftmaxLayer
from lm_zoo.layers.transformer import sinusoids
from lm_zoo.text.vocabulary import Vocabulary


@dataclass
class IcefallTransformerConfig:
    """Defaults are those of icefall's `transformer_lm/train.py`."""

    dim: int = 768  # width of the layers
    embedding_dim: int = 768  # width of the embeddings
    heads: int = 8  # of attention; they share the width
    feedforward: int = 2048  # width inside a layer
    layers: int = 12  # Transformer layers
    tied: bool = True  # one matrix for input and output embeddings
    dropout: float = 0.1  # share of what is dropped in training


class IcefallTransformer(NeuralLM):
    """See the module's description."""

    Config = IcefallTransformerConfig

    def __init__(self, vocab: Vocabulary, config: IcefallTransformerConfig) -> None:
        super().__init__(vocab, config)
        c = config
        if c.tied and c.embedding_dim != c.dim:
            raise ValueError(f"tied embeddings need embedding_dim {c.embedding_dim} to be dim {c.dim}")
        self.embedding = nn.Embedding(len(vocab), c.embedding_dim)
        self.embed = _linear(c.embedding_dim, c.dim)
        self.norm_before = Norm(trained=False)
        self.layers = nn.ModuleList(_Layer(c.dim, c.heads, c.feedforward, c.dropout) for _ in range(c.layers))
        self.dropout = nn.Dropout(c.dropout)
        self.output = SoftmaxLayer(len(vocab), c.dim, self.embedding if c.tied else None)

    def _input(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.norm_before(self.embed(self.embedding(tokens))))

    def hidden(self, inputs: Tensor) -> Tensor:
        x = self._input(inputs)
        for layer in self.layers:
            x = layer(x)
        return x

    def tree_hidden(self, tree: Tree) -> Tensor:
        x = self._input(tree.inputs)
        for layer in self.layers:
            x = layer.over(x, tree)
        return x

    def initial_state(self) -> State:
        c = self.config
        cache = torch.zeros(1, 2, c.heads, 0, c.dim // c.heads, device=self.device)
        return State(0, (cache,) * c.layers)

    def step_hidden(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        caches = list(state.memory)
        x = self._input(tokens)
        for index, layer in enumerate(self.layers):
            x, caches[index] = layer.step(x, caches[index])
        return State(state.time + 1, tuple(caches)), x


class Norm(nn.Module):
    """`x / sqrt(mean(x^2) + exp(log_eps))` over the last dimension; icefall's BasicNorm."""

    log_eps: Tensor

    def __init__(self, trained: bool) -> None:
        super().__init__()
        log_eps = torch.tensor(math.log(0.25))
        if trained:
            self.log_eps = nn.Parameter(log_eps)
        else:
            self.register_buffer("log_eps", log_eps)

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(dim=-1, keepdim=True) + self.log_eps.exp()).rsqrt()


class IcefallAttention(nn.Module):
    """Causal multi-head self-attention with relative positions; the formula stands at the head of the file."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim {dim} is not a multiple of heads {heads}")
        self.heads = heads
        self.in_proj = _linear(dim, 3 * dim)
        self.out_proj = _linear(dim, dim, scale=0.25)
        self.linear_pos = _linear(dim, dim, bias=False)
        self.bias_u = nn.Parameter(0.01 * torch.randn(heads, dim // heads))
        self.bias_v = nn.Parameter(0.01 * torch.randn(heads, dim // heads))

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, time, dim) -> queries, keys, values, each (batch, heads, time, dim / heads)."""
        batch, time, dim = x.shape
        parts = self.in_proj(x).view(batch, time, 3, self.heads, dim // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        return queries / math.sqrt(dim // self.heads), keys, values

    def _positions(self, time: int, like: Tensor) -> Tensor:
        """P r_k for the distances k = 0 ... time - 1, (heads, time, dim / heads)."""
        codes = self.linear_pos(sinusoids(0, time, like.shape[-1]).to(like))
        return codes.view(time, self.heads, -1).transpose(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, dim) -> (batch, time, dim)."""
        queries, keys, values = self._split(x)
        time = x.shape[1]
        by_distance = torch.matmul(queries + self.bias_v.unsqueeze(1), self._positions(time, x).transpose(1, 2))
        position = torch.arange(time, device=x.device)
        distance = position.unsqueeze(1) - position
        by_position = by_distance.gather(3, distance.clamp(min=0).expand_as(by_distance))
        scores = torch.matmul(queries + self.bias_u.unsqueeze(1), keys.transpose(2, 3)) + by_position
        weights = scores.masked_fill(distance < 0, float("-inf")).softmax(dim=-1)
        return self.out_proj(torch.matmul(weights, values).transpose(1, 2).flatten(2))

    def over(self, x: Tensor, tree: Tree) -> Tensor:
        """Over a tree, a span at a time as in `lm_zoo.inference.tree_attention`: x (nodes, dim) -> (nodes, dim)."""
        parts = torch.stack(self._split(x.unsqueeze(0))).squeeze(1)  # (3, heads, nodes, size)
        heads, size = parts.shape[1], parts.shape[3]
        kept = parts[1:]
        if tree.store is not None:
            kept = tree.space(self, (2, heads, size), parts)
            kept[:, :, tree.first :] = parts[1:]
        codes = self._positions(int(tree.depths.max()) + 1, x).unsqueeze(1)
        mixed = torch.empty_like(x)
        for span in in_time(tree.spans):
            paths, length, width = span.allowed.shape
            keys, values = kept.index_select(2, span.keys.flatten()).view(2, heads, paths, width, size)
            queries = parts[0].index_select(1, span.queries.flatten()).view(heads, paths, length, size)
            position = torch.arange(width, device=x.device)
            distance = (position[width - length :].unsqueeze(1) - position).clamp(min=0)
            by_distance = torch.matmul(queries + self.bias_v[:, None, None], codes[:, :, :width].transpose(2, 3))
            scores = torch.matmul(queries + self.bias_u[:, None, None], keys.transpose(2, 3))
            scores += by_distance.gather(3, distance.expand_as(by_distance))
            weights = scores.masked_fill_(~span.allowed, -math.inf).softmax(dim=-1)
            found = torch.matmul(weights, values).permute(1, 2, 0, 3).reshape(-1, x.shape[1])
            mixed[span.nodes] = found[span.own]
        return self.out_proj(mixed)

    def step(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """One new token a node: x (nodes, dim), cache (nodes, 2, heads, time, dim / heads) of its ancestors.

        Returns the output (nodes, dim) and the cache with the new token's key and value appended.
        """
        queries, keys, values = self._split(x.unsqueeze(1))
        cache = torch.cat([cache, torch.stack([keys, values], dim=1)], dim=3)
        positions = self._positions(cache.shape[3], x).flip(1)  # the oldest key is the farthest
        scores = torch.matmul(queries + self.bias_u.unsqueeze(1), cache[:, 0].transpose(2, 3))
        scores = scores + torch.matmul(queries + self.bias_v.unsqueeze(1), positions.transpose(1, 2))
        return self.out_proj(torch.matmul(scores.softmax(dim=-1), cache[:, 1]).flatten(1)), cache


class _Layer(nn.Module):
    def __init__(self, dim: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.attention = IcefallAttention(dim, heads)
        self.linear1 = _linear(dim, feedforward)
        self.linear2 = _linear(feedforward, dim, scale=0.25)
        self.norm = Norm(trained=True)
        self.dropout = nn.Dropout(dropout)

    def _rest(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(attended)
        inner = self.linear1(x)
        inner = self.dropout(inner * torch.sigmoid(inner - 1.0))
        return self.norm(x + self.dropout(self.linear2(inner)))

    def forward(self, x: Tensor) -> Tensor:
        return self._rest(x, self.attention(x))

    def over(self, x: Tensor, tree: Tree) -> Tensor:
        return self._rest(x, self.attention.over(x, tree))

    def step(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        attended, cache = self.attention.step(x, cache)
        return self._rest(x, attended), cache


def _linear(inputs: int, outputs: int, scale: float = 1.0, bias: bool = True) -> nn.Linear:
    """A linear layer that starts with weights of standard deviation `scale / sqrt(inputs)` and without bias."""
    layer = nn.Linear(inputs, outputs, bias)
    nn.init.uniform_(layer.weight, -scale * math.sqrt(3.0 / inputs), scale * math.sqrt(3.0 / inputs))
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
