"""Worker processes that do not outlive the process that started them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread

from rescore.errors import RescoreError


@contextmanager
def worker_pool(jobs: int, method: str) -> Iterator[ProcessPoolExecutor]:
    """Processes that take calls; those not yet begun are dropped at the end of the block.

    A worker ends when its parent has ended, however that came about.

    Args:
      method: how processes are started, "fork" or "spawn".
    Raises:
      RescoreError: a worker has died.
    """
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context(method), initializer=_end_with_parent)
    try:
        yield pool
    except BrokenProcessPool:
        raise RescoreError("a worker process has died, perhaps for want of memory; take fewer --jobs") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a worker"

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True, name="watching the parent").start()
