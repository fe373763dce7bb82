"""Learning rates and optimisers of a training run: icefall's Eden, or a rate that ends at zero with a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from asr.errors import ConfigError
from lm_zoo.training.optimizers import adamw, muon
from lm_zoo.training.schedules import eden, keep_highest, warm_up

if TYPE_CHECKING:
    from asr.model.transducer import Transducer
    from asr.training.config import TransducerProgress, TransducerTrainConfig

OPTIMIZERS = ("adamw", "muon")
TO_TOKENS = ("joiner.output", "simple_am", "simple_lm", "ctc")  # layers of a Transducer that give tokens
WARM_SHARE = 0.1  # of a budget, at most, goes into the warm-up


def make_optimizers(model: Transducer, config: TransducerTrainConfig) -> list[torch.optim.Optimizer]:
    """The optimisers of a run; each parameter group keeps its highest learning rate as `base_lr`.

    "adamw" with weight decay on matrices only, or "muon": Muon (Jordan et al. 2024) for the matrices of the layers,
    AdamW for embeddings, convolutions, the S4, the layers that give tokens, and vectors.

    Raises:
      ConfigError: an unknown name.
    """
    if config.optimizer not in OPTIMIZERS:
        raise ConfigError(f"no optimizer is called '{config.optimizer}'; there are: {', '.join(OPTIMIZERS)}")
    inner = inner_matrices(model) if config.optimizer == "muon" else []
    taken = {id(p) for p in inner}
    trained = [p for p in model.parameters() if p.requires_grad]
    outer = [p for p in trained if p.dim() > 1 and id(p) not in taken]
    vectors = [p for p in trained if p.dim() <= 1]
    optimizers = [adamw(outer, vectors, config.base_lr, config.weight_decay), *muon(inner, config.muon_lr)]
    keep_highest(optimizers)
    return optimizers


def inner_matrices(model: Transducer) -> list[nn.Parameter]:
    """The weights of linear layers and LSTMs that map hidden vectors to hidden vectors, in the model's order."""
    found: list[nn.Parameter] = []
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.LSTM)) and name not in TO_TOKENS:
            found += [p for p in module.parameters() if p.dim() == 2]
    return [p for p in found if p.requires_grad]


def budget_used(config: TransducerTrainConfig, progress: TransducerProgress) -> float | None:
    """The share of the budget (steps or minutes, whichever is nearer its end) that is used; None: no budget."""
    shares = []
    if config.max_steps is not None:
        shares.append(progress.step / config.max_steps)
    if config.max_minutes is not None:
        shares.append(progress.seconds / (60.0 * config.max_minutes))
    return min(1.0, max(shares)) if shares else None


def warm_share(config: TransducerTrainConfig, progress: TransducerProgress) -> float:
    """How much of the warm-up is over: `warm_step` steps, or a tenth of a budget, whichever ends first."""
    by_budget = (budget_used(config, progress) or 0.0) / WARM_SHARE
    return min(1.0, max(warm_up(progress.step, config.warm_step), by_budget))


def of_warm_up(config: TransducerTrainConfig, batches: int) -> str:
    """What is to be said where the warm-up is longer than a run by epochs, of so many batches each; "" where not."""
    planned = batches * config.num_epochs
    if config.max_steps is not None or config.max_minutes is not None or config.warm_step <= planned:
        return ""
    return (
        f"the warm-up takes {config.warm_step} batches, the run about {planned} ({config.num_epochs} epochs): the "
        f"learning rate comes to {planned / config.warm_step:.0%} of its highest value; take fewer (--warm-step N), or "
        "a longer run"
    )


def rate_share(config: TransducerTrainConfig, progress: TransducerProgress) -> float:
    """The share of its highest value that a learning rate has at the next step.

    After a linear warm-up.  With a budget: linearly to zero.  Without: icefall's Eden of steps and of epochs.
    """
    used, warm = budget_used(config, progress), warm_share(config, progress)
    if used is not None:
        return warm * (1.0 - used)
    return warm * eden(progress.step, config.lr_batches) * eden(progress.epoch - 1, config.lr_epochs)
