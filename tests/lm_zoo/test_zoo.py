"""What every LM of the zoo must do: score, step and trie scoring agree, and are probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lm_zoo import base
from lm_zoo.inference.trie import build_trie, score_by_steps, score_trie, sequence_scores
from lm_zoo.text.vocabulary import SOS_EOS
from tests.lm_zoo import zoo


@pytest.fixture(scope="module", params=zoo.ALL)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == "ngram":
        pytest.importorskip("kenlm", reason="n-gram LMs need kenlm")
    if request.param == "hf":
        pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    return zoo.make(request.param, tmp_path_factory.mktemp("zoo"))


def random_sequences(lm: Any, count: int = 40, longest: int = 8, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    choices = [token for token in range(len(lm.vocab)) if token != lm.vocab.eos][:4]
    return [list(map(int, rng.choice(choices, rng.integers(0, longest)))) for _ in range(count)] + [[]]


def padded(lm: Any, sequences: list[list[int]], extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.full((len(sequences), max(map(len, sequences)) + extra), lm.vocab.unk)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = torch.tensor(sequence, dtype=torch.long)
    return tokens, torch.tensor([len(sequence) for sequence in sequences])


@torch.no_grad()
def step_scores(lm: Any, sequence: list[int]) -> list[float]:
    """The slow, obvious way: one sequence, one step a token."""
    state, scores, read = lm.initial_state(), [], lm.vocab.bos
    for token in [*sequence, lm.vocab.eos]:
        state, rows = lm.step(state, torch.zeros(1, dtype=torch.long), torch.tensor([read]))
        scores.append(float(rows[0, token]))
        read = token
    return scores


@torch.no_grad()
def test_score_is_the_chain_of_steps(lm: Any) -> None:
    sequences = random_sequences(lm)
    scores = lm.score(*padded(lm, sequences))
    for row, sequence in enumerate(sequences):
        expected = step_scores(lm, sequence)
        assert scores[row, : len(expected)].tolist() == pytest.approx(expected, abs=1e-4)
        assert not scores[row, len(expected) :].any()


@torch.no_grad()
def test_trie_scoring_is_score(lm: Any) -> None:
    sequences = random_sequences(lm, count=100, seed=1)
    trie = build_trie(sequences)
    assert trie.num_nodes - 1 < sum(map(len, sequences))
    expected = lm.score(*padded(lm, sequences)).sum(dim=1).numpy()
    for rows in (3, 4096):
        got = sequence_scores(trie, *score_trie(lm, trie, rows=rows))
        np.testing.assert_allclose(got, expected, atol=1e-4)


@torch.no_grad()
def test_rows_are_distributions(lm: Any) -> None:
    state, rows = lm.step(lm.initial_state(), torch.zeros(2, dtype=torch.long), torch.tensor([lm.vocab.bos] * 2))
    state, rows = lm.step(state, torch.tensor([0, 1, 0]), torch.tensor([2, 3, 4]))
    assert rows.shape == (3, len(lm.vocab))
    assert torch.isfinite(rows).all()
    if not hasattr(lm, "order"):  # the n-gram of the test is made up and not normalised
        np.testing.assert_allclose(rows.exp().sum(dim=1).numpy(), 1.0, atol=1e-5)


@torch.no_grad()
def test_padding_and_company_do_not_matter(lm: Any) -> None:
    """No state goes from one hypothesis into the next, nor through padding."""
    sequences = random_sequences(lm, seed=2)
    together = lm.score(*padded(lm, sequences, extra=5))
    for row in (0, 7, 40):
        alone = lm.score(*padded(lm, [sequences[row]]))[0]
        assert together[row, : len(alone)].tolist() == pytest.approx(alone.tolist(), abs=1e-4)


@torch.no_grad()
def test_step_leaves_its_state_as_it_was(lm: Any) -> None:
    first, _ = lm.step(lm.initial_state(), torch.tensor([0]), torch.tensor([lm.vocab.bos]))
    _, before = lm.step(first, torch.tensor([0]), torch.tensor([2]))
    lm.step(first, torch.tensor([0]), torch.tensor([3]))
    _, after = lm.step(first, torch.tensor([0]), torch.tensor([2]))
    assert torch.equal(before, after)


def test_word_scores_agree(lm: Any) -> None:
    """Running text, N-best lists and the padded reference give the same words the same scores."""
    rng = np.random.default_rng(5)
    sentences = [tuple(rng.choice(["A", "B", "C", "ZZZ"], rng.integers(0, 6))) for _ in range(30)]
    expected = base.score_in_batches(lm, sentences)
    ways = [lm.score_words(sentences), score_by_steps(lm, sentences)]
    if hasattr(lm, "score_hypotheses"):
        ways.append(lm.score_hypotheses(sentences))
    for way in ways:
        for words, got, wanted in zip(sentences, way, expected, strict=True):
            assert len(got) == len(words) + 1
            assert got == pytest.approx(wanted, abs=1e-4)


def test_knows(lm: Any) -> None:
    if hasattr(lm, "knows"):
        assert lm.knows("A")
        assert not lm.knows("ZZZ")


@pytest.mark.parametrize("mark", ["<s>", "</s>", SOS_EOS])
def test_marks_of_the_sentence_are_no_words(lm: Any, mark: str) -> None:
    if hasattr(lm, "knows"):
        assert not lm.knows(mark)
    tokens = lm.vocab.encode_word(mark)
    assert lm.vocab.unk in tokens and lm.vocab.eos not in tokens
    marked, unknown = lm.score_words([("A", mark, "B"), ("A", "ZZZ", "B")])
    assert marked[1] < -0.1
    if len(tokens) == 1:
        assert marked == pytest.approx(unknown, abs=1e-5)
