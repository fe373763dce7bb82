"""Work ahead of and behind the main thread, so that reading and writing go on while an LM scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    """The same items, made by a thread of its own, `most` ahead; its error comes after the items before it."""
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

    def __init__(self, consume: Callable[[Iterator[T]], R], most: int = MOST) -> None:
        self._consume = consume
        self._queue: Queue[tuple[T, bool]] = Queue(most)
        self._error: BaseException | None = None
        self._thread = Thread(target=self._work, name="writing behind")

    def put(self, item: T) -> None:
        _put(self._queue, (item, True), self._thread.is_alive)
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Behind[T, R]:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _put(self._queue, (_END, kind is None), self._thread.is_alive)
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self.result = self._consume(self._items())
        except BaseException as error:
            self._error = error

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
