"""Worker processes that do not outlive the process that started them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread
from typing import Any, TypeVar

from rescore.errors import RescoreError

T = TypeVar("T")


class WorkerDied(RescoreError):
    """A worker process has ended without a result: killed, or for want of memory."""


def cores() -> int:
    """Cores that this process may run on: in a job of Slurm, or under taskset, fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_pool(jobs: int, method: str, begin: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Processes that take calls; those not yet begun are dropped at the end of the block.

    A worker ends when its parent has ended, however that came about.

    Args:
      method: how processes are started, "fork" or "spawn".
      begin: called in each worker before all else.
    Raises:
      WorkerDied: a worker has died, or the thread that looks after them could not be started.
    """
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context(method), initializer=_begin, initargs=(begin,))
    try:
        yield pool
    except BrokenProcessPool:
        raise WorkerDied("a worker process has died, perhaps for want of memory; take fewer --jobs") from None
    except RuntimeError as error:
        if "new thread" not in str(error):
            raise
        raise WorkerDied("no thread can be started, perhaps for want of memory; take --jobs 1") from None
    finally:
        _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    workers = list((pool._processes or {}).values())
    try:
        pool.shutdown(cancel_futures=True)
    except RuntimeError:  # the pool's thread was never started, so that nobody would tell the workers to end
        for worker in workers:
            worker.kill()
            worker.join()


def _begin(begin: Callable[[], None] | None) -> None:
    _end_with_parent()
    if begin is not None:
        begin()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a worker"

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True, name="watching the parent").start()


_kept: dict[Hashable, Any] | None = None


def keep_loaded() -> None:
    """Says that this process does one share of a work after the other: what is `kept` stays loaded."""
    global _kept
    _kept = {} if _kept is None else _kept


def kept(key: Hashable, load: Callable[[], T]) -> T:
    """What `load` gives; in a process that has been told to `keep_loaded`, once for each key."""
    if _kept is None:
        return load()
    if key not in _kept:
        _kept[key] = load()
    found: T = _kept[key]
    return found
