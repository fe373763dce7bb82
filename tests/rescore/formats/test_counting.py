"""How many utterances a source has, and the total and the time left that commands show of it."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from rescore import console, files
from rescore.cli.main import cli
from rescore.formats import read_lattices, write_lattices
from rescore.formats.counting import count, count_lattices, count_nbest
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS
from tests.rescore.runs import LM, write_inputs


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """Packed lists of 24 utterances."""
    write_inputs(tmp_path, dev=1)
    return tmp_path / "test.jsonl.gz"


def test_lists_of_a_line_each_are_counted(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = gzip.decompress(lists.read_bytes())
    plain = lists.with_name("plain.jsonl")
    plain.write_bytes(text.rstrip(b"\n"))
    assert count_nbest(f"jsonl:{lists}") == count_nbest(str(plain)) == count(str(lists)) == 24
    damaged = lists.with_name("damaged.jsonl.gz")
    damaged.write_bytes(lists.read_bytes()[:100])
    assert count_nbest(str(damaged)) is None and count_nbest("jsonl:missing") is None and count_nbest("jsonl:-") is None
    assert count_nbest(f"mlm:{plain}") is None
    monkeypatch.setattr(files, "PACKED_AT_ONCE", 100)
    monkeypatch.setattr(files, "PLAIN_AT_ONCE", 100)
    assert count_nbest(str(lists)) is None and count_nbest(str(plain)) is None


def test_lattices_of_a_file_each_are_counted(tmp_path: Path) -> None:
    (tmp_path / "lat.1").write_text(TEXT)
    (tmp_path / "words.txt").write_text(WORDS)
    write_lattices(f"slf:{tmp_path / 'slf'}", read_lattices(f"kaldi:{tmp_path}"))
    assert count_lattices(f"slf:{tmp_path / 'slf'}") == count(f"slf:{tmp_path / 'slf'}") == 2
    assert count_lattices(f"kaldi:{tmp_path}") is None  # archives, of as many lattices as there are


def test_scoring_of_a_file_says_the_total_and_the_time_left(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "SECONDS", 0.0)
    said = nbest(str(lists), lists.parent / "out")
    assert "scoring: 24 of 24 after 0:00:00, 0:00:00 left" in said
    assert "scoring: 1 of 24 after" in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_scoring_of_a_pipe_says_how_many_there_were(lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "SECONDS", 0.0)
    pipe, text = lists.with_name("pipe"), gzip.decompress(lists.read_bytes())
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    said = nbest(f"jsonl:{pipe}", lists.parent / "out")
    writer.join()
    assert "scoring: 24 after 0:00:00" in said.splitlines()


def nbest(source: str, out: Path) -> str:
    """What `rescore nbest` says."""
    result = CliRunner().invoke(cli, ["nbest", "--nbest", source, "--lm", LM, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return result.stderr
