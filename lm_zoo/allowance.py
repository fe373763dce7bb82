"""Room for weights only where their file has so many, whoever wrote the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

SPARE = 1 << 15  # numbers that a model may have beside those of its file, such as tables of positions
_MAKERS = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange)


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
