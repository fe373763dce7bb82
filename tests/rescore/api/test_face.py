"""`import rescore as rs`: its names, which are there, documented and typed, and loaded when they are asked for."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rescore as rs

ROOT = Path(__file__).resolve().parents[3]


def test_import_is_lazy() -> None:
    program = "import sys, rescore\nrescore.RescoreError\nassert not {'torch', 'numpy', 'click'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_every_name_is_there_and_documented_and_typed() -> None:
    for name in rs.__all__:
        assert getattr(rs, name).__doc__, name
    stub = (ROOT / "rescore" / "__init__.pyi").read_text()
    assert set(re.findall(r" as (\w+)$", stub, re.MULTILINE)) == {*rs.__all__} - {"__version__"}
    assert {*rs.__all__} == {*dir(rs)}
    with pytest.raises(AttributeError, match="no attribute 'scores'; it has: load_lm, "):
        rs.scores  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("cls", [rs.Lists, rs.Lattice, rs.Lattices, rs.NbestList])
def test_methods_are_documented_and_name_their_arguments(cls: type) -> None:
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__, f"{cls.__name__}.{name}"
            kinds = {each.kind for each in inspect.signature(method).parameters.values()}
            assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}, name
    of_one, of_all = (inspect.signature(each.prune).parameters for each in (rs.Lattice, rs.Lattices))
    assert list(of_one) == list(of_all)


@pytest.mark.parametrize("package", ["rescore", "asr"])
def test_packages_run_as_modules(package: str) -> None:
    done = subprocess.run([sys.executable, "-m", package, "-h"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
