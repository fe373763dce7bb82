"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): momentum whose matrices are made orthogonal.

The numbers are those of `torch.optim.Muon`, which torch 2.8 and older lack; matrices that are long take fewer products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lm_zoo.layers.processor import adds_up_in_float32, slow_in_bfloat16

A, B, C = 3.4445, -4.7750, 2.0315  # X <- (a + b X X^T + c (X X^T)^2) X, of which every singular value gets near 1
TINY = 1e-7
BEFORE, AFTER = 3, 2  # iterations in the Gram matrix: in bfloat16 more at once would lose small singular values
LONG = 1.5  # times as long as wide: from there on the Gram matrix takes fewer products


class Muon(torch.optim.Optimizer):
    """Muon of matrices: Nesterov momentum, five iterations of Newton-Schulz, decoupled weight decay.

    The iterations are in bfloat16 on a GPU, and on a processor with `half` where its products add up in float32 and
    are not slow.

    A step moves a matrix `(rows, columns)` by the learning rate times `sqrt(max(1, rows / columns))`, after it has been
    made smaller by the learning rate times the weight decay of its size.
    """

    def __init__(
        self,
        matrices: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        half: bool = False,
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.half = half

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Checkpoints made before there was weight decay have none."""
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("weight_decay", 0.0)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """See `torch.optim.Optimizer.step`; a matrix without a gradient stays."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for matrices in _side_by_side([matrix for matrix in group["params"] if matrix.grad is not None]):
                self._move(matrices, group["lr"], group["momentum"], group["weight_decay"])
        return loss

    def _move(self, matrices: list[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        """One step of matrices of one shape."""
        mixed = [self._mix(matrix, matrix.grad, momentum) for matrix in matrices if matrix.grad is not None]
        dtype = self._dtype(matrices[0])
        updates = orthogonal(torch.stack(mixed), dtype).unbind() if len(mixed) > 1 else [orthogonal(mixed[0], dtype)]
        rows, columns = matrices[0].shape
        for matrix, update in zip(matrices, updates, strict=True):
            matrix.mul_(1.0 - lr * weight_decay).add_(update, alpha=-lr * math.sqrt(max(1.0, rows / columns)))

    def _dtype(self, matrix: Tensor) -> torch.dtype:
        """What the iterations are computed in."""
        half = matrix.is_cuda or (self.half and adds_up_in_float32() and not slow_in_bfloat16())
        return torch.bfloat16 if half else torch.float32

    def _mix(self, matrix: Tensor, slope: Tensor, momentum: float) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        return slope.lerp(state["momentum_buffer"].lerp_(slope, 1.0 - momentum), momentum)


def _side_by_side(matrices: list[Tensor]) -> list[list[Tensor]]:
    """The matrices that take a step together: on a GPU those of one shape, as there a kernel's start is what costs."""
    shapes: dict[object, list[Tensor]] = {}
    for number, matrix in enumerate(matrices):
        shapes.setdefault((matrix.shape, matrix.device) if matrix.is_cuda else number, []).append(matrix)
    return list(shapes.values())


def orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """About `U V^T` of each matrix `U S V^T`, `([matrices,] rows, columns)`, computed in a dtype, bfloat16.

    Its singular values are between 0.7 and 1.2.
    """
    x = matrix.to(dtype)
    tall = x.shape[-2] > x.shape[-1]
    x = x.transpose(-2, -1) if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=TINY)
    if x.shape[-1] > LONG * x.shape[-2]:
        x = _iterate_gram(_iterate_gram(x, BEFORE), AFTER)
    else:
        for _ in range(BEFORE + AFTER):
            x = _add(x, _polynomial(x @ x.transpose(-2, -1)), x, beta=A)
    return (x.transpose(-2, -1) if tall else x).bfloat16()


def _add(to: Tensor, left: Tensor, right: Tensor, beta: float, alpha: float = 1.0) -> Tensor:
    """`beta to + alpha left right`, of matrices or of stacks of them."""
    return (torch.addmm if to.dim() == 2 else torch.baddbmm)(to, left, right, beta=beta, alpha=alpha)


def _polynomial(gram: Tensor) -> Tensor:
    """`b G + c G^2` of G `(..., side, side)`."""
    return _add(gram, gram, gram, beta=B, alpha=C)


def _iterate_gram(x: Tensor, iterations: int) -> Tensor:
    """So many iterations on x `(..., short, long)`, of which one product with x is left.

    With P = a + b G + c G^2 an iteration takes x to P x, so G = x x^T to P G P; the product of all P meets x last.
    """
    gram = x @ x.transpose(-2, -1)
    step = _polynomial(gram)  # P - a
    product = step.clone()
    product.diagonal(dim1=-2, dim2=-1).add_(A)
    for _ in range(iterations - 1):
        half = _add(gram, step, gram, beta=A)
        gram = _add(half, half, step, beta=A)
        step = _polynomial(gram)
        product = _add(product, step, product, beta=A)
    return product @ x
