"""Damaged inputs for every reader: small valid files, changed at random, and what reading them must not do.

`python -m tests.faults.fuzz` reads as many as are wanted; a few of each are part of the tests.  A reader may refuse an
input in our own words, or read it.  It may not raise anything else, take more than SECONDS, or more memory than FACTOR
times the input and ROOM; and what it has read must be what was written, where that can be known:

  - written again and read again it is the same (the readers of `tests.faults.readers` assert it);
  - of a file that was cut off it is the whole, or its beginning (`Target.kept`);
  - of a format with checksums it is the whole (`Target.checked`).
"""

from __future__ import annotations

import gzip
import io
import os
import random
import re
import resource
import signal
import zipfile
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
SECONDS = 10  # of the processor that a reader may take for one of these files
FACTOR = 10  # times the input's size that its memory may grow
ROOM = 64 << 20  # bytes beside that: buffers, modules that are imported late
MEMORY = 3 << 30  # bytes of addresses, so that a size out of a file cannot take the machine's memory
HUGE = (b"9" * 5000, b"99999999999999999999", b"4294967296", b"2147483648", b"2147483647", b"1000000000")
ODD = (b"0", b"-1", b"1e999", b"-inf", b"nan", b"1e-400", b"0x10", b"1_000", "\u0663".encode(), b"")
TOKENS = (b"\xef\xbb\xbf", b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", "\u2028".encode(), b"\x85", b"\r")
TOKENS += (b'"', b"'", b"\\", b"{", b"[", b"<", b"(", b"/", b"..", b"=", b":", b"-", b"*", b"&", b"\t", b"\n", b" ")
LONG = 80_000
CUTS = 0.1  # share of the inputs that are cut off and nothing else, where it is known what is to be read of them

Within = Callable[[bytes, random.Random], tuple[bytes, Callable[[bytes], bytes]]]


class TooSlowError(BaseException):
    """A reader took longer than SECONDS; no `Exception`, so that none catches it."""


@dataclass(frozen=True)
class Target:
    """A reader and a valid input for it.

    Attributes:
      make: writes the files into an empty folder and returns the one to damage.
      read: gets the path of that file, reads all that hangs on it; returns it in a form that can be compared.
      kept: whether what is read of a file that was cut off, the second argument, may stand for the first, the whole.
      checked: the format has checksums: what is read of a damaged file is the whole.
      within: takes out of a packed file what is to be damaged, and gives what packs it again.
      share: of the number of inputs, for slow readers.
    """

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    kept: Callable[[Any, Any], bool] | None = None
    checked: bool = False
    within: Within | None = None
    share: float = 1.0


def same(whole: Any, found: Any) -> bool:
    return bool(whole == found)


def begins(whole: list[Any], found: list[Any]) -> bool:
    return whole[: len(found)] == found


def begins_but_last(whole: list[Any], found: list[Any]) -> bool:
    """For texts of people, whose last line may have no end: the last item may have been cut."""
    return whole[: len(found) - 1] == found[:-1]


def within_zip(wanted: Callable[[str], bool]) -> Within:
    """The content of one of the members that are `wanted` by name; the zip is made anew, with its checksums."""

    def take(data: bytes, rng: random.Random) -> tuple[bytes, Callable[[bytes], bytes]]:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        chosen = rng.choice([name for name in members if wanted(Path(name).name)])

        def pack(inner: bytes) -> bytes:
            made = io.BytesIO()
            with zipfile.ZipFile(made, "w") as archive:
                for name, content in members.items():
                    archive.writestr(name, inner if name == chosen else content)
            return made.getvalue()

        return members[chosen], pack

    return take


class Trial:
    """A reader in a folder, with its valid input and what it reads of that."""

    def __init__(self, target: Target, folder: Path) -> None:
        folder.mkdir()
        self.target = target
        self.path = target.make(folder)
        self.data = self.path.read_bytes()
        self.beside = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) - len(self.data)
        self.whole = target.read(self.path)
        self.read = 0  # inputs that were not refused

    def damaged(self, seed: int) -> tuple[bytes, bool]:
        """A damaged input, and whether it was cut off and nothing else."""
        rng = random.Random(seed)
        if self.target.kept is not None and rng.random() < CUTS:
            return _cut(self.data, rng), True
        if self.target.within is None:
            return mutate(self.data, rng), False
        inner, pack = self.target.within(self.data, rng)
        return pack(mutate(inner, rng)), False

    def fault(self, seed: int) -> str | None:
        """What was wrong with reading an input, within `limits`; None if it was read or refused as it should be."""
        data, is_cut = self.damaged(seed)
        self.path.write_bytes(data)
        before = memory()
        try:
            with _in_time():
                found = self.target.read(self.path)
        except OURS as error:
            problem = _of_message(error)
        except (Exception, TooSlowError) as error:
            problem = f"{type(error).__name__}: {str(error)[:200]!a}"
        else:
            self.read += 1
            problem = self._of_result(found, is_cut)
        grown = grown_since(before)
        if problem is None and grown > FACTOR * (len(data) + self.beside) + ROOM:
            problem = f"took {grown >> 20} MB for {len(data)} bytes"
        return problem

    def _of_result(self, found: Any, is_cut: bool) -> str | None:
        if is_cut and self.target.kept is not None and not self.target.kept(self.whole, found):
            return "read a file that was cut off as if it were whole"
        if self.target.checked and found != self.whole:
            whole, now = (_unpacked(self.path, data) for data in (self.data, self.path.read_bytes()))
            if now != len(now) // len(whole) * whole:  # gzip joins files
                return "read other values than were written, in spite of checksums"
        return None


def _unpacked(path: Path, data: bytes) -> bytes:
    return gzip.decompress(data) if path.suffix == ".gz" else data


def seed_of(target: Target, seed: int, number: int) -> int:
    """The seed of the input `number`, from 0, of a run."""
    return zlib.crc32(f"{target.name} {seed} {number}".encode())


def _of_message(error: Exception) -> str | None:
    if len(str(error)) > 2000:
        return f"an error of {len(str(error))} characters: {str(error)[:100]!a} ..."
    try:
        str(error).encode()
    except UnicodeEncodeError:
        return f"an error that cannot be printed: {error!a}"
    return None


def memory() -> int:
    """Bytes of memory that the process has.  Its peak begins anew where it was far higher before."""
    now = _pages()[1] * resource.getpagesize()
    if _highest() - now > ROOM // 2:
        Path("/proc/self/clear_refs").write_text("5")
    return now


def grown_since(before: int) -> int:
    """Bytes by which memory was above `before` since then; 0 if by no more than ROOM."""
    if _highest() - before <= ROOM:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return (int(found[1]) << 10) - before


def _highest() -> int:
    """The peak, at once to be had, of this process or the one that it was started by."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _pages() -> list[int]:
    """Pages of addresses, and of memory."""
    descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return [int(number) for number in os.read(descriptor, 100).split()[:2]]
    finally:
        os.close(descriptor)


@contextmanager
def limits() -> Iterator[None]:
    """For the time of many trials: an end to what takes too long or too much memory."""

    def stop(*_: Any) -> None:
        raise TooSlowError(f"more than {SECONDS} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (_pages()[0] * resource.getpagesize() + MEMORY, hard))
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _in_time() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


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
    unit = b"".join(rng.choice((b"a", b"1", *TOKENS)) for _ in range(rng.choice([1, 1, 2])))
    return data[:at] + unit * rng.choice([300] * 7 + [LONG]) + data[at:]  # long ones take a third of the time else


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
