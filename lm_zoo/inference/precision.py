"""Matrix products in the number format asked for: float32, bfloat16 or int8 (weights; inputs row by row).

On a CPU float32 goes through oneDNN rather than MKL, which is slow on AMD's.  bfloat16 rounds inputs and weights; sums
are kept in float32 inside a product and rounded at its end, and everything between the products is float32.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from lm_zoo.base import DTYPES, LanguageModel
from lm_zoo.errors import ModelError
from lm_zoo.text.vocabulary import Vocabulary

if TYPE_CHECKING:  # n-grams, which have no products, are not to load torch
    from torch import Tensor, nn

M = TypeVar("M", bound="nn.Module")


def ready(lm: LanguageModel, dtype: str | None = "float32") -> LanguageModel:
    """An LM of any kind as scoring uses it, its products in `dtype`; None: as they are.

    Raises:
      ModelError: no such dtype, or an LM that cannot be had in it.
    """
    dtype = lm.products if dtype is None else dtype
    if dtype not in DTYPES:
        raise ModelError(f"dtype '{dtype}'; expected one of {', '.join(DTYPES)}")
    return lm.cast(dtype)


def prepared(module: M, dtype: str, vocab: Vocabulary) -> M:
    """A copy of an LM for inference whose products are in `dtype`; all other weights, and `vocab`, are shared."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in _tensors(module)} | {id(vocab): vocab}
    made = copy.deepcopy(module, shared).eval()
    _replace(made, dtype)
    return made


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _replace(module: nn.Module, dtype: str) -> None:
    from torch import nn

    from lm_zoo.inference.lstm_cells import Cells
    from lm_zoo.inference.products import make_product
    from lm_zoo.layers.output import SoftmaxLayer

    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, make_product(child.weight, child.bias, dtype))
        elif isinstance(child, nn.LSTM):
            setattr(module, name, Cells(child, dtype))
        elif isinstance(child, SoftmaxLayer):
            child.dtype = dtype
        else:
            _replace(child, dtype)
