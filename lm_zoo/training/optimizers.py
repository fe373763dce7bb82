"""Optimisers of a training run, and the learning rates of an LM's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from lm_zoo.training.muon import Muon
from lm_zoo.training.schedules import cosine, keep_highest, warm_up

if TYPE_CHECKING:
    from lm_zoo.inference.neural import NeuralLM
    from lm_zoo.training.config import LMProgress, TrainConfig



def make_optimizers(lm: NeuralLM, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """The optimisers of a run; each parameter group keeps its highest learning rate as `base_lr`.

    "sgd" over all parameters, "adamw" with weight decay on the matrices that are not `lm.undecayed()`, or "muon": Muon
    (Jordan et al. 2024: momentum, orthogonalised) for the matrices of the layers, AdamW for embeddings, softmax layer
    and vectors.
    """
    undecayed = lm.undecayed()
    matrices = {name: p for name, p in lm.named_parameters() if p.dim() > 1}
    kept = [p for name, p in lm.named_parameters() if p.dim() <= 1 or name in undecayed]
    optimizers: list[torch.optim.Optimizer]
    if config.optimizer == "sgd":
        optimizers = [torch.optim.SGD(lm.parameters(), lr=config.lr, momentum=config.momentum)]
    elif config.optimizer == "adamw":
        decayed = [p for name, p in matrices.items() if name not in undecayed]
        optimizers = [adamw(decayed, kept, config.lr, config.weight_decay)]
    else:
        inside = _inner(lm)
        inner = {name: p for name, p in matrices.items() if id(p) in inside}
        outer = [p for name, p in matrices.items() if name not in inner and name not in undecayed]
        rest = [p for p in kept if not any(p is matrix for matrix in inner.values())]
        shrunk = {name: p for name, p in inner.items() if config.muon_decay and name not in undecayed}
        still = [p for name, p in inner.items() if name not in shrunk]
        optimizers = [
            adamw(outer, rest, config.lr, config.weight_decay),
            *muon(still, config.muon_lr, list(shrunk.values()), config.muon_decay, config.dtype == "bfloat16"),
        ]
    keep_highest(optimizers)
    return optimizers


def _inner(lm: NeuralLM) -> set[int]:
    """The ids of the matrices that map hidden vectors to hidden vectors: of linear layers and of recurrent ones.

    A linear layer that is the softmax layer, or shares an embedding's matrix, is none.
    """
    modules = list(lm.modules())
    layers = [m for m in modules if isinstance(m, (nn.Linear, nn.RNNBase)) and m is not lm.output]
    outer = {id(m.weight) for m in [*modules, lm.output] if isinstance(m, nn.Embedding) or m is lm.output}
    return {id(p) for layer in layers for p in layer.parameters() if p.dim() == 2} - outer


def adamw(
    decayed: list[nn.Parameter], kept: list[nn.Parameter], lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    """AdamW with weight decay on some of the parameters."""
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    try:  # one pass over the weights instead of ten
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), fused=True)  # type: ignore[call-arg]
    except (TypeError, RuntimeError):  # an older torch, or another device
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98))


def muon(
    kept: list[nn.Parameter],
    lr: float,
    decayed: Sequence[nn.Parameter] = (),
    weight_decay: float = 0.0,
    half: bool = False,
) -> list[torch.optim.Optimizer]:
    """Muon with weight decay on some of the matrices; nothing where there are none."""
    groups = [{"params": kept, "weight_decay": 0.0}, {"params": list(decayed), "weight_decay": weight_decay}]
    given = [group for group in groups if group["params"]]
    return [Muon(given, lr, half=half)] if given else []


def learning_rate(config: TrainConfig, progress: LMProgress) -> float:
    """The learning rate `lr` of the next step (Muon's goes in proportion)."""
    return config.lr * rate_share(config, progress)


def rate_share(config: TrainConfig, progress: LMProgress) -> float:
    """The share of its highest value that a learning rate has at the next step."""
    warm = warm_up(progress.step, config.warmup)
    if config.schedule == "newbob":
        return warm * progress.lr_factor
    return warm * cosine(progress.step, config.warmup, config.steps)
