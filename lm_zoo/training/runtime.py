"""What the training of any model has, an LM's or a recogniser's: where it stands, its logs, and how it goes on."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lm_zoo.layers.processor import slow_in_bfloat16
from lm_zoo.training.distributed import Ranks
from lm_zoo.training.run_log import Remark, Reporter, RunLog
from lm_zoo.training.stopping import Stopping

DTYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Progress:
    """Where a run stands; saved with every checkpoint."""

    epoch: int = 0
    batch: int = 0  # batches of this epoch already used
    step: int = 0
    finished: bool = False


STOPS = b"stopping behind this step (and its validation), to be saved; Ctrl-C again stops at once\n"


class TrainingRun:
    """A run in a folder: its processes, its logs, its place.  `restore`, `open` and `keep` are the model's own."""

    progress: Progress

    def __init__(self, out: Path, ranks: Ranks, report: Reporter, remark: Remark) -> None:
        self.out, self.ranks, self.remark = out, ranks, remark
        self.records = RunLog(out, report, remark)
        # by the system's own write, as a signal comes in the midst of other output
        self.stopping = Stopping((lambda: None) if ranks.rank else (lambda: os.write(2, STOPS)))

    def restore(self, checkpoint: Path) -> None:
        """Puts weights, optimisers, random state and progress of a checkpoint in place, if it is one of this run."""
        raise NotImplementedError

    def open(self) -> None:
        """Makes the folder ready, in the first process; what it held before was read by then and found to fit."""
        self.records.open(self.progress.step, self.progress.epoch)

    def keep(self) -> None:
        """Saves where the run stands, to go on from; called by every process."""
        raise NotImplementedError

    def stop_if(self, asked: float | bool) -> None:
        """Saves the run behind a step and raises KeyboardInterrupt where any process was asked to stop.

        Called by every process, with the same.
        """
        if not asked:
            return
        self.keep()
        if self.ranks.rank == 0:
            self.remark(f"{self.out}: stopped at step {self.progress.step}, saved; the same command goes on from there")
        self.ranks.wait()
        raise KeyboardInterrupt

    def begin(self, checkpoint: Path | None, seed: int, dtype: str) -> None:
        """Goes on from a checkpoint, or starts anew where there is none.

        Each process has the random state that it had at the checkpoint; at first each has one of its own.
        """
        if self.ranks.rank == 0 and in_place_of(dtype, self.ranks.device):
            self.remark(f"{self.out}: float32 in the place of bfloat16, in which this processor is many times slower")
        if self.ranks.rank:
            torch.manual_seed(seed + self.ranks.rank)
        if checkpoint is not None:
            self.restore(checkpoint)
        if self.ranks.rank == 0:
            self.open()

    def share_batches(self, ranks: int) -> None:
        """Counts the batches of this epoch that were used by so many processes as those of each of the present ones."""
        progress = self.progress
        if ranks != self.ranks.size and progress.batch:
            progress.batch = progress.batch * ranks // self.ranks.size
            self.remark(
                f"{self.out}: the run had {ranks} processes until here, now {self.ranks.size}, each of them goes on at "
                f"batch {progress.batch} of the epoch"
            )

    def stand(self) -> dict[str, Any]:
        """What every record says of where the run stands."""
        return {"epoch": self.progress.epoch, "step": self.progress.step}

    def log(self, **figures: Any) -> None:
        """A record, of the first process."""
        if self.ranks.rank == 0:
            self.records.write(self.stand(), figures)

    def close(self) -> None:
        self.records.close()


def random_state() -> dict[str, torch.Tensor]:
    """The random state of this process by device, `cpu` and, where there is one, `cuda`."""
    state = {"cpu": torch.get_rng_state()}
    return {**state, "cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else state


def set_random_state(state: dict[str, torch.Tensor], ranks: Ranks) -> None:
    """Puts this process's random state in place; one that the checkpoint knows nothing of keeps that of its seed.

    Raises:
      KeyError: that of the first process is missing.
    """
    if state or ranks.rank == 0:
        torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def autocast(dtype: str, device: torch.device) -> AbstractContextManager[Any]:
    """The autocast context of a run's dtype, one of `DTYPES`; nothing for float32, or in its place (`in_place_of`)."""
    cast = None if in_place_of(dtype, device) else DTYPES[dtype]
    return nullcontext() if cast is None else torch.autocast(device.type, dtype=cast)


def in_place_of(dtype: str, device: torch.device) -> bool:
    """Whether float32 takes the place of bfloat16, on a processor where that would be many times slower."""
    return dtype == "bfloat16" and device.type == "cpu" and slow_in_bfloat16()
