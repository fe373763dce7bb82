"""How a run is stopped, by Ctrl-C or by a cluster that wants its machine back: behind a step, and saved."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

AT_ONCE = 1.0  # seconds within which a second Ctrl-C is the first: a terminal and the process's parent both send it


class Stopping:
    """While entered, SIGINT (Ctrl-C) and SIGTERM (Slurm, torchrun, `kill`) are kept for the work to look at.

    A second Ctrl-C ends the work at once.  What is asked of work that ends by itself before it looks, ends what is
    behind it.  Signals are the main thread's: in others nothing changes.  Nor does SIGTERM in processes started here
    (`lm_zoo.training.distributed.start`), which ends those that wait for one that has failed.

    Args:
      first: called at the first signal, wherever the work is then.
    """

    def __init__(self, first: Callable[[], object] = lambda: None) -> None:
        self.asked = False
        self._first, self._when = first, 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            of_others = () if multiprocessing.parent_process() else (signal.SIGTERM,)
            self._process = os.getpid()
            self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, *of_others)}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.asked and kind is None:
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT and time.monotonic() - self._when > AT_ONCE:
            raise KeyboardInterrupt
        if not self.asked and os.getpid() == self._process:  # a process that loads data has the handler of its parent
            self._first()
        self.asked, self._when = True, self._when or time.monotonic()
