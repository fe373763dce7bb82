"""Where models are evaluated: the CPU, or a GPU of CUDA."""

from __future__ import annotations

import re

import torch

from lm_zoo.errors import ModelError


def find_device(device: str | torch.device) -> torch.device:
    """The device called `cpu`, `cuda` or `cuda:N`.

    Raises:
      ModelError: another name, or a GPU that is not there.
    """
    name = str(device)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ModelError(f"device '{name}'; expected cpu, cuda or cuda:N")
    if name == "cpu":
        return torch.device(name)
    if not torch.cuda.is_available():
        built = "without CUDA" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}, but finds no GPU"
        raise ModelError(f"device '{name}': torch {torch.__version__} is built {built}; take the device cpu")
    number, count = int(name.partition(":")[2] or 0), torch.cuda.device_count()
    if number >= count:
        raise ModelError(f"device '{name}': there are {count} GPUs, cuda:0 to cuda:{count - 1}")
    return torch.device("cuda", number)
