"""Every command line of README and the documentation is one that the program understands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from asr.cli.main import cli as asr
from rescore.cli.main import cli as rescore
from rescore.cli.outputs import OutputSpec
from rescore.formats import parse_spec
from tests.docs.pages import PAGES, ROOT, command_lines, inline_commands, name, words_of

PROGRAMS = {"rescore": rescore, "asr": asr}


def check(group: click.Command, words: list[str]) -> list[str]:
    """Parses a command line, subcommands included, without running it; gives its targets, `[FORMAT:]PATH`.

    Raises:
      click.ClickException: no such command or option, or a value that is none.
    """
    context = click.Context(group, **group.context_settings)  # a command keeps the help option that it is first given
    while isinstance(group, click.Group) and words:
        called, command, words = group.resolve_command(context, words)
        assert command is not None, called
        context, group = click.Context(command, context, called, **command.context_settings), command
    given, _, _ = group.make_parser(context).parse_args(args=list(words))
    return [given[param.name] for param in group.params if isinstance(param.type, OutputSpec)]


def check_line(place: str, line: str) -> None:
    words = words_of(line)
    if "..." in words or words[1].startswith("-"):
        return
    try:
        check(PROGRAMS[words[0]], words[1:])
    except click.ClickException as error:
        pytest.fail(f"{place}: {line.strip()}: {error.format_message()}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_understood(page: Path) -> None:
    for number, line in command_lines(page):
        check_line(f"{name(page)}:{number}", line)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_sentences_are_understood(page: Path) -> None:
    for line in inline_commands(page):
        if "|" not in line:  # `rescore combine|compare`: several at once
            check_line(name(page), line + " X" if words_of(line)[-1].startswith("-") else line)  # option without value


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_sentences_are_whole(page: Path) -> None:
    """One that says where it writes has all that it needs."""
    for line in inline_commands(page):
        words = words_of(line)
        if "--out" in words:
            assert missing(PROGRAMS[words[0]], words[1:]) == [], f"{name(page)}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_rescoring_of_lattices_has_its_scales(page: Path) -> None:
    """Without scales of the new LMs, or references to find them by, the command is refused."""
    for line in inline_commands(page):
        words = words_of(line)
        if words[1:3] == ["lattice", "rescore"] and len(words) > 3:
            assert {"--scale", "--weights", "--ref"} & {*words}, f"{name(page)}: {line}"


def missing(group: click.Command, words: list[str]) -> list[str]:
    """The options that a command needs, and that are not among the words."""
    context = click.Context(group, **group.context_settings)
    while isinstance(group, click.Group):
        _, command, words = group.resolve_command(context, words)
        assert command is not None
        group = command
    needed = [param for param in group.params if isinstance(param, click.Option) and param.required]
    return [option.opts[0] for option in needed if not {*option.opts} & {*words}]


@pytest.mark.parametrize("program", PROGRAMS)
def test_examples_in_help_are_understood(program: str) -> None:
    lines = list(examples(PROGRAMS[program], program))
    assert len(lines) > 10
    for place, line in lines:
        if "icefall-decode" not in place:  # its last arguments are those of another program
            check_line(place, line)
            for target in check(PROGRAMS[program], words_of(line)[1:]):
                parse_spec(target)  # says its format


def examples(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """The commands in the help of a command and its subcommands, with the names of these."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from examples(found, f"{name} {part}")
        return
    text = re.sub(r"\\\n\s*", "", command.help or "")
    yield from ((name, line) for line in re.findall(r"Example: ((?:rescore|asr) .*)", text))


def test_a_wrong_option_is_found() -> None:
    with pytest.raises(click.ClickException):
        check(rescore, ["nbest", "--no-such-option", "x"])
    with pytest.raises(click.ClickException):
        check(rescore, ["lattice", "no-such-command"])


def test_there_are_commands() -> None:
    assert len(list(command_lines(ROOT / "README.md"))) > 5
    assert len(list(command_lines(ROOT / "docs" / "bring-your-lm.md"))) > 2  # fenced ones
