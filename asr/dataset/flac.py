"""FLAC files, whole or not at all, which say what they were made of."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from lm_zoo.files import write_bytes

NO_LENGTH = 2**63 - 1  # libsndfile's frames of a FLAC file whose header has none, as of one written through a pipe


def save_flac(path: Path, samples: np.ndarray, rate: int, origin: str = "") -> None:
    """Writes samples (T,) or (T, channels) with 16 bits; `origin` is kept as the file's comment."""
    import soundfile

    data = io.BytesIO()  # the errors of a full disk are those of our own writing then
    with soundfile.SoundFile(data, "w", rate, samples.shape[1] if samples.ndim > 1 else 1, format="FLAC") as stream:
        if origin:
            stream.comment = origin
        stream.write(samples)
    write_bytes(path, data.getvalue())


def read_origin(path: Path) -> str | None:
    """What a file was made of, as `save_flac` has kept it; None if there is no such file."""
    import soundfile

    if not path.exists():
        return None
    try:
        with soundfile.SoundFile(str(path)) as stream:
            return str(stream.comment)
    except (soundfile.LibsndfileError, OSError):
        return None
