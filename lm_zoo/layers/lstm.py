"""LSTM layers that train faster on a CPU by torch 1.13, which adds up the gradients of the weights at every time step.

That costs the more the fewer rows a batch has; new versions of torch have a layer of their own and need nothing of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm_zoo.layers.dropout import dropout, locked_dropout
from lm_zoo.layers.linear import OLD_TORCH, cast_dtype
from lm_zoo.layers.processor import slow_in_bfloat16

Cells = tuple[Tensor, Tensor]
FEW = 32  # rows; of many more, such as those of batches of sentences, torch is no slower
SIGMOID_SLOPE = torch.ops.aten.sigmoid_backward.grad_input
TANH_SLOPE = torch.ops.aten.tanh_backward.grad_input


class LSTMLayers(nn.LSTM):
    """`nn.LSTM`, batch first, in one direction; the same weights by the same names, the same numbers.

    With `weight_dropout`, a share of the weights from h to h is dropped in a training batch, the same at every time
    step (DropConnect; Merity et al. 2018, "Regularizing and Optimizing LSTM Language Models").  With `locked`, what is
    dropped between the layers is the same at every time step.
    """

    def __init__(
        self,
        inputs: int,
        dim: int,
        layers: int,
        dropout: float,
        weight_dropout: float = 0.0,
        locked: bool = False,
    ) -> None:
        super().__init__(inputs, dim, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.weight_dropout = weight_dropout
        self.locked = locked

    def forward(self, x: Tensor, state: Cells | None = None) -> tuple[Tensor, Cells]:  # type: ignore[override]
        """x `(batch, time, inputs)`, h and c `(layers, batch, dim)` -> `(batch, time, dim)`, and h and c after it."""
        dropped = self.training and (self.weight_dropout > 0 or self._locks())
        dtype = cast_dtype(x)
        if dtype == torch.bfloat16 and not OLD_TORCH and not x.is_cuda and slow_in_bfloat16():
            return self._torch_forward(x, state, torch.float32)  # torch's fails where oneDNN has none for the processor
        if (dropped and not OLD_TORCH) or (x.is_cuda and (dropped or dtype != x.dtype)):
            return self._torch_forward(x, state, dtype)
        if not OLD_TORCH or x.is_cuda or (len(x) > FEW and not dropped) or not torch.is_grad_enabled():
            return nn.LSTM.forward(self, x, state)
        if state is None:
            zeros = x.new_zeros(self.num_layers, len(x), self.hidden_size, dtype=dtype)
            state = zeros, zeros
        x, ends = x.transpose(0, 1), []
        for layer, (h, c) in enumerate(zip(*state, strict=True)):
            if layer and self.training:
                x = locked_dropout(x, self.dropout, time=0) if self.locked else dropout(x, self.dropout)
            w_x, w_h, b_x, b_h = self._weights(layer)
            x, *end = FusedLSTMLayer.apply(x, h, c, w_x, w_h, b_x + b_h, dtype)
            ends.append(end)
        h, c = (torch.stack(cells) for cells in zip(*ends, strict=True))
        return x.transpose(0, 1), (h, c)

    def _torch_forward(self, x: Tensor, state: Cells | None, dtype: torch.dtype) -> tuple[Tensor, Cells]:
        """torch's layers, with all that goes in cast to a dtype, and recurrent weights dropped.

        Autocast itself takes cuDNN's LSTM to float16 whatever its dtype is, and there gradients of a mean loss are
        lost.
        """
        zeros = x.new_zeros(self.num_layers, len(x), self.hidden_size)
        cells = [part.to(dtype) for part in state or (zeros, zeros)]
        weights = [[weight.to(dtype) for weight in self._weights(layer)] for layer in range(self.num_layers)]
        x, ends = x.to(dtype), []
        with torch.autocast(x.device.type, enabled=False):
            if not self._locks():
                x, h, c = self._layers(x, cells, [weight for own in weights for weight in own], self.num_layers)
                return x, (h, c)
            for layer, own in enumerate(weights):
                x = locked_dropout(x, self.dropout) if layer else x
                x, *end = self._layers(x, [part[layer : layer + 1] for part in cells], own, 1)
                ends.append(end)
        h, c = (torch.cat(parts) for parts in zip(*ends, strict=True))
        return x, (h, c)

    def _layers(
        self, x: Tensor, cells: list[Tensor], weights: list[Tensor], layers: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """torch's, of so many layers."""
        dropped = self.dropout if layers > 1 else 0.0
        options = self.bias, layers, dropped, self.training, self.bidirectional, self.batch_first
        return torch._VF.lstm(x, cells, weights, *options)  # type: ignore[attr-defined, no-any-return]

    def _locks(self) -> bool:
        """Whether the same units are dropped at all times between the layers."""
        return self.training and self.locked and self.dropout > 0

    def _weights(self, layer: int) -> list[Tensor]:
        """Those of a layer in the order of `NAMES`, in training some of the recurrent ones dropped."""
        w_x, w_h, *biases = (getattr(self, f"{name}_l{layer}") for name in NAMES)
        return [w_x, dropout(w_h, self.weight_dropout) if self.training else w_h, *biases]


