"""Averages of a run's checkpoints as icefall makes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asr.errors import CheckpointError
from asr.model.checkpoint import (
    PIECES,
    build_model,
    check_tokens,
    find_checkpoints,
    put_weights,
    read_checkpoint,
    read_tokens,
    save_model,
)
from asr.model.config import TransducerConfig
from asr.model.transducer import Transducer
from lm_zoo.text.vocabulary import PieceVocabulary


@dataclass(frozen=True)
class Average:
    """A model averaged in memory.

    Attributes:
      model: a Transducer in evaluation mode, on the CPU.
      name:  `epoch-N-avg-M` or `iter-N-avg-M`, and `-use-averaged-model` behind it.
      steps: batches that the last checkpoint has seen.
      checkpoints: names of the files, last one first.
    """

    model: Transducer
    vocab: PieceVocabulary
    name: str
    steps: int
    checkpoints: list[str]

    def save(self, folder: Path, half: bool = False) -> None:
        """Writes a model folder (see `save_model`); `half`: weights as float16."""
        made = {"steps": self.steps, "average": self.name, "checkpoints": self.checkpoints}
        save_model(folder, self.model, self.vocab, {"trained": made}, half)


def average(exp_dir: Path, epoch: int | None, iteration: int | None, count: int, use_averaged: bool) -> Average:
    """The average of a run's checkpoints.

    Args:
      epoch, iteration: the last checkpoint, `epoch-N.pt`, or the newest `checkpoint-B.pt` with B up to `iteration`.
      count: over how many checkpoints.
      use_averaged: average the models after the checkpoint `count` before the last up to the last (see `between`).
    Raises:
      CheckpointError: a checkpoint or the tokens are missing, damaged or of another configuration.
    """
    paths = choose(exp_dir, epoch, iteration, count, use_averaged)
    end = read_checkpoint(paths[0])
    if use_averaged:
        weights = between(end, read_checkpoint(paths[-1]) if len(paths) > 1 else None, paths)
    else:
        weights = mean(paths)
    config = TransducerConfig.from_dict(_model_config(end, paths[0]), paths[0])
    model = build_model(config, paths[0], paths[0])
    put_weights(model, weights, paths[0])
    vocab = read_tokens(exp_dir / PIECES, end.get("case", "mixed"))
    check_tokens(exp_dir, vocab, config)
    kind, number = ("epoch", epoch) if epoch is not None else ("iter", iteration)
    name = f"{kind}-{number}-avg-{count}" + ("-use-averaged-model" if use_averaged else "")
    return Average(model.eval(), vocab, name, _batch(end, paths[0]), [path.name for path in paths])


def choose(exp_dir: Path, epoch: int | None, iteration: int | None, count: int, use_averaged: bool) -> list[Path]:
    """The checkpoints to average, last one first; with `use_averaged` the last, and the one `count` before it.

    Raises:
      CheckpointError: neither or both of epoch and iteration are given, or there are not so many checkpoints.
    """
    last = [number for number in (epoch, iteration) if number is not None]
    if len(last) != 1 or min(*last, count) < 1:
        raise CheckpointError(
            f"{exp_dir}: give either an epoch or an iteration (--epoch N, --iter N), from 1, and an --avg of 1 or more"
        )
    if epoch is not None:
        first = epoch - count
        numbers = [epoch, first] if use_averaged else list(range(epoch, first, -1))
        if first < 0:
            raise CheckpointError(f"{exp_dir}: found --epoch {epoch} --avg {count}, expected --avg {epoch} or less")
        return [exp_dir / f"epoch-{number}.pt" for number in numbers if number > 0]
    assert iteration is not None
    found = [path for path in find_checkpoints(exp_dir) if int(path.stem.split("-")[1]) <= iteration]
    needed = count + 1 if use_averaged else count
    if len(found) < needed:
        raise CheckpointError(
            f"{exp_dir}: found {len(found)} files checkpoint-BATCH.pt up to batch {iteration}, expected {needed}; "
            "give a smaller --avg, or train with a smaller --save-every-n"
        )
    return [found[0], found[count]] if use_averaged else found[:count]


def mean(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights of checkpoints, summed in float64; integers are those of the first."""
    total: dict[str, Tensor] = {}
    for path in paths:
        weights = read_checkpoint(path)["model"]
        if total and weights.keys() != total.keys():
            raise CheckpointError(f"{path}: has other weights than {paths[0].name}; both must be of one run")
        for name, tensor in weights.items():
            if total.get(name, tensor).shape != tensor.shape:
                raise CheckpointError(f"{path}: '{name}' has another shape than in {paths[0].name}")
            if not tensor.is_floating_point():
                total.setdefault(name, tensor)
            elif name not in total:
                total[name] = tensor.double()
            else:
                total[name] += tensor
    return {name: (t / len(paths)).float() if t.dtype == torch.float64 else t for name, t in total.items()}


