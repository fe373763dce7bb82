"""A run of several processes that was stopped goes on with the losses of one that was not."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from asr.training.train import train
from lm_zoo.errors import LMError
from lm_zoo.training.distributed import start
from tests.asr.training.test_bad_batches import spoilt
from tests.asr.training.test_train import Killed, StandIn, batches, config, records, vocabulary
from tests.lm_zoo.training.test_processes import free_port


def work(out: Path, kill_at: int) -> None:
    def report(record: dict[str, Any]) -> None:
        if record["step"] == kill_at:
            raise Killed

    torch.manual_seed(1)
    train(StandIn(dropout=0.3), vocabulary(), batches(), batches(2), out, config(), report=report)


def work_twice(folder: Path, kill_at: int) -> None:
    """In the same processes, whose start takes longer than the work."""
    work(folder / "straight", 0)
    work(folder / "killed", kill_at)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_stopped_processes_continue_with_the_same_losses(tmp_path: Path) -> None:
    """Each process drops its own units, so each needs its own random state."""
    with pytest.raises(LMError, match="the run has ended"):
        start(work_twice, (tmp_path, 15), 2, free_port(), (Killed,))
    assert len(records(tmp_path / "killed")) == 3
    start(work, (tmp_path / "killed", 0), 2, free_port())
    assert records(tmp_path / "killed") == records(tmp_path / "straight")


def say(folder: Path, line: str) -> None:
    with open(folder / f"said-{os.environ['RANK']}", "a") as stream:
        print(line, file=stream)


def work_on_bad_batches(folder: Path, steps: int) -> None:
    model, data = StandIn(dropout=0.3), (batches(10, spoilt), batches(2, spoilt))
    train(model, vocabulary(), *data, folder / "run", config(max_steps=steps), remark=partial(say, folder))


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_what_is_not_used_is_counted_in_all_processes_and_told_by_the_first(tmp_path: Path) -> None:
    """Two utterances of each batch, in two processes; the run goes on with what had been counted."""
    for steps in (10, 20):
        start(work_on_bad_batches, (tmp_path, steps), 2, free_port())
    first, second = ((tmp_path / f"said-{rank}").read_text().splitlines() for rank in (0, 1))
    assert [line for line in first if line.startswith("not used")] == [
        f"not used: {count} x no words, {count} x unknown symbols" for count in (20, 40)
    ]
    assert sum("continuing from" in line for line in first) == 1
    assert second and all(line.startswith("utterance utt") for line in second)
