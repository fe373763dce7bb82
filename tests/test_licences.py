"""Every pinned package has a licence in `tools/licences.tsv`, and it is one that may be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.scripts import ROOT, load_script


@pytest.fixture(scope="module")
def licences() -> ModuleType:
    return load_script("tools/licences.py")


def test_every_pinned_package_has_a_licence_that_may_be(licences: ModuleType) -> None:
    packages, table = licences.pinned(), licences.read_table()
    assert len(packages) > 50 and {"torch", "k2", "transformers"} <= packages.keys()
    assert not licences.problems(packages, table)


def test_the_installed_packages_say_so_too(licences: ModuleType) -> None:
    """A package may change its licence with its version."""
    found = {name: licence for name in licences.read_table() if (licence := licences.licence_of(name))}
    assert len(found) > 40 and not licences.problems({name: {""} for name in found}, found)


def test_other_licences_are_refused(licences: ModuleType) -> None:
    packages = {"a": {"1"}, "b": {"1"}, "c": {"1"}}
    found = licences.problems(packages, {"a": "AGPL-3.0-only", "b": "unknown", "d": "MIT"})
    assert [line.partition(":")[0] for line in found] == ["a", "b", "c", "d"]
    assert "its licence is 'AGPL-3.0-only'" in found[0]


def test_what_is_known_of_one_list_does_not_hide_the_other(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    program = tmp_path / ".venv-audit" / "bin" / "pip-audit"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "looked at $*"\nexit 1\n')
    program.chmod(0o755)
    done = subprocess.run(["sh", str(tmp_path / "tools/audit.sh")], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.count("looked at") == 2, done.stdout + done.stderr
