"""The LSTM of the models in training: outputs and gradients of `nn.LSTM`."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from lm_zoo.layers import lstm
from lm_zoo.layers.dropout import dropout
from lm_zoo.layers.lstm import FEW, FusedLSTMLayer, LSTMLayers

SIZES = 5, 3, 7, 4  # batch, time, inputs, dim


@pytest.fixture(autouse=True)
def _old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm, "OLD_TORCH", True)


def pair(layers: int, dtype: torch.dtype, dropout: float = 0.0) -> tuple[LSTMLayers, nn.LSTM]:
    torch.manual_seed(1)
    ours = LSTMLayers(SIZES[2], SIZES[3], layers, dropout).to(dtype)
    theirs = nn.LSTM(SIZES[2], SIZES[3], layers, batch_first=True).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def run(rnn: nn.LSTM, dtype: torch.dtype, carried: bool) -> list[Tensor]:
    """Outputs, h and c after them, then the gradients of inputs, of h and c before, and of the weights."""
    batch, time, inputs, dim = SIZES
    rng = torch.Generator().manual_seed(2)
    shapes = [(batch, time, inputs), *[(rnn.num_layers, batch, dim)] * (2 if carried else 0)]
    given = [torch.randn(shape, generator=rng, dtype=dtype).requires_grad_() for shape in shapes]
    x, (h, c) = rnn(given[0], (given[1], given[2]) if carried else None)
    weights = [torch.randn(part.shape, generator=rng, dtype=dtype) for part in (x, h, c)]
    sum((part * weight).sum() for part, weight in zip((x, h, c), weights, strict=True)).backward()  # type: ignore[union-attr]
    gradients = [tensor.grad for tensor in (*given, *rnn.parameters())]
    assert not any(gradient is None for gradient in gradients)
    return [part.detach() for part in (x, h, c)] + [g for g in gradients if g is not None]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("carried", [False, True])
def test_outputs_and_gradients_are_those_of_torch(layers: int, carried: bool) -> None:
    for dtype in (torch.float64, torch.float32):
        ours, theirs = pair(layers, dtype)
        for found, wanted in zip(run(ours, dtype, carried), run(theirs, dtype, carried), strict=True):
            assert found.dtype == dtype
            torch.testing.assert_close(found, wanted)


def test_bfloat16_is_near() -> None:
    ours, theirs = pair(2, torch.float32)
    wanted = run(theirs, torch.float32, True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = run(ours, torch.float32, True)
    assert found[0].dtype == torch.bfloat16 and all(part.dtype == torch.float32 for part in found[3:])
    for one, other in zip(found, wanted, strict=True):
        assert float((one.float() - other).norm()) < 0.02 * float(other.norm())


def test_it_is_taken_in_training_with_few_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    apply = FusedLSTMLayer.apply
    monkeypatch.setattr(FusedLSTMLayer, "apply", lambda *given: (calls.append(1), apply(*given))[1])
    ours, theirs = pair(2, torch.float32)
    x = torch.randn(SIZES[:3])
    with torch.no_grad():
        torch.testing.assert_close(ours(x)[0], theirs(x)[0])
    ours(torch.randn(FEW + 1, 2, SIZES[2]))
    assert not calls
    ours(x)
    assert len(calls) == 2


def test_dropout_is_between_the_layers_in_training() -> None:
    ours, _ = pair(2, torch.float32, dropout=0.5)
    x = torch.randn(SIZES[:3])
    assert not torch.equal(ours(x)[0], ours(x)[0])
    ours.eval()
    torch.testing.assert_close(ours(x)[0], ours(x)[0])
    single, theirs = pair(1, torch.float32, dropout=0.5)
    torch.testing.assert_close(single(x)[0], theirs(x)[0])


def test_the_path_of_a_gpu_is_that_of_torch() -> None:
    """All is cast before, as autocast on a GPU would take float16."""
    for dtype in (torch.float64, torch.float32):
        ours, theirs = pair(2, dtype)
        ours.forward = partial(ours._torch_forward, dtype=dtype)  # type: ignore[method-assign]
        for found, wanted in zip(run(ours, dtype, True), run(theirs, dtype, True), strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("rows", [3, FEW + 1])
def test_recurrent_weights_are_dropped_in_training_alone(old: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm, "OLD_TORCH", old)
    torch.manual_seed(3)
    rnn = LSTMLayers(4, 16, 2, 0.0, weight_dropout=0.5)
    x = torch.randn(rows, 6, 4)
    plain = nn.LSTM(4, 16, 2, batch_first=True)
    plain.load_state_dict(rnn.state_dict())
    kept = [rnn._weights(layer)[1] for layer in (0, 1)]
    for layer, weight in enumerate(kept):
        whole = getattr(rnn, f"weight_hh_l{layer}")
        zeros = weight == 0
        assert 0.35 < zeros.float().mean() < 0.65
        torch.testing.assert_close(weight[~zeros], 2.0 * whole[~zeros])
    assert not torch.equal(rnn(x)[0], rnn(x)[0])
    rnn.eval()
    torch.testing.assert_close(rnn(x)[0], plain(x)[0])


def test_what_is_dropped_is_the_same_at_every_time_step() -> None:
    torch.manual_seed(4)
    rnn, x = LSTMLayers(4, 8, 1, 0.0, weight_dropout=0.5), torch.randn(2, 5, 4)
    torch.manual_seed(5)
    found = rnn(x)[0]
    torch.manual_seed(5)
    w_x, w_h, b_x, b_h = rnn._weights(0)
    plain = nn.LSTM(4, 8, 1, batch_first=True)
    plain.load_state_dict({f"{name}_l0": weight for name, weight in zip(lstm.NAMES, (w_x, w_h, b_x, b_h), strict=True)})
    torch.testing.assert_close(found, plain(x)[0])


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("rows", [3, FEW + 1])
def test_locked_dropout_between_layers_is_the_same_at_every_time_step(
    old: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against two layers one after the other, with the units that are dropped between them written out."""
    monkeypatch.setattr(lstm, "OLD_TORCH", old)
    torch.manual_seed(6)
    rnn, x = LSTMLayers(4, 8, 2, 0.5, locked=True), torch.randn(rows, 5, 4)
    state = torch.randn(2, rows, 8), torch.randn(2, rows, 8)
    first, second = nn.LSTM(4, 8, 1, batch_first=True), nn.LSTM(8, 8, 1, batch_first=True)
    for layer, one in enumerate((first, second)):
        one.load_state_dict({f"{name}_l0": getattr(rnn, f"{name}_l{layer}") for name in lstm.NAMES})
    torch.manual_seed(7)
    found, cells = rnn(x, state)
    torch.manual_seed(7)
    for layer in (0, 1):
        rnn._weights(layer)  # draws too, where weights are dropped
    kept = dropout(torch.ones(rows, 8), 0.5)
    inner, (h, c) = first(x, tuple(part[:1] for part in state))
    wanted, ends = second(inner * kept.unsqueeze(1), tuple(part[1:].contiguous() for part in state))
    torch.testing.assert_close(found, wanted)
    for part, one, other in zip(cells, (h, c), ends, strict=True):
        torch.testing.assert_close(part, torch.cat([one, other]))
    rnn.eval()
    torch.testing.assert_close(rnn(x)[0], second(first(x)[0])[0])
