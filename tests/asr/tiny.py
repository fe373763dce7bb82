"""Tiny random transducers without an encoder, and searches over them by trying everything."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from asr.decoding.prefixes import Pieces, SearchHypothesis
from lm_zoo.text.tokenizer import build_pieces
from lm_zoo.text.vocabulary import PieceVocabulary

TEXT = "THE CAT SAT ON THE MAT AND THE HAT SAT ON A CAT THAT ATE"


@lru_cache
def vocabulary(size: int = 18) -> PieceVocabulary:
    return build_pieces(Counter(TEXT.split()), size, "bpe")


@lru_cache
def pieces(size: int = 18) -> Pieces:
    return Pieces(vocabulary(size))


class Stateless(nn.Module):
    """Sees the last two tokens."""

    context_size = 2

    def __init__(self, vocab: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.conv = nn.Linear(2 * dim, dim)
        self.output_dim = dim

    def out(self, context: Tensor) -> Tensor:
        return torch.tanh(self.conv(self.embedding(context).flatten(-2)))

    def forward(self, tokens: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(tokens, (2, 0))
        return self.out(padded.unfold(1, 2, 1))

    def initial(self, batch: int, device: Any) -> Tensor:
        return torch.zeros(batch, 2, dtype=torch.long, device=device)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.cat([state[:, 1:], tokens.unsqueeze(1)], dim=1)
        return self.out(state), state

    def select(self, state: Tensor, indices: Tensor) -> Tensor:
        return state[indices]


class Recurrent(nn.Module):
    """Sees all tokens."""

    def __init__(self, vocab: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)
        self.output_dim = dim

    def forward(self, tokens: Tensor) -> Tensor:
        return self.rnn(self.embedding(torch.nn.functional.pad(tokens, (1, 0))))[0]

    def initial(self, batch: int, device: Any) -> tuple[Tensor, Tensor]:
        zeros = torch.zeros(batch, self.output_dim, device=device)
        return zeros, zeros

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        out, state = self.rnn(self.embedding(tokens.unsqueeze(1)), tuple(part.unsqueeze(0) for part in state))
        return out.squeeze(1), tuple(part.squeeze(0) for part in state)

    def select(self, state: Any, indices: Tensor) -> Any:
        return tuple(part[indices] for part in state)


class Joiner(nn.Module):
    def __init__(self, dim: int, vocab: int) -> None:
        super().__init__()
        self.project_encoder, self.project_decoder = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.output = nn.Linear(dim, vocab)

    def forward(self, e: Tensor, d: Tensor) -> Tensor:
        return self.output(torch.tanh(e + d))


class Tiny(nn.Module):
    """Decoder and joiner with large random weights, so that probabilities differ clearly."""

    def __init__(self, vocab: int = 4, decoder: str = "stateless", seed: int = 1, dim: int = 6) -> None:
        super().__init__()
        torch.manual_seed(seed)
        kind = Stateless if decoder == "stateless" else Recurrent
        self.decoder, self.joiner = kind(vocab, dim), Joiner(dim, vocab)
        self.config = SimpleNamespace(vocab_size=vocab, decoder=decoder, context_size=2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(0.0, 0.9)
        self.eval()

    def encoded(self, *lengths: int, seed: int = 2) -> tuple[Tensor, Tensor]:
        torch.manual_seed(seed)
        return 1.5 * torch.randn(len(lengths), max(lengths), 6), torch.tensor(lengths)


@torch.no_grad()
def alignments(model: Tiny, encoded: Tensor) -> dict[tuple[int, ...], list[float]]:
    """Every alignment of `encoded` `(frames, dim)` with a symbol a frame: tokens -> log-probabilities."""
    vocab, found = model.config.vocab_size, dict[tuple[int, ...], list[float]]()
    projected = model.joiner.project_encoder(encoded)
    for symbols in itertools.product(range(vocab), repeat=len(encoded)):
        tokens = tuple(symbol for symbol in symbols if symbol)
        outputs = model.joiner.project_decoder(model.decoder(torch.tensor([tokens], dtype=torch.long)))[0]
        emitted = np.cumsum([0, *(symbol > 0 for symbol in symbols[:-1])]) if symbols else np.zeros(0, int)
        log_probs = model.joiner(projected, outputs[torch.from_numpy(emitted)]).log_softmax(-1)
        score = float(log_probs.double()[torch.arange(len(symbols)), torch.tensor(symbols, dtype=torch.long)].sum())
        found.setdefault(tokens, []).append(score)
    return found


def summed(hyp: SearchHypothesis) -> float:
    """The log of the sum over alignments."""
    return hyp.scores["am"] + hyp.scores["alignments"]


def log_sum(values: list[float]) -> float:
    return float(np.logaddexp.reduce(values))
