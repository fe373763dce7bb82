"""Kaldi's G.fst: the same scores as KenLM's of the ARPA that it was made of."""

from __future__ import annotations

import itertools
import math
import struct
from pathlib import Path

import pytest

from lm_zoo.errors import ModelError
from lm_zoo.ngram.grammar_fst import GrammarLM
from lm_zoo.ngram.kenlm_lm import NgramLM
from lm_zoo.registry import load, load_ngram
from tests.lm_zoo.grammar_fst import write_fst, write_lang
from tests.lm_zoo.zoo import ARPA

SENTENCES = [words for length in range(4) for words in itertools.product("ABCD", repeat=length)]


@pytest.fixture
def grammar(tmp_path: Path) -> Path:
    return write_lang(tmp_path / "lang", ARPA, ("!SIL",))


def test_with_phi_it_scores_as_the_arpa(grammar: Path, tmp_path: Path) -> None:
    (tmp_path / "lm.arpa").write_text(ARPA)
    lm, reference = GrammarLM(grammar, phi=True), NgramLM(tmp_path / "lm.arpa")
    for mine, theirs in zip(lm.score_words(SENTENCES), reference.score_words(SENTENCES), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)


def test_without_phi_the_cheapest_way_counts(tmp_path: Path) -> None:
    """After A, B costs 3 by its own arc and 0.5 + 1 by backing off; ends cost 4, or 0.5 + 1.5 by backing off."""
    (tmp_path / "words.txt").write_text("<eps> 0\nA 1\nB 2\n#0 3\n")
    unigrams = [(1, 1, 2.0, 0), (2, 2, 1.0, 1)]
    write_fst(tmp_path / "G.fst", [(4.0, [(2, 2, 3.0, 0), (3, 0, 0.5, 1)]), (1.5, unigrams)], start=1)
    lm = GrammarLM(tmp_path / "G.fst")
    assert lm.score_words([("A", "B"), ("A",)]) == [[-2.0, -1.5, -1.5], [-2.0, -2.0]]
    assert lm.score_words([("A", "B", "A")])[0] == [-2.0, -1.5, -2.0, -2.0]
    phi = GrammarLM(tmp_path / "G.fst", phi=True)
    assert phi.score_words([("A", "B"), ("A",)]) == [[-2.0, -3.0, -4.0], [-2.0, -4.0]]


def brute_force(states: list, words: tuple[int, ...], start: int) -> float:
    """Cost of the cheapest path of the words, by going through all of them."""
    best = math.inf

    def walk(state: int, place: int, cost: float) -> None:
        nonlocal best
        if place == len(words):
            best = min(best, cost + states[state][0])
        for _, word, weight, onto in states[state][1]:
            if word == 0:
                walk(onto, place, cost + weight)
            elif place < len(words) and word == words[place]:
                walk(onto, place + 1, cost + weight)

    walk(start, 0, 0.0)
    return best


