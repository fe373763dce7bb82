"""The transducer's losses: equal to the full loss where nothing is pruned; what cannot be used is masked and named."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from asr.errors import ConfigError, DataError
from asr.model import transducer
from asr.model.config import EncoderConfig, TransducerConfig
from asr.model.rnnt_loss import full_loss
from asr.model.transducer import LossOptions, Transducer

CONFIG = TransducerConfig(
    vocab_size=11,
    encoder=EncoderConfig(features=6, dim=12, heads=2, dropout=0.0),
    decoder_dim=8,
    joiner_dim=10,
    decoder_dropout=0.0,
)
LENGTHS = torch.tensor([44, 20, 31])
TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5], [8, 9, 7, 9, 3, 2]]


class FourthFrame(nn.Module):
    """Stands in for the encoder: a linear layer of every fourth frame."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 12)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(features[:, ::4]).tanh(), (lengths + 3) // 4


def make(decoder: str = "lstm") -> tuple[Transducer, Tensor]:
    torch.manual_seed(5)
    model = Transducer(replace(CONFIG, decoder=decoder), FourthFrame())
    return model, 2 * torch.randn(3, 44, 6)


def gradients(model: Transducer, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("decoder", ["lstm", "stateless"])
def test_without_pruning_the_loss_is_the_full_one(decoder: str) -> None:
    model, features = make(decoder)
    loss = model.loss(features, LENGTHS, TOKENS, LossOptions(prune_range=9))
    encoded, frames = model.encoder(features, LENGTHS)
    tokens = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in TOKENS], batch_first=True)
    joiner = model.joiner
    decoded = joiner.project_decoder(model.decoder(tokens)).unsqueeze(1)
    logits = joiner(joiner.project_encoder(encoded).unsqueeze(2), decoded)
    expected = full_loss(logits, tokens, frames, torch.tensor([8, 3, 6]))
    assert torch.allclose(loss.pruned, expected, rtol=1e-5)
    assert loss.valid.tolist() == [True] * 3 and loss.problems == {} and loss.ctc is None
    one, other = gradients(model, loss.pruned.sum()), gradients(model, expected.sum())
    assert one.keys() - {"simple_am.weight", "simple_lm.weight"} >= other.keys()
    for name, grad in other.items():
        assert torch.allclose(one[name], grad, atol=1e-4), name


def test_the_joiner_sees_the_kept_positions_only() -> None:
    model, features = make()
    with patch.object(model.joiner.output, "forward", wraps=model.joiner.output.forward) as output:
        loss = model.loss(features, LENGTHS, TOKENS, LossOptions(prune_range=3))
    assert [call.args[0].shape for call in output.call_args_list] == [(3, 11, 3, 10)]
    whole = model.loss(features, LENGTHS, TOKENS, LossOptions(prune_range=9))
    assert torch.equal(loss.simple, whole.simple)
    assert bool((loss.pruned >= whole.pruned - 1e-4).all())


def test_an_utterance_costs_the_same_alone() -> None:
    model, features = make()
    options = LossOptions(ctc_scale=0.2)
    together = model.loss(features, LENGTHS, TOKENS, options)
    for i, length in enumerate(LENGTHS.tolist()):
        alone = model.loss(features[i : i + 1, :length], LENGTHS[i : i + 1], TOKENS[i : i + 1], options)
        for name in ("simple", "pruned", "ctc"):
            assert getattr(alone, name)[0].item() == pytest.approx(getattr(together, name)[i].item(), rel=1e-4)


def test_a_batch_without_a_frame_costs_nothing() -> None:
    encoder = EncoderConfig(features=8, channels=2, dim=8, layers=1, heads=2, feedforward=8)
    model = Transducer(replace(CONFIG, encoder=encoder))
    loss = model.loss(torch.zeros(2, 0, 8), torch.zeros(2, dtype=torch.long), [[1], [2]], LossOptions(ctc_scale=0.2))
    assert loss.problems == {0: "no frames", 1: "no frames"} and not loss.valid.any()
    assert all(
        grad.isfinite().all() for grad in gradients(model, loss.total(LossOptions(ctc_scale=0.2)).sum()).values()
    )


def test_backends_give_the_same() -> None:
    try:
        import k2  # noqa: F401
    except ImportError as error:
        pytest.skip(f"k2: {error}")
    model, features = make()
    results = []
    for backend in ("torch", "k2"):
        loss = model.loss(features, LENGTHS, TOKENS, LossOptions(backend=backend))
        results.append((loss.simple, loss.pruned, gradients(model, loss.total(LossOptions()).sum())))
    assert torch.allclose(results[0][0], results[1][0], rtol=1e-5)
    assert torch.allclose(results[0][1], results[1][1], rtol=1e-5)
    for name, grad in results[0][2].items():
        assert torch.allclose(grad, results[1][2][name], atol=1e-4), name


