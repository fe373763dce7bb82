"""The pages on LMs and formats of others: their code and their commands work as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import rescore as rs
from lm_zoo import plugins, registry
from lm_zoo.identity import lm_identity
from rescore.cli.main import cli
from rescore.formats import table
from tests.lm_zoo.pseudo import pseudo_text

ROOT = Path(__file__).resolve().parents[2]
WORDS = "THE A OF TO IN HE SHE IT WAS IS SAID SO MAN DAY HOUSE OLD WENT HOME CAME SAW".split()  # noqa: SIM905
LM, FORMAT = ROOT / "docs" / "bring-your-lm.md", ROOT / "docs" / "bring-your-format.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """The command lines of a page, split as a shell does."""
    return [shlex.split(line) for block in blocks(page, "sh") for line in block.splitlines()]


def run(arguments: list[str]) -> str:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with the modules of the pages and the files that their commands name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("bigram_lm.py").write_text(blocks(LM, "python")[0])
    Path("tabbed_format.py").write_text(blocks(FORMAT, "python")[0])
    text = [" ".join(WORDS[int(word[1:])] for word in words) for words in pseudo_text(300, vocab=len(WORDS))]
    Path("books.txt").write_text("\n".join(text[:250]) + "\n")
    Path("test.txt").write_text("\n".join(text[250:]) + "\n")
    lists = []
    for number, line in enumerate(text[250:260]):
        hyps = [rs.Hypothesis(tuple(line.split()), {"score": -float(number)}), rs.Hypothesis((), {"score": -9.0})]
        lists.append(rs.NbestList(f"u{number}", hyps))
    rs.Lists(lists).write("dev.jsonl.gz")
    rs.Lists(lists).write("lists.jsonl.gz")
    caches = plugins.installed.cache_clear, table.all_formats.cache_clear
    for clear in caches:
        clear()
    yield tmp_path
    for clear in caches:
        clear()
    for module in ("bigram_lm", "tabbed_format"):
        sys.modules.pop(module, None)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    """What pip makes of the entry points of a page."""
    head, *lines = blocks(page, "toml")[0].splitlines()
    group = head.split('"')[1]
    made = folder / "theirs-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]).replace('"', ""))
    monkeypatch.syspath_prepend(str(folder))


def test_the_commands_of_the_lm(folder: Path) -> None:
    lines = [words[1:] for words in commands(LM) if words[0] == "rescore"]
    assert len(lines) == 3
    outputs = list(map(run, lines))
    assert "Bigram" in outputs[0]
    assert rs.read_nbest("jsonl:exp/dev/scores.jsonl.gz").columns == ["score", "Bigram"]
    assert rs.read_nbest("jsonl:exp/both/scores.jsonl.gz").columns == ["score", "big", "lstm"]
    loaded = rs.load_lm("bigram_lm:Bigram?text=books.txt")
    assert rs.score(rs.read_nbest("dev.jsonl.gz"), loaded).columns == ["score", "Bigram"]


@pytest.mark.slow
def test_the_suite_runs_over_it(folder: Path) -> None:
    (line,) = (words for words in commands(LM) if words[0] == "pytest")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    start = [sys.executable, "-m", "pytest", "-p", "lm_zoo.testing.plugin"]
    done = subprocess.run([*start, *line[1:]], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed, 7 skipped", done.stdout)
    source = folder / "bigram_lm.py"
    source.write_text(source.read_text().replace("math.log(", "math.log10("))
    failed = subprocess.run([*start, *line[1:]], cwd=folder, env=env, capture_output=True, text=True)
    assert failed.returncode == 1 and "test_values_are_log_probabilities" in failed.stdout


def test_pytest_knows_the_option_where_the_package_is_installed() -> None:
    assert '"pytest11": ["lm_zoo=lm_zoo.testing.plugin"]' in (ROOT / "setup.py").read_text()


def test_an_entry_point_names_the_lm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, LM)
    assert rs.load_lm("bigram?text=books.txt").name == "bigram"
    assert "bigram (bigram_lm:Bigram)" in run(["lms"])
    with pytest.raises(rs.LMError, match="installed packages bring: bigram"):
        registry.load("no-such-lm")


def test_identity_follows_code_options_and_files(folder: Path) -> None:
    name = "bigram_lm:Bigram?text=books.txt"
    before = lm_identity(name)
    assert lm_identity(name) == before != lm_identity(f"{name}&discount=0.5")
    with open("books.txt", "a") as stream:
        stream.write("MORE\n")
    assert lm_identity(name) != before


@pytest.mark.parametrize(
    "name, message",
    [
        ("no_such_module:Class", "there is no Python module 'no_such_module'; expected package.module:Class"),
        ("bigram_lm:Trigram", r"no class 'Trigram' in .*bigram_lm.py; it has: Bigram"),
        ("bigram_lm:Bigram", r"the options do not fit \(missing a required argument: 'text'\); it has: text, discount"),
        ("bigram_lm:Bigram?text=books.txt&size=3", "the options do not fit"),
        ("bigram_lm:Bigram?text", "expected NAME=VALUE, joined by '&'"),
        ("bigram_lm:Bigram?text=a&text=b", "found the options 'text=a&text=b', expected NAME=VALUE, .* each name once"),
        ("collections:Counter", "gives a Counter, expected a lm_zoo.base.LanguageModel"),
    ],
)
def test_wrong_names_of_lms(folder: Path, name: str, message: str) -> None:
    with pytest.raises(rs.LMError, match=message):
        registry.load(name)


def test_the_commands_of_the_format(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, FORMAT)
    rs.read_nbest("lists.jsonl.gz").write("tabbed:lists.txt")
    expected = Path("lists.txt").read_text()
    for line in commands(FORMAT):
        run(line[1:])
    assert Path("again.tabbed").read_text() == expected and expected.startswith("u0\t-0.0\t")
    Path("lists.txt").write_text("u0\t-1.0\n")
    with pytest.raises(rs.RescoreError, match=r"lists.txt:1: found 2 fields, expected 3"):
        rs.read_nbest("tabbed:lists.txt")
    with pytest.raises(rs.RescoreError, match=r"unknown format 'nonsense'; there are: .*, tabbed"):
        rs.read_nbest("nonsense:lists.txt")


def test_a_format_that_cannot_be_loaded_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(folder, monkeypatch, FORMAT)
    Path("tabbed_format.py").write_text("import no_such_package\n")
    with pytest.raises(rs.RescoreError, match="unknown format 'tabbed'"):
        rs.read_nbest("tabbed:lists.txt")
    assert "the format 'tabbed' (tabbed_format:FORMAT) cannot be loaded" in capsys.readouterr().err


def test_the_examples_are_as_short_as_they_claim() -> None:
    assert len(blocks(LM, "python")[0].splitlines()) <= 50 and len(blocks(FORMAT, "python")[0].splitlines()) <= 40
