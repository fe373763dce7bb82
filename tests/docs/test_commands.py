"""Every command line of README and the documentation is one that the program understands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from asr.cli.main import cli as asr
from rescore.cli.main import cli as rescore

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("demo/*.md"),
        *ROOT.glob("egs/**/README.md"),
    )
    if path.name != "CHANGELOG.md"
)
PROGRAMS = {"rescore": rescore, "asr": asr}


def command_lines(page: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and command lines of the code of a page; continued lines are joined, comments are left out."""
    text = re.sub(r"\\\n\s*", lambda gap: " " * len(gap[0]), page.read_text())
    for match in re.finditer(r"^(?:    +|\t|\$ )((?:rescore|asr) .*)$", text, re.MULTILINE):
        yield text.count("\n", 0, match.start()) + 1, match[1]


def words_of(line: str) -> list[str]:
    words = shlex.split(line, comments=True)
    ends = [place for place, word in enumerate(words) if word in ("|", "&&", ">", ";", "<")]
    return words[: min(ends, default=len(words))]


def check(group: click.Command, words: list[str]) -> None:
    """Parses a command line, subcommands included, without running it.

    Raises:
      click.ClickException: no such command or option, or a value that is none.
    """
    context = click.Context(group, **group.context_settings)  # a command keeps the help option that it is first given
    while isinstance(group, click.Group) and words:
        name, command, words = group.resolve_command(context, words)
        assert command is not None, name
        context, group = click.Context(command, context, name, **command.context_settings), command
    group.make_parser(context).parse_args(args=list(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_understood(page: Path) -> None:
    for number, line in command_lines(page):
        words = words_of(line)
        if "..." in words or words[1].startswith("-"):
            continue
        try:
            check(PROGRAMS[words[0]], words[1:])
        except click.ClickException as error:
            pytest.fail(f"{page.relative_to(ROOT)}:{number}: {line.strip()}: {error.format_message()}")


def test_a_wrong_option_is_found() -> None:
    with pytest.raises(click.ClickException):
        check(rescore, ["nbest", "--no-such-option", "x"])
    with pytest.raises(click.ClickException):
        check(rescore, ["lattice", "no-such-command"])


def test_there_are_commands() -> None:
    assert len(list(command_lines(ROOT / "README.md"))) > 5
