"""Processes that do shares of a work: those of this machine, or those of a Ray cluster."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import partial
from typing import Any

from lm_zoo.deadline import limit_time, time_limit
from lm_zoo.errors import LMError
from lm_zoo.hub import OFFLINE
from lm_zoo.inference.limits import is_want_of_memory, limit_memory, share_memory
from rescore.console import be_quiet
from rescore.errors import RescoreError
from rescore.sharing.parts import Split
from rescore.workers import cores, keep_loaded, worker_pool

Work = Callable[[Split], object]
Ended = tuple[bool, str | None]  # whether memory sufficed, and the message of an error of the user


def _do(work: Work, split: Split) -> Ended:
    """Does a share; gives the message of an error of the user, as not every error can be sent to another process."""
    try:
        work(split)
    except (RescoreError, LMError) as error:
        return True, str(error)
    except (MemoryError, ImportError, OSError) as error:
        if not is_want_of_memory(error):
            raise
        return False, None
    return True, None


def _begin(threads: int, others: int, max_memory: int | None, max_seconds: float | None) -> None:
    """A worker's share of the machine: its threads, and one of `others` parts of the free memory; and its limits."""
    take_threads(threads)
    share_memory(others)
    if max_memory is not None:
        limit_memory(max_memory)
    limit_time(max_seconds)
    keep_loaded()
    be_quiet()


def take_threads(threads: int) -> None:
    """Has this process use so many, or fewer if OMP_NUM_THREADS says so; torch reads that but once, at its import."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked):
        threads = min(threads, int(asked))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


class LocalWorkers:
    """Processes of this machine, each with its share of the cores; one that dies is replaced, the others go on."""

    def __init__(self, work: Work, count: int, max_memory: int | None = None) -> None:
        self.count, self._work = count, work
        threads = max(1, cores() // count)
        self._prepare = partial(_begin, threads, count, max_memory, time_limit())
        self._free: list[tuple[ExitStack, ProcessPoolExecutor]] = []
        self._running: dict[Future[Ended], tuple[Split, ExitStack, ProcessPoolExecutor]] = {}

    def start(self, split: Split) -> None:
        stack, pool = self._free.pop() if self._free else self._new()
        self._running[pool.submit(_do, self._work, split)] = split, stack, pool

    def _new(self) -> tuple[ExitStack, ProcessPoolExecutor]:
        stack = ExitStack()
        return stack, stack.enter_context(worker_pool(1, "spawn", self._prepare))

    def next(self) -> tuple[Split, bool]:
        future = next(iter(wait(self._running, return_when=FIRST_COMPLETED).done))
        split, stack, pool = self._running.pop(future)
        try:
            lived, message = future.result()
        except BrokenProcessPool:
            lived, message = False, None
        if lived:
            self._free.append((stack, pool))
        else:
            stack.close()
        if message is not None:
            raise RescoreError(message)
        return split, lived

    def close(self) -> None:
        """Waits for the shares that are at work."""
        for stack in [stack for stack, _ in self._free] + [stack for _, stack, _ in self._running.values()]:
            stack.close()


class RayWorkers:
    """Processes of a Ray cluster; without `address` and RAY_ADDRESS one is started on this machine."""

    def __init__(self, work: Work, count: int | None, address: str | None, max_memory: int | None = None) -> None:
        import ray

        if not ray.is_initialized():
            _join_ray(address)
        cores = int(ray.cluster_resources().get("CPU", 1))
        self.count, self._work = count or cores, work
        nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        threads = max(1, min(cores // self.count, max(nodes, default=1)))  # a task is on one node
        self._task: Any = ray.remote(num_cpus=threads, max_retries=0)(_in_ray)
        offline = {name: os.environ[name] for name in OFFLINE if name in os.environ}
        self._settings = os.getcwd(), offline, threads, max_memory, time_limit()
        self._running: dict[Any, Split] = {}

    def start(self, split: Split) -> None:
        self._running[self._task.remote(self._work, split, *self._settings)] = split

    def next(self) -> tuple[Split, bool]:
        import ray

        ended, _ = ray.wait(list(self._running))
        split = self._running.pop(ended[0])
        try:
            lived, message = ray.get(ended[0])
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError):
            return split, False
        except ray.exceptions.RayTaskError:  # of the work, and no error of the user
            raise
        except ray.exceptions.RayError as error:
            why = str(error).partition("\n")[0][:300]
            raise RescoreError(
                f"the Ray cluster has ended, or cannot go on ({why}); what is done is kept: see ray status, and run "
                "the same command again"
            ) from None
        if message is not None:
            raise RescoreError(message)
        return split, lived

    def close(self) -> None:
        """Cancels the shares that are at work."""
        import ray

        for task in self._running:
            ray.cancel(task)


def _join_ray(address: str | None) -> None:
    """Joins the cluster at `address` or, as in a job of Ray's, at RAY_ADDRESS; else starts one of its own.

    Ray by itself would join one that another process has started on this machine, and that ends with that process.
    SIGTERM, which Ray takes for a crash (a trace, exit status 134), ends the work as Ctrl-C does, or as the caller has
    it.

    Raises:
      RescoreError: a cluster can be neither started nor reached.
    """
    import ray

    address = address or os.environ.get("RAY_ADDRESS")
    here = {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}  # no other machine's
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(log_to_driver=False, **({"address": address} if address else here))
    except Exception as error:  # Ray raises many, some of them no more than an Exception
        what = f"--ray-address {address}: the cluster cannot be reached" if address else "Ray cannot be started here"
        why = " ".join(str(error).split())[:300]
        raise RescoreError(f"{what} ({why}); see ray status, or take --executor local") from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler if before in (signal.SIG_DFL, None) else before)


def _in_ray(
    work: Work,
    split: Split,
    folder: str,
    variables: dict[str, str],
    threads: int,
    max_memory: int | None,
    max_seconds: float | None,
) -> Ended:
    """As `_do`, in the folder of the command and with these variables of its environment.

    A node's processes have the folder and the environment in which its Ray was started.
    """
    try:
        os.chdir(folder)
    except OSError as error:
        where = f"the machine {platform.node()} of the Ray cluster has no such folder ({error.strerror})"
        return True, f"{folder}: {where}; start the command in one that all machines see"
    os.environ.update(variables)
    _begin(threads, 1, max_memory, max_seconds)
    return _do(work, split)
