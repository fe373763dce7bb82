"""Prediction networks of the transducer: one LSTM layer (S4former, Section 4), or icefall's stateless one.

Both read the transcript's tokens after a begin, for which the blank stands.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from asr.model.config import TransducerConfig
from asr.model.rnnt_loss import BLANK
from lm_zoo.layers.processor import slow_in_bfloat16


class LstmDecoder(nn.Module):
    """Embedding and one LSTM layer; its state is `(hidden, cell)`, each `(B, decoder_dim)`."""

    def __init__(self, vocab_size: int, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_dim = dim
        self.embedding = nn.Embedding(vocab_size, dim)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 `(B, U)` -> `(B, U + 1, output_dim)`; position u has read the begin and u tokens."""
        return self._layer(self.embedding(_begun(tokens)), None)[0]

    def initial(self, batch: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """The state before the begin: the first `step` is given the blank."""
        zeros = torch.zeros(batch, self.output_dim, device=device, dtype=self.embedding.weight.dtype)
        return zeros, zeros

    def step(self, tokens: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One token each: int64 `(B,)` -> what follows it `(B, output_dim)`, and the new state."""
        hidden, cell = (part.unsqueeze(0) for part in state)
        output, (hidden, cell) = self._layer(self.embedding(tokens).unsqueeze(1), (hidden, cell))
        return output.squeeze(1), (hidden.squeeze(0), cell.squeeze(0))

    def _layer(self, embedded: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The LSTM; in float32 under autocast where the processor is slow in bfloat16, as new torch has none for it."""
        alone = embedded.device.type == "cpu" and slow_in_bfloat16()
        with torch.autocast("cpu", enabled=False) if alone else nullcontext():
            found: tuple[Tensor, tuple[Tensor, Tensor]] = self.lstm(self.dropout(embedded), state)
        return found

    def select(self, state: tuple[Tensor, Tensor], indices: Tensor) -> tuple[Tensor, Tensor]:
        """The state of the given rows, int64, repeats allowed."""
        return state[0].index_select(0, indices), state[1].index_select(0, indices)


class StatelessDecoder(nn.Module):
    """Embedding, a convolution over the last `context_size` tokens in groups of four channels, ReLU (icefall's).

    What lies before the begin is a vector of zeros.  The state is the last `context_size - 1` tokens,
    `(B, context_size - 1)`, -1 before the begin.
    """

    def __init__(self, vocab_size: int, dim: int, context_size: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_dim = dim
        self.context_size = context_size
        self.embedding = nn.Embedding(vocab_size, dim)
        self.dropout = nn.Dropout(dropout)
        groups = dim // 4 if dim % 4 == 0 else 1
        self.conv = nn.Conv1d(dim, dim, context_size, groups=groups, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 `(B, U)` -> `(B, U + 1, output_dim)`; position u has read the begin and u tokens."""
        return self.windows(torch.cat([self.initial(len(tokens), tokens.device), _begun(tokens)], dim=1))

    def initial(self, batch: int, device: torch.device | str = "cpu") -> Tensor:
        """The state before the begin: the first `step` is given the blank."""
        return torch.full((batch, self.context_size - 1), -1, dtype=torch.long, device=device)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One token each: int64 `(B,)` -> what follows it `(B, output_dim)`, and the new state."""
        read = torch.cat([state, tokens.unsqueeze(1)], dim=1)
        return self.windows(read).squeeze(1), read[:, 1:]

    def select(self, state: Tensor, indices: Tensor) -> Tensor:
        """The state of the given rows, int64, repeats allowed."""
        return state.index_select(0, indices)

    def windows(self, tokens: Tensor) -> Tensor:
        """int64 `(B, context_size - 1 + n)`, -1 before the begin -> `(B, n, output_dim)`, what follows the last n."""
        known = (tokens >= 0).unsqueeze(2)
        embedded = self.dropout(self.embedding(tokens.clamp(min=0)) * known)
        return self.conv(embedded.transpose(1, 2)).transpose(1, 2).relu()


def make_decoder(config: TransducerConfig) -> Any:
    """The decoder that the configuration names."""
    if config.decoder == "lstm":
        return LstmDecoder(config.vocab_size, config.decoder_dim, config.decoder_dropout)
    return StatelessDecoder(config.vocab_size, config.decoder_dim, config.context_size, config.decoder_dropout)


def _begun(tokens: Tensor) -> Tensor:
    """int64 `(B, U)` -> `(B, U + 1)`, the begin first."""
    return torch.nn.functional.pad(tokens, (1, 0), value=BLANK)
