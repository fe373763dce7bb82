"""Sharing out a command's work: processes of this machine, or those of a Ray cluster; the results do not depend on it.

The work is a function of a `Split`, which writes what it has done to a folder that all processes see, and does nothing
twice.  So a share whose process has died is begun again, and goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice

from lm_zoo.errors import LMError
from rescore.console import progress, remark, set_quiet
from rescore.errors import RescoreError, UsageError
from rescore.workers import WorkerDied, keep_loaded, worker_pool
from rescore.workflows.parts import Split

Work = Callable[[Split], object]

MOST_DEATHS = 3  # one after the other, before a share is given up
SHARES_A_WORKER = 4  # so that one slow share does not hold up the end


@dataclass(frozen=True)
class Sharing:
    """How the work of a command is shared out.

    Attributes:
      executor: "local" or "ray"; None is this process alone.
      shards: shares; None for `SHARES_A_WORKER` a worker.
      workers: processes at a time; None is one a core, or what the cluster has room for.
      address: of the Ray cluster; None starts one of this machine.
      split: the share that this process is to do, of a work shared out by others.
    """

    executor: str | None = None
    shards: int | None = None
    workers: int | None = None
    address: str | None = None
    split: Split | None = None

    def __post_init__(self) -> None:
        if self.executor is None and (self.shards or self.workers or self.address):
            raise UsageError("--shards, --workers and --ray-address need --executor local or --executor ray")
        if self.executor is not None and self.split is not None:
            raise UsageError("give either --split K/N, for one share, or --executor, for all of them")

    @property
    def alone(self) -> bool:
        """Whether this process is to do all of the work."""
        return self.executor is None and self.split is None


def share_out(work: Work, sharing: Sharing) -> None:
    """Does all shares of the work.

    Raises:
      WorkerDied: processes die again and again.
      RescoreError, LMError: that of the first share that failed; those not yet begun are left out.
    """
    if sharing.executor == "ray":
        _on_ray(work, sharing)
    else:
        _on_this_machine(work, sharing)


def _splits(sharing: Sharing, workers: int) -> list[Split]:
    of = sharing.shards or SHARES_A_WORKER * workers
    return [Split(number, of) for number in range(1, of + 1)]


def _on_this_machine(work: Work, sharing: Sharing) -> None:
    workers = sharing.workers or os.cpu_count() or 1
    threads = max(1, (os.cpu_count() or 1) // workers)
    left = dict.fromkeys(_splits(sharing, workers))
    deaths = 0

    def done() -> Iterator[Split]:
        nonlocal deaths
        while left:
            try:
                with worker_pool(min(workers, len(left)), "spawn", partial(_begin, threads, workers << deaths)) as pool:
                    for split in _as_done(pool, work, left):
                        del left[split]
                        deaths = 0
                        yield split
            except WorkerDied:
                deaths += 1
                if deaths == MOST_DEATHS:
                    raise
                remark(f"a worker has died; {len(left)} shares go on, with half as much at once")

    for _ in progress(done(), "shares", len(left)):
        pass


def _as_done(pool: ProcessPoolExecutor, work: Work, splits: Iterable[Split]) -> Iterator[Split]:
    running = {pool.submit(_do, work, split): split for split in list(splits)}
    while running:
        ended, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            _raise(future.result())
            yield running.pop(future)


def _do(work: Work, split: Split) -> str | None:
    """Does a share; returns the message of an error of the user, as not every error can be sent to another process."""
    try:
        work(split)
    except (RescoreError, LMError) as error:
        return str(error)
    return None


def _raise(message: str | None) -> None:
    if message is not None:
        raise RescoreError(message)


def _begin(threads: int, others: int) -> None:
    """A worker's share of the machine: its threads, and one of `others` parts of the free memory."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch is imported
    from lm_zoo.inference.memory import share_memory

    share_memory(others)
    keep_loaded()
    set_quiet(True)


def _on_ray(work: Work, sharing: Sharing) -> None:
    import ray

    if not ray.is_initialized():
        here = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}  # of no use to another machine
        ray.init(log_to_driver=False, **({"address": sharing.address} if sharing.address else here))
    cores = int(ray.cluster_resources().get("CPU", 1))
    workers = sharing.workers or cores
    threads = max(1, cores // workers)
    task = ray.remote(num_cpus=threads, max_retries=MOST_DEATHS)(_in_ray)
    todo = iter(_splits(sharing, workers))
    running = [task.remote(work, split, threads) for split in islice(todo, workers)]

    def done() -> Iterator[None]:
        nonlocal running
        while running:
            ended, running = ray.wait(running)
            try:
                _raise(ray.get(ended[0]))
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
                raise WorkerDied("a worker of Ray has died again and again, perhaps for want of memory") from None
            running.extend(task.remote(work, split, threads) for split in islice(todo, 1))
            yield

    for _ in progress(done(), "shares", sharing.shards):
        pass


def _in_ray(work: Work, split: Split, threads: int) -> str | None:
    _begin(threads, 1)
    return _do(work, split)