def test_what_cannot_be_used_is_masked_and_named() -> None:
    model, features = make()
    features = torch.cat([features, features])
    features[3, 2, 0] = math.nan
    lengths = torch.tensor([44, 20, 31, 44, 7, 0])
    tokens = [*TOKENS, TOKENS[0], [1, 2, 3], []]
    options = LossOptions(ctc_scale=0.3)
    loss = model.loss(features, lengths, tokens, options)
    assert loss.valid.tolist() == [True] * 3 + [False] * 3
    assert loss.problems == {
        3: "features that are infinite or not a number",
        4: "too short: 2 frames of 40 ms for 3 tokens",
        5: "no frames",
    }
    alone = model.loss(features[:3], lengths[:3], TOKENS, options)
    for name in ("simple", "pruned", "ctc"):
        values = getattr(loss, name)
        assert values[3:].tolist() == [0.0] * 3
        assert torch.allclose(values[:3], getattr(alone, name), rtol=1e-5)
    found, expected = (gradients(model, part.total(options).sum()) for part in (loss, alone))
    for name, grad in expected.items():
        assert torch.allclose(found[name], grad, atol=1e-4), name


def test_repeats_need_a_frame_more_with_ctc() -> None:
    model, features = make()
    batch = features[:1], torch.tensor([20]), [[5, 5, 5, 3]]
    assert model.loss(*batch, LossOptions()).valid.tolist() == [True]
    loss = model.loss(*batch, LossOptions(ctc_scale=0.3))
    assert loss.problems == {0: "too short: 5 frames of 40 ms for 4 tokens and 2 repeats"}


def test_a_batch_of_nothing_still_has_gradients() -> None:
    model, features = make()
    loss = model.loss(features, torch.zeros(3, dtype=torch.long), TOKENS, LossOptions(ctc_scale=0.3))
    assert sorted(loss.problems) == [0, 1, 2]
    found = gradients(model, loss.total(LossOptions(ctc_scale=0.3)).sum())
    assert found.keys() == dict(model.named_parameters()).keys()
    assert all(bool((grad == 0).all()) for grad in found.values())


def test_a_loss_that_is_not_finite_is_masked() -> None:
    model, features = make()
    original = transducer.pruned_loss
    spoilt = torch.tensor([0.0, math.inf, 0.0])
    with patch.object(transducer, "pruned_loss", lambda *args: original(*args) + spoilt):
        loss = model.loss(features, LENGTHS, TOKENS, LossOptions())
    assert loss.valid.tolist() == [True, False, True]
    assert list(loss.problems) == [1] and loss.problems[1].startswith("a loss that is not finite: ")
    assert loss.pruned[1] == 0 and loss.simple[1] == 0


def test_bfloat16_autocast_is_near_float32() -> None:
    model, features = make()
    options = LossOptions(ctc_scale=0.3)
    exact = model.loss(features, LENGTHS, TOKENS, options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.loss(features, LENGTHS, TOKENS, options)
    for name in ("simple", "pruned", "ctc"):
        assert getattr(loss, name).dtype == torch.float32
        assert torch.allclose(getattr(loss, name), getattr(exact, name), rtol=0.02)
    assert all(bool(grad.isfinite().all()) for grad in gradients(model, loss.total(options).sum()).values())


def test_warm_up_and_total() -> None:
    options = LossOptions(simple_loss_scale=0.5, ctc_scale=0.2)
    assert options.weights(0.0) == pytest.approx((1.0, 0.1))
    assert options.weights(0.5) == pytest.approx((0.75, 0.55))
    assert options.weights() == options.weights(7.0) == pytest.approx((0.5, 1.0))
    model, features = make()
    loss = model.loss(features, LENGTHS, TOKENS, options)
    assert torch.allclose(loss.total(options, 0.5), 0.75 * loss.simple + 0.55 * loss.pruned + 0.2 * loss.ctc)


def test_it_learns() -> None:
    model, features = make("stateless")
    options = LossOptions()
    optimizer = torch.optim.AdamW(model.parameters(), 0.02)
    losses = []
    for step in range(40):
        loss = model.loss(features, LENGTHS, TOKENS, options).total(options, step / 20).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_the_encoder_is_an_s4former() -> None:
    encoder = EncoderConfig(features=8, channels=4, dim=8, layers=1, heads=2, feedforward=16, dropout=0.0)
    model = Transducer(replace(CONFIG, encoder=encoder))
    torch.manual_seed(5)
    loss = model.loss(torch.randn(3, 44, 8), LENGTHS, TOKENS, LossOptions(ctc_scale=0.1))
    assert loss.problems == {} and bool((loss.pruned > 0).all())


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[1], [2, 11], [3]], "utterance 1 of the batch: found token 11, but the model has 1 to 10"),
        ([[1], [2], [0]], "utterance 2 of the batch: found token 0"),
        ([[1], [2]], "found 3 features, 3 lengths, 2 transcripts"),
    ],
)
def test_batches_that_do_not_fit(tokens: list[list[int]], message: str) -> None:
    model, features = make()
    with pytest.raises(DataError, match=message):
        model.loss(features, LENGTHS, tokens, LossOptions())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prune_range": 1}, "prune_range 1; it must be 2 or more"),
        ({"lm_scale": 0.7, "am_scale": 0.4}, r"lm_scale 0.7 and am_scale 0.4; they and their sum lie in \[0, 1\]"),
        ({"simple_loss_scale": -1.0}, "simple_loss_scale -1.0"),
        ({"ctc_scale": -1.0}, "ctc_scale -1.0"),
        ({"backend": "cuda"}, "backend 'cuda'; there are torch, k2"),
    ],
)
def test_options_that_cannot_be(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LossOptions(**options)
