"""Histories grown word by word get the scores of whole sentences, and each is evaluated once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lm_zoo.histories import ROOT, Histories
from tests.lm_zoo import zoo

WORDS = ["", "A", "B", "C", "ZZZ"]


@pytest.fixture(scope="module", params=zoo.ALL)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    for needed, name in (("ngram", "kenlm"), ("hf", "transformers")):
        if request.param == needed:
            pytest.importorskip(name, reason=f"{needed} LMs need {name}")
    return zoo.make(request.param, tmp_path_factory.mktemp("zoo"))


@pytest.mark.parametrize("keep", [False, True])
def test_words_one_by_one_get_the_scores_of_sentences(lm: Any, keep: bool) -> None:
    """Sentences of different lengths side by side, in small batches; states are given back in between if `keep`."""
    rng = np.random.default_rng(0)
    sentences = [rng.integers(1, len(WORDS), rng.integers(1, 6)) for _ in range(25)]
    histories = Histories(lm, WORDS, rows=3)
    nodes = np.full(len(sentences), ROOT)
    totals = np.zeros(len(sentences))
    for place in range(5):
        active = np.array([index for index, words in enumerate(sentences) if len(words) > place])
        words = np.array([sentences[index][place] for index in active])
        ends = np.array([len(sentences[index]) == place + 1 for index in active])
        scores, nodes[active] = histories.extend(nodes[active], words, ends)
        totals[active] += scores
        if keep:
            histories.keep(nodes[active])
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
