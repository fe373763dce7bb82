"""What a place in Kaldi's `wav.scp` or `feats.scp` holds: a file, a part of an archive, or the output of a command."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path
from typing import IO, Any

from asr.dataset.kaldi_matrix import read_object
from asr.dataset.pipes import is_command
from asr.errors import DataError

_PLACE = re.compile(r"(.+?)(?::([0-9]{1,18}))?(?:\[([0-9:, ]*)\])?")
_KNOWN = re.compile(rb"RIFF|fLaC|AUDIO|NPY|\0B|\s*[\[\d.+-]")  # audio, arrays, Kaldi's binary and text matrices


def read_place(place: str) -> Any:
    """A matrix `(rows, columns)`, or `(samples a second, samples)` of audio.

    Args:
      place: `FILE`, `FILE:OFFSET`, either with `[FIRST:LAST,...]` (rows and columns, as Kaldi counts), or `COMMAND |`,
        which is run: whoever calls this has asked whether it may be (see `asr.dataset.pipes`).
    Raises:
      DataError: it cannot be read, the command failed, or it is neither audio nor a matrix.
    """
    try:
        if is_command(place):
            command = place.strip().removesuffix("|")
            done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, check=True)
            return _decode(io.BytesIO(done.stdout))
        name, offset, parts = _PLACE.fullmatch(place.strip()).groups()  # type: ignore[union-attr]
        if not Path(name).is_file():
            raise DataError(f"no such file: {name}")
        with open(name, "rb") as stream:
            stream.seek(int(offset or 0))
            found = _decode(stream)
        if parts is None:
            return found
        chosen = tuple(map(_slice, parts.split(",")))
        return (found[0], found[1][chosen]) if isinstance(found, tuple) else found[chosen]
    except DataError:
        raise
    except Exception as error:  # a damaged archive can raise anything
        raise DataError(str(error) or type(error).__name__) from None


def _decode(stream: IO[bytes]) -> Any:
    start = stream.tell()
    head = stream.read(64)
    if not _KNOWN.match(head):
        raise DataError(f"begins with {head[:8]!r}, expected audio or a matrix")
    stream.seek(start)
    return read_object(stream)


def _slice(text: str) -> slice:
    """`FIRST:LAST` with the last one included; all without numbers."""
    if text.strip() in ("", ":"):
        return slice(None)
    first, _, last = text.partition(":")
    return slice(int(first), int(last or first) + 1)
