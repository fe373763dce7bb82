"""Lines of ARPA files: columns of bytes against one `%` a line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_zoo.ngram.arpa_lines import LONGEST, ArpaLines, number_bytes, plain_lines

floats = st.floats(width=32) | st.floats(-100, 100, width=32) | st.integers(-12800, 12800).map(lambda n: n / 128)


@given(st.lists(floats, min_size=1), st.integers(2, 7))
def test_numbers(values: list[float], digits: int) -> None:
    rows = number_bytes(np.array(values, np.float32), digits)
    assert [bytes(row).replace(b"\0", b"").decode() for row in rows] == [f"{value:.{digits}g}" for value in values]


def test_many_numbers() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([-rng.gamma(2, 1, 5000), 10 ** rng.uniform(-6, 3, 5000)]).astype(np.float32)
    values[:9] = 0, -1, -0.1, -0.01, -1e-4, -9.9999999, -99, -98.99999, -1.0078125
    for digits in range(2, 8):
        text = number_bytes(values, digits).tobytes().replace(b"\0", b"")
        assert text.decode() == "".join(f"{value:.{digits}g}" for value in values.tolist())


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("odd", ["É", "x" * (LONGEST + 1), "nul\0"])
def test_lines(order: int, odd: str) -> None:
    rng = np.random.default_rng(order)
    words = ["a", "word", "Ä" * (LONGEST // 2), odd]
    ids, log_prob = rng.integers(0, len(words), (20, order)), -rng.random(20).astype(np.float32)
    for backoff in (None, log_prob[::-1].copy()):
        expected = plain_lines([[words[index] for index in row] for row in ids], log_prob, backoff, 7)
        assert ArpaLines(words, 7)(log_prob, ids, backoff) == expected
