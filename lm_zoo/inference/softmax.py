"""The softmax layer over many rows, in tiles of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lm_zoo.deadline import in_time
from lm_zoo.inference.products import make_product

if TYPE_CHECKING:
    from lm_zoo.layers.output import SoftmaxLayer

KEYS = 4096  # rows of keys that are gathered at once
TILE = 2048, 512  # rows and columns of the logits that are there at once

_TILES: WeakKeyDictionary[SoftmaxLayer, tuple[object, list[nn.Module]]] = WeakKeyDictionary()


def tiles(output: SoftmaxLayer) -> list[nn.Module]:
    """The products that give some columns of the logits each; a fresh tensor a call."""
    key = (output.dtype, output.weight.data_ptr(), _version(output.weight), _version(output.bias))
    made = _TILES.get(output)
    if made is None or made[0] != key:
        parts = zip(output.weight.detach().split(TILE[1]), output.bias.detach().split(TILE[1]), strict=True)
        made = _TILES[output] = key, [make_product(weight, bias, output.dtype) for weight, bias in parts]
    return made[1]


def _version(tensor: Tensor) -> int:
    """How often it was written to; 0 for one of `torch.inference_mode`, which does not count."""
    return 0 if tensor.is_inference() else tensor._version


def log_normalisers(output: SoftmaxLayer, hidden: Tensor) -> Tensor:
    """`log sum exp` of the logits after each node: hidden `(nodes, dim)` -> float32 `(nodes,)`.

    Sums of exponentials are taken tile by tile without the maximum; where that leaves the range in which float32 is
    exact (below it numbers are denormal), rows are done again with it.
    """
    parts = [torch.zeros(0, dtype=torch.float32, device=hidden.device)]  # of no nodes, no row
    for start in range(0, len(hidden), TILE[0]):
        rows = hidden[start : start + TILE[0]]
        total = torch.zeros(len(rows), dtype=torch.float32, device=hidden.device)
        for tile in in_time(tiles(output)):
            total += tile(rows).exp_().sum(dim=1, dtype=torch.float32)
        logs = total.log()
        bad = ~((total > LEAST) & logs.isfinite())  # NaN, too
        if bad.any():
            again = rows[bad]
            logs[bad] = torch.stack([tile(again).float().logsumexp(dim=1) for tile in tiles(output)]).logsumexp(dim=0)
        parts.append(logs)
    return torch.cat(parts)


def logits_of(output: SoftmaxLayer, hidden: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """Logits of `tokens` `(pairs,)` after the nodes `rows` `(pairs,)`: float32 `(pairs,)`."""
    parts = []
    for start in range(0, len(rows), KEYS):
        row, token = rows[start : start + KEYS], tokens[start : start + KEYS]
        products = torch.einsum("pd,pd->p", hidden.index_select(0, row).float(), output.weight[token].float())
        parts.append(products + output.bias[token].float())
    return torch.cat(parts) if parts else hidden.new_zeros(0)


LEAST = 1e-30  # sums of exponentials below it may have lost digits
