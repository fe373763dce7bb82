"""What a command does before its work: how the threads of torch wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
PROGRAM = """
import os, sys
from rescore.cli.door import watched
assert "torch" not in sys.modules  # it would have read them
watched("rescore", lambda: print(os.environ.get("OMP_WAIT_POLICY"), os.environ.get("GOMP_SPINCOUNT")))
"""


IN_PYTHON = """
import os, sys
import rescore as rs
before = os.environ.get("GOMP_SPINCOUNT")
rs.load_lm("lstm")
print(before, os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize("first, found", [("", "None 1000"), ("import torch", "None None")])
def test_threads_sleep_soon_in_python_where_torch_is_not_loaded_yet(first: str, found: str) -> None:
    rest = {name: value for name, value in os.environ.items() if name not in WAITING}
    done = subprocess.run([sys.executable, "-c", first + IN_PYTHON], env=rest, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (found, "")


@pytest.mark.parametrize(
    "given, found",
    [
        ({}, "None 1000"),
        ({"OMP_WAIT_POLICY": "active"}, "active None"),
        ({"GOMP_SPINCOUNT": "infinity"}, "None infinity"),
    ],
)
def test_threads_that_wait_sleep_soon_unless_the_user_says_how_they_wait(given: dict[str, str], found: str) -> None:
    rest = {name: value for name, value in os.environ.items() if name not in WAITING}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={**rest, **given}, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (found, "")
