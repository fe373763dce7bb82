"""Names of devices, and LMs moved there; a GPU itself is not tested here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lm_zoo.errors import ModelError
from lm_zoo.inference.devices import find_device
from tests.lm_zoo import zoo


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CPU", "mps", "cuda:-1"])
def test_other_names(name: str) -> None:
    with pytest.raises(ModelError, match=f"device '{name}'; expected cpu, cuda or cuda:N"):
        find_device(name)


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ModelError, match=r"device 'cuda': torch .* is built without CUDA; take the device cpu"):
        find_device("cuda")
    monkeypatch.setattr(torch.version, "cuda", "11.7")
    with pytest.raises(ModelError, match=r"device 'cuda:1': torch .* is built for CUDA 11.7, but finds no GPU"):
        find_device("cuda:1")


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("cuda") == torch.device("cuda:0")
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ModelError, match="device 'cuda:2': there are 2 GPUs, cuda:0 to cuda:1"):
        find_device("cuda:2")


@pytest.mark.parametrize("name", zoo.ALL)
def test_every_lm_is_moved(name: str, tmp_path: Path) -> None:
    """To the device without memory: no weight stays behind."""
    lm = zoo.make(name, tmp_path)
    lm.move_to(torch.device("meta"))
    for part in getattr(lm, "lms", [getattr(lm, "model", lm)]):
        if isinstance(part, torch.nn.Module):
            assert {tensor.device.type for tensor in [*part.parameters(), *part.buffers()]} == {"meta"}
