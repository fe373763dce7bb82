"""Lines that do not fit into memory are passed over and named, where each is an utterance of its own."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from rescore import files
from rescore.errors import FormatError
from rescore.formats import read_nbest, write_nbest
from rescore.formats.part_files import PARTS
from rescore.skipping import Skip
from rescore.types import Hypothesis
from tests.rescore.workflows.test_skipping import LM
from tests.rescore.workflows.test_too_large import IDS, made, made_lists


@pytest.fixture
def _little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are read 70 characters at a time, and memory does not suffice for more than 400."""
    real, read = files._next_part, [0]

    def little(stream: IO[str]) -> str:
        if read[0] > 400:
            read[0] = 0
            raise MemoryError
        part = real(stream)
        read[0] = 0 if part.endswith("\n") else read[0] + len(part)
        return part

    monkeypatch.setattr(files, "LINE_AT_ONCE", 70)
    monkeypatch.setattr(files, "_next_part", little)


@pytest.mark.usefixtures("_little_at_once")
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_that_does_not_fit_into_memory(suffix: str, end: str, tmp_path: Path) -> None:
    """It is passed over to its end; the number of lines is right behind it."""
    path = tmp_path / f"lines{suffix}"
    with files.atomic_text(path) as stream:
        stream.write(f"a\n{'é' * 100}\n{'é' * 70}\n{'b' * 1000}\nz{end}")
    skip = Skip()
    whole = [(1, "a"), (2, "é" * 100), (3, "é" * 70), (5, "z")]
    assert list(files.read_lines(path, on_error=skip)) == whole
    said = f"lines{suffix}:4: memory does not suffice for this line of 1,000 characters, which begins '{'b' * 60}'"
    assert [message.rpartition("/")[2] for message in skip.take()] == [said]
    with pytest.raises(FormatError, match="memory does not suffice for this line"):
        list(files.read_lines(path))
    path = tmp_path / f"last{suffix}"
    with files.atomic_text(path) as stream:
        stream.write(f"a\n{'b' * 100}{end}")
    if end:
        assert list(files.read_lines(path, ended=True)) == [(1, "a"), (2, "b" * 100)]
    else:
        with pytest.raises(FormatError, match=r"last.*:2: the line does not end: cut off"):
            list(files.read_lines(path, ended=True))


@pytest.mark.usefixtures("_little_at_once")
def test_a_list_whose_line_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of JSON lines it is left out; of lists with a hypothesis a line nothing is read from there on."""
    monkeypatch.chdir(tmp_path)
    lists = made_lists()
    lists[1].hyps[0] = Hypothesis(("B" * 500,), {"score": -1.0})
    specs = {"jsonl:lists.jsonl": ["a", "z"], "srilm:lists.nbest": [], "nemo:lists.tsv": ["utt000001"]}
    for spec, left in specs.items():
        write_nbest(spec, lists)
        skip = Skip()
        assert [found.utt_id for found in read_nbest(f"{spec}{'?n=1' * ('nemo' in spec)}", skip)] == left
        (said,) = skip.take()
        assert ":2: memory does not suffice for this line of 5" in said and said.startswith("lists.")
    write_nbest("jsonl:alone.jsonl", lists[1:2])
    skip = Skip()
    assert list(read_nbest("jsonl:alone.jsonl", skip)) == [] and skip.count == 1
    with pytest.raises(
        FormatError, match=r"alone.jsonl:1: memory does not suffice.*which begins '{.utt_id.: .monster."
    ):
        list(read_nbest("jsonl:alone.jsonl"))


@pytest.mark.usefixtures("_little_at_once")
@pytest.mark.parametrize("kind", ["lists", "lattices"])
def test_a_part_whose_line_does_not_fit_into_memory(kind: str, tmp_path: Path) -> None:
    items: list[Any] = made_lists()[1:2] if kind == "lists" else made("monster")
    part, path = PARTS[kind], tmp_path / "part.gz"
    if kind == "lists":
        items[0].hyps[0] = Hypothesis(("B" * 500,), {"score": -1.0})
    else:
        items[0].symbols += ["C" * 500]
    part.write(path, items)
    skip = Skip()
    assert list(part.read(path, skip)) == [] and skip.count == 1


LONG_LINE = """
import torch
from rescore.workflows import columns, nbest, scoring
from lm_zoo.inference.limits import limit_memory, taken
limit_memory(int(taken()) + (60 << 20))
from rescore.cli.main import main
main()
"""


@pytest.mark.slow
def test_a_long_line_in_little_memory(tmp_path: Path) -> None:
    """90 MB, in a process that may take 60 MB more than it has."""
    entries = [json.dumps({"utt_id": utt_id, "hyps": [{"words": "A", "scores": {"am": -1.0}}]}) for utt_id in IDS]
    entries[1] = entries[1].replace("A", "A B " * 22_500_000)
    with gzip.open(tmp_path / "in.jsonl.gz", "wt", compresslevel=1) as stream:
        stream.write("\n".join(entries) + "\n")
    line = f"nbest --nbest {tmp_path}/in.jsonl.gz --lm {LM} --scale am=1 --out {tmp_path}/out"
    done = subprocess.run(
        [sys.executable, "-c", LONG_LINE, *line.split(), "--on-error", "skip"], capture_output=True, text=True
    )
    assert done.returncode == 3, done.stderr
    assert "in.jsonl.gz:2: memory does not suffice for this line of 90,0" in done.stderr
    assert [nbest.utt_id for nbest in read_nbest(f"jsonl:{tmp_path}/out/scores.jsonl.gz")] == ["a", "z"]


@pytest.mark.parametrize("beyond", [-1, 0, 1, 2])
def test_a_long_line_of_windows_ends_as_a_short_one(tmp_path: Path, beyond: int) -> None:
    text = "x" * (files.LINE_AT_ONCE + beyond)
    (tmp_path / "text").write_bytes(f"{text}\r\nshort\r\n".encode())
    assert list(files.read_lines(tmp_path / "text")) == [(1, text), (2, "short")]
