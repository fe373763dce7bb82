"""Texts that do not suit an LM: refused at the LM's own functions, with the share of unknown words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm_zoo.errors import LMError, VocabError
from lm_zoo.inference.perplexity import score_text
from lm_zoo.text.coverage import ENOUGH, Coverage, check_case, said
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from tests.lm_zoo import zoo

OTHER = [("ONE", "TWO", "A")]


@pytest.fixture(params=["lstm", "bayesian-average", "interpolated", "ngram"])
def lm(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return zoo.make(request.param, tmp_path)


@pytest.mark.parametrize("how", ["score_words", "score_hypotheses"])
def test_unknown_text_is_refused_unless_told(lm: Any, how: str) -> None:
    score = getattr(lm, how)
    with pytest.raises(VocabError, match=r"2 of 3 words unknown \(66.7 %\).*'ONE', 'TWO'.*more than 50%"):
        score(OTHER)
    assert score(OTHER, max_unknown=0.7) == score(OTHER, max_unknown=None)
    with pytest.raises(VocabError, match="more than 20%"):
        score([("A", "B", "ZZZ")], max_unknown=0.2)
    assert score([]) == []


@pytest.mark.parametrize("how", ["score_words", "score_hypotheses"])
def test_another_case_is_refused(lm: Any, how: str) -> None:
    with pytest.raises(VocabError, match="found 'a', but the LM was trained on upper-case text"):
        getattr(lm, how)([("A", "a")])


@pytest.mark.parametrize("how", ["score_words", "score_hypotheses"])
def test_pieces_in_place_of_words_are_refused(lm: Any, how: str) -> None:
    with pytest.raises(VocabError, match=r"the text: found '▁A', a piece of sentencepiece.*convert SRC DST --pieces"):
        getattr(lm, how)([("\u2581A", "B")], max_unknown=1)


def test_an_lm_over_pieces_takes_them() -> None:
    """Known or not, as of an n-gram over the tokens of a recogniser; a mark alone is no piece."""

    class OverPieces:
        def knows(self, word: str) -> bool:
            return word in vocab.ids

        def vocabularies(self) -> list[WordVocabulary]:
            return [vocab]

        own_vocabularies = vocabularies

        def check_case(self, words: object) -> None:
            pass

    vocab = WordVocabulary([SOS_EOS, UNK, "\u2581A", "B"])
    Coverage(OverPieces(), "text").add({"\u2581A": 3, "\u2581C": 1, "B": 1}, "here")
    Coverage(zoo.neural("lstm"), "text").add({"A": 3, "\u2581": 1}, "here")


def test_sentences_of_an_ngram(tmp_path: Path) -> None:
    pytest.importorskip("kenlm", reason="n-gram LMs need kenlm")
    with pytest.raises(VocabError, match="2 of 3 words unknown"):
        zoo.make("ngram", tmp_path).score_sentences(OTHER)


@pytest.mark.parametrize("kind", ["ngram", "lstm"])
@pytest.mark.parametrize("how", ["score_words", "score_hypotheses", "score_sentences"])
def test_iterators_which_are_read_but_once_are_refused(tmp_path: Path, kind: str, how: str) -> None:
    if kind == "ngram":
        pytest.importorskip("kenlm", reason="n-gram LMs need kenlm")
    score = getattr(zoo.make("ngram", tmp_path) if kind == "ngram" else zoo.neural("lstm"), how)
    with pytest.raises(VocabError, match="found the generator, expected a sequence of sentences"):
        score(words for words in [("A",), ("B",)])
    with pytest.raises(VocabError, match="found the tuple_iterator, expected a sequence of sentences"):
        score([iter(("A", "B"))])


def test_a_long_text_is_refused_on_the_way() -> None:
    coverage = Coverage(zoo.neural("lstm"), "text")
    coverage.add({"ONE": ENOUGH - 1}, "text")
    with pytest.raises(VocabError, match=f"{ENOUGH + 1} of {ENOUGH + 1} words unknown"):
        coverage.add({"ONE": 2}, "text")
    assert said(coverage) == f"{ENOUGH + 1} of {ENOUGH + 1} words unknown (100.0 %)"


def test_a_case_that_would_do_is_named() -> None:
    lm = zoo.neural("lstm")
    lm.vocab = WordVocabulary([SOS_EOS, UNK, "Mc", *"ABCDEFG"])
    assert lm.vocab.case == "mixed"
    with pytest.raises(VocabError, match=r"into the LM's form \(--case upper\)"):
        lm.score_words([("a", "b", "Mc")])


def test_perplexity_refuses_it_too() -> None:
    lm = zoo.neural("lstm")
    with pytest.raises(LMError, match=r"book: 2 of 3 words unknown"):
        score_text([lm], [list(words) for words in OTHER], "book")
    assert score_text([lm], [list(words) for words in OTHER], "book", 1.0).perplexity(0).unknown == 2


def test_scripts_without_cases_refuse_no_letters() -> None:
    vocab = WordVocabulary([SOS_EOS, UNK, "今天", "天气", "很", "好", "3"], "lower")
    check_case(vocab, ["今天", "KTV", "好"], "line 1")
    with pytest.raises(VocabError, match="found 'KTV', but the LM was trained on lower-case text"):
        check_case(WordVocabulary([SOS_EOS, UNK, "今天", "ktv"], "lower"), ["今天", "KTV"], "line 1")
    with pytest.raises(VocabError, match="found 'a', but the LM was trained on upper-case text"):
        check_case(WordVocabulary([SOS_EOS, UNK], "upper"), ["a"], "line 1")  # of no letter that is known
