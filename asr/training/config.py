"""Settings of a training run, and where it stands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from asr.errors import ConfigError
from lm_zoo.training.config import SEEDS
from lm_zoo.training.runtime import Progress


@dataclass(frozen=True)
class TransducerTrainConfig:
    """Settings of a training run; the names of icefall where it has them."""

    num_epochs: int = 30  # without a budget
    max_steps: int | None = None  # a budget: the learning rate is zero at its end
    max_minutes: float | None = None
    optimizer: str = "adamw"  # or "muon"
    base_lr: float = 1e-3
    muon_lr: float = 0.02  # of the layers' matrices, with "muon"
    lr_batches: float = 5000.0
    lr_epochs: float = 6.0
    warm_step: int = 500  # of the learning rate and of the pruned loss
    weight_decay: float = 0.01
    clip: float = 5.0  # norm of the gradient of the loss a frame
    dtype: str = "float32"  # or "bfloat16", "float16": autocast
    prune_range: int = 5
    lm_scale: float = 0.25
    am_scale: float = 0.0
    simple_loss_scale: float = 0.5
    ctc_scale: float = 0.0
    loss_backend: str = "torch"  # or "k2": its kernel
    variational_noise: float = 0.0  # standard deviation, on the prediction network's weights, after the warm-up
    save_every_n: int = 1000  # batches
    keep_last_k: int = 30
    average_period: int = 100  # batches
    valid_every: int = 1000  # batches, and at the end of epochs where there is no budget
    log_every: int = 50
    seed: int = 42

    def __post_init__(self) -> None:
        low = {"num_epochs": 1, "warm_step": 0, "prune_range": 2, "keep_last_k": 1, "average_period": 1}
        low |= {"save_every_n": 1, "valid_every": 1, "log_every": 1, "ctc_scale": 0, "variational_noise": 0, "seed": 0}
        for name, least in low.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected {least} or more")
        if self.seed >= SEEDS:
            raise ConfigError(f"seed is {self.seed}, expected less than {SEEDS}")
        for name in ("max_steps", "max_minutes", "base_lr", "muon_lr", "lr_batches", "lr_epochs", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}, expected more than 0")


@dataclass
class TransducerProgress(Progress):
    """Where the run of a recogniser stands: epochs count from 1, batches are those of each rank."""

    epoch: int = 1
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)  # losses and frames since the last log record
    epoch_loss: float = 0.0
    epoch_frames: float = 0.0
    best_train_loss: float = math.inf
    best_valid_loss: float = math.inf
    last_valid_step: int = -1
