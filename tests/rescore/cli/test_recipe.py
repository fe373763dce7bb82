"""The Python entries of recipes: defaults of a YAML file, the command line before them, errors."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from rescore.cli import recipe
from rescore.errors import UsageError


@click.command()
@click.option("--exp-dir", required=True, type=click.Path(path_type=Path))
@click.option("--max-duration", default=200.0)
@click.option("--train-cuts", multiple=True)
@click.option("--set", "settings", multiple=True)
def command(exp_dir: Path, max_duration: float, train_cuts: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """A command."""
    click.echo(f"{exp_dir} {max_duration} {train_cuts} {settings}")


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, conf: str, *arguments: str) -> int:
    (folder / "conf.yaml").write_text(conf)
    monkeypatch.setattr(sys, "argv", [str(folder / "train.py"), *arguments])
    with pytest.raises(SystemExit) as ended:
        recipe.main(command, "conf.yaml")
    return int(ended.value.code or 0)


CONF = "exp-dir: exp\nmax-duration: 100\ntrain-cuts: a\nset: {dim: 8, tied: false}\n"


def test_defaults_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, tmp_path, CONF) == 0
    assert capsys.readouterr().out == "exp 100.0 ('a',) ('dim=8', 'tied=false')\n"


def test_options_go_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("exp-dir: other\ntrain-cuts: [a, b]\n")
    assert call(monkeypatch, tmp_path, CONF, "--conf", str(other), "--max-duration", "50", "--set", "x=1") == 0
    assert capsys.readouterr().out == "other 50.0 ('a', 'b') ('x=1',)\n"


def test_one_name_of_a_mapping_is_given_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, tmp_path, CONF, "--set", "dim=16") == 0
    assert capsys.readouterr().out.endswith("('dim=8', 'tied=false', 'dim=16')\n")  # the last one counts


def test_a_file_is_based_on_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "base.yaml").write_text(CONF)
    conf = "base: base.yaml\nmax-duration: 50\nset: {tied: true, heads: 2}\n"
    assert call(monkeypatch, tmp_path, conf) == 0
    assert capsys.readouterr().out == "exp 50.0 ('a',) ('dim=8', 'tied=true', 'heads=2')\n"


def test_an_argument_stands_in_the_file_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    @click.argument("kind")
    def positional(kind: str) -> None:
        click.echo(kind)

    monkeypatch.setattr(sys.modules[__name__], "command", positional)
    assert call(monkeypatch, tmp_path, "kind: lstm\n") == 0
    assert call(monkeypatch, tmp_path, "kind: lstm\n", "transformer") == 0
    assert capsys.readouterr().out == "lstm\ntransformer\n"


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("max-durations: 3\n", "there is no option 'max-durations'; there are: "),
        ("- 3\n", "found a list, expected lines such as 'max-duration: 200'"),
        ("a: [\n", "expected a YAML file of options"),
        (
            "exp-dir: a\nmax-duration: 3\nexp-dir: b\n",
            "expected a YAML file of options ('exp-dir' is given more than once)",
        ),
        ("set: {dim: 8, tied: true, dim: 9}\n", "('dim' is given more than once)"),
    ],
)
def test_a_wrong_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], conf: str, message: str
) -> None:
    assert call(monkeypatch, tmp_path, conf) == 2
    error = capsys.readouterr().err
    assert message in error and str(tmp_path / "conf.yaml") in error and error.count("\n") == 1


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.yaml: expected a YAML file"):
        recipe.read_defaults(tmp_path / "no.yaml", command)


def test_a_package_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def without() -> None:
        raise ModuleNotFoundError("No module named 'lhotse'", name="lhotse")

    monkeypatch.setattr(sys.modules[__name__], "command", without)
    assert call(monkeypatch, tmp_path, "{}\n") == 2
    error = capsys.readouterr().err
    assert error.startswith("train.py: this needs the package lhotse") and "pip install 'rescore[asr]'" in error
