"""Damaged files for every reader: small valid files, changed at random; nothing but our own errors may come out.

The number of changed files a reader is that of the environment variable FUZZ (15 in the test-suite):

    FUZZ=5000 .venv/bin/python -m pytest tests/test_fuzzing.py

A fault names the seed; `mutate(data, random.Random(seed))` makes the file again.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asr.errors import AsrError
from lm_zoo.errors import LMError
from rescore.errors import RescoreError

OURS = (RescoreError, LMError, AsrError)
COUNT = int(os.environ.get("FUZZ", "15"))
SECONDS = 10  # that a reader may take for one of these files
MEMORY = 3 << 30  # bytes that it may take beside what the process has
HUGE = (b"9" * 5000, b"99999999999999999999", b"4294967296", b"2147483648", b"2147483647", b"1000000000")
ODD = (b"0", b"-1", b"1e999", b"-inf", b"nan", b"1e-400", b"0x10", b"1_000", "\u0663".encode(), b"")
TOKENS = (b"\xef\xbb\xbf", b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", "\u2028".encode(), b"\x85", b"\r")
TOKENS += (b'"', b"'", b"\\", b"{", b"[", b"<", b"(", b"/", b"..", b"=", b":", b"-", b"*", b"&", b"\t", b"\n", b" ")
LONG = 80_000


class TooSlowError(BaseException):
    """A reader took longer than SECONDS; no `Exception`, so that none catches it."""


@dataclass(frozen=True)
class Target:
    """A reader and a valid file for it.

    Attributes:
      make: writes the files into an empty folder and returns the one to damage.
      read: gets the path of that file, reads all that hangs on it.
      share: of COUNT, for slow readers.
    """

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    share: float = 1.0


def run(target: Target, folder: Path, count: int = COUNT) -> list[str]:
    """Reads `count` damaged files; returns a line for each fault."""
    good, work, faults = folder / "good", folder / "work", list[str]()
    good.mkdir()
    path = target.make(good)
    data, place = path.read_bytes(), path.relative_to(good)
    shutil.copytree(good, work)
    target.read(work / place)
    for number in range(max(1, round(count * target.share))):
        seed = zlib.crc32(f"{target.name} {number}".encode())
        shutil.rmtree(work)
        shutil.copytree(good, work)
        (work / place).write_bytes(mutate(data, random.Random(seed)))
        problem = try_to_read(target.read, work / place)
        if problem:
            faults.append(f"{target.name}, seed {seed}: {problem}")
    return faults


def try_to_read(read: Callable[[Path], object], path: Path) -> str | None:
    """What was wrong with reading a file, None if it was read or refused in our own words."""
    start = time.process_time()
    try:
        with limits():
            read(path)
    except OURS as error:
        if len(str(error)) > 2000:
            return f"an error of {len(str(error))} characters: {str(error)[:100]} ..."
        try:
            str(error).encode()
        except UnicodeEncodeError:
            return f"an error that cannot be printed: {error!a}"
    except (Exception, TooSlowError) as error:
        return f"{type(error).__name__}: {str(error)[:200]!a}"
    took = time.process_time() - start
    return f"took {took:.0f} s" if took > SECONDS else None


@contextmanager
def limits() -> Iterator[None]:
    """An end to what takes too long or too much memory."""

    def stop(*_: Any) -> None:
        raise TooSlowError(f"more than {2 * SECONDS} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    signal.alarm(2 * SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def mutate(data: bytes, rng: random.Random) -> bytes:
    """The file with one to three changes."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        data = rng.choice(CHANGES)(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 4])):
        if made:
            made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def _set(data: bytes, rng: random.Random) -> bytes:
    """Some bytes as one binary number, small or extreme."""
    size = rng.choice([1, 2, 4, 8])
    value = rng.choice([0, 1, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 10**9, 2**63, 2**64 - 1]) % 256**size
    at = rng.randrange(len(data) + 1)
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _drop(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.randrange(1, 20) :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at : at + rng.randrange(1, 40)] * rng.choice([2, 2, 3, 50]) + data[at:]


def _token(data: bytes, rng: random.Random) -> bytes:
    at = rng.choice([0, rng.randrange(len(data) + 1)])
    return data[:at] + rng.choice(TOKENS) + data[at:]


def _run(data: bytes, rng: random.Random) -> bytes:
    """A very long word, or very deep brackets."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((b"a", b"1", *TOKENS)) * rng.choice([300, LONG]) + data[at:]


def _number(data: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if not found:
        return data
    chosen = rng.choice(found)
    return data[: chosen.start()] + rng.choice((*HUGE, *ODD)) + data[chosen.end() :]


def _word(data: bytes, rng: random.Random) -> bytes:
    """One word in place of another of the file."""
    found = list(re.finditer(rb"[\w.<>/-]+", data))
    if not found:
        return data
    one, other = rng.choice(found), rng.choice(found)
    return data[: one.start()] + other[0] + data[one.end() :]


def _lines(data: bytes, rng: random.Random) -> bytes:
    """A line left out, twice, empty or elsewhere."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    line = lines.pop(rng.randrange(len(lines)))
    at = rng.randrange(len(lines) + 1)
    return b"".join([*lines[:at], *rng.choice([[], [line], [line, line], [b"\n"]]), *lines[at:]])


CHANGES = (_flip, _set, _cut, _drop, _repeat, _token, _run, _number, _number, _word, _lines)
