"""What the commands of `asr` do with their outputs: two runs of one name, a full disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from asr.cli.main import main
from lm_zoo.files import locked
from tests.commands import run_line
from tests.full_disk import full_disk

pytest.importorskip("lhotse")
from tests.asr.commands import LINES, make_inputs


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    make_inputs(folder)
    return folder


@pytest.fixture
def here(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(inputs)
    yield inputs
    shutil.rmtree(inputs / "out", ignore_errors=True)


@pytest.mark.parametrize(("line", "held"), LINES)
def test_a_second_run_is_refused_and_a_full_disk_leaves_nothing(here: Path, line: str, held: str) -> None:
    with locked(held):
        code, said = run_line("asr", main, line)
    assert code == 2 and "is writing it; wait until it has ended" in said
    assert [path for path in here.rglob("out/*") if path.is_file()] == []
    failures = 0
    for room in (0, 300, 2000, 20000, 100000):
        with full_disk(room):
            code, said = run_line("asr", main, line)
        if code == 0:
            break
        failures += 1
        assert code == 2 and re.fullmatch(r"asr: (.* cannot be written \(.*\).*|File too large)", said)
        assert not [path for path in here.rglob(".*") if path.name.endswith((".tmp", ".lock"))]
    assert failures
    assert code == 0 or run_line("asr", main, line)[0] == 0
