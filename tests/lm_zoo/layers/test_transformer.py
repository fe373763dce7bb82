"""Layers against slow, obvious references."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from lm_zoo.layers import linear as products
from lm_zoo.layers import output
from lm_zoo.layers.output import FusedCrossEntropy, cross_entropy_
from lm_zoo.layers.transformer import CausalSelfAttention, InputEmbedding, TransformerLayer, causal_attention, sinusoids


def test_attention_is_equation_5() -> None:
    """h_t = sum_i softmax_i(q_t k_i / sqrt(d)) v_i over i <= t, written as loops."""
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 2, 5, 4)
    got = causal_attention(queries, keys, values)
    for batch in range(2):
        for head in range(2):
            for t in range(5):
                weights = [math.exp(float(queries[batch, head, t] @ keys[batch, head, i]) / 2.0) for i in range(t + 1)]
                expected = sum(w / sum(weights) * values[batch, head, i] for i, w in enumerate(weights))
                torch.testing.assert_close(got[batch, head, t], expected, atol=1e-5, rtol=1e-5)


def test_layer_step_is_forward() -> None:
    torch.manual_seed(1)
    layer = TransformerLayer(8, 2, 12, dropout=0.0).eval()
    x = torch.randn(3, 6, 8)
    whole, cache = layer(x), torch.zeros(3, 2, 2, 0, 4)
    for t in range(6):
        out, cache = layer.step(x[:, t], cache)
        torch.testing.assert_close(out, whole[:, t], atol=1e-5, rtol=1e-5)


def test_layer_is_post_norm() -> None:
    """Eqs. 7-9: each sublayer's residual sum is normalised, so outputs have mean 0 and variance 1 at the start."""
    torch.manual_seed(2)
    out = TransformerLayer(64, 4, 32, dropout=0.0)(5 * torch.randn(2, 7, 64))
    torch.testing.assert_close(out.mean(-1), torch.zeros(2, 7), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.var(-1, unbiased=False), torch.ones(2, 7), atol=1e-3, rtol=0)


def test_heads_must_divide() -> None:
    with pytest.raises(ValueError, match="not a multiple"):
        CausalSelfAttention(10, 3, 0.0)


def test_sinusoids_are_those_of_vaswani() -> None:
    codes = sinusoids(3, 2, 6)
    assert float(codes[0, 0]) == pytest.approx(math.sin(3))
    assert float(codes[1, 3]) == pytest.approx(math.cos(4 / 10000 ** (2 / 6)), abs=1e-6)


@pytest.mark.parametrize("chunk", [7, 64, 1000])
def test_fused_cross_entropy(chunk: int) -> None:
    torch.manual_seed(3)
    tensors = [torch.randn(100, 9), torch.randn(30, 9), torch.randn(30)]
    targets = torch.randint(0, 30, (100,))
    plain = [tensor.clone().requires_grad_() for tensor in tensors]
    fused = [tensor.clone().requires_grad_() for tensor in tensors]
    expected = F.cross_entropy(F.linear(*plain), targets, reduction="sum")
    got = FusedCrossEntropy.apply(*fused, targets, torch.float32, chunk)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
    (3 * expected).backward()
    (3 * got).backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        got.backward()
    for one, other in zip(plain, fused, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_fused_cross_entropy_in_bfloat16_and_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few rows, in the softmax and in the sum of the weights' gradients, change nothing."""
    torch.manual_seed(4)
    tensors = [torch.randn(50, 9), torch.randn(30, 9), torch.randn(30)]
    targets = torch.randint(0, 30, (50,))
    plain = [tensor.clone().requires_grad_() for tensor in tensors]
    F.cross_entropy(F.linear(*plain), targets, reduction="sum").backward()
    found = []
    for cached in (40, 1 << 17):
        monkeypatch.setattr(output, "CACHED", cached)
        monkeypatch.setattr(products, "CACHED", cached)
        fused = [tensor.clone().requires_grad_() for tensor in tensors]
        FusedCrossEntropy.apply(*fused, targets, torch.bfloat16, 16).backward()
        found.append([tensor.grad for tensor in fused])
    for exact, small, large in zip(plain, *found, strict=True):
        torch.testing.assert_close(small, large, rtol=1e-5, atol=1e-5)
        assert (small - exact.grad).norm() < 0.02 * exact.grad.norm()


def test_cross_entropy_of_far_logits() -> None:
    logits = torch.tensor([[500.0, 0.0, -500.0], [-1e4, -1e4, -1e4]])
    assert cross_entropy_(logits, torch.tensor([2, 1])).item() == pytest.approx(1000.0 + math.log(3.0))
    torch.testing.assert_close(logits, torch.tensor([[1.0, 0.0, -1.0], [1 / 3, -2 / 3, 1 / 3]]))


def test_words_are_dropped_whole_in_training_alone() -> None:
    torch.manual_seed(1)
    layer = InputEmbedding(50, 6, positions=False, dropout=0.0, word_dropout=0.4)
    tokens = torch.arange(50).repeat(3, 1)
    whole = layer.embedding(tokens) * layer.scale
    found = layer(tokens)
    gone = (found == 0).all(-1)
    assert 0.2 < gone.float().mean() < 0.6 and torch.equal(gone[0], gone[1]) and torch.equal(gone[0], gone[2])
    torch.testing.assert_close(found[~gone], whole[~gone] / 0.6, rtol=0.01, atol=0)
    torch.testing.assert_close(layer.eval()(tokens), whole)
