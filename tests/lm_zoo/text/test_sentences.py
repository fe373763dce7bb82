from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from lm_zoo.errors import TextError
from lm_zoo.text.sentences import read_sentences

LINES = "a ONE TWO\n\nb\nc  THREE\tÉ\r\n"


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_reads_plain_and_compressed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    opener = {"": open, ".gz": gzip.open, ".xz": lzma.open}[suffix]
    with opener(path, "wb") as stream:
        stream.write(LINES.encode())
    remarks: list[str] = []
    whole = [["a", "ONE", "TWO"], ["b"], ["c", "THREE", "É"]]
    assert list(read_sentences(path, remarks.append)) == whole
    assert list(read_sentences(f"text:{path}")) == whole
    assert list(read_sentences(f"kaldi:{path}", remarks.append)) == [["ONE", "TWO"], ["THREE", "É"]]
    assert [remark.split(": ")[1].split(" lines")[0] for remark in remarks] == ["1 of 4", "2 of 4"]


def test_last_line_without_newline(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b\nc")
    assert list(read_sentences(tmp_path / "text")) == [["a", "b"], ["c"]]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_truncated(tmp_path: Path, suffix: str) -> None:
    text = "".join(f"line {i * 7919 % 10007}\n" for i in range(20000)).encode()
    packed = gzip.compress(text) if suffix == ".gz" else lzma.compress(text)
    path = tmp_path / f"text{suffix}"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TextError, match=r"text\.[gx]z:\d+: compressed file is truncated"):
        list(read_sentences(path))
    path.write_bytes(text)
    with pytest.raises(TextError, match="truncated or damaged"):
        list(read_sentences(path))


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="no such file"):
        list(read_sentences(f"kaldi:{tmp_path / 'missing'}"))
    with pytest.raises(TextError, match="is a folder"):
        list(read_sentences(tmp_path))
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(TextError, match="no sentence in 2 lines"):
        list(read_sentences(tmp_path / "empty"))
    (tmp_path / "latin").write_bytes(b"A B\n" * 9 + "É\n".encode("latin1"))
    with pytest.raises(TextError, match="latin:10: not UTF-8"):
        list(read_sentences(tmp_path / "latin"))


@pytest.mark.parametrize("spec", ["{0}/text", "{0}//text", "{0}/./text"])
def test_utterance_ids_are_seen_however_the_path_is_written(tmp_path: Path, spec: str) -> None:
    (tmp_path / "text").write_text("a-0 HE SAID\na-1 SHE SAW\na-2 IT IS\n")
    path = spec.format(tmp_path)
    with pytest.raises(TextError, match="looks like an utterance id \\('a-0'\\)"):
        list(read_sentences(path))
    assert next(read_sentences(f"text:{path}")) == ["a-0", "HE", "SAID"]
    assert next(read_sentences(f"kaldi:{path}")) == ["HE", "SAID"]


def test_of_two_lines_the_first_words_may_be_words(tmp_path: Path) -> None:
    lines = ["A-4 IS A SIZE", "B2B IS TRADE", "U-2 IS A PLANE"]
    (tmp_path / "text").write_text("\n".join(lines[:2]) + "\n")
    assert list(read_sentences(tmp_path / "text")) == [line.split() for line in lines[:2]]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    with pytest.raises(TextError, match=r"looks like an utterance id \('A-4'\)"):
        list(read_sentences(tmp_path / "text"))
