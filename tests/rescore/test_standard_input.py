"""`-` and /dev/stdin where files are read, `-` where they are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli
from rescore.errors import FormatError
from rescore.formats import read_lattices, write_lattices, write_nbest
from rescore.types import Hypothesis, NbestList
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS

Feed = Callable[[str], None]


@pytest.fixture
def feed() -> Iterator[Feed]:
    """Puts a text into a pipe that is standard input."""
    kept = os.dup(0)

    def into_pipe(text: str) -> None:
        read, write = os.pipe()
        os.write(write, text.encode())
        os.close(write)
        os.dup2(read, 0)
        os.close(read)

    yield into_pipe
    os.dup2(kept, 0)
    os.close(kept)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("ref").write_text("utt-a A C\nutt-b B B\n")
    Path("words.txt").write_text(WORDS)
    hyps = {"utt-a": ("A", "C"), "utt-b": ("B",)}
    write_nbest("jsonl:lists.jsonl", [NbestList(u, [Hypothesis(words, {"am": -1.0})]) for u, words in hyps.items()])
    return tmp_path


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_whatever_is_read_can_come_from_a_pipe(folder: Path, feed: Feed, name: str) -> None:
    lists, ref = Path("lists.jsonl").read_text(), Path("ref").read_text()
    feed(lists)
    assert run("wer", "--ref", "ref", "--hyp", f"jsonl:{name}").stdout.startswith("%WER 25.00")
    feed(ref)
    assert run("wer", "--ref", name, "--hyp", "lists.jsonl").stdout.startswith("%WER 25.00")
    feed(lists)
    assert run("convert", f"jsonl:{name}", "jsonl:-").stdout == lists
    feed(lists)
    run("nbest", "--nbest", f"jsonl:{name}", "--lm", "toy=tests.toy_lm:Toy?likes=A", "--out", "scored")
    assert Path("scored/scores.jsonl.gz").exists()
    feed(TEXT)
    assert "utt-a A C" in run("lattice", "best-path", f"kaldi:{name}", "--words", "words.txt").stdout
    feed("A B\nB A\n")
    assert run("count", "--text", name, "--out", "-").stdout.splitlines()[:2] == ["2 A", "2 B"]
    feed("A B\nB A\n")
    assert "ppl/word" in run("ppl", "--lm", "toy=tests.toy_lm:Toy?likes=A", "--text", name).stdout


def test_references_from_a_pipe_are_told_by_what_they_are(folder: Path, feed: Feed) -> None:
    plain = run("compare", "--ref", "ref", "first=lists.jsonl").stdout.splitlines()[-1]
    feed(Path("ref").read_text())
    assert run("compare", "--ref", "-", "first=lists.jsonl").stdout.splitlines()[-1] == plain


def test_a_pipe_is_not_read_twice(folder: Path, feed: Feed) -> None:
    feed(TEXT)
    arguments = ["lattice", "nbest", "kaldi:-", "jsonl:-", "--words", "words.txt", "--ref", "ref"]
    assert "is a pipe, which is read but once" in str(CliRunner().invoke(cli, arguments).exception)


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_a_pipe_of_lattices_is_in_no_folder(
    folder: Path, feed: Feed, name: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The folder above the one that a command is started in is not the model's: a frame is 0.01 s."""
    (folder / "frame_subsampling_factor").write_text("3\n")
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    feed(TEXT)
    lattices = list(read_lattices(f"kaldi-lat:{name}?words=../words.txt"))
    assert lattices[0].times is not None and lattices[0].times[-1] == pytest.approx(0.06)
    write_lattices("kaldi-lat:-?words=../words.txt", lattices)
    written = capfdbinary.readouterr()
    assert written.out.startswith(b"utt-a ") and b"a frame is" not in written.err


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_files_of_torch_are_not_read_from_a_pipe(feed: Feed, name: str) -> None:
    feed("PK")
    with pytest.raises(FormatError, match="a pipe, and files of torch are not read from one; write it to a file first"):
        list(read_lattices(f"k2:{name}"))
