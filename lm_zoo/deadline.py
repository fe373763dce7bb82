"""How long an utterance may take: loops that may be long look here whether it has time left.

Nothing is interrupted: what goes on for long between two looks, such as one product of matrices, is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

_seconds: float | None = None  # that an utterance may take in this process
_end: ContextVar[float | None] = ContextVar("end", default=None)  # of the time of what this thread does


class OutOfTime(Exception):
    """An utterance has taken longer than it may; for those who call `timed`."""


def limit_time(seconds: float | None) -> None:
    """Says how long an utterance may take in this process; None: as long as it takes."""
    global _seconds
    _seconds = seconds


@contextmanager
def limited_time(seconds: float | None) -> Iterator[None]:
    """`limit_time` for the time of a block."""
    before = _seconds
    limit_time(seconds)
    try:
        yield
    finally:
        limit_time(before)


def time_limit() -> float | None:
    """How long that is."""
    return _seconds


@contextmanager
def timed() -> Iterator[None]:
    """The block does an utterance, whose time begins here; where that is over, `check_time` ends it by OutOfTime."""
    token = _end.set(None if _seconds is None else monotonic() + _seconds)
    try:
        yield
    finally:
        _end.reset(token)


def check_time() -> None:
    """Raises OutOfTime if this thread is at an utterance whose time is over."""
    if (end := _end.get()) is not None and monotonic() > end:
        raise OutOfTime(f"took more than {_seconds:g} s (--max-seconds)")


def in_time(items: Iterable[T]) -> Iterator[T]:
    """The items, with a look at the time before each."""
    for item in items:
        check_time()
        yield item
