"""The pages of the documentation, their code and their commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *GUIDES[1:], *ROOT.glob("demo/*.md"), *ROOT.glob("egs/**/README.md"))
    if path.name != "CHANGELOG.md"
)
SHELL = ("sh", "bash", "console")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced code of these languages."""
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [code for language, code in found if language in languages]


def command_lines(page: Path, start: str = r"(?:rescore|asr) ") -> Iterator[tuple[int, str]]:
    """Line numbers and command lines of the code of a page; continued lines are joined, comments are left out.

    Args:
      start: of the lines that are wanted.
    """
    text = re.sub(r"\\\n\s*", lambda gap: " " * len(gap[0]), page.read_text(encoding="utf-8"))
    fenced = False
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced and line.strip()[3:] in SHELL
        elif match := re.match(rf"(?:    +|\t|\$ {'|' if fenced else ''})({start}.*)$", line):
            yield number, match[1]


def inline_commands(page: Path) -> Iterator[str]:
    """Commands within sentences and tables: `rescore NAME --option ...`."""
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"(?<!`)`((?:rescore|asr) [^`\n]+)`", text)


def words_of(line: str) -> list[str]:
    """The words of the first command of a line, as the shell splits them."""
    words = shlex.split(line, comments=True)
    ends = [place for place, word in enumerate(words) if word in ("|", "&&", ">", ";", "<")]
    return words[: min(ends, default=len(words))]
