"""A run of several processes that was stopped goes on with the losses of one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lm_zoo.errors import LMError
from lm_zoo.training.distributed import Ranks, start
from lm_zoo.training.train import train
from tests.lm_zoo.training.test_train import SETTINGS, VOCAB, Killed, config, free_port, records, text


def work(out: Path, kill_at: int) -> None:
    def report(record: dict[str, Any]) -> None:
        if record["step"] == kill_at:
            raise Killed

    train("transfornn", SETTINGS | {"dropout": 0.3}, VOCAB, text(0), text(1), out, config(), report=report)


@pytest.mark.parametrize(("device", "size", "index"), [("cuda", "2", 1), ("cuda:1", "1", 1), ("cuda", "1", None)])
def test_each_process_has_its_gpu_as_torchs_current_one_before_they_meet(
    monkeypatch: pytest.MonkeyPatch, device: str, size: str, index: int | None
) -> None:
    """NCCL gathers objects on the current GPU, and random states are those of it."""
    calls: list[Any] = []
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "set_device", lambda place: calls.append(place.index))
    monkeypatch.setattr(torch.distributed, "init_process_group", calls.append)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert Ranks.start(device).device == torch.device("cuda", index) if index else torch.device("cuda")
    assert calls == [index] * (index is not None) + ["nccl"] * (size == "2")


@pytest.mark.slow
def test_stopped_processes_continue_with_the_same_losses(tmp_path: Path) -> None:
    """Each process drops its own units, so each needs its own random state."""
    start(work, (tmp_path / "straight", 0), 2, free_port())
    with pytest.raises(LMError, match="the run has ended"):
        start(work, (tmp_path / "killed", 15), 2, free_port(), (Killed,))
    assert len(records(tmp_path / "killed")) == 3
    start(work, (tmp_path / "killed", 0), 2, free_port())
    assert records(tmp_path / "killed") == records(tmp_path / "straight")
