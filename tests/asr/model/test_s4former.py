"""The encoder: causality, padding, relative positions, batch normalisation, sizes."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from asr.errors import ConfigError, DataError
from asr.model.attention import RelativeAttention, distance_codes
from asr.model.config import COMPONENTS, EncoderConfig, TransducerConfig, load_config
from asr.model.convolution import Depthwise, MaskedBatchNorm, Reparameterisation
from asr.model.masks import inside
from asr.model.s4former import S4former
from asr.model.subsampling import subsampled

SMALL = EncoderConfig(channels=4, dim=16, layers=2, heads=2, feedforward=32, kernel=4, dropout=0.0)
LENGTHS = torch.tensor([61, 40, 3, 1])


def encoder(**changes: object) -> S4former:
    torch.manual_seed(0)
    return S4former(dataclasses.replace(SMALL, **changes)).double()


def features() -> torch.Tensor:
    return torch.randn(4, 61, 80, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=["conv", "dir-real", "dir-lin", "com-real", "com-lin", "rep-real", "rep-lin"])
def variant(request: pytest.FixtureRequest) -> dict[str, object]:
    component, _, init = request.param.partition("-")
    return {"component": component, "s4_init": init or "real"}


@pytest.mark.parametrize("context", (None, 3, 0))
def test_no_output_of_the_causal_encoder_depends_on_a_later_frame(
    variant: dict[str, object], context: int | None
) -> None:
    model = encoder(left_context=context, **variant).eval()
    x = features()[:1].requires_grad_()
    y, _ = model(x, LENGTHS[:1])
    weights = torch.linspace(-1, 1, 16).double().exp()  # a plain sum of what an LN gives is constant
    for time in (0, 6, 11):
        gradient = torch.autograd.grad(y[0, time] @ weights, x, retain_graph=True)[0][0].abs().amax(1)
        assert gradient[4 * time] > 0
        assert gradient[4 * time + 1 :].max() < 1e-12  # FFT rounds
    changed = x.detach().clone()
    changed[:, 25:] += 1.0  # the first frame of output 7 that this reaches: 4 t >= 25
    moved = (model(changed, LENGTHS[:1])[0] - y)[0].abs().amax(1)
    assert moved[:7].max() < 1e-12 < moved[7]


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("context", (None, 3))
@torch.no_grad()
def test_padding_never_changes_results(variant: dict[str, object], causal: bool, context: int | None) -> None:
    model = encoder(causal=causal, left_context=context, **variant).eval()
    x = features()
    y, lengths = model(x, LENGTHS)
    assert lengths.tolist() == [16, 10, 1, 1] and y.shape == (4, 16, 16)
    garbage = x.masked_fill(~inside(LENGTHS, 61).unsqueeze(-1), float("nan"))
    torch.testing.assert_close(model(garbage, LENGTHS)[0], y, rtol=0, atol=0)
    for row, (length, frames) in enumerate(zip(LENGTHS, lengths, strict=True)):
        alone, _ = model(x[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(alone[0], y[row, :frames], rtol=0, atol=1e-10)
        assert (y[row, frames:] == 0).all()


def test_padding_changes_neither_statistics_nor_gradients(variant: dict[str, object]) -> None:
    one, other = encoder(**variant), encoder(**variant)
    x = features()[:2]
    grown = F.pad(x, (0, 0, 0, 37), value=5.0)
    for model, given in ((one, x), (other, grown)):
        model(given, LENGTHS[:2])[0].square().sum().backward()
    for (name, value), (_, want) in zip(other.state_dict().items(), one.state_dict().items(), strict=True):
        torch.testing.assert_close(value, want, msg=name)
    for (name, given), (_, wanted) in zip(other.named_parameters(), one.named_parameters(), strict=True):
        assert given.grad is not None, name
        torch.testing.assert_close(given.grad, wanted.grad, msg=name)


def test_batch_norm_is_that_of_the_frames_alone() -> None:
    ours, plain = MaskedBatchNorm(5), torch.nn.BatchNorm1d(5)
    x, frames = torch.randn(3, 7, 5), inside(torch.tensor([7, 2, 5]), 7)
    torch.testing.assert_close(ours(x, frames)[frames], plain(x[frames]))
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in ours.state_dict().items())
    before = ours.running_mean.clone()
    for few in (torch.zeros_like(frames), inside(torch.tensor([1, 0, 0]), 7)):  # one frame has no variance
        assert ours(x, few).isfinite().all() and torch.equal(ours.running_mean, before)
    torch.testing.assert_close(ours.eval()(x, frames), plain.eval()(x.flatten(0, 1)).view_as(x))


@pytest.mark.parametrize(
    ("kernel", "causal", "seen"),
    [(1, False, [3]), (2, False, [2, 3]), (4, True, [0, 1, 2, 3]), (5, False, [1, 2, 3, 4, 5])],
)
def test_frames_of_a_kernel(kernel: int, causal: bool, seen: list[int]) -> None:
    """Of an even one the more distant frame lies in the past."""
    conv = Depthwise(2, kernel, causal)
    x = torch.zeros(1, 8, 2, requires_grad=True)
    conv(x)[0, 3].sum().backward()
    assert x.grad is not None and x.grad[0, :, 0].nonzero().flatten().tolist() == seen


def slow_attention(model: RelativeAttention, x: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Dai et al. 2019, Sec. 3.3, one query, key and head at a time."""
    outputs = torch.zeros_like(x)
    query, key, value = model.project(x)
    for row, length in enumerate(lengths):
        for i in range(length):
            for head in range(model.heads):
                part = slice(head * model.size, (head + 1) * model.size)
                first = 0 if model.left_context is None else max(0, i - model.left_context)
                keys = range(first, i + 1 if model.causal else length)
                scores = []
                for j in keys:
                    r = model.position(distance_codes(i - j, i - j, x.shape[2], x.dtype, x.device))[0, part]
                    content = (query[row, i, part] + model.content_bias[head]) @ key[row, j, part]
                    scores.append(content + (query[row, i, part] + model.position_bias[head]) @ r)
                weights = torch.softmax(torch.stack(scores) / model.size**0.5, dim=0)
                outputs[row, i, part] = weights @ value[row, keys.start : keys.stop, part]
    return model.out(outputs)


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("context", (None, 0, 2, 20))
@torch.no_grad()
def test_attention_is_that_of_transformer_xl(causal: bool, context: int | None) -> None:
    torch.manual_seed(3)
    model = RelativeAttention(8, 2, causal, context).double()
    model.content_bias.normal_()
    model.position_bias.normal_()
    x, lengths = torch.randn(2, 9, 8, dtype=torch.float64), [9, 5]
    y = model(x, inside(torch.tensor(lengths), 9))
    want = slow_attention(model, x, lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(y[row, :length], want[row, :length], rtol=0, atol=1e-12)


def test_distances_have_the_sines_of_their_size() -> None:
    table = distance_codes(2, -1, 6, torch.float64, torch.device("cpu"))
    assert table.shape == (4, 6)
    assert table[2].tolist() == [0, 0, 0, 1, 1, 1]
    torch.testing.assert_close(table[0, 0], torch.tensor(2.0).sin().double())


def test_rep_has_the_kernel_of_its_s4_and_keeps_it_in_evaluation() -> None:
    torch.manual_seed(4)
    rep = Reparameterisation(dataclasses.replace(SMALL, component="rep", kernel=30))
    x = torch.randn(2, 30, 16)
    torch.testing.assert_close(rep(x), rep.s4(x), rtol=1e-4, atol=1e-5)  # nothing is cut off yet
    assert rep.weight() is not rep.weight()
    rep.eval()
    with torch.no_grad():
        assert rep.weight() is rep.weight()
        old = rep.weight()
        rep.load_state_dict(Reparameterisation(dataclasses.replace(SMALL, component="rep", kernel=30)).state_dict())
        assert not torch.equal(rep.weight(), old)
        assert rep.double().weight().dtype == torch.float64
        old = rep.weight()
        rep.train()
        rep.s4.readout.data.mul_(2)
        assert not torch.equal(rep.eval().weight(), old)
    assert rep.weight().requires_grad


@pytest.mark.parametrize("component", COMPONENTS)
def test_trains_under_bfloat16_autocast(component: str) -> None:
    model = encoder(component=component, dropout=0.1, left_context=3).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = model(features().float(), LENGTHS)
    y.float().square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_evaluation_in_inference_mode_does_not_hinder_training() -> None:
    model = encoder(component="rep")
    with torch.inference_mode():
        model.eval()(features()[:, :53], LENGTHS.clamp(max=53))
    model.train()(features()[:, :53], LENGTHS.clamp(max=53))[0].sum().backward()


def test_lengths() -> None:
    assert subsampled(torch.tensor([0, 1, 4, 5, 8, 9, 100])).tolist() == [0, 1, 1, 2, 2, 3, 25]
    y, lengths = encoder()(torch.zeros(1, 0, 80, dtype=torch.float64), torch.tensor([0]))
    assert y.shape == (1, 0, 16) and lengths.tolist() == [0]


def test_wrong_shapes() -> None:
    with pytest.raises(DataError, match=r"shape 4x61x40; the encoder takes \(batch, frames, 80\)"):
        encoder()(features()[..., :40], LENGTHS)
    with pytest.raises(ConfigError, match="no such configuration"):
        load_config("paper-none")
    assert isinstance(load_config("small"), TransducerConfig)
