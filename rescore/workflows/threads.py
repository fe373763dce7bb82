"""Work ahead of and behind the main thread, so that reading and writing go on while an LM scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_END: Any = object()
MOST = 1  # items that wait in a queue
_PATIENCE = 0.1  # seconds between looks whether the other side is still there


class Stopped(Exception):
    """Raised in what `Behind` runs when the main thread gave up."""


def ahead(items: Iterable[T], most: int = MOST) -> Iterator[T]:
    """The same items, made by a thread of its own, `most` ahead; its error comes after the items before it.

    Not a thread of concurrent.futures: a program that ends waits for those, and one may read a pipe that stays open.
    """
    queue: Queue[tuple[T, BaseException | None]] = Queue(most)
    closed = Event()

    def work() -> None:
        try:
            for item in items:
                if not _put(queue, (item, None), lambda: not closed.is_set()):
                    return
            last = None
        except BaseException as error:
            last = error
        _put(queue, (_END, last), lambda: not closed.is_set())

    Thread(target=work, daemon=True, name="reading ahead").start()
    try:
        while True:
            item, error = queue.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        closed.set()


class Behind(Generic[T, R]):
    """Runs `consume(items)` in a thread of its own over what is `put`, `MOST` items behind.

    Leaving the block waits for it; its error is raised there, or at the next `put`.  If the block ends by an error,
    what was put before is still consumed, and then the items end with `Stopped`.

    Attributes:
      result: of `consume`, after the block.
    """

    result: R

    def __init__(self, consume: Callable[[Iterator[T]], R]) -> None:
        self._consume = consume
        self._queue: Queue[tuple[T, bool]] = Queue(MOST)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writing behind")
        self._done: Future[R]

    def put(self, item: T) -> None:
        _put(self._queue, (item, True), lambda: not self._done.done())
        if self._done.done():
            self._done.result()  # raises its error

    def __enter__(self) -> Behind[T, R]:
        self._done = self._thread.submit(self._consume, self._items())
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _put(self._queue, (_END, kind is None), lambda: not self._done.done())
        self._thread.shutdown()
        if kind is None:
            self.result = self._done.result()

    def _items(self) -> Iterator[T]:
        while True:
            item, fine = self._queue.get()
            if not fine:
                raise Stopped
            if item is _END:
                return
            yield item


def _put(queue: Queue[T], item: T, goes_on: Callable[[], bool]) -> bool:
    """Puts an item as soon as there is room; False if the other side ended before."""
    while goes_on():
        try:
            queue.put(item, timeout=_PATIENCE)
            return True
        except Full:
            continue
    return False
