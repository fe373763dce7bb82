"""`rescore wer` from end to end."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rescore.cli.main import cli
from rescore.errors import FormatError, ReferencesError


def run(*args: object) -> str:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False).stdout


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "ref").write_text("a THE CAT SAT\nb YES\n")
    (tmp_path / "hyp").write_text("b YES\na THE HAT SAT DOWN\n")
    return tmp_path / "ref", tmp_path / "hyp"


def test_prints_what_compute_wer_prints(files: tuple[Path, Path]) -> None:
    ref, hyp = files
    out = run("wer", "--ref", ref, "--hyp", hyp)
    assert out == "%WER 50.00 [ 2 / 4, 1 ins, 0 del, 1 sub ]\n%SER 50.00 [ 1 / 2 ]\n"
    assert run("wer", "--ref", ref, "--hyp", hyp, "--cer").startswith("%CER 41.67 [ 5 / 12, 4 ins, 0 del, 1 sub ]\n")


def test_details(files: tuple[Path, Path], tmp_path: Path) -> None:
    ref, hyp = files
    details = tmp_path / "new" / "errs.txt"
    run("wer", "--ref", ref, "--hyp", hyp, "--details", details)
    assert "a:\tTHE (CAT->HAT) SAT (*->DOWN)\n" in details.read_text()


def test_bad_input(files: tuple[Path, Path], tmp_path: Path) -> None:
    ref, hyp = files
    with pytest.raises(FormatError, match="no such file"):
        run("wer", "--ref", ref, "--hyp", tmp_path / "none")
    hyp.write_text("a THE\n")
    with pytest.raises(ReferencesError, match=r"1 of 2 references have no hypotheses \(b\)"):
        run("wer", "--ref", ref, "--hyp", hyp)
    hyp.write_text("")
    with pytest.raises(FormatError, match="empty file"):
        run("wer", "--ref", ref, "--hyp", hyp)


def test_help_has_an_example() -> None:
    assert "Example: rescore wer" in run("wer", "-h")
