"""Progress off a terminal, and names that are nearly right."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from asr.cli.main import main as asr
from lm_zoo import registry
from lm_zoo.errors import ModelError, nearest
from rescore import console
from rescore.cli.main import main
from rescore.formats import read_lattices
from tests.commands import run_line
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS


def test_progress_is_told_in_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(console.progress(range(3), "reading")) == [0, 1, 2]
    assert capsys.readouterr().err == ""  # quick work says nothing
    monkeypatch.setattr(console, "SECONDS", 0.0)
    assert list(console.progress(range(2), "reading", 2)) == [0, 1]
    assert list(console.progress(iter(range(1)), "counting")) == [0]
    assert list(console.progress([7], "listed")) == [7]
    assert capsys.readouterr().err.splitlines() == [
        "reading: 1 of 2 after 0:00:00",
        "reading: 2 of 2 after 0:00:00, 0:00:00 left",
        "counting: 1 after 0:00:00",
        "listed: 1 of 1 after 0:00:00",
    ]
    monkeypatch.setenv(console.QUIET, "1")
    assert list(console.progress(range(2), "reading")) == [0, 1] and capsys.readouterr().err == ""


def test_the_time_left_of_items_that_come_many_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])

    def items() -> Iterator[int]:
        for number in range(30):
            clock[0] += 60.0 if number % 10 == 0 else 0.0
            yield number

    assert list(console.progress(items(), "scoring", 30)) == list(range(30))
    assert capsys.readouterr().err.splitlines() == [
        "scoring: 1 of 30 after 0:01:00",
        "scoring: 11 of 30 after 0:02:00, 0:01:00 left",
        "scoring: 21 of 30 after 0:03:00, 0:00:00 left",
    ]


def test_what_takes_longer_than_was_thought_has_no_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    for item in console.progress(range(2), "scoring", 2):
        clock[0] += 1.0 if item == 0 else 100.0
    assert capsys.readouterr().err == "scoring: 2 of 2 after 0:01:41, 0:00:00 left\n"


def test_the_nearest_name_is_suggested() -> None:
    assert nearest("lstn", ["lstm", "bayesian"]) == " (did you mean 'lstm'?)" and nearest("x", ["lstm"]) == ""
    with pytest.raises(ModelError, match=r"no such folder or file \(did you mean 'transfornn'\?\); shipped are"):
        registry.load("transforn")
    with pytest.raises(ModelError, match=r"'bayes' \(did you mean 'bayesian'\?\); there are"):
        registry.model_class("bayes")
    said = run_line("rescore", main, "convert kaldy:x jsonl:y")[1]
    assert "unknown format 'kaldy' (did you mean 'kaldi'?)" in said
    assert "no command 'tun' (did you mean 'tune'?); there are: " in run_line("rescore", main, "tun")[1]


@pytest.mark.parametrize("how", ["level", "handler alone"])
def test_remarks_are_records_of_logging_where_the_program_asks_for_them(
    how: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a handler alone: without a level no record below a warning would be shown, and remarks be lost."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(logging.getLogger("rescore"), "handlers", [logging.NullHandler()])
    if how == "level":
        caplog.set_level(logging.INFO, logger="rescore")
    monkeypatch.setattr(console, "SECONDS", 0.0)
    console.remark("2 of 3 %d left\nout")
    assert list(console.progress(["a"], "scoring", 1)) == ["a"]
    told = caplog.messages if how == "level" else capsys.readouterr().err.splitlines()
    assert told[0] == "2 of 3 %d left\\nout" and told[1].startswith("scoring: 1 of 1")
    assert capsys.readouterr().err == "" and bool(caplog.messages) == (how == "level")


def test_what_is_said_of_a_source_that_is_read_twice_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a command: scales are found on its lattices before it does its work.  In Python, each time that it is read."""
    monkeypatch.chdir(tmp_path)
    Path("lat.1").write_text(TEXT)
    Path("words.txt").write_text(WORDS)
    Path("text").write_text("utt-a A C\nutt-b B B\n")
    command = ["rescore", "lattice", "nbest", "kaldi:lat.1", "lists.jsonl", "--ref", "text", "--jobs", "1"]
    for _ in range(2):
        monkeypatch.setattr("sys.argv", command)
        with pytest.raises(SystemExit):
            main()
        assert capsys.readouterr().err.count("lat.1: words are those of words.txt") == 1
    for _ in range(2):
        assert len(list(read_lattices("kaldi:lat.1"))) == 2
        assert capsys.readouterr().err.count("lat.1: words are those of words.txt") == 1


def test_quiet_ends_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(console.QUIET, raising=False)
    for name, command, line in (("rescore", main, "--quiet lms"), ("asr", asr, "--quiet info paper-com")):
        assert run_line(name, command, line)[0] == 0 and not console.is_quiet(), name
    monkeypatch.setenv(console.QUIET, "1")  # the caller's own: commands without the option are quiet, and it stays
    assert run_line("rescore", main, "lms")[0] == 0
    with console.quietly(False):
        assert console.is_quiet()
    with console.quietly():
        assert console.is_quiet()
    assert console.is_quiet()
