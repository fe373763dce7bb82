"""Runs of LMs that are finished: they say so, and go on where they are asked for more."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_zoo.errors import ModelError
from lm_zoo.training import train as train_module
from lm_zoo.training.train import train
from tests.lm_zoo.training.test_train import VOCAB, config, records, text


def test_a_finished_run_says_so_and_does_nothing_more(tmp_path: Path) -> None:
    first = train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(steps=10))
    remarks: list[str] = []
    again = train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(steps=10), remark=remarks.append)
    assert (again.step, again.best_loss) == (first.step, first.best_loss)
    done = f"{tmp_path}: the run there is finished, with 10 steps"
    assert remarks == [f"{done}; it goes on with more (--train steps=N, or passes=N)"]


def test_a_finished_run_by_passes_has_other_steps_in_more_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(passes=2))
    monkeypatch.setattr(train_module, "planned_steps", lambda *_: first.step // 2)
    remarks: list[str] = []
    again = train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(passes=2), remark=remarks.append)
    assert again.step == first.step and "it goes on with more" in remarks[0]
    with pytest.raises(ModelError, match=r"with \d+ steps, 2 passes; asked for 1 pass, which it has already"):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(passes=1))


@pytest.mark.parametrize("longer", [{"steps": 30}, {"passes": 4}])
def test_a_finished_run_goes_on_where_it_is_asked_for_more(tmp_path: Path, longer: dict[str, int]) -> None:
    train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(steps=10))
    remarks: list[str] = []
    progress = train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(**longer), remark=remarks.append)
    assert progress.finished and progress.step >= 30 and progress.epoch == longer.get("passes", progress.epoch)
    assert "with 10 steps; it goes on to" in remarks[0]
    assert [step for step, _ in records(tmp_path)][-1] > 10
    with pytest.raises(ModelError, match=r"asked for 10 steps, which it has already"):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(steps=10))


def test_a_run_that_stopped_early_waits_as_long_as_one_that_had_the_patience(tmp_path: Path) -> None:
    """With a learning rate of 0 the first validation is the best one."""
    steps = []
    for name, patiences in (("straight", (4,)), ("on", (2, 4))):
        for patience in patiences:
            plan = config(lr=0.0, steps=100, valid_every=5, patience=patience)
            steps.append(train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path / name, plan).step)
    assert steps == [25, 15, 25]
