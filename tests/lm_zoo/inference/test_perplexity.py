"""Perplexity against sums by hand, and "final position" evaluation against one window a token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lm_zoo.errors import LMError, VocabError
from lm_zoo.inference.perplexity import WordScores, score_text
from lm_zoo.inference.windows import window_perplexity
from lm_zoo.text.batches import running_text, tokenize
from tests.lm_zoo.zoo import neural

SENTENCES = [list("ABC"), ["D", "ZZZ", "A"], [], list("HGFEDCBA")]


def test_with_and_without_unknown_words() -> None:
    lm = neural("transfornn")
    result = score_text([lm], SENTENCES, "text").perplexity(0)
    scores = lm.score_words(SENTENCES)
    total = sum(map(sum, scores))
    assert (result.sentences, result.words, result.unknown, result.tokens) == (4, 14, 1, 18)
    assert result.per_word == pytest.approx(math.exp(-total / 18))
    assert result.per_known_word == pytest.approx(math.exp(-(total - scores[1][1]) / 17))
    assert result.per_token == pytest.approx(result.per_word)


def test_without_unknown_words_that_are_impossible() -> None:
    """As in a G.fst without `<unk>`; a known word that is impossible makes both infinite."""
    probs, known = np.array([[0.1, 0.2, 0.0, 0.5]]), np.array([[True, True, False, True]])
    with np.errstate(divide="ignore"):
        scores = WordScores(np.log(probs), known, np.array([4]), 1)
    for result in (scores.perplexity(0), scores.mixed_perplexity([1.0])):
        assert result.per_word == math.inf
        assert result.per_known_word == pytest.approx((0.1 * 0.2 * 0.5) ** (-1 / 3))
    worse = WordScores(scores.log_probs, ~known, np.array([4]), 1).perplexity(0)
    assert worse.per_word == worse.per_known_word == math.inf


def test_interpolation_of_one_with_itself_is_itself() -> None:
    lm = neural("lstm")
    scores = score_text([lm, lm], SENTENCES, "text")
    assert scores.mixed_perplexity([0.3, 0.7]).per_word == pytest.approx(scores.perplexity(0).per_word)


def test_wrong_case_and_no_text() -> None:
    with pytest.raises(VocabError, match=r"text, sentence 2: found 'b', but the LM was trained on upper-case"):
        score_text([neural("lstm")], [["A"], ["b"]], "text")
    with pytest.raises(LMError, match=r"text: no sentence"):
        score_text([neural("lstm")], [], "text")


def test_a_score_that_is_no_number_is_told_by_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_zoo.inference.perplexity.SENTENCES_AT_A_TIME", 2)
    lm = neural("lstm")
    with torch.no_grad():
        lm.input.embedding.weight[lm.vocab.encode_word("H")] = math.nan
    with pytest.raises(LMError, match=r"^text, sentence 1: an LM gave NaN"):  # tied: of every softmax
        score_text([lm], SENTENCES, "text")
    rows = [[-1.0] * (len(words) + 1) for words in SENTENCES]
    rows[3][2] = math.nan
    monkeypatch.setattr(lm, "score_words", lambda words, max_unknown: [rows[SENTENCES.index(each)] for each in words])
    with pytest.raises(LMError, match=r"^text, sentence 4: an LM gave NaN"):
        score_text([lm], SENTENCES, "text")
    with pytest.raises(LMError, match=r"^text, sentence 14: an LM gave NaN"):
        score_text([lm], SENTENCES, "text", before=10)


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer", "transfornn"])
@pytest.mark.parametrize("window", [1, 4, 17, 18, 50])  # of 18 tokens
def test_final_position(name: str, window: int) -> None:
    lm = neural(name)
    text = tokenize(lm.vocab, SENTENCES)
    stream = [lm.vocab.eos, *running_text(text, lm.vocab).tolist()]
    expected = 0.0
    for position in range(1, len(stream)):
        context = torch.tensor([stream[max(0, position - window) : position]])
        expected += float(lm.output(lm.hidden(context)[0, -1])[stream[position]])
    result = window_perplexity(lm, text, window, "final", batch=3)
    assert result.log_prob == pytest.approx(expected, abs=1e-3)
    if window >= len(stream):
        assert window_perplexity(lm, text, window, "all").log_prob == pytest.approx(expected, abs=1e-3)


def test_all_positions_of_windows_side_by_side() -> None:
    lm = neural("transformer")
    text = tokenize(lm.vocab, SENTENCES)
    stream = np.array([lm.vocab.eos, *running_text(text, lm.vocab)])
    with torch.no_grad():
        expected = sum(
            float(-lm(torch.from_numpy(stream[s : s + 5][None, :-1]), torch.from_numpy(stream[s : s + 5][None, 1:])))
            for s in range(0, len(stream) - 1, 4)
        )
    found = window_perplexity(lm, text, 4)
    assert found.log_prob == pytest.approx(expected, abs=1e-3)
    assert found.row()["ppl_word_known"] is None  # windows do not tell words apart
    with pytest.raises(LMError, match=r"there are: all, final"):
        window_perplexity(lm, text, 4, "last")
