"""Words end at blanks of ASCII and lines at line feeds, in whatever reader: else texts that are equal would not match.

str.split() and str.splitlines() take more: U+00A0, U+3000, U+2028, U+0085, the separators U+001C to U+001F, ...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_zoo.ngram.arpa import read_vocabulary
from lm_zoo.reading import BLANKS, kaldi_fields, key_and_rest, text_lines
from lm_zoo.text.sentences import read_sentences
from lm_zoo.text.vocabulary import WordVocabulary
from rescore.errors import FormatError
from rescore.evaluation.counts import read_counts
from rescore.files import read_kaldi_text, read_lines
from rescore.formats import read_lattices, read_nbest, write_nbest
from rescore.formats.symbols import read_symbols
from rescore.text import TextNormalizer
from rescore.types import Hypothesis, NbestList

WORD = "a\u00a0b\u3000c\u2028d\x1ce\x85f"
WORDS = (WORD, "\u3000", "x")
LINE = " ".join(WORDS)


def test_every_blank_of_unicode_is_met() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        if character.isspace():
            expected = ["a", "b"] if character in BLANKS else [f"a{character}b"]
            assert kaldi_fields(f"a{character}b") == expected, repr(character)
    assert key_and_rest(f"\t {WORD} \f b  c \r") == (WORD, "b  c") and key_and_rest(" \n") == ("", "")


def test_lines_end_at_line_feeds(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("u1 a\rb\u2028c\x85d\x1c\r\nu2 e\n".encode())
    assert list(read_lines(path)) == [(1, "u1 a\rb\u2028c\x85d\x1c"), (2, "u2 e")]
    assert text_lines(path) == ["u1 a\rb\u2028c\x85d\x1c", "u2 e"]
    assert read_kaldi_text(path) == {"u1": ("a", "b\u2028c\x85d\x1c"), "u2": ("e",)}  # Kaldi: \r is a blank


def test_a_long_line_of_windows(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a" * (1 << 18) + b"\r\nb\r\n")
    assert [(number, len(line)) for number, line in read_lines(path)] == [(1, 1 << 18), (2, 1)]


LISTS: dict[str, tuple[str, str]] = {
    "jsonl:x": ("x", json.dumps({"utt_id": "u", "hyps": [{"words": LINE, "scores": {"am": 1}}]}) + "\n"),
    "jsonl:bare": ("bare", json.dumps({"utt_id": "u", "nbest": [LINE]}) + "\n"),
    "jsonl:listed": ("listed", json.dumps({"utt_id": "u", "hyps": [{"words": WORDS, "scores": {}}]}) + "\n"),
    "mlm:x": ("x", json.dumps({"u": {"hyp_1": {"score": 1, "text": LINE}}})),
    "kaldi:x": ("x/words_text", f"u-1 {LINE}\n"),
    "espnet:x": ("x/1best_recog/text", f"u {LINE}\n"),
    "espnet:data.json": (
        "data.json",
        json.dumps({"utts": {"u": {"output": [{"rec_text": f"▁{LINE.replace(' ', '▁')}<eos>", "score": 1}]}}}),
    ),
    "nemo:x?n=1": ("x", f"{LINE}\t-1\n"),
    "srilm:x": ("x", f"u-1 -1 -2 3 {LINE}\n"),
    "srilm:own": ("own/u", f"-1 -2 3 {LINE}\n"),
    "srilm:old": ("old", f"NBestList1.0\n(-7) {LINE}\n"),
    "lattice-rescore:x": ("x", f"u-0 -1 -2 | {LINE}\n"),
}


@pytest.mark.parametrize("spec", LISTS)
def test_lists(tmp_path: Path, spec: str) -> None:
    name, text = LISTS[spec]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    for beside, line in (("x/acwt", "u-1 -1\n"), ("x/1best_recog/score", "u -1\n")):
        if (tmp_path / beside).parent.is_dir():
            (tmp_path / beside).write_text(line)
    kind, _, rest = spec.partition(":")
    (nbest,) = read_nbest(f"{kind}:{tmp_path / rest}")
    assert nbest.hyps[0].words == WORDS


LATTICES = {
    "slf": f"N=2 L=1\nI=0\nI=1\nJ=0 S=0 E=1 W={WORD} a=-1\n",
    "slf, quoted": f'N=2 L=1\nI=0\nI=1\nJ=0 S=0 E=1 W="{WORD}" a=-1\n',
    "openfst": f"u\n0 1 {WORD} 0.5\n1\n\n",
    "pfsg": f"name u\nnodes 3 NULL {WORD} NULL\ninitial 0\nfinal 2\ntransitions 2\n0 1 0\n1 2 0\n",
}


@pytest.mark.parametrize("kind", LATTICES)
def test_lattices(tmp_path: Path, kind: str) -> None:
    (tmp_path / "u").write_text(LATTICES[kind], encoding="utf-8")
    (lattice,) = read_lattices(f"{kind.partition(',')[0]}:{tmp_path / 'u'}")
    assert lattice.symbols == ["", WORD]


def _arpa(path: Path) -> list[str]:
    path.write_text(f"\\data\\\nngram 1=1\n\n\\1-grams:\n-1\t{WORD}\n-1\t\u3000\n-1\tx\n\n\\end\\\n", encoding="utf-8")
    return read_vocabulary(path)


def _vocabulary(path: Path) -> list[str]:
    WordVocabulary(["<sos/eos>", "<unk>", *WORDS], "mixed").save(path.parent)
    return WordVocabulary.load(path.parent, "mixed").words[2:]


def _table(path: Path) -> list[str]:
    path.write_text("".join(f"{word} {number}\n" for number, word in enumerate(WORDS, start=1)), encoding="utf-8")
    return list(read_symbols(path).ids)


def _counts(path: Path) -> list[str]:
    path.write_text("".join(f"1 {word}\n" for word in WORDS), encoding="utf-8")
    return list(read_counts(path).ids)[1:]


def _sentences(path: Path) -> list[str]:
    path.write_text(LINE + "\n", encoding="utf-8")
    return next(read_sentences(f"text:{path}"))


@pytest.mark.parametrize("words_of", [_arpa, _vocabulary, _table, _counts, _sentences])
def test_words_of_language_models(tmp_path: Path, words_of: Callable[[Path], list[str]]) -> None:
    assert words_of(tmp_path / "file") == [*WORDS]


def test_normalising_splits_at_the_same_blanks() -> None:
    assert TextNormalizer(split="-").words([WORD, "a-b"]) == (WORD, "a", "b")


def test_words_that_would_be_several_are_not_written(tmp_path: Path) -> None:
    nbest = NbestList("u", [Hypothesis(WORDS, {"am": 1.0})], None)
    assert write_nbest(f"jsonl:{tmp_path / 'x'}", [nbest]) == 1
    for blank in BLANKS:
        nbest = NbestList("u", [Hypothesis((f"a{blank}b",), {"am": 1.0})], None)
        with pytest.raises(FormatError, match="is empty or has white space in it"):
            write_nbest(f"jsonl:{tmp_path / 'y'}", [nbest])
