"""What KenLM follows in its binary files, which `build_binary` made (`tests.lm_zoo.kenlm_files`)."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from lm_zoo.errors import ModelError
from lm_zoo.ngram.arpa import BINARY_UNK
from lm_zoo.ngram.kenlm_lm import NgramLM
from lm_zoo.ngram.kenlm_tables import check_tables
from tests.faults.kenlm_forks import load_in_a_fork
from tests.lm_zoo import kenlm_files

FILES = {name: getattr(kenlm_files, name) for name in ("PROBING", "TRIE", "TRIGRAMS", "QUANTISED_ARRAYS")}
WORDS = "A B C D E F <unk> X"


@pytest.mark.parametrize("name", FILES)
def test_files_of_build_binary_are_whole(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(FILES[name])
    check_tables(path)
    lm = NgramLM(path)
    assert lm.order == (3 if name in ("TRIGRAMS", "QUANTISED_ARRAYS") else 2)
    assert all(score < 0 for row in lm.score_words([WORDS.split()]) for score in row)


@pytest.mark.parametrize(
    "name, at, form, value, said",
    [
        ("PROBING", 132, "<I", 1000, "the vocabulary says 1000 words, the header 7"),
        ("PROBING", 144, "<I", 0x40003, "the vocabulary has a word of number 262147, there are 7"),
        ("TRIE", 128, "<Q", 0x8000, "the vocabulary says 32768 words, the header 7"),
        ("TRIE", 248, "<Q", 0x8001, "the unigrams point out of the n-grams that are one word longer"),
        ("TRIE", 116, "<Q", 1 << 62, r"the longest n-grams would end at byte \d+, the file has 389"),
        ("TRIE", 116, "<Q", 1, "the unigrams point out of"),
        ("TRIGRAMS", 96, "<i", 6, "order 3, type 6"),
        ("QUANTISED_ARRAYS", 217, "<B", 0, "quantised to 0 and 3 bits"),
    ],
)
def test_numbers_that_lead_out_of_a_table(name: str, at: int, form: str, value: int, said: str, tmp_path: Path) -> None:
    data, path = bytearray(FILES[name]), tmp_path / "a.bin"
    struct.pack_into(form, data, at, value)
    path.write_bytes(data)
    with pytest.raises(ModelError, match=rf"a\.bin: a damaged KenLM binary file \({said}.*\); build it again"):
        check_tables(path)


def test_a_hash_table_without_an_empty_place(tmp_path: Path) -> None:
    """A search for a word that is not there would go round for ever."""
    data, path = bytearray(kenlm_files.PROBING), tmp_path / "a.bin"
    for place in range(136, 136 + 12 * 10, 12):
        if data[place : place + 8] == bytes(8):
            data[place] = 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match="the table of the vocabulary has no empty place"):
        check_tables(path)


@pytest.mark.parametrize("name", ["TRIGRAMS", "QUANTISED_ARRAYS"])
def test_any_pointer_of_a_middle_order(name: str, tmp_path: Path) -> None:
    """Bits of the tables are turned over; what is not refused ends no process that asks for n-grams."""
    whole, path, rng, refused = FILES[name], tmp_path / "a.bin", random.Random(3), 0
    for _ in range(300):
        data = bytearray(whole)
        data[rng.randrange(136, whole.index(BINARY_UNK))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            check_tables(path)
        except ModelError:
            refused += 1
            continue
        for _ in range(3):
            code = load_in_a_fork(path, "\0".join(rng.choices(WORDS.split(), k=40)))
            assert code is not None and code >= 0
    assert 30 < refused < 270


def test_words_are_where_the_tables_end(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(kenlm_files.TRIE.replace(BINARY_UNK, b"\0" * 8 + BINARY_UNK))
    with pytest.raises(ModelError, match="its words are not where the tables end"):
        check_tables(path)
