"""Products of the layers in training against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lm_zoo.layers.linear import Linear, backward, product


@pytest.mark.parametrize("shape", [(7, 12), (2, 5, 12), (3, 0, 12)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(1)
    plain, ours = nn.Linear(12, 9, bias), Linear(12, 9, bias)
    ours.load_state_dict(plain.state_dict())
    one, other = (torch.randn(shape, generator=torch.Generator().manual_seed(2)).requires_grad_() for _ in range(2))
    expected, got = plain(one), ours(other)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    expected.square().sum().backward()
    got.square().sum().backward()
    torch.testing.assert_close(other.grad, one.grad, rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def test_linear_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert Linear(4, 3)(torch.randn(2, 4)).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_product_and_its_gradients(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    x, weight, slope = torch.randn(7, 4).to(dtype), torch.randn(9, 4).to(dtype), torch.randn(7, 9).to(dtype)
    error = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(product(x, weight, torch.empty(7, 9, dtype=dtype)), x @ weight.t(), **error)
    total = torch.ones(9, 4)
    torch.testing.assert_close(backward(slope, x, weight, total), slope @ weight, **error)
    torch.testing.assert_close(total, 1 + (slope.t() @ x).float(), **error)
