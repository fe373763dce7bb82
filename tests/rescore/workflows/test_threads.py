"""Threads ahead of and behind the main one: order, errors, bounds, stopping."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rescore.workflows.threads import Behind, Stopped, ahead


def until(condition: object) -> None:
    end = time.monotonic() + 60  # of a busy machine
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_ahead_gives_the_same_items_from_another_thread() -> None:
    names = set[str]()

    def items() -> Iterator[int]:
        for number in range(20):
            names.add(threading.current_thread().name)
            yield number

    assert list(ahead(items())) == list(range(20))
    assert names == {"reading ahead"}
    assert list(ahead([])) == []


def test_ahead_gives_an_error_at_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("line 2")

    stream = ahead(items())
    assert next(stream) == 1
    with pytest.raises(ValueError, match="line 2"):
        next(stream)


def test_ahead_does_not_run_away_and_ends_with_its_reader() -> None:
    made = list[int]()

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    stream = ahead(items(), most=3)
    assert next(stream) == 0
    until(lambda: len(made) == 5)  # three wait, one is in hand, one was taken
    stream.close()  # type: ignore[attr-defined]
    until(lambda: not any(thread.name == "reading ahead" for thread in threading.enumerate()))
    assert len(made) <= 6


def test_behind_consumes_in_order() -> None:
    with Behind[int, int](lambda items: sum(number * 10**place for place, number in enumerate(items))) as behind:
        for number in (1, 2, 3):
            behind.put(number)
    assert behind.result == 321


@pytest.mark.parametrize("after", [1, 3])
def test_an_error_behind_comes_up(after: int) -> None:
    def consume(items: Iterator[int]) -> None:
        for number in items:
            if number == after:
                raise ValueError(f"disk full at {number}")

    with pytest.raises(ValueError, match=f"disk full at {after}"), Behind[int, None](consume) as behind:
        for number in range(1, 4):
            behind.put(number)
            time.sleep(0.01)
    until(lambda: not any(thread.name.startswith("writing behind") for thread in threading.enumerate()))


def test_what_was_put_before_an_error_is_consumed() -> None:
    seen, ends = list[int](), list[type]()

    def consume(items: Iterator[int]) -> None:
        try:
            for number in items:
                time.sleep(0.01)
                seen.append(number)
        except Stopped:
            ends.append(Stopped)
            raise

    with pytest.raises(KeyboardInterrupt), Behind[int, None](consume) as behind:
        for number in range(3):
            behind.put(number)
        raise KeyboardInterrupt
    assert (seen, ends) == ([0, 1, 2], [Stopped])
