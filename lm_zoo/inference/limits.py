"""The memory that a process may take: a limit, and giving back to the system what was freed.  Needs no torch."""

from __future__ import annotations

import ctypes
import gc
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from weakref import WeakKeyDictionary

from lm_zoo.errors import LMError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
FITS: WeakKeyDictionary[object, int] = WeakKeyDictionary()  # LM -> prefixes at once, since there was no memory for more


_sharers = 1


def share_memory(others: int) -> None:
    """Says that so many processes use the free memory, this one included."""
    global _sharers
    _sharers = others


def sharers() -> int:
    """How many use it."""
    return _sharers


def parse_size(text: str) -> int:
    """Bytes of `800M`, `2G`, `1.5G`.

    Raises:
      LMError: anything else.
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([KMGT]?)B?", text.strip().upper())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size <= 0:
        raise LMError(f"'{text}' is no size of memory; expected a number with K, M, G or T, such as 2G")
    return size


def limit_memory(size: int) -> None:
    """Bounds what this process may take for its data, in bytes: what goes beyond is refused, and raises MemoryError.

    Files that are mapped, such as binary n-gram LMs, and the memory of a GPU do not count.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))


@contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """`limit_memory` for the time of a block."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit_memory(size)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def left_of_limit() -> float:
    """Bytes that this process may still take; infinite without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY:
        return float("inf")
    return max(0.0, soft - taken())


def taken() -> float:
    """Bytes of this process's data, as the limit counts them; 0 where they are not known."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmData:"))
    except (OSError, StopIteration):
        return 0.0


def is_want_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice, the CPU's or a GPU's, or for a library or a thread."""
    if isinstance(error, (ImportError, OSError)):  # of torch, whose libraries are larger than what is left of a limit
        return any(said in str(error) for said in ("cannot map", "failed to map", "allocate memory"))
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    return any(said in str(error).lower() for said in ("memory", "start new thread"))


def give_back(collect: bool = False) -> None:
    """Gives freed memory back to the system, which the allocator keeps for later: a process does not grow by it.

    Args:
      collect: look for garbage before.
    """
    if collect:
        gc.collect()
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> ctypes._FuncPointer | None:
    """`malloc_trim` of the GNU C library, where that is the one."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
