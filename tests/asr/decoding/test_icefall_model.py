"""A recogniser by the calls of icefall's searches, against our own searches of the same model."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from asr.decoding.beam_search import modified_beam_search
from asr.decoding.greedy_search import greedy
from asr.decoding.icefall_model import IcefallModel
from asr.errors import ConfigError
from asr.model.config import EncoderConfig, TransducerConfig
from asr.model.transducer import Transducer

SIZES = {"features": 8, "channels": 4, "dim": 8, "layers": 1, "heads": 2, "feedforward": 8}
FRAMES = [61, 40, 17]


def recogniser(context_size: int = 2, decoder: str = "stateless") -> Transducer:
    """Large random weights, so that probabilities differ clearly."""
    torch.manual_seed(3)
    plan = {"decoder_dim": 8, "joiner_dim": 8, "context_size": context_size}
    model = Transducer(TransducerConfig(9, EncoderConfig(**SIZES), decoder, **plan))  # type: ignore[arg-type]
    with torch.no_grad():
        for part in (model.decoder, model.joiner):
            for parameter in part.parameters():
                parameter.normal_(0.0, 0.8)
    return model.eval()


@torch.no_grad()
def encoded(model: IcefallModel) -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    out, lengths = model.forward_encoder(torch.randn(3, max(FRAMES), 8), torch.tensor(FRAMES))
    return 1.5 * torch.randn_like(out), lengths


class Caller:
    """The calls of icefall's searches, a hypothesis at a time.

    Args:
      before: what its scripts put before the begin: -1, or a blank until 2023.
    """

    def __init__(self, model: Any, before: int) -> None:
        self.model, self.blank, self.context = model, model.decoder.blank_id, model.decoder.context_size
        assert getattr(model, "unk_id", self.blank) == self.blank and next(model.parameters()).device.type == "cpu"
        self.start = [before] * (self.context - 1) + [self.blank]

    @torch.no_grad()
    def log_probs(self, frame: Tensor, tokens: list[int]) -> Tensor:
        """`(vocab,)` for a frame `(joiner_dim,)` as encoder_proj gives it."""
        window = torch.tensor([tokens[-self.context :]], dtype=torch.int64)
        out = self.model.joiner.decoder_proj(self.model.decoder(window, need_pad=False))
        logits = self.model.joiner(frame.view(1, 1, 1, -1), out.unsqueeze(1), project_input=False)
        assert logits.shape == (1, 1, 1, self.model.decoder.vocab_size)
        return logits.view(-1).log_softmax(0).double()

    def greedy(self, frames: Tensor) -> list[int]:
        tokens = self.start
        for frame in self.model.joiner.encoder_proj(frames):
            best = int(self.log_probs(frame, tokens).argmax())
            tokens = tokens if best == self.blank else [*tokens, best]
        return tokens[self.context :]

    def beam(self, frames: Tensor, size: int) -> list[int]:
        """modified_beam_search: sums over alignments; the best for each of its tokens, those of the start too."""
        hyps = {tuple(self.start): 0.0}
        for frame in self.model.joiner.encoder_proj(frames):
            rows = torch.stack([score + self.log_probs(frame, list(tokens)) for tokens, score in hyps.items()])
            values, places = rows.flatten().topk(min(size, rows.numel()))
            before, hyps = list(hyps), {}
            for value, place in zip(values.tolist(), places.tolist(), strict=True):
                row, token = divmod(place, rows.shape[1])
                tokens = before[row] if token == self.blank else (*before[row], token)
                old = hyps.get(tokens, -math.inf)
                hyps[tokens] = max(old, value) + math.log1p(math.exp(-abs(old - value)))
        return list(max(hyps, key=lambda tokens: hyps[tokens] / len(tokens)))[self.context :]


@pytest.mark.parametrize("context_size", [1, 2, 3])
@pytest.mark.parametrize("before", [-1, 0])
def test_icefalls_searches_find_what_ours_do(context_size: int, before: int) -> None:
    model = recogniser(context_size)
    outside = IcefallModel(model)
    out, lengths = encoded(outside)
    caller = Caller(outside, before)
    ours = greedy(model, out, lengths), modified_beam_search(model, out, lengths, 4, length_norm=True)
    for row, length in enumerate(lengths.tolist()):
        frames = out[row, :length]
        assert caller.greedy(frames) == list(ours[0][row][0].tokens)
        assert caller.beam(frames, 4) == list(ours[1][row][0].tokens)
    assert any(hyps[0].tokens for hyps in ours[1])


def test_whole_transcripts_and_inputs_that_are_not_projected() -> None:
    """As its training and k2's pruned loss ask."""
    model = recogniser()
    outside = IcefallModel(model)
    tokens = torch.tensor([[3, 4, 5], [6, 7, 8]])
    begun = torch.nn.functional.pad(tokens, (1, 0))
    found = outside.decoder(begun)
    torch.testing.assert_close(found, model.decoder(tokens))
    frames = torch.randn(2, 4, 8)
    projected = outside.joiner(outside.joiner.encoder_proj(frames), outside.joiner.decoder_proj(found), False)
    torch.testing.assert_close(outside.joiner(frames, found), projected)


def test_an_lstm_cannot_be_asked() -> None:
    with pytest.raises(ConfigError, match="need a stateless decoder, found lstm"):
        IcefallModel(recogniser(decoder="lstm"))
