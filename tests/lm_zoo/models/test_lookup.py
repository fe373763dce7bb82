"""The lookup dictionary: hashing, selection, update against the slow way, one update a rank or in all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.errors import ModelError
from lm_zoo.layers.ngram_hash import slot_of, with_history
from lm_zoo.models.lookup import Lookup
from lm_zoo.registry import build, load
from lm_zoo.text.batches import tokenize
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from lm_zoo.training.train import train
from lm_zoo.training.transfer import convert_lm
from tests.lm_zoo import zoo
from tests.lm_zoo.models.test_bayesian import plain_folder
from tests.lm_zoo.training.test_train import config, text

VOCAB = WordVocabulary([SOS_EOS, UNK, *"ABCDEFGH"], "upper")
SMALL = {**zoo.SMALL, "dropout": 0.0, "slots": 5, "entries": 3}


def lookup(**changes: Any) -> Lookup:
    torch.manual_seed(0)
    return build("lookup", VOCAB, {**SMALL, **changes})


def test_eq_2_sums_the_ids_of_the_last_n_tokens() -> None:
    inputs = torch.tensor([[3, 4, 9, 1]])
    assert slot_of(with_history(inputs, 1), 5, "sum").tolist() == [[3, 4, 4, 1]]
    assert slot_of(with_history(inputs, 2), 5, "sum").tolist() == [[3, 2, 3, 0]]
    assert slot_of(with_history(inputs, 3), 5, "sum").tolist() == [[3, 2, 1, 4]]


def test_the_positional_hash_tells_orders_apart() -> None:
    pair = torch.tensor([[3, 4], [4, 3]])
    assert len(set(slot_of(pair, 1000, "sum").tolist())) == 1
    assert len(set(slot_of(pair, 1000, "positional").tolist())) == 2
    many = torch.stack([torch.arange(3000), torch.arange(3000).flip(0)], dim=1)
    slots = slot_of(many, 1000, "positional")
    assert slots.min() >= 0 and slots.max() < 1000 and len(slots.unique()) > 800


def test_selection_is_eq_5_and_6() -> None:
    lm = lookup(residual=False)
    lm.dictionary.normal_()
    output, slot = torch.randn(16), torch.tensor(2)
    memory = lm.dictionary[2]
    weights = (memory @ output / math.sqrt(16)).softmax(dim=0)
    torch.testing.assert_close(lm.select(output, slot), weights @ memory)
    with_output = lookup()
    with_output.dictionary.copy_(lm.dictionary)
    torch.testing.assert_close(with_output.select(output, slot), output + weights @ memory)


def test_entries_of_few_prefixes_are_gathered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all would take more memory than all else."""
    lm, sizes = zoo.neural("lookup"), list[int]()
    sentences = [(first, second, third) for first in "ABC" for second in "ABC" for third in "ABC"]
    expected = lm.score_hypotheses(sentences)
    inner = lm.select
    monkeypatch.setattr(lm, "select", lambda output, slots: sizes.append(len(output)) or inner(output, slots))
    monkeypatch.setattr("lm_zoo.models.lookup.ROWS", 7)
    for row, wanted in zip(lm.score_hypotheses(sentences), expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-5)
    assert sizes == [7] * 5 + [5]  # of 40 prefixes


def test_update_probability_of_rare_and_unseen_tokens() -> None:
    lm = lookup()
    sentences = [["A"] * 20, ["B"] * 3, ["C"] * 2, ["D"]]
    lm.begin_training(tokenize(VOCAB, sentences))
    wanted = {"A": 1 / math.log(20), "B": 1 / math.log(3), "C": 1.0, "D": 1.0, "E": 1.0, SOS_EOS: 1 / math.log(4)}
    got = {word: lm.update_probability[VOCAB.ids[word]].item() for word in wanted}
    assert got == pytest.approx(wanted)
    free = lookup(gated=False)
    free.begin_training(tokenize(VOCAB, sentences))
    assert free.update_probability.tolist() == [1.0] * len(VOCAB)


