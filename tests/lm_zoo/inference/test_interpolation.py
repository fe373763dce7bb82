"""Linear interpolation and its weights by EM."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.base import LanguageModel
from lm_zoo.errors import LMError, VocabError
from lm_zoo.inference.interpolation import InterpolatedLM, check_shares, em_weights, interpolate
from lm_zoo.inference.perplexity import score_text
from lm_zoo.text.vocabulary import SOS_EOS, UNK, Vocabulary, WordVocabulary
from tests.lm_zoo import zoo

INF = math.inf


def random_log_probs(lms: int, words: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.log(rng.beta(0.3, 3.0, size=(lms, words)) + 1e-12)


@given(st.integers(1, 4), st.integers(1, 30), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_interpolate_is_the_weighted_sum(lms: int, words: int, seed: int) -> None:
    log_probs = random_log_probs(lms, words, seed)
    weights = np.random.default_rng(seed).dirichlet(np.ones(lms))
    expected = [math.log(sum(w * math.exp(x) for w, x in zip(weights, column, strict=True))) for column in log_probs.T]
    np.testing.assert_allclose(interpolate(log_probs, weights), expected, rtol=1e-9)


def test_impossible_words() -> None:
    """An LM with weight 0 never counts; a word is impossible only if it is for all the others."""
    log_probs = np.array([[-INF, -1.0, -INF], [-2.0, -INF, -INF]])
    np.testing.assert_allclose(interpolate(log_probs, [0.5, 0.5]), [-2 - math.log(2), -1 - math.log(2), -INF])
    np.testing.assert_allclose(interpolate(log_probs, [1.0, 0.0]), [-INF, -1.0, -INF])
    np.testing.assert_allclose(em_weights(log_probs), [0.5, 0.5])


def test_tiny_probabilities_do_not_underflow() -> None:
    log_probs = np.array([[-1000.0, -900.0], [-1001.0, -902.0]])
    assert np.isfinite(interpolate(log_probs, [0.5, 0.5])).all()
    np.testing.assert_allclose(em_weights(log_probs), [1.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], [[0.5, 0.5]]])
def test_bad_weights(weights: list[float]) -> None:
    with pytest.raises(LMError, match="interpolation weights"):
        interpolate(np.zeros((2, 3)), weights)


@pytest.mark.parametrize("value", [math.nan, INF])
def test_bad_log_probs(value: float) -> None:
    with pytest.raises(LMError, match="NaN or plus infinity"):
        em_weights(np.array([[0.0, value], [0.0, 0.0]]))
    with pytest.raises(LMError, match="at least one word"):
        em_weights(np.full((2, 3), -INF))


@pytest.mark.parametrize("seed", range(5))
def test_em_finds_the_best_of_a_grid(seed: int) -> None:
    log_probs = random_log_probs(2, 400, seed)
    grid = np.linspace(0, 1, 1001)
    likelihoods = [interpolate(log_probs, [x, 1 - x]).sum() for x in grid]
    weights = em_weights(log_probs)
    assert weights[0] == pytest.approx(grid[int(np.argmax(likelihoods))], abs=2e-3)
    assert interpolate(log_probs, weights).sum() >= max(likelihoods) - 1e-6
    assert weights.sum() == pytest.approx(1.0)


@given(st.integers(2, 5), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_em_likelihood_never_falls(lms: int, seed: int) -> None:
    log_probs = random_log_probs(lms, 50, seed)
    likelihoods = [
        interpolate(log_probs, em_weights(log_probs, max_iterations=count)).sum() for count in (0, 1, 2, 3, 10, 100)
    ]
    assert (np.diff(likelihoods) >= -1e-9).all()


class Words(LanguageModel):
    """An LM over words alone: a fixed probability a word."""

    def __init__(self, probs: dict[str, float]) -> None:
        self.probs = probs

    def score_words(
        self, sentences: list[list[str]], max_unknown: float | None = 0.5, contexts: object = None
    ) -> list[list[float]]:
        return [[math.log(self.probs.get(word, 0.01)) for word in (*words, "</s>")] for words in sentences]

    score_hypotheses = score_words

    def knows(self, word: str) -> bool:
        return word in self.probs

    def vocabularies(self) -> list[Vocabulary]:
        return []


def test_words_of_different_kinds_of_lms() -> None:
    neural = zoo.neural("lstm")
    words = Words({"A": 0.5, "X": 0.3, "</s>": 0.2})
    lm = InterpolatedLM([neural, words], [0.25, 0.75])
    sentences = [["A", "X"], [], ["NEVER"]]
    own = neural.score_words(sentences, max_unknown=1)
    for scores in (lm.score_words(sentences), lm.score_hypotheses(sentences)):
        assert [len(row) for row in scores] == [3, 1, 2]
        expected = math.log(0.25 * math.exp(own[0][1]) + 0.75 * 0.3)
        assert scores[0][1] == pytest.approx(expected, abs=1e-5)
    assert [lm.knows(word) for word in ("A", "X", "B", "NEVER")] == [True, True, True, False]
    assert lm.score_words([]) == []


class Strict(Words):
    """Takes sentences of two words at most, and none in capitals; says how many it has scored."""

    positions = 4
    pseudo_likelihood = True
    scored = 0

    def check_case(self, words: Iterable[str]) -> None:
        if all(word.isupper() for word in words):
            raise VocabError("in capitals")

    def check_words(self, words: Sequence[str], what: str) -> None:
        if len(words) > 2:
            raise LMError(f"{what} is too long")

    def said(self) -> str:
        return "strict" if self.scored else ""

    def score_words(self, *arguments: Any) -> list[list[float]]:
        self.scored += 1
        return super().score_words(*arguments)


def test_what_an_lm_asks_of_text_is_asked_by_the_mixture() -> None:
    lm = InterpolatedLM([Words({"a": 0.5}), Strict({"a": 0.5}), Strict({"a": 0.5})], [0.5, 0.25, 0.25])
    assert (lm.positions, lm.pseudo_likelihood, lm.said()) == (4, True, "")
    with pytest.raises(VocabError, match="in capitals"):
        lm.score_words([["A", "B"]], 1.0)
    with pytest.raises(LMError, match="hypothesis 3 is too long"):
        lm.check_words(["a", "b", "c"], "hypothesis 3")
    lm.score_words([["a"]])
    assert lm.said() == "strict; strict"
    mixed = InterpolatedLM([Words({}), Words({})], [0.5, 0.5])
    assert (mixed.positions, mixed.pseudo_likelihood, mixed.said()) == (None, False, "")


def test_an_lm_of_weight_0_takes_no_part() -> None:
    class Broken(Words):
        def score_words(self, *arguments: Any) -> list[list[float]]:
            return [[math.nan] * (len(words) + 1) for words in arguments[0]]

        score_hypotheses = score_words

    lm = InterpolatedLM([Words({"a": 0.5, "</s>": 0.25}), Broken({"b": 1.0}), Strict({})], [1.0, 0.0, 0.0])
    assert lm.score_words([["a"]]) == lm.score_hypotheses([["a"]]) == [pytest.approx([math.log(0.5), math.log(0.25)])]
    assert (lm.knows("b"), lm.positions, lm.pseudo_likelihood) == (False, None, False)


def test_perplexity_of_lms_with_different_vocabularies() -> None:
    """They meet at words, each of which is a token; those of a vocabulary that is shared are its tokens."""
    other = zoo.neural("transformer")
    other.vocab = WordVocabulary([SOS_EOS, UNK, *reversed("ABCDEFGH")], "upper")
    lm = zoo.neural("lstm")
    text = [["A", "B", "C"], ["D"]]
    for second in (other, Words({"A": 0.1})):
        scores = score_text([InterpolatedLM([lm, second], [0.5, 0.5])], text, "text")
        assert scores.perplexity(0).tokens == 6
    spelled = zoo.neural("lstm")
    spelled.vocab.encode_word = lambda word: (2, 3, 4)
    assert InterpolatedLM([spelled, spelled], [0.5, 0.5]).token_count("A") == 3


def test_weights_that_are_rounded_sum_to_one() -> None:
    assert check_shares([0.33333] * 3, 3).sum() == pytest.approx(1.0, abs=1e-15)


def test_tokens_need_one_vocabulary() -> None:
    other = zoo.neural("transformer")
    other.vocab = WordVocabulary([SOS_EOS, UNK, *reversed("ABCDEFGH")], "upper")
    lm = InterpolatedLM([zoo.neural("lstm"), other], [0.5, 0.5])
    with pytest.raises(VocabError, match="different vocabularies"):
        lm.score(torch.zeros(1, 1, dtype=torch.long), torch.tensor([1]))
    with pytest.raises(VocabError, match="different vocabularies"):
        lm.initial_state()
    assert not lm.has_tokens() and InterpolatedLM([other, other], [0.5, 0.5]).has_tokens()