def test_without_phi_against_all_paths(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<eps> 0\nA 1\nB 2\n")
    states = [
        (2.0, [(1, 1, 0.5, 1), (2, 2, 3.0, 2), (0, 0, 0.25, 3)]),
        (math.inf, [(1, 1, 2.0, 2), (0, 0, 0.5, 3)]),
        (0.5, [(2, 2, 0.125, 2), (0, 0, 1.0, 3)]),
        (1.0, [(1, 1, 1.0, 1), (2, 2, 0.5, 2)]),
    ]
    write_fst(tmp_path / "G.fst", states)
    lm = GrammarLM(tmp_path / "G.fst")
    for length in range(5):
        for words in itertools.product("AB", repeat=length):
            expected = brute_force(states, tuple("_AB".index(word) for word in words), 0)
            assert -sum(lm.score_words([words])[0]) == pytest.approx(expected)


def test_its_words_are_listed_once_and_none_has_tokens(grammar: Path) -> None:
    lm = GrammarLM(grammar)
    assert lm.token_count("A") == 1 and not lm.has_tokens() and "vocab" not in vars(lm)
    assert lm.vocab is lm.vocab


def test_words_that_it_does_not_have(grammar: Path) -> None:
    lm = load_ngram(str(grammar))
    assert isinstance(lm, GrammarLM) and type(load(str(grammar))) is GrammarLM
    assert [lm.knows(word) for word in ("A", "!SIL", "X")] == [True, False, False]
    score, state, found = lm.extend(lm.start(), "!SIL")
    assert score == -math.inf and not found
    assert lm.extend(state, "A")[0] == pytest.approx(-0.7 * math.log(10))
    assert lm.vocab.case == "upper"


def test_files_that_are_no_grammars(grammar: Path, tmp_path: Path) -> None:
    whole = grammar.read_bytes()
    grammar.write_bytes(whole[:-5])
    with pytest.raises(ModelError, match=r"G.fst: damaged or truncated"):
        GrammarLM(grammar)
    grammar.write_bytes(b"some text")
    with pytest.raises(ModelError, match=r"not a binary OpenFst file"):
        GrammarLM(grammar)
    write_fst(grammar, [(0.0, [])], fst_type=b"const")
    with pytest.raises(ModelError, match=r"FST type 'const', .*fstconvert"):
        GrammarLM(grammar)
    (grammar.parent / "words.txt").write_text("<eps> 0\nA\n")
    with pytest.raises(ModelError, match=r"words.txt:2: found 'A', expected 'WORD ID'"):
        GrammarLM(grammar)
    (grammar.parent / "words.txt").unlink()
    with pytest.raises(ModelError, match=r"words.txt: no such file"):
        GrammarLM(grammar)
    with pytest.raises(ModelError, match=r"no LM is called"):
        load(str(tmp_path / "none.fst"))


HEAD = struct.pack("<i", 2125659606) + b"".join(
    struct.pack("<i", len(name)) + name for name in (b"vector", b"standard")
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (struct.pack("<iiQqqq", 2, 0, 3, 0, 1 << 40, 0) + bytes(12), "1099511627776 states in"),
        (struct.pack("<iiQqqq", 2, 0, 3, 0, -1, 0) + bytes(12), "-1 states in"),
        (struct.pack("<iiQqqq", 2, 0, 3, 0, 1, 0) + struct.pack("<fq", 0, -1) + bytes(16), "state 0 has -1 arcs"),
        (struct.pack("<iiQqqq", 2, 0, 3, 0, 1, 0) + struct.pack("<fq", 0, 1 << 60), "state 0 has .* arcs"),
        (struct.pack("<iiQqqq", 2, 0, 3, 0, 1, 0) + bytes(12) + b"rest", "4 bytes behind the last state"),
        (struct.pack("<iiQqqq", 2, 0, 3, 5, 1, 0) + bytes(12), "the start or an arc's end is none of the 1 states"),
    ],
)
def test_sizes_in_a_grammar_are_not_trusted(grammar: Path, data: bytes, message: str) -> None:
    grammar.write_bytes(HEAD + data)
    with pytest.raises(ModelError, match=f"G.fst: damaged or truncated .*{message}"):
        GrammarLM(grammar)


@pytest.mark.parametrize(
    ("arcs", "message"),
    [
        ([[(1, 1, 1.0, 7)]], "an arc's end is none of the 1 states"),
        ([[(1, 1, math.nan, 0)]], "NaN"),
        ([[(1, -5, 1.0, 0)]], "negative label"),
        ([[(3, 0, 1.0, 0)]], "backing off from state 0 never ends"),
        ([[(1, 1, 1.0, 0)], [(3, 0, 1.0, 2)], [(3, 0, 2.0, 0), (3, 0, 1.0, 1)]], "backing off from state 1 never ends"),
    ],
)
def test_grammars_that_make_no_sense(grammar: Path, arcs: list, message: str) -> None:
    """A circle of back-offs was a search without end."""
    write_fst(grammar, [(0.0, state) for state in arcs])
    with pytest.raises(ModelError, match=f"G.fst: damaged or truncated .*{message}"):
        GrammarLM(grammar)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"<eps> 0\nA \xc2\xb2\n", "words.txt:2: found"),
        (b"<eps> 0\nA " + b"9" * 5000 + b"\n", "words.txt:2: found"),
        (b"<eps> 0\nA 1\nA 2\n", "words.txt:3: word 'A' occurs a second time"),
        (b"<eps> 0\n\xff 1\n", "words.txt: cannot be read"),
    ],
)
def test_words_of_a_grammar(grammar: Path, text: bytes, message: str) -> None:
    grammar.with_name("words.txt").write_bytes(text)
    with pytest.raises(ModelError, match=message):
        GrammarLM(grammar)


def test_openfst_reads_the_file_of_these_tests(grammar: Path) -> None:
    kaldifst = pytest.importorskip("kaldifst")
    fst = kaldifst.StdVectorFst.read(str(grammar))
    assert fst.num_states == 7 and fst.start == 0
