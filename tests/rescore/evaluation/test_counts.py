"""Counts of a training text: against plain counting, their files, and `rescore count`."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.errors import TextError
from rescore.cli.main import cli
from rescore.errors import FormatError, RescoreError
from rescore.evaluation import counts as module
from rescore.evaluation.counts import NgramCounts, count_ngrams, read_counts, write_counts
from rescore.evaluation.tail import load_tail

WORD = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=3).filter(lambda word: word != "<s>")
TEXT = st.lists(st.lists(st.one_of(st.sampled_from("ABC"), WORD), max_size=8), min_size=1, max_size=12)


def as_dicts(counts: NgramCounts) -> list[dict[tuple[str, ...], int]]:
    words = list(counts.ids)
    result: list[dict[tuple[str, ...], int]] = []
    for n, table in enumerate(counts.tables):
        pairs = [divmod(key, 1 << 32) for key in table.keys.tolist()]
        names = [(words[a], words[b]) if n else (words[b],) for a, b in pairs]
        result.append(dict(zip(names, table.counts.tolist(), strict=True)))
    return result


def plain(sentences: list[list[str]]) -> list[dict[tuple[str, ...], int]]:
    words = Counter((word,) for sentence in sentences for word in sentence)
    return [words, Counter(pair for sentence in sentences for pair in zip(["<s>", *sentence], sentence, strict=False))]


def run(*args: object) -> str:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False).stderr


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 5, 1 << 22]), TEXT)
def test_counts_are_those_of_plain_counting(chunk: int, sentences: list[list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        assert as_dicts(count_ngrams(sentences, 2)) == plain(sentences)
        assert as_dicts(count_ngrams(sentences, 1)) == plain(sentences)[:1]


@settings(max_examples=50, deadline=None)
@given(TEXT.filter(any))
def test_files_give_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, sentences: list[list[str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "counts.txt"
    write_counts(path, count_ngrams(sentences, 2))
    assert as_dicts(read_counts(path)) == plain(sentences)


def test_command(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("B A B\n\nA\n")
    (tmp_path / "b.txt").write_text("utt1 B A\n")
    texts = ("--text", tmp_path / "a.txt", "--text", f"kaldi:{tmp_path / 'b.txt'}")
    out = tmp_path / "new" / "counts.txt.gz"
    remarks = run("count", *texts, "--out", out)
    assert "2 1-grams and 4 2-grams, of a text of 6 words" in remarks
    with gzip.open(out, "rt") as stream:
        assert stream.read() == "3 B\n3 A\n2 <s> B\n2 B A\n1 <s> A\n1 A B\n"
    run("count", *texts, "--out", tmp_path / "words.txt", "--order", 1)
    assert (tmp_path / "words.txt").read_text() == "3 B\n3 A\n"
    assert len(read_counts(tmp_path / "words.txt").tables) == 1


def test_characters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("你好 好\n")
    run("count", "--text", tmp_path / "a.txt", "--out", tmp_path / "out.txt", "--characters")
    assert (tmp_path / "out.txt").read_text() == "2 好\n1 你\n1 <s> 你\n1 你 好\n1 好 好\n"
    (tmp_path / "a.txt").write_text("你 <unk>\n")
    run("count", "--text", tmp_path / "a.txt", "--out", tmp_path / "out.txt", "--characters")
    assert (tmp_path / "out.txt").read_text() == "1 你\n1 <unk>\n1 <s> 你\n1 你 <unk>\n"
    load_tail(tmp_path / "out.txt").check_characters()  # as of wer --cer, where <unk> is one, too


def test_a_bad_text_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A\nB C\n")
    for number, line in enumerate(("B <s> C", "<s> A </s>", "A </s>")):
        (tmp_path / "b.txt").write_text(f"A\n{line}\n")
        texts = "--text", tmp_path / "a.txt", "--text", tmp_path / "b.txt"
        with pytest.raises(RescoreError, match=rf"b.txt, sentence 2: found '{line}', with <s> or </s> as a word"):
            run("count", *texts, "--out", tmp_path / "out.txt", *["--characters"][: number % 2])
    (tmp_path / "b.txt").unlink()
    with pytest.raises(TextError, match="no such file"):
        run("count", "--text", tmp_path / "none.txt", "--out", tmp_path / "out.txt")
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_lines_may_be_in_any_order_and_as_uniq_prints_them(tmp_path: Path) -> None:
    (tmp_path / "counts.txt").write_text("      2 A B\n      1 <s> A\n     10 B\n      3 A\n")
    counts = as_dicts(read_counts(tmp_path / "counts.txt"))
    assert counts == [{("A",): 3, ("B",): 10}, {("<s>", "A"): 1, ("A", "B"): 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3 A\n\n", ":2: found '', expected 'COUNT WORD' or 'COUNT PREVIOUS WORD'"),
        ("3 A\n4\n", ":2: found '4', expected 'COUNT WORD'"),
        ("3 A B C\n", ":1: found '3 A B C', expected"),
        ("A 3\n", ":1: found the count 'A', expected a whole number from 1"),
        ("0 A\n", ":1: found the count '0'"),
        ("-1 A\n", ":1: found the count '-1'"),
        ("1.5 A\n", ":1: found the count '1.5'"),
        ("² A\n", ":1: found the count '²'"),
        ("9999999999999999999999 A\n", ":1: found the count '9999"),
        ("3 A\n1 B\n2 A\n1 A\n", ":3: 'A' occurs a second time"),
        ("1 B\n3 A\n1 B A\n1 A\n1 B\n", ":4: 'A' occurs a second time"),
        ("3 A\n1 A B\n2 A B\n", ":3: 'A B' occurs a second time"),
        ("3 A\n1 <s> A\n2 <s> A\n", ":3: '<s> A' occurs a second time"),
        ("3 <s>\n", ":1: <s> may only stand first in a bigram, found '3 <s>'"),
        ("3 A <s>\n", ":1: <s> may only stand first"),
        ("", ": no counts of words"),
        ("3 A B\n", ": no counts of words"),
    ],
)
def test_malformed_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "counts.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=re.escape(f"{path}{message}")):
        read_counts(path)


@settings(deadline=None)
@given(st.text("12 \n\tA<s>", max_size=30) | st.text(max_size=20))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "counts.txt"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        counts = read_counts(path)
    except FormatError as error:
        assert str(error).startswith(str(path))
    else:
        assert all(table.counts.min() > 0 for table in counts.tables)


def test_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "counts.txt.gz").write_bytes(gzip.compress(b"3 A\n" * 1000)[:-9])
    with pytest.raises(FormatError, match="truncated or damaged"):
        read_counts(tmp_path / "counts.txt.gz")
