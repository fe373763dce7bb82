"""Commands as a user runs them, in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import pytest


def run_line(program: str, main: Callable[[], None], line: str) -> tuple[int, str]:
    """The exit code of `PROGRAM LINE`, and what it says last on standard error."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()), redirect_stderr(said):
        patch.setattr(sys, "argv", [program, *line.split()])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0), said.getvalue().rpartition("\n")[0].rpartition("\n")[2]
