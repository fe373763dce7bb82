"""Scoring of whole tries at once against single steps, for every neural LM, and in other number formats."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.base import DTYPES
from lm_zoo.errors import LMError, ModelError
from lm_zoo.inference import memory as budget
from lm_zoo.inference import scoring, softmax, spans, tree
from lm_zoo.inference.interpolation import InterpolatedLM
from lm_zoo.inference.precision import ready
from lm_zoo.inference.products import make_product
from lm_zoo.inference.trie import build_trie, score_trie
from tests.lm_zoo import zoo

SEQUENCES = st.lists(st.lists(st.integers(2, 5), max_size=9), min_size=1, max_size=30)


@pytest.fixture(scope="module", params=zoo.NEURAL)
def lm(request: pytest.FixtureRequest) -> Any:
    return zoo.neural(request.param)


def random_trie(count: int = 60, longest: int = 12, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return build_trie([list(map(int, rng.integers(2, 6, rng.integers(0, longest)))) for _ in range(count)])


@pytest.mark.parametrize("seed", range(3))
def test_the_tree_is_the_chain_of_steps(lm: Any, seed: int) -> None:
    trie = random_trie(seed=seed)
    for got, expected in zip(scoring.score(lm, trie), score_trie(lm, trie), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(SEQUENCES, st.sampled_from([1, 2, 3, spans.QUERIES]))
def test_every_node_is_in_one_span_behind_its_ancestors(sequences: list[list[int]], most: int) -> None:
    trie = build_trie(sequences)
    with patch.object(spans, "QUERIES", most):
        made = tree.Tree.of(trie, bos=1)
    seen: list[int] = []
    for span in made.spans:
        size = span.queries.shape[1]
        assert torch.equal(span.queries, span.keys[:, span.keys.shape[1] - size :])
        assert torch.equal(span.queries.flatten()[span.own], span.nodes)
        allowed = span.allowed.flatten(0, 1)
        for place, node in zip(span.own.tolist(), span.nodes.tolist(), strict=True):
            keys = span.keys[place // size][allowed[place]].tolist()
            ancestors = [node]
            while ancestors[-1]:
                ancestors.append(int(trie.parents[ancestors[-1]]))
            assert keys == ancestors[::-1]
            seen.append(node)
    assert sorted(seen) == list(range(trie.num_nodes))


@settings(max_examples=40, deadline=None)
@given(SEQUENCES, st.integers(1, 4))
def test_history(sequences: list[list[int]], order: int) -> None:
    trie = build_trie(sequences)
    history = tree.Tree.of(trie, bos=1).history(order)
    for node in range(trie.num_nodes):
        expected, at = [], node
        while at >= 0 and len(expected) < order:
            expected.append(int(trie.tokens[at]) if at else 1)
            at = int(trie.parents[at])
        assert history[node].tolist() == [0] * (order - len(expected)) + expected[::-1]


def test_logits_out_of_range_of_exp() -> None:
    output = zoo.neural("lstm").output
    with torch.no_grad():
        output.bias[3] = 200.0
        hidden = torch.randn(5, output.weight.shape[1])
        hidden[2] *= 1000
        expected = (hidden @ output.weight.t() + output.bias).double().logsumexp(dim=1)
        np.testing.assert_allclose(
            softmax.log_normalisers(output, hidden).double().numpy(), expected.numpy(), rtol=1e-5
        )


@pytest.mark.parametrize("shift", [-200.0, -110.0, -103.0, -100.0, -90.0, -60.0, 80.0, 95.0])
def test_logits_that_all_lie_low_or_high(shift: float) -> None:
    output = zoo.neural("lstm").output
    with torch.no_grad():
        output.bias.add_(shift)
        hidden = torch.randn(5, output.weight.shape[1], generator=torch.Generator().manual_seed(1))
        expected = (hidden @ output.weight.t() + output.bias).double().logsumexp(dim=1)
        np.testing.assert_allclose(
            softmax.log_normalisers(output, hidden).double().numpy(), expected.numpy(), atol=1e-4
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shift", [-90.0, -17.0, -15.0, 0.0, 9.0, 80.0])
def test_normalisers_of_weights_in_half_precision(dtype: torch.dtype, shift: float) -> None:
    """Neither logits nor their exponentials are rounded to the weights' format."""
    output = zoo.neural("lstm").output
    with torch.no_grad():
        output.bias.add_(shift)
        output.to(dtype)
        hidden = torch.randn(5, output.weight.shape[1], generator=torch.Generator().manual_seed(1)).to(dtype)
        expected = (hidden.double() @ output.weight.double().t() + output.bias.double()).logsumexp(dim=1)
        found = softmax.log_normalisers(output, hidden)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.double().numpy(), expected.numpy(), atol=1e-4)


