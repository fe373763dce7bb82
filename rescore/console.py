"""Remarks and progress on standard error; silent under `rescore --quiet`, in the processes that it starts too."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click

T = TypeVar("T")
QUIET = "RESCORE_QUIET"  # a variable of the environment, which processes inherit
NAMED = 5  # utterances named in a message; the others are counted


def set_quiet(quiet: bool) -> None:
    if quiet:
        os.environ[QUIET] = "1"
    else:
        os.environ.pop(QUIET, None)


def is_quiet() -> bool:
    return QUIET in os.environ


def remark(message: str) -> None:
    """A line for the user (counts of what was skipped, where output went)."""
    if not is_quiet():
        click.echo(message, err=True)


def progress(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Yields `items` with a rich progress bar on standard error (on a terminal only)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if is_quiet() or not console.is_terminal:
        yield from items
        return
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        yield from bar.track(items, total=total, description=label)


def some_names(utt_ids: list[str]) -> str:
    """The first NAMED of them, and how many more there are."""
    more = f" and {len(utt_ids) - NAMED} more" if len(utt_ids) > NAMED else ""
    return ", ".join(utt_ids[:NAMED]) + more
