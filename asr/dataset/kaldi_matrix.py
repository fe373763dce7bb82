"""What Kaldi's archives hold: matrices, binary, compressed or as text, and audio; some have arrays of NumPy.

Sizes in a header are believed when the bytes are there; nothing is unpickled.
"""

from __future__ import annotations

import io
import struct
import wave
from typing import IO, Any, cast

import numpy as np

from asr.errors import DataError

_SIZE = b"\4"  # before every integer of four bytes
_NUMBERS = {b"FM ": "<f4", b"DM ": "<f8"}
_STEPS = {b"CM2 ": ("<u2", 65535.0), b"CM3 ": ("u1", 255.0)}  # compressed with one range for all
_STEP = 1.52590218966964e-05  # 1 / 65535, as Kaldi has it
_LONGEST = 1 << 28  # characters of a text matrix


def read_object(stream: IO[bytes]) -> Any:
    """A matrix float32 or float64 `(rows, columns)`, or `(samples a second, samples)` of audio.

    Raises:
      DataError: something else, or less than its header says.
    """
    head = stream.read(5)
    if head.startswith(b"\0B"):
        return _binary(stream, head[2:])
    if head.startswith(b"NPY") or head == b"AUDIO":
        rest = b"" if head == b"AUDIO" else head[3:]
        data = _counted(stream, rest)
        return np.load(io.BytesIO(data), allow_pickle=False) if head.startswith(b"NPY") else _audio(data)
    if head.startswith(b"RIFF"):
        return _wav(head, stream)
    if head.startswith(b"fLaC"):
        return _audio(head + stream.read())
    return _text(head, stream)


def _binary(stream: IO[bytes], start: bytes) -> np.ndarray:
    kind = start + stream.read(1) if start in (b"CM2", b"CM3") else start
    if kind in _NUMBERS:
        (one, rows, two, columns) = struct.unpack("<cici", _exactly(stream, 10))
        if one != _SIZE or two != _SIZE:
            raise DataError("a matrix whose header is damaged")
        return _matrix(stream, np.dtype(_NUMBERS[kind]), rows, columns)
    if kind not in (b"CM ", *_STEPS):
        raise DataError(f"found {kind!r} in a binary archive, expected a matrix (FM, DM, CM, CM2, CM3)")
    least, span, rows, columns = struct.unpack("<ffii", _exactly(stream, 16))
    if kind == b"CM ":
        return _by_columns(stream, least, span, rows, columns)
    form, most = _STEPS[kind]
    values = _matrix(stream, np.dtype(form), rows, columns)
    return (least + span * (values / most)).astype(np.float32)


def _by_columns(stream: IO[bytes], least: float, span: float, rows: int, columns: int) -> np.ndarray:
    """The form with four percentiles for each column, between which a byte is read off linearly."""
    corners = least + span * _STEP * _matrix(stream, np.dtype("<u2"), columns, 4).astype(np.float64)
    values = _matrix(stream, np.dtype("u1"), columns, rows).astype(np.float64)
    low, first, third, high = (corners[:, [k]] for k in range(4))
    below = low + (first - low) * values / 64
    middle = first + (third - first) * (values - 64) / 128
    above = third + (high - third) * (values - 192) / 63
    found = np.where(values <= 64, below, np.where(values <= 192, middle, above))
    return np.ascontiguousarray(found.T, dtype=np.float32)


def _matrix(stream: IO[bytes], dtype: np.dtype[Any], rows: int, columns: int) -> np.ndarray:
    if rows < 0 or columns < 0 or (rows == 0) != (columns == 0):
        raise DataError(f"a matrix of {rows} rows and {columns} columns")
    return np.frombuffer(_exactly(stream, rows * columns * dtype.itemsize), dtype=dtype).reshape(rows, columns)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    """So many bytes; they are asked for in pieces, as the size may be far more than there is."""
    pieces, left = list[bytes](), size
    while left and (piece := stream.read(min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    if left:
        raise DataError(f"ends {left} bytes before its {size} bytes of numbers do")
    return b"".join(pieces)


def _counted(stream: IO[bytes], start: bytes) -> bytes:
    """Bytes behind their number, which stands behind the number of its own bytes; `start`: the first two, if read."""
    digits = (start[:1] or _exactly(stream, 1))[0]
    number = start[1 : 1 + digits]
    return _exactly(stream, int.from_bytes(number + _exactly(stream, digits - len(number)), "little"))


def _wav(head: bytes, stream: IO[bytes]) -> tuple[int, np.ndarray]:
    """WAV, of which more may follow; int16 `(samples,)` or `(samples, channels)`, of other than 16 bits float64."""
    begin = stream.tell() - len(head)
    try:
        with wave.open(cast(IO[bytes], _Joined(head, stream)), "rb") as sound:
            if sound.getsampwidth() == 2:
                samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2")
                channels, rate = sound.getnchannels(), sound.getframerate()
                return rate, samples if channels == 1 else samples.reshape(-1, channels)
    except wave.Error:  # floats, or the extensible header that 24 bits often have
        pass
    stream.seek(begin)
    return _audio(stream.read())


class _Joined:
    """What has been read and what follows it, as one stream that is not moved back."""

    def __init__(self, head: bytes, stream: IO[bytes]) -> None:
        self.head, self.stream = head, stream

    def read(self, size: int = -1) -> bytes:
        data, self.head = (self.head, b"") if size < 0 else (self.head[:size], self.head[size:])
        return data + (self.stream.read() if size < 0 else _some(self.stream, size - len(data)))


def _some(stream: IO[bytes], size: int) -> bytes:
    """At most so many bytes, in pieces as `_exactly`."""
    pieces = list[bytes]()
    while size > 0 and (piece := stream.read(min(size, 1 << 20))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _audio(data: bytes) -> tuple[int, np.ndarray]:
    import soundfile

    samples, rate = soundfile.read(io.BytesIO(data))
    return rate, samples


def _text(head: bytes, stream: IO[bytes]) -> np.ndarray:
    """` [`, rows of numbers in lines, ` ]`."""
    text = head
    while b"]" not in text:
        piece = stream.read(1 << 16)
        if not piece or len(text) > _LONGEST:
            raise DataError("a text matrix without its end, ']'")
        text += piece
    begin, _, rest = text.partition(b"]")[0].partition(b"[")
    if begin.strip():
        raise DataError(f"found {begin[:20]!r}, expected '[' and the rows of a matrix")
    rows = [[float(number) for number in line.split()] for line in rest.decode("ascii").splitlines() if line.strip()]
    if len({len(row) for row in rows}) > 1:
        raise DataError("a text matrix whose rows have different lengths")
    return np.array(rows, dtype=np.float32)
