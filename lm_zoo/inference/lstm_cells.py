"""LSTMs over prefix trees, a level at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lm_zoo.deadline import in_time
from lm_zoo.inference.products import make_product
from lm_zoo.inference.tree import Tree


class Cells(nn.Module):
    """An `nn.LSTM` (batch first) for inference, its products with inputs and hidden vectors apart."""

    def __init__(self, rnn: nn.LSTM, dtype: str = "float32") -> None:
        super().__init__()
        layers = range(rnn.num_layers)
        self.inputs = nn.ModuleList(make_product(getattr(rnn, f"weight_ih_l{k}"), _bias(rnn, k), dtype) for k in layers)
        self.recurrent = nn.ModuleList(make_product(getattr(rnn, f"weight_hh_l{k}"), None, dtype) for k in layers)

    def over(self, x: Tensor, tree: Tree, key: Any = None) -> Tensor:
        """`(nodes, inputs)` -> `(nodes, dim)`: what the last layer gives after reading each node.

        Args:
          key: under which the states are kept; `self` if None.
        """
        first, owner = tree.first, self if key is None else key
        for layer, (inputs, recurrent) in enumerate(zip(self.inputs, self.recurrent, strict=True)):
            gates = inputs(x)
            size = gates.shape[1] // 4
            hidden, cells = (tree.space((owner, layer, kind), (size,), gates) for kind in ("hidden", "cell"))
            for level in in_time(tree.levels):
                rows, before, slots = gates[level], None, slice(first + level.start, first + level.stop)
                if level.start or first:  # not the root
                    parents = tree.parents[level]
                    rows = rows.add_(recurrent(hidden.index_select(0, parents)))
                    before = cells.index_select(0, parents)
                hidden[slots], cells[slots] = _cell(rows, before)
            x = hidden[first:]
        return x

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """As `nn.LSTM`: x `(batch, time, inputs)`, state two `(layers, batch, dim)` -> `(batch, time, dim)`, state."""
        last = []
        for layer, (inputs, recurrent) in enumerate(zip(self.inputs, self.recurrent, strict=True)):
            gates, outputs = inputs(x), []
            hidden, cell = (state[0][layer], state[1][layer]) if state else (None, None)
            for rows in gates.unbind(1):
                hidden, cell = _cell(rows if hidden is None else rows + recurrent(hidden), cell)
                outputs.append(hidden)
            x = torch.stack(outputs, dim=1)
            last.append((hidden, cell))
        hidden_states, cell_states = zip(*last, strict=True)
        return x, (torch.stack(hidden_states), torch.stack(cell_states))


def _bias(rnn: nn.LSTM, layer: int) -> Tensor:
    bias: Tensor = getattr(rnn, f"bias_ih_l{layer}") + getattr(rnn, f"bias_hh_l{layer}")
    return bias


def _cell(gates: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gates `(rows, 4 * dim)`, which are overwritten, and the cell before (None: zero) -> hidden and cell."""
    input_gate, forget, cell_gate, output = gates.chunk(4, dim=1)  # the order of `nn.LSTM`
    cell = input_gate.sigmoid_() * _tanh(cell_gate)
    if before is not None:
        cell.addcmul_(forget.sigmoid_(), before)
    return output.sigmoid_() * _tanh(cell), cell


def lstm(rnn: nn.Module, x: Tensor, tree: Tree) -> Tensor:
    """An `nn.LSTM`, or the `Cells` of one, over a tree: x `(nodes, inputs)` -> `(nodes, dim)`."""
    made = rnn if isinstance(rnn, Cells) else Cells(rnn)  # type: ignore[arg-type]
    return made.over(x, tree, rnn)


def _tanh(x: Tensor) -> Tensor:
    """By the sigmoid, which torch has five times as fast on a CPU."""
    return (2 * x).sigmoid_().mul_(2).sub_(1)