def slow_update(lm: Lookup, slots: list[int], tokens: list[int], seed: int) -> torch.Tensor:
    """Eqs. 3 and 4 as they stand: event by event, entry by entry."""
    memory = lm.dictionary.clone().double()
    draws = torch.rand(len(slots), lm.config.entries, generator=torch.Generator().manual_seed(seed))
    alpha = lm.config.alpha
    for event, (slot, token) in enumerate(zip(slots, tokens, strict=True)):
        for entry in range(lm.config.entries):
            if draws[event, entry] < lm.update_probability[token]:
                embedding = lm.input.embedding.weight[token].detach().double()
                memory[slot, entry] = alpha * memory[slot, entry] + (1 - alpha) * embedding
    return memory


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=60),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.integers(0, 5),
)
def test_the_vectorised_update_is_the_slow_one(events: list[tuple[int, int]], alpha: float, seed: int) -> None:
    lm = lookup(alpha=alpha)
    lm.dictionary.normal_(generator=torch.Generator().manual_seed(seed))
    lm.update_probability = torch.rand(len(VOCAB), generator=torch.Generator().manual_seed(seed))
    slots, tokens = [slot for slot, _ in events], [token for _, token in events]
    expected = slow_update(lm, slots, tokens, seed)
    lm.update(
        torch.tensor(slots, dtype=torch.long),
        torch.tensor(tokens, dtype=torch.long),
        torch.Generator().manual_seed(seed),
    )
    torch.testing.assert_close(lm.dictionary.double(), expected, rtol=1e-5, atol=1e-5)


def test_no_update_in_the_first_steps_nor_in_evaluation() -> None:
    lm = lookup(update_after=2)
    batch = (torch.tensor([[0, 2, 3]]), torch.tensor([[2, 3, 0]]))
    for step in (1, 2):
        lm.after_step([batch], step, seed=1)
        assert not lm.dictionary.any()
    lm.after_step([batch], 3, seed=1)
    before = lm.dictionary.clone()
    assert before.any()
    lm.eval()
    with torch.no_grad():
        lm(*batch)
        lm.score_words([("A", "B")])
    assert torch.equal(lm.dictionary, before)


def test_a_dictionary_that_gets_no_update_is_said(tmp_path: Path) -> None:
    """Before a run that is too short, and after one whose best model is older than the first update."""

    def remarks(name: str, **changes: Any) -> list[str]:
        lines: list[str] = []
        settings, plan = SMALL | {"update_after": 6}, config(**changes)
        train("lookup", settings, VOCAB, text(0), text(1), tmp_path / name, plan, remark=lines.append)
        return [line for line in lines if "update" in line]

    (line,) = remarks("short", steps=6)
    assert line.startswith("the dictionary has no update in 6 steps") and "update_after=6 steps" in line
    (line,) = remarks("early", steps=12, lr=0.0, warmup=0, valid_every=3, patience=1)
    assert "the best model is that of step 3; the dictionary has no update in 3 steps" in line
    assert not remarks("long", steps=12, valid_every=12)
    assert load(str(tmp_path / "long")).dictionary.any()


def test_padding_is_no_event() -> None:
    lm = lookup(update_after=0)
    lm.after_step([(torch.tensor([[0, 2, 3]]), torch.tensor([[2, -1, -1]]))], 1, seed=1)
    assert lm.dictionary.abs().sum(dim=(1, 2)).nonzero().flatten().tolist() == [0]  # bos has id 0


def test_same_seed_same_dictionary(tmp_path: Path) -> None:
    plan = config(steps=30)
    lms = []
    for name in ("a", "b"):
        train("lookup", {**SMALL, "update_after": 5}, VOCAB, text(0), text(1), tmp_path / name, plan)
        lms.append(load(str(tmp_path / name)))
    assert lms[0].dictionary.any()
    assert torch.equal(lms[0].dictionary, lms[1].dictionary)


def test_a_seed_may_be_a_time() -> None:
    first, second = lookup(update_after=0), lookup(update_after=0)
    batch = torch.tensor([[0, 2, 3]]), torch.tensor([[2, 3, 0]])
    for lm, seed in ((first, 20261125221234), (second, (1 << 63) - 1)):
        lm.after_step([batch], 1, seed=seed)
    assert first.dictionary.any() and second.dictionary.any()


def test_a_transformer_gets_an_empty_dictionary(tmp_path: Path) -> None:
    source = plain_folder(tmp_path)
    convert_lm("lookup", str(source), {"slots": 4, "entries": 2}, tmp_path / "lookup")
    convert_lm("ngram-embedding", str(source), {"slots": 4}, tmp_path / "ngram-embedding")
    sentences = [("A", "B", "C"), ()]
    for name in ("lookup", "ngram-embedding"):
        got = load(str(tmp_path / name)).score_words(sentences)
        for row, wanted in zip(got, load(str(source)).score_words(sentences), strict=True):
            assert row == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"entries": 0}, "expected 1 or more"), ({"alpha": 1.0}, "alpha 1.0 in"), ({"hashing": "md5"}, "sum, positional")],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        lookup(**changes)
