"""Checkpoints of a training run: weights, optimiser state and random state as safetensors, the rest as JSON."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from lm_zoo.errors import ModelError
from lm_zoo.registry import state_tensors


def save(folder: Path, lm: Any, optimizers: list[torch.optim.Optimizer], state: dict[str, Any]) -> None:
    """Writes a checkpoint folder; the one before stays until the new one is whole."""
    fresh, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    for stale in (fresh, old):
        shutil.rmtree(stale, ignore_errors=True)
    fresh.mkdir(parents=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in state_tensors(lm).items()}, str(fresh / "model.safetensors")
    )
    tensors = {"rng.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    for number, optimizer in enumerate(optimizers):
        for index, entry in optimizer.state_dict()["state"].items():
            for key, value in entry.items():
                if value is not None:
                    tensors[f"{number}.{index}.{key}"] = torch.as_tensor(value).contiguous()
    save_file(tensors, str(fresh / "optimizer.safetensors"))
    (fresh / "state.json").write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    if folder.exists():
        os.replace(folder, old)
    os.replace(fresh, folder)
    shutil.rmtree(old, ignore_errors=True)


def read_state(folder: Path) -> dict[str, Any]:
    """The JSON state of a checkpoint.

    Raises:
      ModelError: it is missing or damaged.
    """
    try:
        return json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(_damaged(folder, error)) from None


def load(folder: Path, lm: Any, optimizers: list[torch.optim.Optimizer]) -> None:
    """Puts a checkpoint's weights, optimiser state and random state in place.

    Raises:
      ModelError: a file is missing or damaged.
    """
    try:
        weights = load_file(folder / "model.safetensors")
        tensors = load_file(folder / "optimizer.safetensors")
    except (OSError, SafetensorError) as error:
        raise ModelError(_damaged(folder, error)) from None
    lm.load_state_dict(weights, strict=False)
    torch.set_rng_state(tensors.pop("rng.cpu"))
    if "rng.cuda" in tensors:
        cuda = tensors.pop("rng.cuda")
        if torch.cuda.is_available():
            torch.cuda.set_rng_state(cuda)
    entries: list[dict[int, dict[str, torch.Tensor]]] = [{} for _ in optimizers]
    for name, tensor in tensors.items():
        number, index, key = name.split(".", 2)
        entries[int(number)].setdefault(int(index), {})[key] = tensor
    for optimizer, entry in zip(optimizers, entries, strict=True):
        optimizer.load_state_dict({"state": entry, "param_groups": optimizer.state_dict()["param_groups"]})


def _damaged(folder: Path, error: Exception) -> str:
    return f"{folder}: incomplete or damaged checkpoint ({error}); remove it to start again"
