"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): momentum whose matrices are made orthogonal.

The numbers are those of `torch.optim.Muon`, which torch 2.8 and older lack; matrices that are long take fewer products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

A, B, C = 3.4445, -4.7750, 2.0315  # X <- (a + b X X^T + c (X X^T)^2) X, of which every singular value gets near 1
TINY = 1e-7
BEFORE, AFTER = 3, 2  # iterations in the Gram matrix: in bfloat16 more at once would lose small singular values
LONG = 1.5  # times as long as wide: from there on the Gram matrix takes fewer products


class Muon(torch.optim.Optimizer):
    """Muon of matrices: Nesterov momentum, five iterations of Newton-Schulz in bfloat16, no weight decay.

    A step moves a matrix `(rows, columns)` by the learning rate times `sqrt(max(1, rows / columns))`.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """See `torch.optim.Optimizer.step`; a matrix without a gradient stays."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._move(matrix, matrix.grad, group["lr"], group["momentum"])
        return loss

    def _move(self, matrix: Tensor, slope: Tensor, lr: float, momentum: float) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        mean = state["momentum_buffer"].lerp_(slope, 1.0 - momentum)
        rows, columns = matrix.shape
        update = orthogonal(slope.lerp(mean, momentum))
        matrix.add_(update, alpha=-lr * math.sqrt(max(1.0, rows / columns)))


def orthogonal(matrix: Tensor) -> Tensor:
    """About `U V^T` of a matrix `U S V^T`, `(rows, columns)`, in bfloat16: singular values between 0.7 and 1.2."""
    x = matrix.bfloat16()
    tall = len(x) > x.shape[1]
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=TINY)
    if x.shape[1] > LONG * len(x):
        x = _iterate_gram(_iterate_gram(x, BEFORE), AFTER)
    else:
        for _ in range(BEFORE + AFTER):
            x = torch.addmm(x, _polynomial(x @ x.t()), x, beta=A)
    return x.t() if tall else x


def _polynomial(gram: Tensor) -> Tensor:
    """`b G + c G^2` of G `(side, side)`."""
    return torch.addmm(gram, gram, gram, beta=B, alpha=C)


def _iterate_gram(x: Tensor, iterations: int) -> Tensor:
    """So many iterations on x `(short, long)`, of which one product with x is left.

    With P = a + b G + c G^2 an iteration takes x to P x, so G = x x^T to P G P; the product of all P meets x last.
    """
    gram = x @ x.t()
    step = _polynomial(gram)  # P - a
    product = step.clone()
    product.diagonal().add_(A)
    for _ in range(iterations - 1):
        half = torch.addmm(gram, step, gram, beta=A)
        gram = torch.addmm(half, half, step, beta=A)
        step = _polynomial(gram)
        product = torch.addmm(product, step, product, beta=A)
    return product @ x
