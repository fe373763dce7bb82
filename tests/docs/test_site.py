"""The documentation as a site: built without a warning, and the reference has every command, option and name."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import rescore
from tests.docs.pages import ROOT
from tests.docs.test_commands import PROGRAMS

pytestmark = pytest.mark.slow
pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs")
    command = [sys.executable, str(ROOT / "tools" / "build_docs.py"), "--out", str(out)]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr  # --strict: a warning is an error
    return out / "site"


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_and_option_is_in_the_reference(site: Path, program: str) -> None:
    page = text_of(site / "reference" / f"{program}.html")
    todo = [click.Context(PROGRAMS[program], info_name=program, **PROGRAMS[program].context_settings)]
    for context in todo:
        assert f"{context.command_path} [OPTIONS]" in page
        for option in context.command.params:
            assert option.opts[0] in page or isinstance(option, click.Argument), (context.command_path, option.opts)
        if isinstance(context.command, click.Group):
            for name in context.command.list_commands(context):
                inner = context.command.get_command(context, name)
                assert inner is not None
                todo.append(click.Context(inner, parent=context, info_name=name))
    assert len(todo) > 8


def test_every_name_of_python_is_in_the_reference(site: Path) -> None:
    page = text_of(site / "reference" / "python.html")
    assert [name for name in rescore._NAMES if f"rs.{name}" not in page] == []
    assert "Parameters:" in page and "Raises:" in page and "Args:" not in page


def test_settings_of_training_are_in_the_reference(site: Path) -> None:
    assert "batch_tokens=8192" in text_of(site / "reference" / "rescore.html")
    page = text_of(site / "reference" / "lm_zoo.html")
    assert "rnn_layers=2" in page and "prior_sigma=" in page


def test_nothing_is_fetched(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert not re.search(r'(?:src|<link[^>]+href)="(?:https?:)?//', page.read_text()), page


def test_a_list_that_the_site_would_break_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import build_docs

    monkeypatch.setattr(build_docs, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("- item\n\n  its second paragraph\n")
    with pytest.raises(ValueError, match=r"page.md:3: indented by 2"):
        build_docs.staged(Path("page.md"), set())
    (tmp_path / "page.md").write_text("Text [code](a.py), [page](b.md#x):\n- item\n")
    assert build_docs.staged(Path("page.md"), {Path("b.md")}) == "Text code, [page](b.md#x):\n\n- item\n"
