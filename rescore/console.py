"""Remarks and progress on standard error; silent under `rescore --quiet`, in the processes that it starts too.

Where the program has given the logger `rescore` a level, they go there.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

import click

from lm_zoo.errors import visible

LOGGER = logging.getLogger("rescore")
T = TypeVar("T")
QUIET = "RESCORE_QUIET"  # a variable of the environment, which processes inherit
SECONDS = 30.0  # between two lines of progress
NAMED = 5  # utterances named in a message; the others are counted

_said: set[str] | None = None  # of the sources of a command


@contextmanager
def quietly(quiet: bool = True) -> Iterator[None]:
    """No remarks and no progress until the end of the block, in processes begun in it too; `False`: as outside."""
    before = os.environ.get(QUIET)
    if quiet:
        os.environ[QUIET] = "1"
    try:
        yield
    finally:
        if quiet:
            _put_back(before)


def be_quiet() -> None:
    """For the whole life of this process: a worker's."""
    os.environ[QUIET] = "1"


def _put_back(before: str | None) -> None:
    if before is None:
        os.environ.pop(QUIET, None)
    else:
        os.environ[QUIET] = before


def is_quiet() -> bool:
    return QUIET in os.environ


def is_logged() -> bool:
    """Whether the program has asked for remarks as records of logging."""
    return LOGGER.level != logging.NOTSET


def remark(message: str) -> None:
    """A line for the user (counts of what was skipped, where output went)."""
    if is_quiet():
        return
    if is_logged():
        LOGGER.info("%s", visible(message))
    else:
        click.echo(visible(message), err=True)


def remark_on_source(message: str) -> None:
    """As `remark`, of what is read: within a block `sources_named_once` the first time alone."""
    if is_quiet() or (_said is not None and message in _said):
        return
    if _said is not None:
        _said.add(message)
    remark(message)


@contextmanager
def sources_named_once() -> Iterator[None]:
    """For a command, which may read its sources more than once."""
    global _said
    _said = set()
    try:
        yield
    finally:
        _said = None


def progress(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Yields `items` with a progress bar on standard error; where that is no terminal, with a line now and then."""
    total = len(items) if total is None and isinstance(items, Sized) else total
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if is_quiet():
        yield from items
    elif is_logged() or not console.is_terminal:
        yield from _with_lines(items, label, total)
    else:
        times = (TimeElapsedColumn(),) if total is None else (TimeElapsedColumn(), TimeRemainingColumn())
        columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), *times)
        with Progress(*columns, console=console) as bar:
            yield from bar.track(items, total=total, description=label)


def _with_lines(items: Iterable[T], label: str, total: int | None) -> Iterator[T]:
    """Yields `items`; every so many seconds a remark on how many there were, and on the time left.

    Items may come many at once, behind the work on all of them: the rate is that of those before the last one.
    """
    begin = said = last = time.monotonic()
    for number, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - said >= SECONDS:
            said, of = now, "" if total is None else f" of {total}"
            left = ""
            if total is not None and number > 1:
                rest = (last - begin) / (number - 1) * (total - number + 1) - (now - last)
                left = f", {_clock(max(0.0, rest))} left"
            remark(f"{label}: {number}{of} after {_clock(now - begin)}{left}")
        last = now


def _clock(seconds: float) -> str:
    """`h:mm:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def some_names(utt_ids: list[str]) -> str:
    """The first NAMED of them, and how many more there are."""
    more = f" and {len(utt_ids) - NAMED} more" if len(utt_ids) > NAMED else ""
    return ", ".join(utt_ids[:NAMED]) + more
