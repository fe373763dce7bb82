"""Matrices and audio of Kaldi's archives: each form by its definition, damage, sizes that are not there."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest

from asr.dataset.kaldi_matrix import read_object
from asr.errors import DataError
from tests.asr.kaldi_files import matrix, wav

VALUES = np.array([[0.5, -1.5, 2.0], [4.0, 5.5, -6.0]], dtype=np.float32)


def read(data: bytes) -> Any:
    return read_object(io.BytesIO(data))


def test_plain_and_text_matrices() -> None:
    double = b"\0BDM \4" + struct.pack("<iBi", 2, 4, 3) + VALUES.astype("<f8").tobytes()
    for data in (
        matrix(VALUES) + b"next ",
        double + b"u2 ",
        b" [\n 0.5 -1.5 2\n 4 5.5 -6 ]\nu2 [",
        b"[0.5 -1.5 2\n4 5.5 -6]",
    ):
        assert np.array_equal(read(data), VALUES)


@pytest.mark.parametrize(("form", "most", "dtype"), [(b"CM2 ", 65535, "<u2"), (b"CM3 ", 255, "u1")])
def test_one_range_for_all(form: bytes, most: int, dtype: str) -> None:
    steps = np.array([[0, 1, most], [most // 2, 7, 9]])
    data = b"\0B" + form + struct.pack("<ffii", -2.0, 6.0, 2, 3) + steps.astype(dtype).tobytes()
    assert np.allclose(read(data), -2.0 + 6.0 * steps / most, atol=1e-6)


def test_percentiles_of_columns() -> None:
    """0, 64, 192 and 255 are the four percentiles; between them the line through its neighbours (Kaldi's form CM)."""
    corners = np.array([[0, 10000, 30000, 65535], [5, 6, 7, 8]], dtype="<u2")
    values = np.array([[0, 64, 192, 255, 32], [128, 223, 1, 254, 65]], dtype="u1")  # a row a column of the matrix
    data = b"\0BCM " + struct.pack("<ffii", -1.0, 3.0, 5, 2) + corners.tobytes() + values.tobytes()
    found = read(data)
    exact = -1.0 + 3.0 * corners / 65535
    assert found.shape == (5, 2) and np.allclose(found[:4, 0], exact[0], atol=1e-6)
    assert found[4, 0] == pytest.approx((exact[0, 0] + exact[0, 1]) / 2, abs=1e-6)
    expected = (exact[1, 1] + exact[1, 2]) / 2, exact[1, 2] + (exact[1, 3] - exact[1, 2]) * 31 / 63
    assert found[:2, 1] == pytest.approx(expected, abs=1e-6)


def test_audio_and_arrays() -> None:
    samples = np.arange(-5, 5, dtype=np.int16)
    rate, found = read(wav(samples) + b"next ")
    assert rate == 16000 and np.array_equal(found, samples)
    stored = io.BytesIO()
    np.save(stored, VALUES)
    assert np.array_equal(read(b"NPY\1" + bytes([len(stored.getvalue())]) + stored.getvalue()), VALUES)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0B",
        b"\0BXX ",
        b"\0BFM \4",
        matrix(VALUES)[:-1],
        b"\0BFM \4" + struct.pack("<iBi", 2**31 - 1, 4, 2**31 - 1),
        b"\0BFM \4" + struct.pack("<iBi", -2, 4, -3),
        b"\0BCM2 " + struct.pack("<ffii", 0.0, 1.0, 50_331_648, 0),
        b"\0BFM \5" + struct.pack("<iBi", 2, 4, 3) + bytes(24),
        b"\0BCM2 " + struct.pack("<ffii", 0.0, 1.0, 2**31 - 1, 2**31 - 1),
        b"\0BCM " + struct.pack("<ffii", 0.0, 1.0, 2**31 - 1, 2**31 - 1),
        b"\0BCM3 " + struct.pack("<ffii", 0.0, 1.0, 2, 3) + bytes(5),
        b"NPY\xff" + b"\xff" * 255,
        b"AUDIO\x08" + b"\xff" * 8,
        b"[ 1 2",
        b"[ 1 2\n 3 ]",
        b"1 2 [ 3 ]",
    ],
)
def test_damage(data: bytes) -> None:
    with pytest.raises(DataError):
        read(data)
