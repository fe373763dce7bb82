"""Files that are damaged, cut off, or made to exhaust the memory: one clear error, within bounds."""

from __future__ import annotations

import gzip
import json
import lzma
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lm_zoo import reading
from lm_zoo.errors import TextError
from lm_zoo.text.sentences import read_sentences
from rescore.cli.recipe import read_defaults
from rescore.errors import FormatError, RescoreError, UsageError, WeightsError
from rescore.evaluation.counts import read_counts
from rescore.files import read_kaldi_text, read_lines
from rescore.formats import read_lattices, read_nbest
from rescore.formats.symbols import read_symbols
from rescore.weights import load_weights
from rescore.workflows.transcripts import read_transcripts

LIST = '{"utt_id": "a", "hyps": [{"words": "A", "scores": {"am": 1.0}}]}\n'
SLF = "VERSION=1.0\nN=2 L=1\nI=0\nI=1\nJ=0 S=0 E=1 W=A a=1.0\n"
MARK = "\ufeff"

TEXTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a.jsonl": (LIST, lambda path: list(read_nbest(f"jsonl:{path}"))),
    "a.json": ('{"a": {"hyp_1": {"score": 1.0, "text": "A"}}}', lambda path: list(read_nbest(f"mlm:{path}"))),
    "a.nbest": ("a-1 1.0 A\n", lambda path: list(read_nbest(f"srilm:{path}"))),
    "a.tsv": ("A\t1.0\n", lambda path: list(read_nbest(f"nemo:{path}?n=1"))),
    "a.slf": (SLF, lambda path: list(read_lattices(f"slf:{path}"))),
    "text": ("a A B\n", read_kaldi_text),
    "words.txt": ("<eps> 0\nA 1\n", lambda path: read_symbols(path).words),
    "counts": ("3 A\n", lambda path: list(read_counts(path).ids)),
    "trans": ("a 0.0 1.0 A\n", lambda path: list(read_transcripts("swbd", path))),
    "sentences": ("A B\n", lambda path: list(read_sentences(path))),
    "weights.json": ('{"scales": {"am": 1.0}}', load_weights),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_byte_order_mark_is_no_part_of_the_first_word(name: str, tmp_path: Path) -> None:
    text, read = TEXTS[name]
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    expected = read(path)
    path.write_text(MARK + text, encoding="utf-8")
    found = read(path)
    assert MARK not in repr(found)
    assert len(found) == len(expected) if isinstance(expected, list) else found == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_packed_file_may_not_become_too_large(
    name: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FREE", 1 << 18)
    text, read = TEXTS[name]
    if name.endswith(".json"):  # such files are small: only those that are read as a stream may be packed
        read = {"a.json": read}.get(name, lambda path: list(read_lines(path)))
    path = tmp_path / (name + suffix)
    pack = gzip.compress if suffix == ".gz" else lzma.compress
    path.write_bytes(pack(text.encode() + b" " * (1 << 22)))
    with pytest.raises((RescoreError, TextError), match=r"unpacks to more than \d+ bytes, .* unpack it first"):
        read(path)


def test_a_packed_file_of_many_repeats_is_read(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"A B C\n" * 300_000))
    assert sum(1 for _ in read_lines(path)) == 300_000


@pytest.mark.parametrize(
    "spec, text",
    [("srilm", "a-1 1.0 A\na-2 1.0 B C"), ("nemo", "A\t1.0\nB\t1.0"), ("srilm", "a-1 1.0 A")],
)
def test_lists_that_were_cut_off(spec: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "lists"
    path.write_text(text + "\n")
    options = "?n=1" if spec == "nemo" else ""
    assert list(read_nbest(f"{spec}:{path}{options}"))
    path.write_text(text)
    with pytest.raises(FormatError, match=rf"lists:{text.count(chr(10)) + 1}: the line does not end: cut off"):
        list(read_nbest(f"{spec}:{path}{options}"))


@pytest.mark.parametrize(
    "line",
    ['J=0 S=0 E=1 a="' + "x" * 80_000, "x" * 80_000 + '="', '="' + "x" * 80_000, 'J=0 S=0 E=1 W="\\' + "x\\" * 40_000],
)
def test_a_long_line_of_a_lattice_takes_no_long_time(line: str, tmp_path: Path) -> None:
    path = tmp_path / "a.slf"
    path.write_text(f"VERSION=1.0\nN=2 L=1\nI=0\nI=1\n{line}\n")
    start = time.process_time()
    with suppress(FormatError):  # one of them is a word
        list(read_lattices(f"slf:{path}"))
    assert time.process_time() - start < 2  # it was a minute


@pytest.mark.parametrize(
    "text, problem",
    [
        ("a: &x [1]\nb: *x\n", r"an alias \(\*NAME\), which is not read; write the value out"),
        ("a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n", "an alias"),
        ("[" * 5000, "nested too deeply"),
        ("base: 3\n", "its base is 3"),
        ("base: conf.yaml\n", "its base is 'conf.yaml', expected the name of another file that is not based on this"),
        ("a: " + "9" * 5000 + "\n", "expected a YAML file of options"),
    ],
)
def test_settings_that_are_not_read(text: str, problem: str, tmp_path: Path) -> None:
    import click

    path = tmp_path / "conf.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=problem):
        read_defaults(path, click.Command("x"))


@pytest.mark.parametrize("value", ["NaN", "1" + "0" * 400, "1" * 5000, '"' + "1" * 500 + '"', "[" * 100_000])
def test_weights_that_are_no_numbers(value: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text('{"scales": {"am": ' + value + "}}")
    with pytest.raises((WeightsError, FormatError)) as caught:
        load_weights(path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("utt_id", ["\\ud800", "a\\u0000b"])
def test_ids_that_are_no_text(utt_id: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(LIST.replace('"a"', f'"{utt_id}"'))
    with pytest.raises(FormatError, match=r"a.jsonl:1: (not JSON \(half of a surrogate|utterance id 'a)"):
        list(read_nbest(f"jsonl:{path}"))
    path.write_text(json.dumps({utt_id.encode().decode("unicode_escape"): {"hyp_1": {"score": 1.0, "text": "A"}}}))
    with pytest.raises(FormatError, match=r"a.jsonl:1: (not JSON or cut off \(half of a surrogate|utterance id 'a)"):
        list(read_nbest(f"mlm:{path}"))
