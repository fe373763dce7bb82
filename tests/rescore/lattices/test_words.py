"""Every word survives every conversion of lattices, or the conversion says why not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.errors import FormatError
from rescore.formats import read_lattices, write_lattices
from rescore.formats.slf_write import NULL_WORDS
from rescore.lattices.build import build_lattice
from rescore.types import Lattice

ODD = [*sorted(NULL_WORDS - {""}), "-", "<epsilon>", "0", "00", "7", "007", "#0", "'", '"', "a=b", '="', "\\", "x|y"]
ODD += ["W=a", "5,5", "1e5", "<unk>", "(1)", "a(2)", "\u2581a", "\u00a0x", "\u200b", "ö", "٣", "²", "J=1"]
WORDS = st.lists(st.sampled_from(ODD) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=3), max_size=4)


def chain(words: list[str]) -> Lattice:
    """One path with an epsilon at its begin."""
    symbols = [""]
    labels = [0, *(symbols.append(word) or len(symbols) - 1 for word in words)]  # type: ignore[func-returns-value]
    src = np.arange(len(labels))
    scores = {"am": -np.arange(len(labels)).astype(float)}
    return build_lattice("u", len(labels) + 1, src, src + 1, np.array(labels), scores, symbols, 0, len(labels))


def words_of(lattice: Lattice) -> list[str]:
    return [lattice.symbols[label] for label in lattice.labels if label]


@settings(max_examples=150, deadline=None)
@given(WORDS, st.sampled_from(["slf", "openfst", "k2", "kaldi-lat"]), st.booleans())
def test_words_are_kept_or_refused(words: list[str], form: str, table: bool) -> None:
    """A table has all words but those that it cannot hold (with blanks in them)."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = f"{form}:{folder / 'out'}{'.pt' if form == 'k2' else '' if form == 'slf' else '.ark'}"
        if table and form != "slf":
            can = [word for word in dict.fromkeys(words) if word.split() == [word] and word != "<eps>"]
            lines = [f"{word} {number}\n" for number, word in enumerate(["<eps>", *can])]
            (folder / "words.txt").write_text("".join(lines), encoding="utf-8")
            path += f"?words={folder / 'words.txt'}"
        elif form != "slf":
            path += "?words=ids"
        try:
            write_lattices(path, [chain(words)])
        except FormatError:
            numbers = not table and form in ("k2", "kaldi-lat")
            assert numbers or not all(re.fullmatch("[A-Za-z]+", word) for word in words)
            return
        (found,) = read_lattices(path)
        assert words_of(found) == words


@pytest.mark.parametrize("word", sorted(NULL_WORDS - {"", "!NULL"}))
def test_null_words_of_slf_are_words_where_they_were(tmp_path: Path, word: str) -> None:
    write_lattices(f"slf:{tmp_path / 'out'}", [chain(["A", word, "B"])])
    (found,) = read_lattices(f"slf:{tmp_path / 'out'}")
    assert words_of(found) == ["A", word, "B"]


def test_the_null_word_of_slf_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"utterance 'u': the word !NULL is HTK's for no word; rename it"):
        write_lattices(f"slf:{tmp_path / 'out'}", [chain(["A", "!NULL"])])


@pytest.mark.parametrize("words", [["-"], ["A", "<epsilon>"], ["<eps>", "B"], ["0"], ["0", "7"]])
def test_epsilons_of_openfst_are_refused_as_words(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(FormatError, match=r"utterance 'u': word '.*' would be read back as no word; give a table"):
        write_lattices(f"openfst:{tmp_path / 'out'}", [chain(words)])
    write_lattices(f"openfst:{tmp_path / 'out'}", [chain(["0", "A"])])  # no number among others
    (found,) = read_lattices(f"openfst:{tmp_path / 'out'}")
    assert words_of(found) == ["0", "A"]


@pytest.mark.parametrize("form", ["openfst", "k2", "kaldi-lat"])
def test_a_word_with_the_id_of_none_is_refused(tmp_path: Path, form: str) -> None:
    if form == "k2":
        pytest.importorskip("torch")
    (tmp_path / "words.txt").write_text("A 0\nB 1\n")
    with pytest.raises(FormatError, match=r"word 'A' has the id 0 of no word in .*words.txt"):
        write_lattices(f"{form}:{tmp_path / 'out.pt'}?words={tmp_path / 'words.txt'}", [chain(["A", "B"])])


@pytest.mark.parametrize("form", ["k2", "kaldi-lat"])
def test_without_a_table_all_words_are_ids_or_none_is(tmp_path: Path, form: str) -> None:
    if form == "k2":
        pytest.importorskip("torch")
    with pytest.raises(FormatError, match=r"word '007' needs a number"):
        write_lattices(f"{form}:{tmp_path / 'out.pt'}", [chain(["7"]), replace(chain(["007"]), utt_id="v")])
    write_lattices(f"{form}:{tmp_path / 'out.pt'}", [chain(["007"]), replace(chain(["7"]), utt_id="v")])
    assert [words_of(lattice) for lattice in read_lattices(f"{form}:{tmp_path / 'out.pt'}")] == [["007"], ["7"]]
