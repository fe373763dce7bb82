"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The developers' real data; not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip("the developers' data folder ../shared/data is not here")
    return SHARED
