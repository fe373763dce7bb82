"""Ctrl-C and SIGTERM: a run ends behind its step, saved, and goes on as if it had not been stopped."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from lm_zoo.training import stopping
from lm_zoo.training.distributed import start
from lm_zoo.training.stopping import Stopping
from lm_zoo.training.train import train
from tests.lm_zoo.training.test_processes import free_port
from tests.lm_zoo.training.test_train import SETTINGS, VOCAB, config, records, text


def run(out: Path, stop_at: int = 0, number: int = signal.SIGINT, process: int | None = None) -> list[str]:
    """A run that is saved by nothing else; at `stop_at` this process, or another one, gets a signal."""

    def report(record: dict[str, Any]) -> None:
        if record["step"] == stop_at:
            os.kill(process or os.getpid(), number)

    said: list[str] = []
    plan = config(save_every=1000)
    settings = SETTINGS | {"dropout": 0.3}
    train("transfornn", settings, VOCAB, text(0), text(1), out, plan, report=report, remark=said.append)
    return said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_goes_on_with_the_same_losses(
    tmp_path: Path, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    run(tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", 15, number)
    assert "Ctrl-C again stops at once" in capfd.readouterr().err
    assert signal.getsignal(number) == before
    assert [step for step, _ in records(tmp_path / "stopped")] == [5, 10, 15]
    said = run(tmp_path / "stopped")
    assert not any("begins anew" in line for line in said)
    for key in ("loss", "valid_loss"):
        assert records(tmp_path / "stopped", key) == records(tmp_path / "straight", key)


def test_where_it_stands_is_said(tmp_path: Path) -> None:
    said: list[str] = []

    def report(record: dict[str, Any]) -> None:
        if record["step"] == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(), report=report, remark=said.append)
    assert said[-1] == f"{tmp_path}: stopped at step 11, saved; the same command goes on from there"


def test_a_run_that_is_stopped_in_its_last_step_is_finished_and_nothing_comes_behind_it(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 40)
    assert records(tmp_path, "valid_loss")[-1][0] == 40
    assert any("finished" in line for line in run(tmp_path))


def test_a_second_ctrl_c_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not one that comes with the first: a terminal sends it to all processes, and the parent as well."""
    with pytest.raises(KeyboardInterrupt), Stopping() as asked:
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert asked.asked
        monkeypatch.setattr(stopping, "AT_ONCE", -1.0)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("it went on")


def test_in_another_thread_signals_stay_those_of_the_first() -> None:
    before, seen = signal.getsignal(signal.SIGINT), list[Any]()

    def work() -> None:
        with Stopping():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def work_of_rank(folder: Path, stop_at: int) -> None:
    run(folder, stop_at if os.environ["RANK"] == "0" else 0, signal.SIGTERM, os.getppid())


def work_twice(folder: Path, stop_at: int) -> None:
    """In the same processes, whose start takes longer than the work."""
    run(folder / "straight")
    work_of_rank(folder / "stopped", stop_at)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_the_processes_of_a_run_stop_together(tmp_path: Path) -> None:
    """A cluster tells the process that started them."""
    with pytest.raises(KeyboardInterrupt):
        start(work_twice, (tmp_path, 10), 2, free_port())
    steps = [step for step, _ in records(tmp_path / "stopped")]
    assert steps and steps[-1] < 40
    start(work_of_rank, (tmp_path / "stopped", 0), 2, free_port())
    assert records(tmp_path / "stopped") == records(tmp_path / "straight")
