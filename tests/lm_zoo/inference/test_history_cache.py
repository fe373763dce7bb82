"""Histories grown word by word get the scores of whole sentences, and each is evaluated once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lm_zoo.base import LanguageModel
from lm_zoo.inference.history_cache import ROOT, Histories
from lm_zoo.inference.state import State
from tests.lm_zoo import zoo

WORDS = ["", "A", "B", "C", "ZZZ"]


@pytest.fixture(scope="module", params=zoo.ALL)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return zoo.make(request.param, tmp_path_factory.mktemp("zoo"))


@pytest.mark.parametrize("keep", [False, True])
def test_words_one_by_one_get_the_scores_of_sentences(lm: Any, keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of different lengths side by side, in small batches; states are given back in between if `keep`."""
    monkeypatch.setattr("lm_zoo.inference.history_cache.SLACK", 0)
    rng = np.random.default_rng(0)
    sentences = [rng.integers(1, len(WORDS), rng.integers(1, 6)) for _ in range(25)]
    histories = Histories(lm, WORDS, nodes=3)
    nodes = np.full(len(sentences), ROOT)
    totals = np.zeros(len(sentences))
    for place in range(5):
        active = np.array([index for index, words in enumerate(sentences) if len(words) > place])
        words = np.array([sentences[index][place] for index in active])
        ends = np.array([len(sentences[index]) == place + 1 for index in active])
        scores, nodes[active] = histories.extend(nodes[active], words, ends)
        totals[active] += scores
        if keep:
            histories.keep(nodes[active].tolist())
    expected = lm.score_words([[WORDS[word] for word in words] for words in sentences])
    assert totals == pytest.approx([sum(row) for row in expected], abs=1e-4)


def test_each_history_is_evaluated_once() -> None:
    lm = zoo.neural("transfornn")
    histories = Histories(lm, WORDS)
    nodes, ends = np.zeros(4, dtype=int), np.zeros(4, dtype=bool)
    _, first = histories.extend(nodes, np.array([1, 1, 2, 3]), ends)
    assert first[0] == first[1] and len(set(first.tolist())) == 3
    assert histories.evaluations == 1  # the begin of sentence; the three histories when something follows them
    histories.extend(first, np.array([2, 2, 2, 3]), ends)
    histories.extend(first, np.array([3, 2, 1, 1]), ends)
    assert histories.evaluations == 4


@torch.no_grad()
def test_all_tokens_after_histories(lm: Any) -> None:
    """`rows` against steps of the LM from the begin of sentence on."""
    histories = Histories(lm)
    tokens = [lm.vocab.encode_word(word)[0] for word in ("A", "B", "C")]
    node, expected = ROOT, []
    state, row = lm.step(lm.initial_state(), torch.tensor([0]), torch.tensor([lm.vocab.bos]))
    nodes = [ROOT]
    for token in tokens:
        expected.append(row)
        node = histories.child(node, token)
        nodes.append(node)
        state, row = lm.step(state, torch.tensor([0]), torch.tensor([token]))
    found = histories.rows(nodes[-2::-1])  # the longest first
    np.testing.assert_allclose(found[::-1], torch.cat(expected).float().numpy(), atol=1e-4)


@pytest.mark.parametrize("name", ["transfornn", "lookup", "ngram-embedding"])
def test_histories_that_were_given_back_are_run_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_zoo.inference.history_cache.SLACK", 0)
    lm = zoo.neural(name)
    rng = np.random.default_rng(3)
    histories, sentences = Histories(lm, WORDS), rng.integers(1, len(WORDS), (30, 6))
    nodes, totals = np.full(30, ROOT), np.zeros(30)
    for place in range(6):
        scores, nodes = histories.extend(nodes, sentences[:, place], np.full(30, place == 5))
        totals += scores
    before, held = histories.evaluations, histories.held
    histories.keep(nodes[:2].tolist())
    assert histories.held < held
    again, nodes = np.zeros(30), np.full(30, ROOT)
    for place in range(6):
        scores, nodes = histories.extend(nodes, sentences[:, place], np.full(30, place == 5))
        again += scores
    assert again == pytest.approx(totals, abs=1e-4)
    assert before < histories.evaluations < 2 * before  # what was kept is not run again


def test_words_of_no_token() -> None:
    histories = Histories(zoo.neural("lstm"))
    number = histories.number(())
    scores, longer = histories.extend(np.zeros(2, dtype=int), np.array([number, number]), np.zeros(2, dtype=bool))
    assert scores.tolist() == [0.0, 0.0] and longer.tolist() == [ROOT, ROOT]
    assert histories.evaluations == 0


class Other(LanguageModel):
    """An LSTM whose state has another form: of `form`, of one tensor a layer."""

    def __init__(self, form: Any) -> None:
        self.lm, self.form = zoo.neural("lstm"), form
        self.vocab = self.lm.vocab

    def initial_state(self) -> Any:
        return None

    def step(self, state: Any, parents: torch.Tensor, tokens: torch.Tensor) -> tuple[Any, torch.Tensor]:
        before = self.lm.initial_state() if state is None else State(1, tuple(getattr(state, "memory", state)))
        after, rows = self.lm.step(before, parents, tokens)
        return self.form(after.memory), rows


@pytest.mark.parametrize("form", [tuple, list, lambda memory: State(1, memory)])
@torch.no_grad()
def test_states_of_any_form(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_zoo.inference.history_cache.SLACK", 0)
    other, rng = Other(form), np.random.default_rng(2)
    histories, sentences = Histories(other, WORDS, nodes=3), rng.integers(1, len(WORDS), (20, 5))
    nodes, totals = np.full(20, ROOT), np.zeros(20)
    for place in range(5):
        scores, nodes = histories.extend(nodes, sentences[:, place], np.full(20, place == 4))
        totals += scores
        histories.keep(nodes.tolist())
    expected = other.lm.score_words([[WORDS[word] for word in words] for words in sentences.tolist()])
    assert totals == pytest.approx([sum(row) for row in expected], abs=1e-4)
