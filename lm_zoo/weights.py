"""Weights of others: read with their values checked, and room for them only where the file has so many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lm_zoo.errors import ModelError

SPARE = 1 << 15  # numbers that a model may have beside those of its file, such as tables of positions
_MAKERS = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, as they are stored.

    Raises:
      ModelError: missing, damaged or truncated, or a value that is NaN or infinite; names the tensor.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights = load_file(str(path))
    except FileNotFoundError:
        raise ModelError(f"{path.parent}: {path.name} is missing") from None
    except (OSError, SafetensorError, ValueError, LookupError, RuntimeError, TypeError) as error:
        raise ModelError(f"{path}: damaged or truncated ({error})") from None
    check_finite(path, weights)
    return weights


def check_finite(where: object, weights: dict[str, Tensor]) -> None:
    """Raises ModelError where a value is NaN or infinite."""
    for name, tensor in weights.items():
        bad = int((~tensor.isfinite()).sum())
        if bad:
            raise ModelError(
                f"{where}: '{name}' has {bad} of {tensor.numel()} values that are NaN or infinite; take other weights"
            )


class Allowance(TorchFunctionMode):
    """While a model is made (`with Allowance(path): ...`): no more numbers than its file of weights has bytes.

    A tensor's size is known before there is memory for it; ValueError where there are too many.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.name, self.left = path.name, path.stat().st_size + SPARE

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _MAKERS:
            self.left -= 1 + func(*args, **{**kwargs, "device": "meta"}).numel()
            if self.left < 0:
                raise ValueError(f"the sizes in config.json call for far more numbers than {self.name} has")
        return func(*args, **kwargs)
