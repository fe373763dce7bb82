"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from rescore.console import QUIET
from tests.needs import missing, pinned

pytest.register_assert_rewrite("lm_zoo.testing.test_lm")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: threads would only wait for each other

# On a busy machine an example, or the drawing of it, may take any time: that is no fault of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The developers' real data; not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip("the developers' data folder ../shared/data is not here")
    return SHARED


@pytest.fixture
def k2() -> Any:
    try:
        import k2
    except ImportError:
        pytest.skip("k2 cannot be imported")
    return k2


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of a training are forked from this one, since to import torch takes them longer than such work.

    A GPU could not be used in them. As users start them they are in the tests of two processes that train like one.
    """
    import torch

    with suppress(ImportError):  # a newer torch's optimisers import it when they are made
        importlib.import_module("torch._dynamo")
    if not torch.cuda.is_available():
        processes = partial(torch.multiprocessing.start_processes, start_method="fork")
        monkeypatch.setattr(torch.multiprocessing, "spawn", processes)


@pytest.fixture(autouse=True)
def remarks_stay() -> Iterator[None]:
    """A test that leaves `rescore --quiet` in force would silence the tests after it."""
    before = os.environ.get(QUIET)
    yield
    assert os.environ.get(QUIET) == before, f"{QUIET} was left in the environment"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Recipes and the demo run whole chains of commands."""
    for item in items:
        if item.path.parent.name in ("egs", "demo"):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """All that is there now stays, so that no later collection of garbage looks through it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    outcome = yield
    _no_package_is_wanted(outcome.get_result())  # type: ignore[attr-defined]


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    outcome = yield
    _no_package_is_wanted(outcome.get_result())  # type: ignore[attr-defined]


def _no_package_is_wanted(report: Any) -> None:
    """Turns a skip for want of a package that `make venv` installs into a failure."""
    if report.skipped and isinstance(report.longrepr, tuple):
        package = missing(str(report.longrepr[2]), pinned())
        if package is not None:
            report.outcome = "failed"
            report.longrepr = f"{report.longrepr[2]}: make venv installs {package}, so nothing may be skipped for it"