def between(end: dict[str, Any], start: dict[str, Any] | None, paths: list[Path]) -> dict[str, Tensor]:
    """The average of the models after `start` (None: since the beginning) up to `end`, of their running averages.

    A running average a is updated every `average_period` batches, so it is that of batch n, the checkpoint's batch
    rounded down to a multiple of the period: (n_end a_end - n_start a_start) / (n_end - n_start), as icefall does.

    Raises:
      CheckpointError: a checkpoint has no running average, their periods differ, or no update lies between them.
    """
    last, period = _updates(end, paths[0])
    if not last:
        raise CheckpointError(
            f"{paths[0]}: is of batch {end['batch_idx_train']}, its running average begins at batch {period}; leave "
            "out --use-averaged-model"
        )
    first, other = (0, period) if start is None else _updates(start, paths[-1])
    if other != period:
        raise CheckpointError(
            f"{paths[0]}: has average_period {period}, {paths[-1].name} has {other}, expected the same; leave out "
            "--use-averaged-model"
        )
    if last <= first:
        raise CheckpointError(
            f"{paths[0]}: its running average is of batch {last}, that of {paths[-1].name} of batch {first} (one every "
            f"{period}); expected it later: give a larger --avg, or leave out --use-averaged-model"
        )
    if start is not None and _shapes(start["model_avg"]) != _shapes(end["model_avg"]):
        raise CheckpointError(f"{paths[-1]}: has other weights than {paths[0].name}; both must be of one run")
    weight = last / (last - first)
    result = {}
    for name, tensor in end["model_avg"].items():
        if tensor.is_floating_point():
            earlier = start["model_avg"][name] * (1.0 - weight) if start is not None else 0.0  # 0, too, of no update
            tensor = (tensor * weight + earlier).float()
        result[name] = tensor
    return result


def _shapes(weights: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def _updates(contents: dict[str, Any], path: Path) -> tuple[int, int]:
    """The batch of which a checkpoint's running average is, 0 if there was no update yet; and the period."""
    numbers = contents.get("batch_idx_train"), contents.get("average_period")
    if not contents.get("model_avg") or not all(type(number) is int and number > 0 for number in numbers):
        raise CheckpointError(
            f"{path}: has no model_avg, batch_idx_train and average_period; leave out --use-averaged-model"
        )
    period = contents["average_period"]
    return contents["batch_idx_train"] // period * period, period


def _batch(contents: dict[str, Any], path: Path) -> int:
    number = contents.get("batch_idx_train")
    if type(number) is not int or number < 0:
        raise CheckpointError(f"{path}: not a checkpoint of asr train, it has no batch_idx_train")
    return number


def _model_config(contents: dict[str, Any], path: Path) -> dict[str, Any]:
    if not isinstance(contents.get("model_config"), dict):
        raise CheckpointError(f"{path}: not a checkpoint of asr train, it has no model_config")
    return contents["model_config"]
