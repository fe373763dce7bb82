"""Fixtures of the tests of rescore."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from rescore.cli.main import main


@pytest.fixture
def rescore(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`rescore lattice ARGUMENTS` as a user runs it: exit code, standard output and standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rescore", "lattice", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run