def test_normalisers_under_another_default_dtype() -> None:
    output = zoo.neural("lstm").output
    hidden = torch.randn(5, output.weight.shape[1])
    with torch.no_grad():
        expected = softmax.log_normalisers(output, hidden)
        torch.set_default_dtype(torch.float64)
        try:
            found = softmax.log_normalisers(output, hidden)
        finally:
            torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected)


def test_an_lm_that_was_made_in_inference_mode() -> None:
    sentences = [("A", "B"), ("A", "C", "D")]
    expected = zoo.neural("lstm").score_hypotheses(sentences)
    with torch.inference_mode():
        made = zoo.neural("lstm")
        assert made.score_hypotheses(sentences) == expected
        assert ready(made, "bfloat16").score_hypotheses(sentences)
    assert made.score_hypotheses(sentences) == expected


@pytest.mark.parametrize("bias", [True, False])
def test_int8_rounds_every_row_by_itself(bias: bool) -> None:
    torch.manual_seed(1)
    x = torch.randn(40, 24) * torch.logspace(-3, 3, 40)[:, None]
    x[7] = 0.0
    made = make_product(torch.randn(50, 24), torch.randn(50) if bias else None, "int8")
    alone = torch.cat([made(row[None]) for row in x])
    assert torch.equal(made(x), alone)
    assert torch.equal(made(x.view(5, 8, 24)).view(40, 50), alone)
    assert made(x[:0]).shape == (0, 50)


def test_int8_scores_are_the_same_for_every_batch(lm: Any) -> None:
    """But for a number between two steps, which float32 sums of another order may round the other way."""
    made: Any = lm.cast("int8")
    rng = np.random.default_rng(3)
    sentences = [tuple(rng.choice(["A", "B", "C", "D"], rng.integers(0, 9))) for _ in range(40)]
    together = [sum(row) for row in made.score_hypotheses(sentences)]
    alone = [sum(made.score_hypotheses([words])[0]) for words in sentences]
    apart = np.abs(np.subtract(together, alone))
    assert apart.max() < 0.1
    assert (apart < 1e-3).mean() >= 0.9


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_products(dtype: str, bias: bool) -> None:
    torch.manual_seed(1)
    weight, x = torch.randn(70, 40), torch.randn(9, 40)
    added = torch.randn(70) if bias else None
    expected = torch.nn.functional.linear(x, weight, added)
    error = (make_product(weight, added, dtype)(x) - expected).abs().max() / expected.abs().max()
    assert error < {"float32": 1e-5, "bfloat16": 0.01, "int8": 0.05}[dtype]
    if dtype != "float32":
        assert error > 1e-5  # it is rounded


@pytest.mark.parametrize("dtype", DTYPES)
def test_prepared_lms_score_alike(lm: Any, dtype: str) -> None:
    trie = random_trie()
    made: Any = lm.cast(dtype)
    expected = score_trie(lm, trie)
    tolerance = {"float32": 1e-5, "bfloat16": 0.05, "int8": 0.2}[dtype]  # the weights of these LMs are large
    for got, wanted in zip(scoring.score(made, trie), expected, strict=True):
        assert np.abs(got - wanted).mean() < tolerance
    again = score_trie(lm, trie)
    np.testing.assert_array_equal(again[0], expected[0])  # the LM itself is as it was


def test_unknown_dtype() -> None:
    with pytest.raises(ValueError, match="dtype is 'float8', expected one of float32, bfloat16, int8"):
        make_product(torch.zeros(2, 2), None, "float8")


@torch.no_grad()
def test_prepared_lms_step_and_score_as_before(lm: Any) -> None:
    trie, made = random_trie(seed=4), ready(lm)
    for got, wanted in zip(score_trie(made, trie), score_trie(lm, trie), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-4)
    tokens, lengths = torch.randint(2, 6, (7, 5)), torch.tensor([5, 0, 3, 1, 5, 2, 4])
    torch.testing.assert_close(made.score(tokens, lengths), lm.score(tokens, lengths), atol=1e-4, rtol=0)


