"""State carried from window to window: the same as reading the text in one piece, as far as it reaches back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lm_zoo.errors import LMError, ModelError
from lm_zoo.inference.windows import window_perplexity
from lm_zoo.models.lookup import Lookup
from lm_zoo.registry import build
from lm_zoo.text.batches import carried_batches, running_text, tokenize
from lm_zoo.training.config import TrainConfig
from lm_zoo.training.train import evaluate, train
from tests.lm_zoo.training.test_train import VOCAB, text
from tests.lm_zoo.zoo import NEURAL, neural

CARRIED = [name for name in NEURAL if not name.startswith("icefall")]


def windows(lm: Any, inputs: Tensor, cuts: list[int]) -> Tensor:
    """Hidden vectors of windows that end at the cuts, each in the state of the one before."""
    state, parts = lm.initial_state().repeat(len(inputs)), []
    for start, stop in zip([0, *cuts[:-1]], cuts, strict=True):
        state, hidden = lm.hidden_after(state, inputs[:, start:stop])
        parts.append(hidden)
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("name", CARRIED)
def test_two_windows_are_one_text(name: str) -> None:
    """The second window sees the whole first one, so that together they are the text in one piece."""
    lm = neural(name)
    inputs = torch.randint(len(lm.vocab), (3, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(windows(lm, inputs, [5, 11]), lm.hidden(inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["lstm", "lstm-untied"])
def test_an_lstm_carries_all_that_was(name: str) -> None:
    lm = neural(name)
    inputs = torch.randint(len(lm.vocab), (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(windows(lm, inputs, [1, 4, 6, 12]), lm.hidden(inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["transfornn", "transfornn-residual"])
def test_the_lstm_layers_alone_go_on(name: str) -> None:
    """Each window by attention of its own; one LSTM over all that this gives."""
    lm = neural(name)
    inputs, cuts = torch.randint(len(lm.vocab), (2, 12), generator=torch.Generator().manual_seed(1)), [5, 9, 12]
    state, parts, read = lm.initial_state().repeat(2), [], []
    with torch.no_grad():
        for start, stop in zip([0, *cuts[:-1]], cuts, strict=True):
            state, hidden = lm.hidden_after(lm.recurrent(state), inputs[:, start:stop])
            x = lm.input(inputs[:, start:stop])
            for layer in lm.layers:
                x = layer(x)
            parts.append(hidden)
            read.append(x)
        x = torch.cat(read, dim=1)
        torch.testing.assert_close(torch.cat(parts, dim=1), lm._output(x, lm.rnn(x)[0]), rtol=1e-4, atol=1e-4)


def test_an_lstm_has_nothing_else_to_carry() -> None:
    both = [
        window_perplexity(neural("lstm"), text(0, 30), 4, position).log_prob for position in ("carried", "recurrent")
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    "name", [name for name in CARRIED if not name.startswith(("lstm", "transfornn", "speechbrain-rnn"))]
)
def test_without_lstm_layers_nothing_recurrent_is_carried(name: str) -> None:
    with pytest.raises(LMError, match="has no LSTM layers, whose state alone could be carried"):
        window_perplexity(neural(name), text(0, 30), 4, "recurrent")


def test_a_transformer_layer_sees_one_window_back() -> None:
    """One layer: the third window is as if the text began with the second, but for the positions."""
    lm = build("transformer", VOCAB, {"dim": 16, "heads": 2, "feedforward": 24, "layers": 1, "positions": False}).eval()
    inputs = torch.randint(len(VOCAB), (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        third = windows(lm, inputs, [4, 8, 12])[:, 8:]
        torch.testing.assert_close(third, lm.hidden(inputs[:, 4:])[:, 4:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_slots_updated_are_those_of_the_running_text(tmp_path: Path, order: int) -> None:
    """Windows of four, two a step: the dictionary learns what it learns of the rows in one piece."""
    settings = {"dim": 16, "heads": 2, "feedforward": 24, "layers": 1, "slots": 97, "entries": 2, "order": order}
    settings |= {"hashing": "positional", "update_after": 0, "gated": False}
    plan = TrainConfig(
        text="windows", carry=True, window=4, batch_windows=3, accumulate=2, passes=1, valid_every=0, lr=1e-30
    )
    words = text(0, 20)
    with pytest.MonkeyPatch.context() as patch:
        found: list[tuple[list[int], list[int]]] = []
        keep = lambda lm, slots, tokens, generator: found.append((slots.tolist(), tokens.tolist()))  # noqa: E731
        patch.setattr(Lookup, "update", keep)
        train("lookup", settings, VOCAB, words, text(1, 20), tmp_path, plan)
    lm = build("lookup", VOCAB, settings)
    long = 10**6
    ((inputs, targets),) = carried_batches(words, VOCAB, long, 3, None)
    inside = targets >= 0
    whole = zip(lm.slots(inputs)[inside].tolist(), targets[inside].tolist(), strict=True)
    pairs = [pair for slots, tokens in found for pair in zip(slots, tokens, strict=True)]
    assert len(found) > 2 and sorted(pairs) == sorted(whole)


def test_no_gradient_goes_into_the_window_before() -> None:
    lm = neural("transfornn").train()
    inputs = torch.randint(len(lm.vocab), (2, 10))
    _, state = lm(inputs[:, :5], inputs[:, :5], lm.initial_state().repeat(2))
    assert not any(tensor.requires_grad for tensor in state.memory)


@pytest.mark.parametrize("streams", [1, 3, 7])
@pytest.mark.parametrize("seed", [None, 0, 5])
def test_streams_hold_the_text_once_and_in_order(streams: int, seed: int | None) -> None:
    words = tokenize(VOCAB, [["A", "B"], ["C"], ["D", "E", "F", "G", "H"], ["A"], ["B", "C", "A"]])
    rng = None if seed is None else np.random.default_rng(seed)
    batches = list(carried_batches(words, VOCAB, 3, streams, rng))
    rows = torch.cat([targets for _, targets in batches], dim=1)
    assert rows[rows >= 0].tolist() == running_text(words, VOCAB).tolist()
    inputs = torch.cat([inputs for inputs, _ in batches], dim=1)
    assert all(0 < part.shape[1] <= 3 for part, _ in batches)
    inside = rows[:, :-1] >= 0
    assert torch.equal(inputs[:, 1:][inside], rows[:, :-1][inside]), "the input is the target before"
    assert inputs[0, 0] == VOCAB.eos


def test_carried_perplexity_is_that_of_the_whole_text_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, words = neural("lstm"), text(3, 20)
    stream = torch.from_numpy(np.concatenate([[VOCAB.eos], running_text(words, VOCAB)]))[None]
    with torch.no_grad():
        whole = float(lm(stream[:, :-1], stream[:, 1:]))
    assert -window_perplexity(lm, words, 7, "carried", batch=1).log_prob == pytest.approx(whole, rel=1e-5)
    assert -window_perplexity(lm, words, 7, "carried").log_prob == pytest.approx(whole, rel=1e-5), "it is short"
    plan = TrainConfig(text="windows", carry=True, window=7)
    assert evaluate(lm, words, plan, lm.device) == pytest.approx(whole / (len(words.tokens) + 20), rel=1e-5)
    monkeypatch.setattr("lm_zoo.text.batches.LEAST_WINDOWS", 1)
    carried = window_perplexity(lm, words, 7, "carried", batch=4)
    assert carried.tokens == len(words.tokens) + 20 and carried.per_token != pytest.approx(carried.tokens)


def test_a_transformer_without_layers_carries_nothing(tmp_path: Path) -> None:
    """Its state had no tensor to tell how many texts there are: IndexError."""
    settings = {"dim": 16, "heads": 2, "layers": 0, "positions": False}
    plan = TrainConfig(text="windows", carry=True, window=6, batch_windows=4, passes=1, warmup=1)
    assert train("transformer", settings, VOCAB, text(0), text(1), tmp_path, plan).step > 0
    lm = build("transformer", VOCAB, settings).eval()
    carried, whole = (window_perplexity(lm, text(1), 6, position) for position in ("carried", "all"))
    assert carried.log_prob == pytest.approx(whole.log_prob, rel=1e-5)


@pytest.mark.slow
def test_training_validates_as_it_trains(tmp_path: Path) -> None:
    plan = TrainConfig(
        text="windows", carry=True, window=6, batch_windows=4, passes=6, valid_every=0, warmup=2, lr=0.02
    )
    progress = train("lstm", {"dim": 16, "dropout": 0.0}, VOCAB, text(0), text(1), tmp_path, plan)
    from lm_zoo.registry import load

    lm, cpu = load(str(tmp_path)), torch.device("cpu")
    assert evaluate(lm, text(1), plan, cpu) == pytest.approx(progress.best_loss, rel=1e-5)
    assert evaluate(lm, text(1), replace(plan, carry=False), cpu) != pytest.approx(progress.best_loss, rel=1e-5)


def test_what_cannot_be_carried_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="add text=windows"):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, TrainConfig(carry=True))
    lm = neural("icefall-transformer")
    with pytest.raises(LMError, match="IcefallTransformer cannot carry its state"):
        window_perplexity(lm, text(1), 5, "carried")
    plan = TrainConfig(text="windows", carry=True)
    with pytest.raises(ModelError, match="icefall-transformer cannot carry its state"):
        train("icefall-transformer", NEURAL["icefall-transformer"][1], VOCAB, text(0), text(1), tmp_path, plan)
    assert not [*tmp_path.iterdir()]
