"""The processes of a distributed run: those that torchrun started, or those started here as torchrun would."""

from __future__ import annotations

import atexit
import inspect
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from lm_zoo.errors import LMError
from lm_zoo.files import explain
from lm_zoo.training.stopping import Stopping

PORT = 12354  # at which processes meet, where no other is given
TOLD = 2  # how a process ends that has said what is wrong


@dataclass
class Ranks:
    """The processes of a distributed run (one in a plain run)."""

    rank: int
    size: int
    device: torch.device

    @classmethod
    def start(cls, device: str) -> Ranks:
        """This process's place; a GPU of its own becomes torch's current one, as gathers and random states want.

        Raises:
          LMError: there is no such GPU.
        """
        size = int(os.environ.get("WORLD_SIZE", "1"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        place = torch.device("cuda", local) if size > 1 and device == "cuda" else torch.device(device)
        if place.type == "cuda" and place.index is not None:
            if place.index >= (count := torch.cuda.device_count()):
                raise LMError(f"no GPU {place} for process {local + 1} of {size}: found {count}, expected one for each")
            torch.cuda.set_device(place)
        if size == 1:
            return cls(0, 1, place)
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
            atexit.register(leave_group)
        return cls(torch.distributed.get_rank(), size, place)

    def wait(self) -> None:
        """Until every rank is here."""
        if self.size > 1:
            torch.distributed.barrier()

    def sum(self, *values: float) -> list[float]:
        """Each value summed over the ranks."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return total.tolist()

    def gather(self, items: list[Any]) -> list[Any]:
        """The items of all ranks, in the order in which one process would have taken them."""
        if self.size == 1:
            return items
        parts: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(parts, items)
        return [part[index] for index in range(len(items)) for part in parts]


def in_step(lm: torch.nn.Module) -> torch.nn.Module:
    """An LM whose gradients are the mean of all processes' ones; its buffers are not sent at each step.

    torch calls the option for buffers otherwise from 2.13 on, and warns of the former name.
    """
    wrap: Any = torch.nn.parallel.DistributedDataParallel
    new = "forward_sync_buffers" in inspect.signature(wrap).parameters
    return wrap(lm, **{"forward_sync_buffers" if new else "broadcast_buffers": False})


def leave_group() -> None:
    """Called at the end of a process, which the threads of its group may otherwise abort.

    Behind DistributedDataParallel the group outlives its destruction (torch 2.13), and a thread of gloo that only now
    lets go of the last collective's tensors wants the interpreter's lock: once the interpreter ends, that aborts the
    process.  Sleeping hands the lock over before.
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        time.sleep(0.3)


def to_start(size: int) -> bool:
    """Whether a run of `size` processes has to start them: not where it is one of them itself.

    Raises:
      LMError: torchrun has started another number of processes.
    """
    started = os.environ.get("WORLD_SIZE")
    if started is not None and size not in (1, int(started)):
        raise LMError(
            f"--world-size {size}, but torchrun started {started} processes; leave out --world-size under torchrun"
        )
    return started is None and size > 1


# By torch's spawn, not torchrun's elastic_launch: that adds a traceback and a table to a process's one line.
def start(
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    size: int,
    port: int,
    errors: tuple[type[Exception], ...] = (LMError,),
) -> None:
    """Calls `work(*arguments)` in `size` processes on this machine; returns when all have ended.

    SIGINT and SIGTERM go to all of them; when they have ended, it raises KeyboardInterrupt.

    Args:
      work: a function that finds its place by `Ranks.start`; like its arguments it goes to the processes by pickle.
      port: at which they meet.
      errors: those of the user; a process that ends by one of them, or by one of the system (a full disk), says so on
              standard error, in a line.
    Raises:
      LMError: the port is in use, or a process has failed.
    """
    begun: list[Any] = []
    with _held(port), Stopping(lambda: _ask_to_stop(begun)) as stopping:
        context = torch.multiprocessing.spawn(_process, (work, arguments, size, port, errors), nprocs=size, join=False)
        begun += context.processes
        if stopping.asked:
            _ask_to_stop(begun)
        try:
            while not context.join():
                pass
        except (torch.multiprocessing.ProcessExitedException, torch.multiprocessing.ProcessRaisedException) as error:
            if stopping.asked:
                raise KeyboardInterrupt from None
            codes = [process.exitcode for process in context.processes]
            first = [code for code in (TOLD, -signal.SIGKILL) if code in codes]  # others may have failed for want of it
            if not first and isinstance(error, torch.multiprocessing.ProcessRaisedException):
                raise
            number = codes.index(first[0]) if first else error.error_index
            how = "failed, see above"
            if codes[number] == -signal.SIGKILL:
                how = "was killed, perhaps for want of memory; the same command goes on from what is saved"
            raise LMError(f"the run has ended: process {number} of {size} {how}") from None


def _ask_to_stop(processes: list[Any]) -> None:
    """As Ctrl-C in a terminal does, which reaches all processes of a run: once more does no harm."""
    for process in processes:
        if process.is_alive():
            os.kill(process.pid, signal.SIGINT)


@contextmanager
def _held(port: int) -> Iterator[None]:
    """Has this process serve the place where its processes meet, from now on and not when the first of them gets there.

    Those of another run that is started at the same time would meet with them else.

    Raises:
      LMError: the port is in use.
    """
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("localhost", port))
        store = torch.distributed.TCPStore("localhost", port, is_master=True, wait_for_workers=False)
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        raise LMError(f"port {port} cannot be used ({why}); give another by --master-port") from None
    try:
        yield
    finally:
        del store


def _process(
    rank: int,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    size: int,
    port: int,
    errors: tuple[type[Exception], ...],
) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}  # see _held
    try:
        work(*arguments)
        return
    except OSError as error:
        message = explain(error)
    except errors as error:
        message = str(error)
    print(f"process {rank}: {message}", file=sys.stderr, flush=True)
    os._exit(TOLD)  # at once: the others may wait for this one
