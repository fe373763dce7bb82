"""Names of files that are made of the ids of utterances and recordings, which can hold anything."""

from __future__ import annotations

import hashlib
import ntpath
import os
import re
from typing import Any

LONGEST = 200  # bytes; file systems take 255, temporary names are a little longer
DRIVE = re.compile(r"[A-Za-z]:[\\/]")  # how a path of Windows begins: C:\lists
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\ud800-\udfff]")
_ESCAPED = re.compile(rf"{_UNSAFE.pattern}|%|^\.")


def is_file_name(name: str) -> bool:
    """Whether `name` with a suffix can be the name of a file as it is: no `/`, no control character, not too long."""
    return bool(name) and not _UNSAFE.search(name) and len(name.encode()) <= LONGEST


def file_name(name: str) -> str:
    """The name of a file in a folder, never a path out of it, that is another one for every other `name`.

    Characters that cannot stand there, `%` and a leading dot become `%XX`; of a long one the end becomes a checksum.
    """
    safe = _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in _bytes(found[0])), name) or "%"
    if len(safe.encode()) <= LONGEST:
        return safe
    head = safe.encode()[: LONGEST - 40].decode(errors="ignore")
    return f"{head}%{hashlib.sha256(_bytes(name)).hexdigest()[:32]}"


def base_name(path: str) -> str:
    """The last part of a path, of one of Windows (`C:\\lms\\books`) too."""
    here = ntpath if DRIVE.match(path) else os.path
    return here.basename(here.normpath(path))


def split_name(option: str) -> tuple[str | None, str]:
    """`[NAME=]PATH` in two: `(NAME, PATH)`, or `(None, option)`, where what is before `=` is part of a path or query.

    A folder called `lr=0.1` is given as `./lr=0.1`.
    """
    name, equals, path = option.partition("=")
    return (name, path) if equals and name and not set(name) & set("/\\?") else (None, option)


def by_numbers(name: str) -> tuple[Any, ...]:
    """A name or id in pieces that sort as people count: 2.pt before 10.pt; numbers may have any number of digits."""
    parts = re.split(r"([0-9]+)", name)
    parts[1::2] = [part.lstrip("0") for part in parts[1::2]]
    return tuple((len(part), part) if number % 2 else part for number, part in enumerate(parts))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
