"""Matrix products in the number format asked for: float32, bfloat16 or int8 (weights; inputs row by row).

On a CPU float32 goes through oneDNN rather than MKL, which is slow on AMD's.  bfloat16 rounds inputs and weights; sums
are kept in float32 inside a product, and everything between the products is float32.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from lm_zoo.errors import ModelError
from lm_zoo.inference.products import DTYPES, product


def ready(lm: Any, dtype: str = "float32") -> Any:
    """An LM of any kind as scoring uses it, its products in `dtype`.

    Raises:
      ModelError: an LM that cannot be had in that dtype.
    """
    if dtype not in DTYPES:
        raise ModelError(f"dtype '{dtype}'; expected one of {', '.join(DTYPES)}")
    if hasattr(lm, "lms"):  # an interpolation, or an average over draws
        made = copy.copy(lm)
        made.lms = [ready(part, dtype) for part in lm.lms]
        return made
    if isinstance(lm, nn.Module):
        return prepared(lm, dtype)
    if dtype == "float32" or not hasattr(lm, "cast"):  # n-grams have no products
        return lm
    return lm.cast(dtype)


def prepared(lm: nn.Module, dtype: str) -> nn.Module:
    """A copy of an LM for inference whose products are in `dtype`; all other weights are shared."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in _tensors(lm)}
    if hasattr(lm, "vocab"):
        shared[id(lm.vocab)] = lm.vocab
    made = copy.deepcopy(lm, shared).eval()
    _replace(made, dtype)
    return made


def _tensors(lm: nn.Module) -> Iterator[Tensor]:
    yield from lm.parameters()
    yield from lm.buffers()


def _replace(module: nn.Module, dtype: str) -> None:
    from lm_zoo.inference.lstm_cells import Cells
    from lm_zoo.layers.output import Output

    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, product(child.weight, child.bias, dtype))
        elif isinstance(child, nn.LSTM):
            setattr(module, name, Cells(child, dtype))
        elif isinstance(child, Output):
            child.dtype = dtype
        else:
            _replace(child, dtype)
