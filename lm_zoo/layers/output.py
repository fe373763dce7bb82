"""The softmax layer in training: logits, loss and scores by chunks, no matrix of all of them."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm_zoo.layers.linear import CACHED, backward, product


class SoftmaxLayer(nn.Module):
    """The softmax layer: logits = x W^T + b, with W shared with the input embedding or its own."""

    def __init__(self, vocab_size: int, dim: int, tied_to: nn.Embedding | None) -> None:
        super().__init__()
        if tied_to is None:
            self.weight = nn.Parameter(torch.empty(vocab_size, dim).normal_(std=dim**-0.5))
        else:
            self.weight = cast(nn.Parameter, tied_to.weight)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.dtype = "float32"  # of the products of `lm_zoo.inference.softmax.tiles`

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> log-probabilities (..., vocab), float32."""
        return F.linear(x, self.weight, self.bias).float().log_softmax(dim=-1)


class FusedCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of the softmax layer, its gradients taken chunk by chunk in the forward pass.

    No (rows, vocab) matrix is kept: memory is one chunk of logits in `dtype`, and the softmax goes over few rows at a
    time, so that they stay in the processor's cache.  Equal to
    `F.cross_entropy(F.linear(x, weight, bias), targets, reduction="sum")`.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype, chunk: int = 0
    ) -> Tensor:
        chunk = chunk or rows_at_once(x)
        with torch.autocast(x.device.type, enabled=False):
            matrix, inputs = weight.detach().to(dtype), x.detach().to(dtype)
            grad_x, grad_weight = torch.empty_like(inputs), torch.zeros_like(weight)
            grad_bias, loss = torch.zeros_like(bias), torch.zeros((), device=x.device)
            room = torch.empty(min(chunk, len(x)), len(weight), dtype=dtype, device=x.device)
            for start in range(0, len(inputs), chunk):
                rows = inputs[start : start + chunk]
                slope = product(rows, matrix, room[: len(rows)])
                block = len(rows) if x.is_cuda else max(1, CACHED // len(weight))
                for part, wanted in zip(slope.split(block), targets[start : start + chunk].split(block), strict=True):
                    logits = part.float().add_(bias)
                    loss += cross_entropy_(logits, wanted)
                    grad_bias += logits.sum(0)
                    part.copy_(logits)  # of float32 it is the same
                grad_x[start : start + chunk] = backward(slope, rows, matrix, grad_weight)
        ctx.save_for_backward(grad_x.to(x.dtype), grad_weight, grad_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        grad_x, grad_weight, grad_bias = ctx.saved_tensors  # changed in place: a second pass is refused
        return grad_x.mul_(grad), grad_weight.mul_(grad), grad_bias.mul_(grad), None, None, None


class TargetScores(torch.autograd.Function):
    """Log-probabilities of targets `(rows,)` under the softmax layer; its logits are made again for the gradients.

    Equal to `F.linear(x, weight, bias).log_softmax(1)` at the targets, of which no (rows, vocab) matrix is kept.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype, chunk: int = 0
    ) -> Tensor:
        chunk = chunk or rows_at_once(x)
        ctx.save_for_backward(x, weight, bias, targets)
        ctx.dtype, ctx.chunk = dtype, chunk
        scores = torch.empty(len(x), device=x.device)
        with torch.autocast(x.device.type, enabled=False):
            matrix = weight.detach().to(dtype)
            for start in range(0, len(x), chunk):
                rows = slice(start, start + chunk)
                logits = F.linear(x[rows].to(dtype), matrix).float() + bias
                scores[rows] = -F.cross_entropy(logits, targets[rows], reduction="none")
        return scores

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        x, weight, bias, targets = ctx.saved_tensors
        grad_x = torch.empty(x.shape, dtype=ctx.dtype, device=x.device)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        with torch.autocast(x.device.type, enabled=False):
            matrix = weight.detach().to(ctx.dtype)
            for start in range(0, len(x), ctx.chunk):
                rows = slice(start, start + ctx.chunk)
                inputs, wanted = x[rows].to(ctx.dtype), targets[rows].unsqueeze(1)
                # The gradient of a row's logits: one-hot less softmax, times that of its score.
                slope = (F.linear(inputs, matrix).float() + bias).softmax(1).neg_()
                slope.scatter_add_(1, wanted, torch.ones(wanted.shape, device=x.device))
                slope *= grad[rows].unsqueeze(1)
                grad_bias += slope.sum(0)
                grad_x[rows] = backward(slope.to(ctx.dtype), inputs, matrix, grad_weight)
        return grad_x.to(x.dtype), grad_weight, grad_bias, None, None, None


def rows_at_once(x: Tensor) -> int:
    """Rows whose logits are made at a time: a GPU takes more, as each of its kernels costs some microseconds."""
    return 8192 if x.is_cuda else 512


def cross_entropy_(logits: Tensor, targets: Tensor) -> Tensor:
    """Summed cross-entropy of logits `(rows, vocab)`, which are turned into its gradient: softmax - one-hot."""
    targets = targets.unsqueeze(1)
    largest, wanted = logits.amax(1, keepdim=True), logits.gather(1, targets)
    total = logits.sub_(largest).exp_().sum(1, keepdim=True)
    logits.mul_(total.reciprocal()).scatter_add_(1, targets, torch.full_like(total, -1.0))
    return (largest + total.log() - wanted).sum()
