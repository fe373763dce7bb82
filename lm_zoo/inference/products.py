"""Matrix products in the number format asked for: float32, bfloat16 or int8 (weights; inputs row by row)."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm_zoo.base import DTYPES
from lm_zoo.layers.processor import slow_in_bfloat16

POINTWISE: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # torch 2
WIDE: Any = getattr(torch.ops.aten.mm, "dtype", None)  # torch 2.8, on GPUs: float32 results of half precision
FEW = 8  # rows for which torch 1.13.1's oneDNN, which reorders the weights in every call, is no faster than MKL


def _padded(rows: Tensor) -> Tensor:
    """Rows `(rows, inputs)` with zeros behind them: their number has at most four binary digits that are not zero.

    oneDNN makes a kernel for each number of rows that it meets, which takes time, and up to 600 KB in torch 2.
    """
    step = 1 << max(0, len(rows).bit_length() - 4)
    more = -len(rows) % step
    return F.pad(rows, (0, 0, 0, more)) if more else rows


class Product(nn.Module):
    """`x W^T + b` in float32: `(rows, inputs)` -> `(rows, outputs)`."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class OneDnnProduct(Product):
    """The same through oneDNN (CPU)."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.detach(), None if bias is None else bias.detach())
        self._pack()

    def _pack(self) -> None:
        """What oneDNN needs, and no pickle holds."""
        self.pointwise: Any = POINTWISE
        self.packed: tuple[Tensor, Tensor] | None = None
        if self.pointwise is None and _suits_onednn(self.weight):
            zeros = self.weight.new_zeros(len(self.weight))
            self.packed = self.weight.to_mkldnn(), (zeros if self.bias is None else self.bias).to_mkldnn()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("pointwise", "packed")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._pack()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if self.pointwise is not None:
            y = self.pointwise(_padded(rows), self.weight, self.bias, "none", [], "")
        elif self.packed is None or len(rows) <= FEW or torch.is_inference_mode_enabled():
            return F.linear(x, self.weight, self.bias)
        else:
            y = torch._C._nn.mkldnn_linear(_padded(rows).to_mkldnn(), *self.packed).to_dense()
        return y[: len(rows)].view(*x.shape[:-1], len(self.weight))


class HalfProduct(Product):
    """The same of weights that are in float16 or bfloat16 already; results are float32, not rounded to these."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.float()
        if not x.is_cuda:
            return F.linear(x.float(), self.weight.float(), bias)
        rows = x.reshape(-1, x.shape[-1])
        # Without such products results are rounded there: those of float32 would be ten times as slow.
        y = WIDE(rows, self.weight.t(), torch.float32) if WIDE else F.linear(rows, self.weight).float()
        y = y if bias is None else y + bias
        return y.view(*x.shape[:-1], len(self.weight))


class BFloat16Product(Product):
    """The same of inputs and weights rounded to bfloat16; the bias is added in float32.

    Sums are rounded to bfloat16 once, at their end: torch has no such product with float32 results on a CPU.
    """

    between = torch.bfloat16  # of the products of attention

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.detach().bfloat16(), None if bias is None else bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        rows = x.bfloat16().reshape(-1, x.shape[-1])
        y = F.linear(_padded(rows) if rows.device.type == "cpu" else rows, self.weight)[: len(rows)].float()
        y = y if self.bias is None else y.add_(self.bias)
        return y.view(*x.shape[:-1], len(self.weight))


class RoundedProduct(Product):
    """The same by a product of float32, for processors that have none of bfloat16: it is as fast as that."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, None if bias is None else bias.detach())
        self.rounded = make_product(weight.detach().bfloat16().float(), None)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.rounded(x.bfloat16().float()).bfloat16().float()
        return y if self.bias is None else y.add_(self.bias)


class Int8Product(nn.Module):
    """The same of weights rounded to 8 bits, a scale for each output, and inputs to 7 bits, a scale for each row.

    So a row's result does not depend on the rows beside it.  torch's kernel has one scale a call: rows are brought to a
    largest magnitude of 1, and one more row with -1 and 1 in it makes the range of every call the same.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
        values = (weight / scales.unsqueeze(1)).round().to(torch.int8)
        self._pack(values, scales)
        self.bias = None if bias is None else bias.detach().float()

    def _pack(self, values: Tensor, scales: Tensor) -> None:
        """int8 `(outputs, inputs)` and the scales `(outputs,)`, as torch's kernel takes them."""
        zeros = torch.zeros(len(values), dtype=torch.long)
        with warnings.catch_warnings():  # torch 2.13 says that this will go; nothing is to take its place there yet
            warnings.simplefilter("ignore", UserWarning)
            rounded = torch._make_per_channel_quantized_tensor(values, scales, zeros, 0)
        self.packed = torch.ops.quantized.linear_prepack(rounded, None)

    def __getstate__(self) -> dict[str, Any]:
        """With plain tensors in the place of `packed`, which the pickles of torch's multiprocessing cannot hold."""
        rounded, _ = torch.ops.quantized.linear_unpack(self.packed)
        return {**self.__dict__, "packed": (rounded.int_repr(), rounded.q_per_channel_scales())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._pack(*state["packed"])

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        sizes = rows.abs().amax(dim=1, keepdim=True).clamp_(min=1e-30)
        scaled = rows.new_full((len(rows) + 1, rows.shape[1]), -1.0)
        scaled[-1, 0] = 1.0
        torch.div(rows, sizes, out=scaled[:-1])
        y: Tensor = torch.ops.quantized.linear_dynamic(scaled, self.packed, True)[:-1]  # 7 bits: no overflow
        y = y.mul_(sizes) if self.bias is None else torch.addcmul(self.bias, y, sizes, out=y)
        return y.view(*x.shape[:-1], y.shape[1])


def make_product(weight: Tensor, bias: Tensor | None, dtype: str = "float32") -> nn.Module:
    """The product of a layer, with float32 results; of weights in float16 or bfloat16, too.

    Raises:
      ValueError: another dtype than DTYPES, or int8 on another device than the CPU.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype is '{dtype}', expected one of {', '.join(DTYPES)}")
    on_cpu = weight.device.type == "cpu"
    if dtype == "bfloat16":
        return RoundedProduct(weight, bias) if on_cpu and slow_in_bfloat16() else BFloat16Product(weight, bias)
    if dtype == "int8":
        if not on_cpu:
            raise ValueError("int8 is for the CPU; take bfloat16 on a GPU")
        return Int8Product(weight, bias)
    if weight.dtype in (torch.float16, torch.bfloat16):
        return HalfProduct(weight, bias)
    return OneDnnProduct(weight, bias) if _suits_onednn(weight) else Product(weight, bias)


def _suits_onednn(weight: Tensor) -> bool:
    """Whether oneDNN takes the weight; that of torch 1.13 takes nothing of `torch.inference_mode`."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    return POINTWISE is not None or not (weight.is_inference() or torch.is_inference_mode_enabled())
