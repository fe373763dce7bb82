"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: threads would only wait for each other

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The developers' real data; not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip("the developers' data folder ../shared/data is not here")
    return SHARED
