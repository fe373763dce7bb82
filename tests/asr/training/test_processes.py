"""A run of several processes that was stopped goes on with the losses of one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from asr.training.train import train
from lm_zoo.errors import LMError
from lm_zoo.training.distributed import start
from tests.asr.training.test_train import Killed, StandIn, batches, config, records, vocabulary
from tests.lm_zoo.training.test_processes import free_port


def work(out: Path, kill_at: int) -> None:
    def report(record: dict[str, Any]) -> None:
        if record["step"] == kill_at:
            raise Killed

    torch.manual_seed(1)
    train(StandIn(dropout=0.3), vocabulary(), batches(), batches(2), out, config(), report=report)


@pytest.mark.slow
def test_stopped_processes_continue_with_the_same_losses(tmp_path: Path) -> None:
    """Each process drops its own units, so each needs its own random state."""
    start(work, (tmp_path / "straight", 0), 2, free_port())
    with pytest.raises(LMError, match="the run has ended"):
        start(work, (tmp_path / "killed", 15), 2, free_port(), (Killed,))
    assert len(records(tmp_path / "killed")) == 3
    start(work, (tmp_path / "killed", 0), 2, free_port())
    assert records(tmp_path / "killed") == records(tmp_path / "straight")
