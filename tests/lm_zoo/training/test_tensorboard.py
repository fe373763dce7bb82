"""TensorBoard's logs of a training."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lm_zoo.training.run_log import RunLog
from lm_zoo.training.train import train
from tests.lm_zoo.training.test_train import VOCAB, config, records, text


def test_missing_tensorboard_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    remarks: list[str] = []
    train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(steps=5), remark=remarks.append)
    assert "no TensorBoard logs" in remarks[0] and "pip install tensorboard six" in remarks[0]


def test_tensorboard_logs_are_written(tmp_path: Path) -> None:
    train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(steps=5))
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_tensorboard_shows_a_step_that_is_made_again_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for begin, values in ((0, {1: 1.0, 2: 2.0, 3: 3.0}), (1, {2: 4.0, 3: 5.0})):  # the second goes on behind step 1
        log = RunLog(tmp_path, lambda record: None, print)
        log.open(begin)
        for step, value in values.items():
            log.write({"step": step}, {"loss": value})
        log.close()
    shown = EventAccumulator(str(tmp_path / "tensorboard"))
    shown.Reload()
    found = [(event.step, event.value) for event in shown.Scalars("loss")]
    assert found == records(tmp_path) == [(1, 1.0), (2, 4.0), (3, 5.0)]
