"""Products of the layers in training: on the CPU, float32 goes through oneDNN where torch (1.13) would take MKL.

MKL is slow on AMD's processors.  New versions of torch use a faster one, and need nothing of this.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CACHED = 1 << 17  # float32 numbers that stay in a processor's cache
OLD_TORCH = not hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear`: x `(..., inputs)`, weight `(outputs, inputs)` -> `(..., outputs)`."""
    if not x.numel() or autocast_on(x.device.type) or not by_onednn(x, weight):
        return F.linear(x, weight, bias)
    return torch._C._nn.mkldnn_linear(x.to_mkldnn(), weight, bias).to_dense()


def product(x: Tensor, weight: Tensor, room: Tensor) -> Tensor:
    """`x W^T`, `(rows, inputs)` -> `(rows, outputs)`, of no gradient; in `room` where torch can."""
    if by_onednn(x, weight):
        return torch._C._nn.mkldnn_linear(x.to_mkldnn(), weight, None).to_dense()
    return torch.mm(x, weight.t(), out=room)


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether this torch and these tensors profit."""
    formats = x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"
    return OLD_TORCH and formats and torch.backends.mkldnn.is_available()


def backward(slope: Tensor, x: Tensor, weight: Tensor, grad_weight: Tensor) -> Tensor:
    """The gradients of a product from its own, `(rows, outputs)`: returns that of x; adds that of weight.

    Args:
      x: `(rows, inputs)`; weight: `(outputs, inputs)`, both of the dtype of slope.
      grad_weight: float32 `(outputs, inputs)`, changed in place.
    """
    if by_onednn(slope, weight):
        slope, x = slope.to_mkldnn(), x.to_mkldnn()
        grad_weight += torch.ops.aten.mkldnn_linear_backward_weights(slope, x, weight, False)[0]
        return torch.ops.aten.mkldnn_linear_backward_input(x.shape, slope, weight).to_dense()
    if slope.dtype == grad_weight.dtype:
        grad_weight.addmm_(slope.t(), x)
    elif slope.is_cuda:
        grad_weight += torch.mm(slope.t(), x)
    else:
        part = torch.mm(slope.t(), x)
        size = max(1, CACHED // part.shape[1])
        for total, more in zip(grad_weight.split(size), part.split(size), strict=True):
            total += more  # by parts, as torch makes a float32 copy of what it adds
    return torch.mm(slope, weight)


def autocast_on(device: str) -> bool:
    if device != "cpu":
        return torch.is_autocast_enabled()
    enabled = getattr(torch._C, "_is_autocast_available", None)  # torch 2.4 and newer name the device
    return torch.is_autocast_enabled("cpu") if enabled else torch.is_autocast_cpu_enabled()  # type: ignore[call-arg]


def cast_dtype(x: Tensor) -> torch.dtype:
    """What autocast casts x to, if it is on; otherwise x's own dtype."""
    if not autocast_on(x.device.type):
        return x.dtype
    return torch.get_autocast_gpu_dtype() if x.is_cuda else torch.bfloat16