class OutputNorm(nn.LayerNorm):
    """`nn.LayerNorm` in the dtype of its weights; torch 1.13 has none of the bfloat16 that autocast gives."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class FusedLSTMLayer(torch.autograd.Function):
    """One LSTM layer, time first: x `(time, batch, inputs)` -> outputs `(time, batch, dim)`, h and c after the last.

    A gradient of the weights is one product over all time steps.

    Products are in `dtype`, the cells in float32 at least.  Gates stand in torch's order: input, forget, cell, output.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, h: Tensor, c: Tensor, w_x: Tensor, w_h: Tensor, bias: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.dtypes = x.dtype, h.dtype, c.dtype
        with torch.autocast("cpu", enabled=False):
            x, w_x, w_h = x.to(dtype), w_x.to(dtype), w_h.to(dtype)
            gates = F.linear(x, w_x, bias.to(dtype))
            outputs = h.new_empty(len(x) + 1, *h.shape, dtype=dtype)
            cells = c.new_empty(len(x) + 1, *c.shape, dtype=torch.promote_types(dtype, torch.float32))
            outputs[0], cells[0] = h, c
            for step in range(len(x)):
                sums = torch.addmm(gates[step], outputs[step], w_h.t()).to(cells.dtype)
                into, keep, fresh, out = sums.chunk(4, dim=1)
                sums[:, : 2 * h.shape[1]].sigmoid_(), fresh.tanh_(), out.sigmoid_()
                torch.mul(keep, cells[step], out=cells[step + 1]).addcmul_(into, fresh)
                outputs[step + 1] = cells[step + 1].tanh().mul_(out)
                gates[step] = sums
        ctx.save_for_backward(x, w_x, w_h, gates, outputs, cells)
        return outputs[1:], outputs[-1].clone(), cells[-1].to(dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor, slope_h: Tensor, slope_c: Tensor) -> Any:  # type: ignore[override]
        x, w_x, w_h, gates, outputs, cells = ctx.saved_tensors
        slopes = torch.empty_like(gates)
        to_h, to_c = slope_h.to(cells.dtype), slope_c.to(cells.dtype, copy=True)
        room = torch.empty_like(gates[0], dtype=cells.dtype)
        for step in reversed(range(len(x))):
            _step_back(gates[step], cells[step], cells[step + 1], slope[step] + to_h, to_c, room)
            slopes[step] = room
            to_h = torch.mm(slopes[step], w_h).to(cells.dtype)
        flat, before = slopes.flatten(0, 1), outputs[:-1].flatten(0, 1)
        to_x = torch.mm(flat, w_x).view_as(x)
        to_w = [torch.mm(flat.t(), part).to(cells.dtype) for part in (x.flatten(0, 1), before)]
        of_x, of_h, of_c = ctx.dtypes
        return to_x.to(of_x), to_h.to(of_h), to_c.to(of_c), *to_w, flat.sum(0, dtype=cells.dtype), None


def _step_back(gates: Tensor, before: Tensor, after: Tensor, to_h: Tensor, to_c: Tensor, room: Tensor) -> None:
    """The gradient of the gates' sums, into `room` `(batch, 4 dim)`; that of c is taken one step back, in place.

    Args:
      gates: `(batch, 4 dim)`; before, after: the cells `(batch, dim)`; to_h, to_c: gradients of h and c after the step.
    """
    into, keep, fresh, out = gates.to(room.dtype).chunk(4, dim=1)
    of_into, of_keep, of_fresh, of_out = room.chunk(4, dim=1)
    squashed = after.tanh()
    SIGMOID_SLOPE(to_h * squashed, out, grad_input=of_out)
    to_c += torch.ops.aten.tanh_backward(to_h * out, squashed)
    SIGMOID_SLOPE(to_c * fresh, into, grad_input=of_into)
    SIGMOID_SLOPE(to_c * before, keep, grad_input=of_keep)
    TANH_SLOPE(to_c * into, fresh, grad_input=of_fresh)
    to_c *= keep
