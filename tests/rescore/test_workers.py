"""Worker processes end with the process that started them, whatever went wrong."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import process
from pathlib import Path

import pytest

from lm_zoo.errors import WriteError
from rescore.errors import FormatError, RescoreError
from rescore.formats import read_lattices
from rescore.sharing.shares import Sharing
from rescore.skipping import OnError, fail
from rescore.text import TextNormalizer
from rescore.types import Lattice, NbestList
from rescore.workers import WorkerDied, worker_pool
from rescore.workflows.convert import ConvertRequest, lattices_to_nbest
from rescore.workflows.lattice_nbest import LatticeToNbest, nbest_of_lattices
from tests.rescore.formats.test_slf import HTK_NODES

# A parent whose two workers say that they are there, and sleep; their standard output is its own.
FORKED = """
import sys
from tests.rescore.slow_worker import work
from rescore.workflows.lattice_nbest import LatticeToNbest, nbest_of_lattices
class Slow(LatticeToNbest):
    def __call__(self, source):
        work()
list(nbest_of_lattices(f"slf:{sys.argv[1]}", Slow(), 2))
"""
SPAWNED = """
from concurrent.futures import wait
from tests.rescore.slow_worker import work
from rescore.workers import worker_pool
with worker_pool(2, "spawn") as pool:
    wait([pool.submit(work), pool.submit(work)])
"""


def test_calls_that_have_not_begun_are_dropped() -> None:
    begin = time.monotonic()
    with worker_pool(1, "fork") as pool:
        calls = [pool.submit(time.sleep, 0.2) for _ in range(200)]
    assert sum(call.cancelled() for call in calls) > 100 and time.monotonic() - begin < 30


@pytest.mark.parametrize(
    ("code", "number"),
    [(FORKED, signal.SIGTERM), (FORKED, signal.SIGHUP), (FORKED, signal.SIGKILL), (SPAWNED, signal.SIGKILL)],
)
def test_workers_end_with_their_parent(tmp_path: Path, code: str, number: signal.Signals) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.slf").write_text(HTK_NODES)
    if number == signal.SIGHUP:  # which nohup ignores
        code = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n{code}"
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert [parent.stdout.readline(), parent.stdout.readline()] == ["ready\n", "ready\n"]
    parent.send_signal(number)
    parent.communicate(timeout=60)  # until all that hold its standard output have ended
    assert parent.returncode == -number


def test_workers_have_ended_when_an_error_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the interpreter's end, with what the error held, they raised in their turn."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.slf").write_text(HTK_NODES)

    def write(target: str, lists: Iterator[NbestList], on_error: OnError) -> int:
        next(lists)
        raise WriteError(f"{target}: cannot be written")

    monkeypatch.setattr("rescore.workflows.convert.write_nbest", write)
    request = ConvertRequest(f"slf:{tmp_path}", "lists.jsonl", TextNormalizer())
    with pytest.raises(WriteError) as told:
        lattices_to_nbest("convert", request, 2, fail, Sharing())
    assert not multiprocessing.active_children()
    assert told.value.__traceback__ is not None  # which holds what was at work


def test_a_worker_that_dies_is_told() -> None:
    with pytest.raises(RescoreError, match="a worker process has died"), worker_pool(1, "fork") as pool:
        pool.submit(os._exit, 9).result()


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


def test_workers_end_where_one_of_the_first_lattices_cannot_be_read(tmp_path: Path) -> None:
    """Before a caller has anything to close; at the end of the program, Python complained of them."""
    (tmp_path / "a.slf").write_text(HTK_NODES)

    def lattices() -> Iterator[Lattice]:
        yield from read_lattices(f"slf:{tmp_path}")
        raise FormatError("lat", "damaged")

    with pytest.raises(FormatError, match="lat: damaged") as caught:  # which holds what was there
        nbest_of_lattices(lattices(), LatticeToNbest(), 2)  # type: ignore[arg-type]
    assert multiprocessing.active_children() == []
    del caught
