"""Checkpoints of a training run: weights, optimiser state and random state as safetensors, the rest as JSON."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from lm_zoo.errors import ModelError
from lm_zoo.files import atomic_folder, save_tensors, write_text
from lm_zoo.inference.neural import NeuralLM
from lm_zoo.inference.state import State
from lm_zoo.reading import read_json
from lm_zoo.registry import check_weights, state_tensors
from lm_zoo.training.distributed import Ranks
from lm_zoo.training.runtime import set_random_state

CARRIED = "carried."


def newest(folder: Path) -> Path | None:
    """The checkpoint folder, if there is one; one that a kill left between its two renames is put in its place."""
    old = _old(folder)
    if old.is_dir() and not folder.is_dir():
        os.replace(old, folder)
    return folder if folder.is_dir() else None


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def save(
    folder: Path,
    lm: NeuralLM,
    optimizers: list[torch.optim.Optimizer],
    state: dict[str, Any],
    random: list[dict[str, torch.Tensor]],
    carried: State | None = None,
) -> None:
    """Writes a checkpoint folder; the one before stays until the new one is whole.

    Args:
      state: what goes into JSON.
      random: the random state of each rank, by device (`lm_zoo.training.runtime.random_state`).
      carried: the state that windows go on from.
    """
    newest(folder)
    fresh, old = folder.with_name(folder.name + ".new"), _old(folder)
    for stale in (fresh, old):
        shutil.rmtree(stale, ignore_errors=True)
    tensors = {_random(rank, device): tensor for rank, own in enumerate(random) for device, tensor in own.items()}
    for index, tensor in enumerate(carried.memory if carried is not None else ()):
        tensors[f"{CARRIED}{index}"] = tensor.contiguous()
    state = {**state, "carried": None if carried is None else {"time": carried.time, "tensors": len(carried.memory)}}
    for number, optimizer in enumerate(optimizers):
        for index, entry in optimizer.state_dict()["state"].items():
            for key, value in entry.items():
                if value is not None:
                    tensors[f"{number}.{index}.{key}"] = torch.as_tensor(value).contiguous()
    with atomic_folder(fresh) as made:
        weights = {name: tensor.contiguous() for name, tensor in state_tensors(lm).items()}
        save_tensors(made / "model.safetensors", weights)
        save_tensors(made / "optimizer.safetensors", tensors)
        write_text(made / "state.json", json.dumps(state, indent=2) + "\n")
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
        return read_json(folder / "state.json")
    except (OSError, ValueError) as error:
        raise ModelError(_damaged(folder, error)) from None


def _random(rank: int, device: str) -> str:
    """The name of a random state in the file; the first rank's is that of runs of one process."""
    return f"rng.{device}.{rank}" if rank else f"rng.{device}"


def restore(folder: Path, lm: NeuralLM, optimizers: list[torch.optim.Optimizer], ranks: Ranks) -> State | None:
    """Puts a checkpoint's weights, optimiser state and random state in place; returns the carried state, if any.

    Raises:
      ModelError: a file is missing or damaged, or of another model.
    """
    try:
        weights = load_file(folder / "model.safetensors")
        tensors = load_file(folder / "optimizer.safetensors")
    except (OSError, SafetensorError) as error:
        raise ModelError(_damaged(folder, error)) from None
    check_weights(folder / "model.safetensors", lm, weights)
    lm.load_state_dict(weights, strict=False)
    state = read_state(folder)
    try:
        return _restore(tensors, state, optimizers, ranks)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:  # names or shapes of others
        raise ModelError(_damaged(folder, error)) from None


def _restore(
    tensors: dict[str, torch.Tensor], state: dict[str, Any], optimizers: list[torch.optim.Optimizer], ranks: Ranks
) -> State | None:
    """Puts random state and optimisers in place, by what `optimizer.safetensors` has; returns the carried state."""
    random = {name: tensors.pop(name) for name in list(tensors) if name.startswith("rng.")}
    own = {device: random[name] for device in ("cpu", "cuda") if (name := _random(ranks.rank, device)) in random}
    set_random_state(own, ranks)
    carried = state.get("carried")
    memory = [tensors.pop(f"{CARRIED}{index}") for index in range(carried["tensors"])] if carried else []
    entries: list[dict[int, dict[str, torch.Tensor]]] = [{} for _ in optimizers]
    for name, tensor in tensors.items():
        number, index, key = name.split(".", 2)
        entries[int(number)].setdefault(int(index), {})[key] = tensor
    for optimizer, entry in zip(optimizers, entries, strict=True):
        optimizer.load_state_dict({"state": entry, "param_groups": optimizer.state_dict()["param_groups"]})
    return State(carried["time"], tuple(memory)) if carried else None


def _damaged(folder: Path, error: Exception) -> str:
    return f"{folder}: incomplete or damaged checkpoint ({error}); remove it to start again"
