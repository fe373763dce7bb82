"""The causal S4former chunk by chunk: the same outputs as on the whole utterance, with a carried state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asr.errors import ConfigError
from asr.model.convolution import State
from asr.model.masks import inside
from asr.model.s4former import Layer, S4former


@dataclass
class StreamState:
    """What the encoder remembers of each stream of a batch.

    Attributes:
      seen: frames at 100 Hz that came so far, int64 `(B,)`.
      held: frames at 25 Hz in the attention's cache that count, int64 `(B,)`: the last ones.
      past: the last two inputs of both subsampling convolutions, `(B, 2, channels, features)`.
      layers: of each layer keys and values `(B, M, 2 * dim)`, then the state of its convolution component.
    """

    seen: Tensor
    held: Tensor
    past: tuple[Tensor, Tensor]
    layers: list[State]

    def select(self, indices: Tensor) -> StreamState:
        """The state of the given streams, int64 `(streams,)`."""
        held = self.held[indices]
        unused = self.layers[0][0].shape[1] - (int(held.max()) if len(held) else 0)
        layers = []
        for cache, *memory in self.layers:
            layers.append((cache[indices, unused:], *(tensor[indices] for tensor in memory)))
        return StreamState(self.seen[indices], held, (self.past[0][indices], self.past[1][indices]), layers)

    @classmethod
    def join(cls, states: Sequence[StreamState]) -> StreamState:
        """The streams of all the states as one batch, in order."""
        size = max(state.layers[0][0].shape[1] for state in states)
        layers = []
        for parts in zip(*(state.layers for state in states), strict=True):
            padded = [(_pad(part[0], size), *part[1:]) for part in parts]
            layers.append(tuple(torch.cat(tensors) for tensors in zip(*padded, strict=True)))
        seen, held = (torch.cat([getattr(state, name) for state in states]) for name in ("seen", "held"))
        first, second = (torch.cat([state.past[place] for state in states]) for place in (0, 1))
        return cls(seen, held, (first, second), layers)


def _pad(cache: Tensor, size: int) -> Tensor:
    """Free places before the cache `(B, M, 2 * dim)`, to `size`."""
    return torch.cat([cache.new_zeros(len(cache), size - cache.shape[1], cache.shape[2]), cache], dim=1)


class StreamingEncoder:
    """Feeds a causal `S4former` in chunks.  No output waits for later frames, so nothing is left at the end.

    Without `left_context` the attention's cache and the cost of a chunk grow with the stream; all else is constant.
    """

    def __init__(self, encoder: S4former) -> None:
        """Puts the encoder into evaluation mode.

        Raises:
          ConfigError: it is not causal.
        """
        if not encoder.config.causal:
            raise ConfigError(
                "streaming: the encoder is not causal; train one with a configuration that has causal true"
            )
        self.encoder = encoder.eval()
        self.blocks: list[Layer] = list(encoder.layers)  # type: ignore[arg-type]

    def initial(self, batch: int) -> StreamState:
        """The state of `batch` streams before their first frame."""
        seen = torch.zeros(batch, dtype=torch.long, device=self.encoder.subsampling.conv1.weight.device)
        layers = [layer.initial(batch) for layer in self.blocks]
        return StreamState(seen, seen, self.encoder.subsampling.initial(batch), layers)

    @torch.no_grad()
    def step(self, features: Tensor, lengths: Tensor, state: StreamState) -> tuple[Tensor, Tensor, StreamState]:
        """Some more frames of each stream; none for some, or for all, is fine.

        Args:
          features: `(B, C, features)`, float.
          lengths: `(B,)` int64, how many of the C frames of each stream are there.
          state: of `initial` or the step before; it is not changed.

        Returns:
          `(B, C', dim)`, zero where there is nothing; how many of the C' frames each stream got, `(B,)`: after n
          frames in all it has had ceil(ceil(n / 2) / 2); and the next state.
        """
        lengths = lengths.to(state.seen.device)
        features = features.masked_fill(~inside(lengths, features.shape[1]).unsqueeze(-1), 0.0)
        x, made, past = self.encoder.subsampling.step(features, lengths, state.seen, state.past)
        held, layers = state.held, state.layers
        if x.shape[1]:
            bound = self.encoder.config.left_context
            held = held + made if bound is None else (held + made).clamp(max=bound)
            size = int(held.max())
            allowed = self.blocks[0].attention.allowed_behind(state.held, state.layers[0][0].shape[1], x.shape[1])
            layers = []
            for layer, memory in zip(self.blocks, state.layers, strict=True):
                x, memory = layer.step(x, made, allowed, size, memory)
                layers.append(memory)
        return x * inside(made, x.shape[1]).unsqueeze(-1), made, StreamState(state.seen + lengths, held, past, layers)
