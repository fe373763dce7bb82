"""Archives as Kaldi writes them, for the tests."""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path

import numpy as np


def matrix(values: np.ndarray) -> bytes:
    """A binary matrix of floats, `FM`."""
    rows, columns = values.shape
    return b"\0BFM \4" + struct.pack("<iBi", rows, 4, columns) + values.astype("<f4").tobytes()


def wav(samples: np.ndarray, rate: int = 16000) -> bytes:
    """int16 samples as WAV."""
    data = io.BytesIO()
    with wave.open(data, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(samples.astype("<i2").tobytes())
    return data.getvalue()


def write_archive(ark: Path, scp: Path, records: dict[str, bytes]) -> None:
    """An archive and its index."""
    lines = []
    with open(ark, "wb") as stream:
        for key, data in records.items():
            stream.write(f"{key} ".encode())
            lines.append(f"{key} {ark}:{stream.tell()}\n")
            stream.write(data)
    scp.write_text("".join(lines))
