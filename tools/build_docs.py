"""Builds the documentation as a site in build/site: pages of the repository, and a reference made from the code.

The pages keep their places, so that links between them hold.  Of links to code the text alone stays.

Example: python tools/build_docs.py
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = ("*.md", "docs/**/*.md", "demo/*.md", "egs/**/*.md", "*/pretrained/*/README.md", "rescore/sample/README.md")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
LIST = re.compile(r"(?:[-*]|\d+\.) ")
STYLE = """.md-grid { max-width: 76rem; }
.md-typeset h1, .md-typeset h2 { font-weight: 500; letter-spacing: 0; }
.md-typeset table:not([class]) { font-size: 0.68rem; }
.md-typeset table:not([class]) :is(th, td) { padding: 0.5em 0.9em; min-width: 0; }
.md-typeset dl { margin: 0.6em 0; }
.md-typeset dt { margin-top: 0.6em; }
.md-typeset dd { margin: 0.1em 0 0 1.4em; }
.md-typeset dd p { margin: 0; }
"""
# What the page on lm_zoo shows, beside the class of each kind of LM.
ZOO = (
    "lm_zoo.registry.load",
    "lm_zoo.registry.describe",
    "lm_zoo.base.LanguageModel",
    "lm_zoo.base.WordLM",
    "lm_zoo.inference.interpolation.InterpolatedLM",
    "lm_zoo.text.vocabulary.Vocabulary",
)


def pages() -> list[Path]:
    """The pages that the repository has, from its root."""
    found = {path.relative_to(ROOT) for pattern in PATTERNS for path in ROOT.glob(pattern)}
    return sorted(found)


def staged(page: Path, known: set[Path]) -> str:
    """A page as the site's Markdown wants it: links to pages alone, a blank line before each list and table.

    Raises:
      ValueError: an indentation that belongs to no list, of which the site would make something else.
    """
    text = LINK.sub(lambda link: _link(page, link, known), (ROOT / page).read_text(encoding="utf-8"))
    lines: list[str] = []
    fenced = False
    for number, line in enumerate(text.split("\n"), start=1):
        before = lines[-1] if lines else ""
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and line.strip():
            indent = len(line) - len(line.lstrip())
            if not before.strip() and indent % 4:
                raise ValueError(f"{page}:{number}: indented by {indent}, expected a multiple of 4, or no list")
            if before.strip() and _begins(line, before):
                lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _begins(line: str, before: str) -> bool:
    """Whether a line is the first one of a list or a table that follows a paragraph at once."""
    first_item = LIST.match(line) and not LIST.match(before) and not before.startswith(" ")
    return bool(first_item) or (line.startswith("|") and not before.startswith("|"))


def _link(page: Path, link: re.Match[str], known: set[Path]) -> str:
    text, target = link.groups()
    file, mark, anchor = target.partition("#")
    if target.startswith(("http:", "https:", "mailto:", "#")):
        return link[0]
    path = Path(os.path.normpath(page.parent / file))
    if path / "README.md" in known:
        return f"[{text}]({file.rstrip('/')}/README.md{mark}{anchor})"
    return link[0] if path in known else text


def command_page(program: str, group: click.Group) -> str:
    """The reference of a program: its own options, then each command with all of its options."""
    return "\n".join([f"# Commands of {program}\n", *_commands(click.Context(group, info_name=program), level=1)])


def _commands(context: click.Context, level: int) -> Iterator[str]:
    command = context.command
    if level > 1:
        yield f"{'#' * level} {context.command_path}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    yield from _help(inspect.cleandoc(command.help or ""))
    for title, rows in _sections(context):
        if title not in ("Options", "Commands"):
            yield f"**{_escaped(title)}**\n"
        if title != "Commands":
            yield from _definitions(rows if level == 1 else [row for row in rows if "--help" not in row[0]])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from _commands(click.Context(inner, parent=context, info_name=name), level + 1)


class Recorder(click.HelpFormatter):
    """Keeps the sections of a help page and their rows, in place of laying them out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[str, str]]]] = []

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.found.append((name, []))
        yield

    def write_dl(self, rows: Sequence[tuple[str, str]], *args: object, **kwargs: object) -> None:
        self.found[-1][1].extend(rows)


