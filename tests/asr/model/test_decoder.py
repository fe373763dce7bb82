"""Prediction networks and joiner: whole transcripts against single steps, and what they may see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from asr.model.config import TransducerConfig
from asr.model.decoder import LstmDecoder, StatelessDecoder, make_decoder
from asr.model.joiner import Joiner

CONFIG = TransducerConfig(vocab_size=9, decoder_dim=8, decoder_dropout=0.0)
KINDS = [("lstm", 2), ("stateless", 1), ("stateless", 2), ("stateless", 3)]
TOKENS = torch.tensor([[3, 1, 4, 1, 5], [8, 2, 6, 5, 3]])


def decoder(kind: str, context: int) -> Any:
    torch.manual_seed(1)
    return make_decoder(replace(CONFIG, decoder=kind, context_size=context)).eval()


@pytest.mark.parametrize(("kind", "context"), KINDS)
def test_steps_equal_the_whole(kind: str, context: int) -> None:
    model = decoder(kind, context)
    whole = model(TOKENS)
    assert whole.shape == (2, 6, model.output_dim)
    state = model.initial(2, "cpu")
    outputs = []
    for tokens in torch.nn.functional.pad(TOKENS, (1, 0)).T:
        output, state = model.step(tokens, state)
        outputs.append(output)
    assert torch.allclose(torch.stack(outputs, dim=1), whole, atol=1e-6)


@pytest.mark.parametrize(("kind", "context"), KINDS)
def test_select_takes_rows_of_the_state(kind: str, context: int) -> None:
    model = decoder(kind, context)
    state = model.initial(2)
    for tokens in TOKENS[:, :3].T:
        _, state = model.step(tokens, state)
    rows = torch.tensor([1, 0, 1])
    selected, _ = model.step(TOKENS[rows, 3], model.select(state, rows))
    expected, _ = model.step(TOKENS[:, 3], state)
    assert torch.allclose(selected, expected[rows], atol=1e-6)


@pytest.mark.parametrize(("kind", "context"), KINDS)
def test_what_a_position_sees(kind: str, context: int) -> None:
    model = decoder(kind, context)
    changed = TOKENS.clone()
    changed[:, 1] = 7
    differs = (model(TOKENS) != model(changed)).any(2).any(0).tolist()
    seen = 4 if kind == "lstm" else min(4, context)
    assert differs == [False, False] + [True] * seen + [False] * (4 - seen)


def test_stateless_decoder_is_the_sum_it_says() -> None:
    model = decoder("stateless", 2)
    vectors, weight = model.embedding.weight, model.conv.weight  # (9, 8), (8, 4, 2): two groups
    older, newer = vectors[3].view(2, 4), vectors[1].view(2, 4)
    rows = [weight[i, :, 0] @ older[i // 4] + weight[i, :, 1] @ newer[i // 4] for i in range(8)]
    assert torch.allclose(model(TOKENS)[0, 2], torch.stack(rows).relu(), atol=1e-6)
    begin = torch.stack([weight[i, :, 1] @ vectors[0].view(2, 4)[i // 4] for i in range(8)]).relu()
    assert torch.allclose(model(TOKENS)[1, 0], begin, atol=1e-6)


def test_no_tokens_give_the_begin_alone() -> None:
    for model in (LstmDecoder(9, 8), StatelessDecoder(9, 8)):
        empty = model(torch.zeros(3, 0, dtype=torch.long))
        assert empty.shape == (3, 1, 8)
        assert torch.allclose(empty[0], model(TOKENS)[:1, 0][0].expand(1, 8), atol=1e-6)


@pytest.mark.parametrize("kind", ["lstm", "stateless"])
def test_decoders_run_under_autocast(kind: str) -> None:
    model = decoder(kind, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(TOKENS)
        step, _ = model.step(torch.zeros(2, dtype=torch.long), model.initial(2))
    assert torch.allclose(output.float(), model(TOKENS), atol=0.05)
    assert torch.allclose(step.float(), output[:, 0].float(), atol=0.05)


def test_joiner_broadcasts() -> None:
    torch.manual_seed(1)
    joiner = Joiner(5, 6, 7, 9)
    encoded, decoded = joiner.project_encoder(torch.randn(2, 3, 5)), joiner.project_decoder(torch.randn(2, 4, 6))
    logits = joiner(encoded.unsqueeze(2), decoded.unsqueeze(1))
    assert logits.shape == (2, 3, 4, 9)
    assert torch.allclose(logits[1, 2, 3], joiner.output(torch.tanh(encoded[1, 2] + decoded[1, 3])), atol=1e-6)