def test_small_passes_and_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = zoo.neural("transfornn")
    rng = np.random.default_rng(7)
    sentences = [tuple(rng.choice(["A", "B", "C"], rng.integers(0, 7))) for _ in range(50)]
    expected = scoring.score_by_tree(lm, sentences)
    for got, wanted in zip(scoring.score_by_tree(lm, sentences, nodes=5), expected, strict=True):
        assert got == pytest.approx(wanted, abs=1e-5)
    sizes: list[int] = []
    score = scoring.score

    def little_memory(lm: Any, trie: Any) -> Any:
        sizes.append(trie.num_nodes)
        if trie.num_nodes > 30:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
        return score(lm, trie)

    monkeypatch.setattr(scoring, "score", little_memory)
    for got, wanted in zip(scoring.score_by_tree(lm, sentences), expected, strict=True):
        assert got == pytest.approx(wanted, abs=1e-5)
    assert max(sizes) > 30 and sum(size <= 30 for size in sizes) > 1
    monkeypatch.setattr(scoring, "score", lambda lm, trie: (_ for _ in ()).throw(RuntimeError("another trouble")))
    with pytest.raises(RuntimeError, match="another trouble"):
        scoring.score_by_tree(lm, sentences)


def test_mixtures_are_made_ready() -> None:
    parts = [zoo.neural("transformer"), zoo.neural("lstm")]
    mixed = InterpolatedLM(parts, [0.5, 0.5])
    sentences = [("A", "B"), ("C",)]
    for dtype, tolerance in (("float32", 1e-4), ("bfloat16", 0.3)):
        got = ready(mixed, dtype).score_hypotheses(sentences)
        for row, wanted in zip(got, mixed.score_hypotheses(sentences), strict=True):
            assert row == pytest.approx(wanted, abs=tolerance)


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("second", DTYPES)
def test_a_copy_in_another_dtype_is_one_of_the_lm_itself(lm: Any, first: str, second: str) -> None:
    sentences = [("A", "B", "C"), ("A", "D")]
    once, again = ready(lm, second), ready(ready(lm, first), second)
    for row, wanted in zip(again.score_hypotheses(sentences), once.score_hypotheses(sentences), strict=True):
        assert row == pytest.approx(wanted, abs=1e-6)
    assert set(again.state_dict()) == set(once.state_dict())  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_copy_in_a_dtype_is_made_once(lm: Any, dtype: str) -> None:
    once = ready(lm, dtype)
    assert once is not lm and once.products == dtype
    assert ready(once, dtype) is once and ready(once, None) is once
    mixed = ready(InterpolatedLM([once, lm], [0.5, 0.5]), dtype)
    assert mixed.lms[0] is once and ready(mixed, None).lms == mixed.lms  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("again", [copy.deepcopy, lambda lm: pickle.loads(pickle.dumps(lm))])
def test_copies_in_a_dtype_can_be_pickled(lm: Any, dtype: str, again: Callable[[Any], Any]) -> None:
    made, sentences = ready(lm, dtype), [("A", "B", "C"), ("A", "D")]
    other = again(made)
    assert ready(other, None) is other
    assert other.score_hypotheses(sentences) == made.score_hypotheses(sentences)


def test_unknown_dtype_of_an_lm() -> None:
    with pytest.raises(ModelError, match="dtype 'float8'; expected one of"):
        ready(zoo.neural("lstm"), "float8")


@pytest.mark.parametrize("kind", ["transformer", "icefall-transformer", "lookup", "lstm", "speechbrain-rnn"])
def test_very_long_paths_are_taken_in_blocks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there at once grows with the length of a sentence, not with its square."""
    lm = zoo.neural(kind)
    rng = np.random.default_rng(2)
    long = rng.integers(2, 6, 150).tolist()
    trie = build_trie([long, [*long[:70], 3, 3], long[:20], [2]])
    monkeypatch.setattr(spans, "QUERIES", 16)
    made = tree.Tree.of(trie, lm.vocab.bos)
    assert max(span.queries.numel() * span.keys.shape[1] for span in made.spans) <= 16 * max(151, softmax.KEYS)
    assert all(span.queries.shape[1] <= 16 for span in made.spans)
    for got, expected in zip(scoring.score(lm, trie), score_trie(lm, trie), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-4)


def test_a_sentence_beyond_any_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "LONGEST", 8)
    lm = zoo.neural("lstm")
    assert len(lm.score_hypotheses([["A"] * 8])[0]) == 9
    with pytest.raises(LMError, match=r"the sentence 'B A A A A ...' has 9 tokens, more than the 8 that"):
        lm.score_hypotheses([["A"], ["B", *"AAAAAAAA"]])
