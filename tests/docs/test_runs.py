"""The commands and the Python of README and docs, run: README's quick start as it stands, the others on small files.

What is not run as it stands is in one of two tables, with the reason.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import rescore as rs
from tests.docs import world
from tests.docs.pages import GUIDES, ROOT, blocks, command_lines, name, words_of
from tests.docs.test_commands import PROGRAMS

pytestmark = pytest.mark.slow

# Lines that are not run, and why; a line that none of them matches is run.
NOT_RUN = {
    r"icefall-decode": "needs a checkout of icefall and a model of it; tests/egs/test_icefall.py runs it on a stand-in",
    r"k2:exp/lattices": "reads the lattices of the line before; tests/egs/test_icefall.py",
    r"convert pieces\.jsonl\.gz": "reads the lists of the line before; tests/rescore/cli/test_cli_convert.py",
    r"lang_bpe_500/bpe\.model": "needs a recogniser's pieces; tests/egs/test_icefall.py and test_asr.py",
    r"^asr (decode --exp-dir|average|prepare|train|add-noise)": "needs a corpus, a trained run; tests/egs/test_asr.py",
    r"^asr transcribe": "needs speech; tests/asr/cli",
    r"^asr synthesise": "hundreds of sentences; tests/asr/dataset",
    r"^rescore push-lm (?!.*--dry-run)": "needs the hub; tests/rescore/workflows/test_push_lm.py",
    r"^rescore run": "the quick start runs it; tests/rescore/cli/test_cli_run.py",
    r"^rescore merge exp/test --weights": "behind a cluster's jobs; tests/rescore/workflows/test_shares.py",
    r"--executor|--split [1J$%]|^(rescore|asr) merge": "jobs and clusters; tests/rescore/workflows/test_streams.py",
    r"bigram_lm|tabbed|pytest": "tests/docs/test_plug_ins.py runs this page, with its modules",
}
# What is changed, since it would take hours, or wants files that are not small; the line is run all the same.
TINY = "--set dim=16 --set heads=2 --set feedforward=16 --train steps=2"
SMALLER = [
    (r"^(rescore train-lm transfornn(?!.*--init)(?!.*--vocab-size)(?!.*--tokens).*)$", r"\1 --vocab-size 60"),
    (r"^(rescore train-lm transfornn(?!.*--init).*)$", rf"\1 {TINY}"),
    (r"^(rescore train-lm .*--init.*)$", r"\1 --train steps=2"),
    (r"^(rescore train-lm lstm .*)$", r"\1 --set dim=16 --train steps=2"),
    (r"--vocab-size 3500", "--vocab-size 60"),
    (r"--train (steps=5000|passes=\d+)", ""),
    (r"^(rescore train-ngram .*)$", r"\1 --discount-fallback"),
    (r"--init transfornn ", "--init transfornn=exp/lm "),
    (r"^(rescore tune .*)$", r"\1 --folds 2"),
    (r"n=128", f"n={world.HYPOTHESES}"),
    (r"hf:gpt2", "exp/lm"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    world.make(folder)
    return folder


def run(line: str) -> str:
    """Runs a command line in this process; `cd` too."""
    program, *arguments = words_of(line)
    if program == "cd":
        os.chdir(arguments[0])
        return ""
    result = CliRunner().invoke(PROGRAMS[program], arguments)
    assert result.exit_code == 0, f"{line}\n{result.output}{result.exception!r}"
    return result.output


def lines_of(page: Path) -> Iterator[str]:
    for _, line in command_lines(page):
        if not any(re.search(pattern, line) for pattern in NOT_RUN):
            for pattern, smaller in SMALLER:
                line = re.sub(pattern, smaller, line)
            yield line
            if "test likewise" in line:
                yield re.sub(r"\bdev\b", "test", line)


def pages_with_commands() -> list[Path]:
    return [page for page in GUIDES[1:] if list(lines_of(page))]


def test_the_quick_start_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """README, from the sample to the table; then its Python, in the same folder."""
    monkeypatch.chdir(tmp_path)
    output = [run(line) for _, line in command_lines(GUIDES[0], r"(?:rescore|cd) ")]
    assert "rescored" in output[-1] and "20 utterances" in output[-1]
    assert Path("exp/run/report.html").exists()
    figures = re.findall(r"^ *(?:first-pass|rescored) +([\d.]+)", output[-1], re.MULTILINE)
    first, rescored = map(float, figures)
    assert first > rescored
    said = run_python(GUIDES[0])
    assert f"{first:.2f}" in said and f"{rescored:.2f}" in said  # the same figures from Python


def test_the_python_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("rescore sample sample")
    monkeypatch.chdir("sample")
    page = ROOT / "docs" / "python.md"
    assert blocks(page, "python")[0] == blocks(GUIDES[0], "python")[0]  # which ran above
    namespace = {"lm": rs.load_lm("transfornn")}
    for code in blocks(page, "python")[1:]:
        exec(code, namespace)


def run_python(page: Path) -> str:
    """Runs the Python of a page from top to bottom; what it prints."""
    said = io.StringIO()
    namespace: dict[str, object] = {}
    with contextlib.redirect_stdout(said):
        for code in blocks(page, "python"):
            exec(code, namespace)
    return said.getvalue()


@pytest.mark.parametrize("page", pages_with_commands(), ids=name)
def test_the_commands_of_a_page_run(page: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    if "--ref test.txt" not in page.read_text():
        shutil.copyfile("valid.txt", "test.txt")  # there it is a text for LMs
    for line in lines_of(page):
        run(line)


def test_every_reason_is_needed() -> None:
    lines = [line for page in GUIDES for _, line in command_lines(page, r"(?:rescore|asr|pytest) ")]
    for pattern in [*NOT_RUN, *(pattern for pattern, _ in SMALLER if not pattern.startswith("^"))]:
        assert any(re.search(pattern, line) for line in lines), pattern


# Pages whose Python is run here, by test_plug_ins.py or by test_other_recognisers.py; of the others: why it is not.
RUN_PYTHON = [
    "README.md",
    "docs/python.md",
    "docs/bring-your-lm.md",
    "docs/bring-your-format.md",
    "docs/other-recognisers.md",
]
NOT_RUN_PYTHON = {"docs/huggingface.md": "needs a Whisper; tests/rescore/api/test_generated.py makes one"}


def test_all_python_is_run_or_has_a_reason() -> None:
    pages = {name(page): code for page in GUIDES if (code := blocks(page, "python", "py"))}
    assert set(pages) == {*RUN_PYTHON, *NOT_RUN_PYTHON}
    for page in NOT_RUN_PYTHON:
        for code in pages[page]:
            compile(code, page, "exec")


def test_other_python_is_python() -> None:
    """The indented code of the guide to lattices needs icefall; it is compiled; what it imports of ours is there."""
    page = ROOT / "docs" / "lattices.md"
    lines = re.findall(r"^    ((?:from|import|lattice =|utt_ids =|write_lattices).*)$", page.read_text(), re.MULTILINE)
    assert len(lines) == 9
    compile("\n".join(lines), str(page), "exec")
    for line in lines:
        if line.startswith("from "):
            exec(line, {})
