"""S4D: kernel, FFT convolution and recurrence are one and the same map."""

from __future__ import annotations

import math

import pytest
import torch

from asr.model.s4 import S4D

INITS = ("real", "lin")


def recurrence(s4: S4D, inputs: torch.Tensor) -> torch.Tensor:
    """`(B, T, H)` step by step."""
    state, outputs, system = s4.initial(len(inputs)), [], s4.system()
    for frame in inputs.unbind(1):
        output, state = s4.step(frame, state, system)
        outputs.append(output)
    return torch.stack(outputs, dim=1)


def direct(s4: S4D, inputs: torch.Tensor) -> torch.Tensor:
    """Eq. 1 with a loop, from A, dt, C, D as the paper writes them."""
    a = -torch.exp(s4.log_decay).to(torch.complex128)
    c = s4.readout.to(torch.complex128)
    if s4.complex:
        a, c = a + 1j * s4.frequency, 2 * torch.view_as_complex(s4.readout)
    step = torch.exp(s4.log_step).unsqueeze(1)
    discrete_a = torch.exp(a * step)
    discrete_b = (discrete_a - 1) / a
    x, outputs = torch.zeros(len(inputs), *discrete_a.shape, dtype=torch.complex128), []
    for frame in inputs.unbind(1):
        x = discrete_a * x + discrete_b * frame.unsqueeze(-1)
        outputs.append((c * x).sum(-1).real + s4.skip * frame)
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("length", (1, 2, 77))
@torch.no_grad()
def test_kernel_fft_recurrence_and_formula_agree(init: str, length: int) -> None:
    torch.manual_seed(1)
    s4 = S4D(6, 4, init).double()
    s4.skip.normal_()
    inputs = torch.randn(3, length, 6, dtype=torch.float64)
    want = direct(s4, inputs)
    torch.testing.assert_close(s4(inputs), want, rtol=0, atol=1e-9)
    torch.testing.assert_close(recurrence(s4, inputs), want, rtol=0, atol=1e-9)
    kernel = s4.kernel(length)
    by_kernel = torch.stack([(inputs[:, : t + 1].flip(1) * kernel[:, : t + 1].T).sum(1) for t in range(length)], dim=1)
    torch.testing.assert_close(by_kernel + inputs * s4.skip, want, rtol=0, atol=1e-9)


@pytest.mark.parametrize("init", INITS)
@torch.inference_mode()
def test_float32_at_length_10000(init: str) -> None:
    torch.manual_seed(2)
    s4 = S4D(8, 4, init)
    inputs = torch.randn(1, 10_000, 8) + 0.5
    fft, steps = s4(inputs), recurrence(s4, inputs)
    torch.testing.assert_close(fft, steps, rtol=0, atol=1e-4)
    torch.testing.assert_close(fft, s4.double()(inputs.double()).float(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("init", INITS)
@torch.no_grad()
def test_chunks_with_their_own_lengths(init: str) -> None:
    torch.manual_seed(3)
    s4 = S4D(4, 3, init).double()
    inputs = torch.randn(2, 20, 4, dtype=torch.float64)
    want = s4(inputs)
    state, done = s4.initial(2), [0, 0]
    for lengths in ([5, 0], [7, 6], [0, 1], [8, 13]):
        chunk = torch.full((2, max(lengths) + 2, 4), 7.0, dtype=torch.float64)  # 7: not to be read
        for row, length in enumerate(lengths):
            chunk[row, :length] = inputs[row, done[row] : done[row] + length]
        outputs, state = s4.chunk(chunk, torch.tensor(lengths), state)
        for row, length in enumerate(lengths):
            torch.testing.assert_close(outputs[row, :length], want[row, done[row] : done[row] + length])
            done[row] += length
    assert done == [20, 20]


def test_initialisation_is_that_of_the_paper() -> None:
    real, lin = S4D(3, 4, "real"), S4D(3, 4, "lin")
    assert (-torch.exp(real.log_decay)).tolist() == pytest.approx([-1, -2, -3, -4])
    assert (-torch.exp(lin.log_decay)).tolist() == pytest.approx([-0.5] * 4)
    assert lin.frequency.tolist() == pytest.approx([math.pi * n for n in range(4)])
    torch.manual_seed(4)
    exponents = S4D(3000, 1).log_step.detach() / math.log(10)  # uniform from 0.001 to 0.1: a thirtieth has 100 +- 10
    assert all(50 < count < 150 for count in torch.histc(exponents, 30, -3, -1).tolist())
    assert exponents.min() >= -3 and exponents.max() <= -1


def test_number_of_parameters() -> None:
    """The paper's "around 4000" for H = 512, N = 4: A, B and C; B is not trained, D and the steps are."""
    size = {init: sum(parameter.numel() for parameter in S4D(512, 4, init).parameters()) for init in INITS}
    assert size == {"real": 4 + 512 * 4 + 2 * 512, "lin": 2 * 4 + 2 * 512 * 4 + 2 * 512}
    assert size["real"] - 2 * 512 + 512 * 4 == 4100


def test_every_parameter_is_trained_and_the_system_stays_stable() -> None:
    s4 = S4D(5, 3, "lin")
    optimizer = torch.optim.Adam(s4.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        s4(torch.randn(2, 30, 5)).square().mean().backward()
        assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in s4.parameters())
        optimizer.step()
    assert (s4._rates().real < 0).all()


def test_stays_in_float32_under_autocast() -> None:
    s4 = S4D(4, 2)
    inputs = torch.randn(1, 50, 4).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(s4(inputs), s4(inputs.float()))
