"""Sharing out a command's work: processes of this machine, or those of a Ray cluster; the results do not depend on it.

The work is a function of a `Split`, which writes what it has done to a folder that all processes see, and does nothing
twice.  So a share whose process has died is begun again, and goes on; what a process dies of twice is done in smaller
pieces from then on, down to one utterance.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rescore.console import progress, remark
from rescore.errors import UsageError
from rescore.sharing.executors import LocalWorkers, RayWorkers, Work
from rescore.sharing.parts import Bite, Split, at_nothing, at_work, cut
from rescore.workers import WorkerDied, cores

MOST_DEATHS = 3  # one after the other, before a share is given up of which nothing is known
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
        if self.executor == "local" and self.address:
            raise UsageError("--ray-address is for --executor ray: processes of --executor local are of this machine")
        if self.executor is not None and self.split is not None:
            raise UsageError("give either --split K/N, for one share, or --executor, for all of them")

    @property
    def alone(self) -> bool:
        """Whether this process is to do all of the work."""
        return self.executor is None and self.split is None


class Workers(Protocol):
    """Processes that do shares, one at a time each."""

    count: int

    def start(self, split: Split) -> None: ...

    def next(self) -> tuple[Split, bool]:
        """A share that has ended, and whether its process lived; raises the error of the user that it ended by."""
        ...

    def close(self) -> None: ...


def share_out(
    work: Work, sharing: Sharing, parts: Path | None = None, skip: bool = False, max_memory: int | None = None
) -> None:
    """Does all shares of the work.

    Args:
      parts: the folder where the work says what it is at (`Parts.begin`).
      skip: an utterance that a process dies of again and again is left out; else it ends the work.
      max_memory: bytes that each process may take.
    Raises:
      WorkerDied: processes die again and again.
      RescoreError, LMError: that of the first share that failed; those not yet begun are left out.
    """
    makers: dict[str | None, Callable[[], Workers]] = {
        "ray": lambda: RayWorkers(work, sharing.workers, sharing.address, max_memory),
        "local": lambda: LocalWorkers(work, sharing.workers or cores(), max_memory),
    }
    workers = makers[sharing.executor]()
    try:
        of = sharing.shards or SHARES_A_WORKER * workers.count
        splits = [Split(number, of) for number in range(1, of + 1)]
        for _ in progress(_done(workers, splits, _Deaths(parts, skip)), "shares", of):
            pass
    finally:
        workers.close()


def _done(workers: Workers, splits: list[Split], deaths: _Deaths) -> Iterator[Split]:
    """The shares as they are done."""
    todo, running = deque(splits), 0
    while todo or running:
        while todo and running < workers.count:
            deaths.begin(todo[0])
            workers.start(todo.popleft())
            running += 1
        split, lived = workers.next()
        running -= 1
        if lived:
            yield split
        else:
            deaths.note(split)
            todo.appendleft(split)


@dataclass
class _Deaths:
    """What is to become of a share whose process has died."""

    parts: Path | None
    skip: bool
    counts: Counter[Split | int | Bite] = field(default_factory=Counter)  # by share, or by part and by bite where known

    def begin(self, split: Split) -> None:
        """For when a process is to begin a share: what it dies of is what it says from now on."""
        if self.parts is not None:
            at_nothing(self.parts, split)

    def note(self, split: Split) -> None:
        """Cuts what it was at work on in two, if a process has died of it before.

        Raises:
          WorkerDied: that is not known, was cut or left out in vain, or is one utterance, which is not to be left out.
        """
        bite = at_work(self.parts, split) if self.parts is not None else None
        culprits: list[Split | int | Bite] = [split] if bite is None else [bite.index, bite]
        self.counts.update(culprits)
        if self.counts[culprits[-1]] == MOST_DEATHS:
            raise WorkerDied("a worker process has died again and again, perhaps for want of memory")
        if bite is None or self.parts is None:
            remark(f"a worker has died; its share {split} is begun again")
        elif self.counts[culprits[0]] == 1:
            remark(f"a worker has died, at utterance {bite.first} or after it; its share {split} is begun again")
        elif bite.end - bite.begin > 1:
            cut(self.parts, bite)
            remark(
                f"workers die at utterance {bite.first} or after it, perhaps for want of memory: half as much at once"
            )
        elif not self.skip:
            raise WorkerDied(
                f"utterance {bite.first}: a worker process dies of it alone, perhaps for want of memory; give it more, "
                "or leave the utterance out: --on-error skip"
            )
        else:
            cut(self.parts, bite, leave_out=True)
