"""Greedy search: the best symbol of each frame, one at most, as in icefall's `greedy_search_batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from asr.decoding.prefixes import BLANK, Predictor, SearchHypothesis, check_encoded

if TYPE_CHECKING:
    from asr.model.transducer import Transducer


@torch.no_grad()
def greedy(model: Transducer, encoded: Tensor, lengths: Tensor) -> list[list[SearchHypothesis]]:
    """A list of one hypothesis for each utterance.

    Args:
      encoded: float `(batch, frames, dim)`; lengths: int64 `(batch,)`.
    Raises:
      DataError: as `check_encoded`.
    """
    limits = check_encoded(encoded, lengths)
    run = GreedySearch(model, len(limits), encoded.device)
    run.advance(encoded, lengths)
    return [[run.hypothesis(row)] for row in range(len(limits))]


class GreedySearch:
    """Greedy search that goes on with every piece of encoded speech that it is given: for streams."""

    def __init__(self, model: Transducer, batch: int, device: torch.device) -> None:
        self.predictor = Predictor(model, device)
        self.predicted = self.predictor.start(batch)
        self.rows = torch.arange(batch, device=device)
        self.tokens: list[list[int]] = [[] for _ in range(batch)]
        self.frames: list[list[int]] = [[] for _ in range(batch)]
        self.am_after: list[list[float]] = [[] for _ in range(batch)]
        self.am = torch.zeros(batch, dtype=torch.float64)
        self.seen = [0] * batch

    @torch.no_grad()
    def advance(self, encoded: Tensor, lengths: Tensor) -> None:
        """More frames of every utterance: float `(batch, frames, dim)`, int64 `(batch,)` of them count."""
        projected = self.predictor.joiner.project_encoder(encoded)
        lengths = lengths.to(encoded.device)
        for frame in range(int(lengths.max()) if len(lengths) else 0):
            log_probs = self.predictor.log_probs(projected[:, frame], self.predicted.output)
            best, symbols = log_probs.max(dim=-1)
            inside = frame < lengths
            symbols = torch.where(inside, symbols, torch.full_like(symbols, BLANK))
            self.am += torch.where(inside, best, torch.zeros_like(best)).double().cpu()
            chosen = symbols.tolist()
            if not any(chosen):
                continue
            for row, token in enumerate(chosen):
                if token != BLANK:
                    self.tokens[row].append(token)
                    self.frames[row].append(self.seen[row] + frame)
                    self.am_after[row].append(float(self.am[row]))
            self.predicted = self.predictor.advance(self.predicted, self.rows, symbols)
        self.seen = [seen + int(length) for seen, length in zip(self.seen, lengths, strict=True)]

    def hypothesis(self, row: int) -> SearchHypothesis:
        """What utterance `row` is so far."""
        am = float(self.am[row])
        tokens, frames = tuple(self.tokens[row]), tuple(self.frames[row])
        return SearchHypothesis(tokens, frames, {"am": am}, (*self.am_after[row], am))
