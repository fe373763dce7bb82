"""Settings of a training run, and where it stands."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from lm_zoo.errors import ModelError
from lm_zoo.training.runtime import Progress

CHOICES = {"optimizer": ("adamw", "muon", "sgd"), "schedule": ("cosine", "newbob"), "text": ("sentences", "windows")}
CHOICES |= {"dtype": ("float32", "bfloat16")}
LEAST = {"batch_tokens": 1, "window": 1, "batch_windows": 1, "accumulate": 1, "save_every": 1}
LEAST |= {"log_every": 1, "passes": 0, "warmup": 0, "join": 0, "valid_every": 0, "patience": 0, "seed": 0}
LEAST |= {"lr": 0, "muon_lr": 0, "momentum": 0, "weight_decay": 0, "muon_decay": 0, "lm_loss": 0}
POSITIVE = ("clip", "posterior")
SEEDS = 1 << 63  # below it a process's number may be added
# Setting -> another one, and its values with which that one says something.
BESIDE: dict[str, tuple[str, tuple[str, ...]]] = {
    "momentum": ("optimizer", ("sgd",)),
    "weight_decay": ("optimizer", ("adamw", "muon")),
    "muon_lr": ("optimizer", ("muon",)),
    "muon_decay": ("optimizer", ("muon",)),
    "newbob_gain": ("schedule", ("newbob",)),
    "window": ("text", ("windows",)),
    "batch_windows": ("text", ("windows",)),
}
BESIDE_TEXT = {"batch_tokens": ("text", ("sentences",))}  # the same where no N-best lists are trained on
OF_LISTS = ("posterior", "lm_loss")
OF_TEXT = ("lm_loss", "text", "join", "window", "batch_windows")  # where N-best lists are trained on, that beside them
# Of settings that are not given, where N-best lists are trained on.
LIST_DEFAULTS = {"lr": 1e-4, "weight_decay": 0.0, "warmup": 0, "passes": 3, "valid_every": 0}
LIST_MUON = {"muon_lr": 1e-3}  # with "muon", too: as lr, a twentieth of that for text


@dataclass
class TrainConfig:
    """Settings of a training run.  The paper's: optimizer "sgd", schedule "newbob", lr 0.1, batch 16 windows.

    Raises ModelError for a value that no run can have.
    """

    optimizer: str = "adamw"  # or "sgd", or "muon"
    schedule: str = "cosine"  # over `steps` after `warmup` steps; or "newbob": halve when validation stalls
    lr: float = 2e-3  # learning rate, the highest
    muon_lr: float = 0.02  # of the layers' matrices, with "muon"
    momentum: float = 0.0  # of "sgd"
    weight_decay: float = 0.01  # of AdamW, beside Muon too
    muon_decay: float = 0.0  # weight decay of the layers' matrices, with "muon"
    warmup: int = 400  # steps in which the learning rate rises
    steps: int = 10_000  # optimiser steps in all (cosine), or the most (newbob)
    passes: int = 0  # over the training text; where above 0 they decide, and the steps follow
    text: str = "sentences"  # or "windows"
    batch_tokens: int = 8192  # tokens of a padded batch of sentences
    join: int = 0  # sentences: every other one begins a run of up to so many tokens, read as one; 0: each alone
    window: int = 64  # tokens of a window
    batch_windows: int = 16  # windows of a batch
    carry: bool = False  # windows go on in the state of the window before, `batch_windows` streams side by side
    accumulate: int = 1  # batches an optimiser step
    clip: float = 1.0  # largest norm of the gradient
    dtype: str = "float32"  # or "bfloat16": autocast
    valid_every: int = 1000  # steps; 0: after each pass
    save_every: int = 500  # steps
    log_every: int = 100  # steps
    posterior: float = 1.0  # N-best lists: posteriors are the softmax of so much of the totals
    lm_loss: float = 0.1  # N-best lists and text: of the text's loss a token so much is added
    patience: int = 0  # validations without a better one before the run stops early; 0: newbob 5, cosine never
    newbob_gain: float = 0.003  # relative loss reduction of a validation; once it was less, each halves the rate
    wandb: str = ""  # project of Weights & Biases that gets the records too
    seed: int = 1  # of weights, order, dropout

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise ModelError(f"no {name} is called '{value}'; there are: {', '.join(known)}")
        for name, least in LEAST.items():
            if not (value := getattr(self, name)) >= least:
                raise ModelError(f"training setting '{name}' is {value}, expected {least} or more")
        if not self.passes and self.steps < 1:
            raise ModelError(f"training setting 'steps' is {self.steps}, expected 1 or more")
        if self.seed >= SEEDS:
            raise ModelError(f"training setting 'seed' is {self.seed}, expected less than {SEEDS}")
        for name in POSITIVE:
            if not (value := getattr(self, name)) > 0:
                raise ModelError(f"training setting '{name}' is {value}, expected more than 0")


def list_defaults(optimizer: Any) -> dict[str, Any]:
    """LIST_DEFAULTS, and what goes with an optimiser; that of others stays, as a run goes on with its own settings."""
    return LIST_DEFAULTS | (LIST_MUON if optimizer == "muon" else {})


def idle_settings(config: TrainConfig, given: Collection[str], on_lists: bool, on_text: bool = True) -> Iterator[str]:
    """Says of each of the settings that were given, and say nothing beside the others, that it does not.

    Args:
      on_lists, on_text: whether N-best lists are trained on, and whether text is.
    """
    beside = BESIDE if on_lists else BESIDE | BESIDE_TEXT
    for name in given:
        other, values = beside.get(name, ("", ()))
        if name in OF_TEXT and not on_text:
            yield f"training setting '{name}' says nothing without --text"
        elif other and (found := getattr(config, other)) not in values:
            yield f"training setting '{name}' says nothing with {other}={found}, but with {' or '.join(values)}"
        elif name in OF_LISTS and not on_lists:
            yield f"training setting '{name}' says nothing without --nbest"
        elif name == "steps" and config.passes:
            yield f"training setting 'steps' says nothing with passes={config.passes}, from which the steps follow"


def counted(number: int, name: str) -> str:
    """`1 step`, `2 steps`, `2 passes`."""
    return f"{number} {name}" + ("es" if name.endswith("s") else "s") * (number != 1)


def of_warm_up(config: TrainConfig) -> str:
    """What is to be said where the warm-up is longer than the run, of `steps` in all; "" where it is not."""
    if config.warmup <= config.steps:
        return ""
    return (
        f"the warm-up takes {counted(config.warmup, 'step')}, the run {config.steps}: the learning rate comes to "
        f"{config.steps / config.warmup:.0%} of lr={config.lr:g}; take fewer (--train warmup=N), or a longer run"
    )


@dataclass
class LMProgress(Progress):
    """Where the run of an LM stands."""

    tokens: int = 0
    left_out: int = 0  # tokens at the ends of passes, in fewer batches than a step of several processes takes
    loss_sum: float = 0.0  # since the last log record
    loss_tokens: int = 0
    lr_factor: float = 1.0  # halved by new-bob
    best_loss: float = math.inf
    best_step: int = -1  # of that loss
    last_valid: float = math.inf
    stale: int = 0
    halving: bool = False
    valid_step: int = -1  # of the last validation
    cpu_seconds: float = 0.0  # of processor time, of all ranks and threads, over all continuations
