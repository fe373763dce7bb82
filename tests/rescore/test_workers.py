"""Worker processes end with what started them, whatever went wrong."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import process

import pytest

from rescore.workers import WorkerDied, worker_pool


def test_a_pool_whose_thread_cannot_be_started_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of memory: its workers were there already, and waited for ever."""

    def refused(self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(process._ExecutorManagerThread, "start", refused)
    with pytest.raises(WorkerDied, match="no thread can be started"), worker_pool(2, "fork") as pool:
        pool.submit(len, "abc")
    assert multiprocessing.active_children() == []


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="of the caller"), worker_pool(1, "fork") as pool:
        assert pool.submit(len, "abc").result() == 3
        raise RuntimeError("of the caller")
    assert multiprocessing.active_children() == []