def _sections(context: click.Context) -> list[tuple[str, list[tuple[str, str]]]]:
    """The sections of the help of a command behind its text, with the rows of each: a name and what it is."""
    recorder = Recorder()
    context.command.format_options(context, recorder)
    return recorder.found


def _definitions(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        yield f"`{name}`\n:   {_escaped(' '.join(text.split())) or '&nbsp;'}\n"


def _help(text: str) -> Iterator[str]:
    """The help of a command in paragraphs; its examples as code."""
    for part in re.split(r"\n\s*\n", text.replace("\b", "")):
        lines = part.strip("\n").split("\n")
        if lines[0].startswith("Example:"):
            code = "\n".join(line.removeprefix("Example:").removeprefix(" ") for line in lines)
            yield f"```sh\n{code}\n```\n"
        else:
            yield _escaped(" ".join(line.strip() for line in lines)) + "\n"


def _escaped(text: str) -> str:
    """Plain text as Markdown, what stands in backticks left alone."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_\[\]<>|])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def python_page() -> str:
    """The reference of `import rescore as rs`: every name."""
    import rescore

    lines = ["# import rescore as rs\n", "Every name is loaded when it is first used.\n"]
    for name, module in rescore._NAMES.items():
        lines.append(f"::: {module}.{name}\n    options:\n      heading: rs.{name}\n      toc_label: {name}\n")
    return "\n".join(lines)


def _object(path: str) -> str:
    return f"::: {path}\n    options:\n      show_root_full_path: true\n"


def zoo_page() -> str:
    """The reference of `lm_zoo`: what every LM has, how one is loaded, the class of each kind."""
    from lm_zoo.registry import HUGGING_FACE, KINDS, neural_class
    from rescore.cli.kinds import settings_of_class

    text = "LMs by name, and what each can be asked. An LM of yours: [bring your LM](../docs/bring-your-lm.md)."
    classes = [(module, name) for module, name, *_ in (*KINDS.values(), *HUGGING_FACE.values())]
    lines = ["# lm_zoo\n", text + "\n", *map(_object, ZOO), *map(_object, map(".".join, classes))]
    lines.append("## Settings of each kind, `--set NAME=VALUE`\n")
    for kind, (_, _, what) in KINDS.items():
        if kind != "ngram":
            lines += [f"### {kind}\n", f"{_escaped(what[0].upper() + what[1:])}.\n"]
            lines += _definitions(settings_of_class(neural_class(kind).Config))
    return "\n".join(lines)


def stage(folder: Path) -> None:
    """Writes all pages to an empty `folder`."""
    known = set(pages())
    contents = {page: staged(page, known) for page in known}
    for program in ("rescore", "asr"):
        group = importlib.import_module(f"{program}.cli.main").cli
        contents[Path("reference") / f"{program}.md"] = command_page(program, group)
    contents[Path("reference/python.md")] = python_page()
    contents[Path("reference/lm_zoo.md")] = zoo_page()
    contents[Path("site.css")] = STYLE
    for page, text in contents.items():
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


@click.command()
@click.option("--out", default=ROOT / "build", type=click.Path(path_type=Path), help="Folder for docs/ and site/.")
def main(out: Path) -> None:
    """Build the documentation in build/site; a warning is an error."""
    docs, site = out.resolve() / "docs", out.resolve() / "site"
    shutil.rmtree(docs, ignore_errors=True)
    stage(docs)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    env = {**os.environ, "RESCORE_DOCS": str(docs), "NO_MKDOCS_2_WARNING": "1"}  # its version is pinned
    done = subprocess.run(command, cwd=ROOT, env=env)
    if done.returncode:
        raise SystemExit(f"The documentation is not built: mkdocs ended with code {done.returncode}.")
    click.echo(site / "index.html")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
