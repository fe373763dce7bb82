"""What a place in Kaldi's `wav.scp` or `feats.scp` holds: a file, a part of an archive, or the output of a command."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path
from typing import IO, Any

import numpy as np

from asr.dataset.kaldi_matrix import read_object
from asr.dataset.pipes import is_command
from asr.errors import DataError

_PLACE = re.compile(r"(.+?)(?::([0-9]{1,18}))?(?:\[([0-9:, ]*)\])?")
_RANGE = re.compile(r"\s*(?:([0-9]{1,18})\s*:\s*([0-9]{1,18})|:?)\s*")
TOLERANCE = 3  # rows, not columns, that a range may reach beyond a matrix, as in Kaldi: frames at its end are rounded
_KNOWN = re.compile(rb"RIFF|fLaC|AUDIO|NPY|\0B|\s*[\[\d.+-]")  # audio, arrays, Kaldi's binary and text matrices


def read_place(place: str) -> Any:
    """A matrix `(rows, columns)`, or `(samples a second, samples)` of audio.

    Args:
      place: `FILE`, `FILE:OFFSET`, either with `[FIRST:LAST,...]` (rows and columns, as Kaldi counts), or `COMMAND |`,
        which is run: whoever calls this has asked whether it may be (see `asr.dataset.pipes`).
    Raises:
      DataError: it cannot be read, the command failed, it is neither audio nor a matrix, or the range is not within it.
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
        if isinstance(found, tuple):
            raise DataError(f"found the range [{parts}] of audio, expected it of a matrix")
        return _part(found, parts)
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


def _part(matrix: np.ndarray, text: str) -> np.ndarray:
    """Of `(rows, columns)` the rows FIRST:LAST, or both as FIRST:LAST,FIRST:LAST, last ones included; `:`: all."""
    parts = text.split(",")
    if len(parts) > matrix.ndim:
        raise DataError(f"found the range [{text}], expected one of rows, and one of columns")
    return matrix[tuple(map(_slice, parts, matrix.shape, (TOLERANCE, 0)))]


def _slice(text: str, size: int, more: int) -> slice:
    """`FIRST:LAST` within `size`, the last one up to `more` beyond it."""
    found = _RANGE.fullmatch(text)
    if found and found[1] is None:
        return slice(None)
    if not found or not int(found[1]) <= min(int(found[2]), size - 1) or int(found[2]) >= size + more:
        raise DataError(f"found the range [{text}], expected FIRST:LAST within 0:{size - 1}")
    return slice(int(found[1]), int(found[2]) + 1)
