"""Ctrl-C and SIGTERM: the training of a recogniser ends behind its batch, saved, and goes on with the same losses."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.asr.training.test_train import batches, config, records, run


def stopper(step: int, number: int) -> Any:
    def stop(record: dict[str, Any]) -> None:
        if record["step"] == step:
            os.kill(os.getpid(), number)

    return stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_goes_on_with_the_same_losses(tmp_path: Path, number: int) -> None:
    settings, said = config(save_every_n=1000, variational_noise=0.05), list[str]()
    run(tmp_path / "straight", settings)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", settings, report=stopper(25, number), remark=said.append)
    assert said[-1].endswith("stopped at step 26, saved; the same command goes on from there")
    assert (tmp_path / "stopped" / "checkpoint-26.pt").exists()
    run(tmp_path / "stopped", settings)
    for key in ("loss", "valid_loss"):
        assert records(tmp_path / "stopped", key) == records(tmp_path / "straight", key)


def test_a_run_that_is_stopped_in_its_last_batch_is_finished(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, config(), report=stopper(40, signal.SIGINT))
    assert run(tmp_path, config(), train_batches=batches(0)).finished
