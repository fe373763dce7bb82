"""Training on N-best lists: loss and gradients against a slow reference, fewer errors, runs that are continued."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch.nn import functional as F

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.layers.output import TargetScores
from lm_zoo.registry import load, save_folder
from lm_zoo.text.lists import ErrorList
from lm_zoo.training import mwer
from lm_zoo.training.config import LIST_DEFAULTS, LIST_MUON, TrainConfig
from lm_zoo.training.mwer import TrainingLists, expected_errors, list_batches, make_batch, run_on_lists
from lm_zoo.training.run import TextRecipe
from rescore.cli.main import cli
from tests.lm_zoo import zoo

pytestmark = pytest.mark.slow

SCALE, POSTERIOR = 0.7, 0.5


def some_lists(count: int = 6, seed: int = 0) -> list[ErrorList]:
    """Hypotheses with shared prefixes, some equal, one empty; those that begin with A B have few errors."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        sentences = [tuple(map(str, rng.choice(["A", "B", "C", "D"], rng.integers(1, 6)))) for _ in range(5)]
        sentences += [(), ("A", "B", *sentences[0]), sentences[1]]
        errors = [0.0 if words[:2] == ("A", "B") else 2.0 + len(words) % 2 for words in sentences]
        scores = [3.0 * len(words) + float(rng.normal()) for words in sentences]  # short ones are not the best by far
        made.append(ErrorList(f"u{number}", sentences, scores, errors))
    return made


def slow_loss(lm: Any, lists: list[ErrorList]) -> torch.Tensor:
    """Hypothesis by hypothesis, through the whole softmax."""
    total = torch.zeros(())
    for each in lists:
        scores = []
        for words, score in zip(each.sentences, each.scores, strict=True):
            tokens = [token for word in words for token in lm.vocab.encode_word(word)]
            hidden = lm.hidden(torch.tensor([[lm.vocab.bos, *tokens]]))[0]
            logits = F.linear(hidden, lm.output.weight, lm.output.bias).log_softmax(1)
            lm_score = logits[torch.arange(len(tokens) + 1), torch.tensor([*tokens, lm.vocab.eos])].sum()
            scores.append(POSTERIOR * (score + SCALE * lm_score))
        total = total + (torch.stack(scores).softmax(0) * torch.tensor(each.errors)).sum()
    return total


@pytest.mark.parametrize("name", zoo.NEURAL)
def test_loss_and_gradients_are_those_of_single_hypotheses(name: str) -> None:
    lm, lists = zoo.neural(name), some_lists()
    expected = slow_loss(lm, lists)
    expected.backward()
    gradients = {name: parameter.grad for name, parameter in lm.named_parameters()}
    for parameter in lm.parameters():
        parameter.grad = None
    found, best = expected_errors(lm, make_batch(lm.vocab, lists), SCALE, POSTERIOR, lm.device)
    assert found.shape == best.shape == (len(lists),)
    assert float(found.sum()) == pytest.approx(float(expected), abs=1e-4)
    found.sum().backward()
    for key, parameter in lm.named_parameters():
        if gradients[key] is None:  # the spread of a Bayesian LM, whose means are evaluated
            assert parameter.grad is None
        else:
            np.testing.assert_allclose(parameter.grad.numpy(), gradients[key].numpy(), atol=2e-4, err_msg=key)


def test_a_bayesian_lm_is_trained_under_draws() -> None:
    lm = zoo.neural("bayesian").train()
    batch = make_batch(lm.vocab, some_lists())
    first, second = (expected_errors(lm, batch, SCALE, POSTERIOR, lm.device)[0].sum() for _ in range(2))
    assert float(first) != float(second)
    first.backward()
    assert all(sigma.grad.abs().sum() > 0 for sigma in lm.log_sigma.values())


def test_the_softmax_layer_sees_a_prefix_once() -> None:
    vocab = zoo.neural("lstm").vocab
    lists = [ErrorList("u", [("A", "B"), ("A", "C"), ("A", "B"), ()], [0.0] * 4, [0.0] * 4)]
    batch = make_batch(vocab, lists)
    # A, A B, A C, and the ends of A B, A C and the empty one.
    assert len(batch.places) == 6
    assert len(batch.pairs) == 6 + 4


@pytest.mark.parametrize("chunk", [3, 512])
def test_scores_of_targets(chunk: int) -> None:
    torch.manual_seed(1)
    x, weight, bias = (torch.randn(*size, requires_grad=True) for size in ((10, 6), (9, 6), (9,)))
    targets, slope = torch.randint(9, (10,)), torch.randn(10)
    expected = F.linear(x, weight, bias).log_softmax(1).gather(1, targets[:, None])[:, 0]
    wanted = torch.autograd.grad(expected, (x, weight, bias), slope)
    found = TargetScores.apply(x, weight, bias, targets, torch.float32, chunk)
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found, (x, weight, bias), slope), wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_batches_of_lists() -> None:
    vocab, lists = zoo.neural("lstm").vocab, some_lists(20)
    for rng in (None, np.random.default_rng(1)):
        batches = list_batches(lists, vocab, 150, rng)
        assert sorted(each.name for batch in batches for each in batch) == sorted(each.name for each in lists)
        for batch in batches:
            assert len(batch) == 1 or make_batch(vocab, batch).inputs.numel() <= 150
    assert len(batches) > 3


KINDS = [
    *("transfornn", "transformer", "lstm", "bayesian", "lookup", "ngram-embedding"),
    *("icefall-transformer", "speechbrain-transformer", "speechbrain-rnn"),
]


def trained(out: Path, init: Path, kind: str, texts: list[str] | None = None, **options: Any) -> Any:
    data = TrainingLists(some_lists(12), some_lists(6, seed=1), 1.0, {"nbest": "x"}, ["x"])
    recipe = TextRecipe(texts or [], "", init=str(init))
    plan = {"lr": 0.01, "passes": 10, "batch_tokens": 150, "log_every": 2, **options}
    return run_on_lists(kind, {}, recipe, data, plan, str(out), "cpu", lambda line: None)


def records(folder: Path, key: str) -> list[float]:
    return [line[key] for line in map(json.loads, (folder / "log.jsonl").read_text().splitlines()) if key in line]


@pytest.mark.parametrize("kind", KINDS)
def test_expected_errors_fall(tmp_path: Path, kind: str) -> None:
    init, out = tmp_path / "init", tmp_path / "out"
    seen = {"text": "windows", "join": 30, "window": 40, "carry": True}
    save_folder(init, zoo.neural(kind), kind, {"trained": {"step": 3}, "training": {**seen, "lr": 9.0}})
    progress = trained(out, init, kind, posterior=0.2)
    losses, best = records(out, "valid_loss"), records(out, "valid_best")
    assert progress.finished and progress.epoch == 10
    assert len(losses) == len(best) == 11  # before the first step, and after each pass
    assert min(losses) < 0.85 * losses[0] and min(best) <= best[0]
    config = json.loads((out / "config.json").read_text())
    assert config["training"] == {**config["training"], **seen, "lr": 0.01}
    assert config["started_from"] == {"step": 3} and config["trained"]["valid_loss"] == min(losses)
    lm = load(str(out))
    few, many = (lm.score_words([words])[0] for words in (("A", "B", "C"), ("C", "B", "C")))
    assert sum(few) > sum(many)


def test_no_worse_lm_is_left(tmp_path: Path) -> None:
    """The LM that a run starts from stays where no better one is found."""
    init = tmp_path / "init"
    save_folder(init, zoo.neural("lstm"), "lstm", {})
    data = TrainingLists(some_lists(12), some_lists(6, seed=1), 1.0, {}, [])
    for each in data.valid:
        each.errors = [5.0 - error for error in each.errors]
    recipe = TextRecipe([], "", init=str(init))
    run_on_lists("lstm", {}, recipe, data, {"lr": 0.01}, str(tmp_path / "out"), "cpu", lambda line: None)
    before, after = (load_file(folder / "model.safetensors") for folder in (init, tmp_path / "out"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| expected errors an utterance, validation |" in card and "--nbest LISTS --valid DEV-LISTS" in card
    assert re.search(r"\| trained for \| \d+ steps, \d+ lists; seed \d+ \|", card)


@pytest.mark.parametrize(
    "given", [{}, {"lr": 0.002, "weight_decay": 0.01, "passes": 1}, {"steps": 2, "warmup": 1, "valid_every": 1}]
)
def test_the_card_has_the_settings_that_were_given(tmp_path: Path, given: dict[str, Any]) -> None:
    """Some are the defaults of training on text, which are others than those of training on lists."""
    save_folder(tmp_path / "init", zoo.neural("lstm"), "lstm", {})
    data = TrainingLists(some_lists(4), some_lists(2, seed=1), 1.0, {}, [])
    recipe = TextRecipe([], "", init=str(tmp_path / "init"))
    run_on_lists("lstm", {}, recipe, data, dict(given), str(tmp_path / "out"), "cpu", lambda line: None)
    card = (tmp_path / "out" / "README.md").read_text()
    shown = re.findall(r"--train (\w+)=(\S+)", card)
    assert {name: float(value) for name, value in shown if name != "passes" or value != "0"} == given


@pytest.mark.parametrize(("scale", "scales", "given"), [(1.0, {"am": 1.0}, False), (0.2, {"am": 1.0}, True)])
def test_the_card_names_weights_where_there_were_some(
    tmp_path: Path, scale: float, scales: dict[str, float], given: bool
) -> None:
    """Without --weights all scores count with scale 1."""
    save_folder(tmp_path / "init", zoo.neural("lstm"), "lstm", {})
    data = TrainingLists(some_lists(4), some_lists(2, seed=1), scale, {"scales": scales}, [])
    recipe, out = TextRecipe([], "", init=str(tmp_path / "init")), tmp_path / "out"
    run_on_lists("lstm", {}, recipe, data, {"passes": 1}, str(out), "cpu", lambda line: None)
    assert ("--weights WEIGHTS" in (out / "README.md").read_text()) == given


def test_help_has_the_defaults_of_training_on_lists() -> None:
    text = " ".join(CliRunner().invoke(cli, ["train-lm", "-h"]).output.split())
    *names, last = (f"{name}={value}" for name, value in LIST_DEFAULTS.items())
    (muon,) = (f"{name}={value}" for name, value in LIST_MUON.items())
    assert f"Its defaults are {', '.join(names)} and {last}, with optimizer=muon {muon};" in text


@pytest.mark.parametrize("given", [{"optimizer": "muon"}, {"optimizer": "muon", "muon_lr": 0.02}, {}])
def test_muon_has_a_rate_for_lists_of_its_own(tmp_path: Path, given: dict[str, Any]) -> None:
    """As low beside that for text as `lr` is; without Muon a run's settings are what they were before it had one."""
    save_folder(tmp_path / "init", zoo.neural("lstm"), "lstm", {})
    data = TrainingLists(some_lists(4), some_lists(2, seed=1), 1.0, {}, [])
    recipe = TextRecipe([], "", init=str(tmp_path / "init"))
    run_on_lists("lstm", {}, recipe, data, dict(given), str(tmp_path / "out"), "cpu", lambda line: None)
    train = json.loads((tmp_path / "out" / "run.json").read_text())["train"]
    assert train["muon_lr"] == (0.001 if given == {"optimizer": "muon"} else 0.02)
    usual = TrainConfig()
    assert LIST_MUON["muon_lr"] / usual.muon_lr == pytest.approx(LIST_DEFAULTS["lr"] / usual.lr)
    shown = re.findall(r"--train (\w+)=(\S+)", (tmp_path / "out" / "README.md").read_text())
    assert dict(shown) == {name: str(value) for name, value in given.items()}


@pytest.mark.parametrize(("with_text", "stop"), [(False, 8), (True, 8), (False, 2)])
def test_a_stopped_run_continues_with_the_same_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_text: bool, stop: int
) -> None:
    init, text = tmp_path / "init", tmp_path / "text"
    save_folder(init, zoo.neural("transfornn"), "transfornn", {})
    text.write_text("A B C\nB C\nD C A\n" * 5)
    options: dict[str, Any] = {
        "save_every": 2,
        "texts": [str(text)] if with_text else None,
        "log_every": 1,
        "passes": 3,
    }
    trained(tmp_path / "whole", init, "transfornn", **options)
    step, count = mwer.MwerRun._step, [0]

    def stopped(run: Any, group: Any) -> Any:
        count[0] += 1
        if count[0] == stop:
            raise KeyboardInterrupt
        return step(run, group)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(mwer.MwerRun, "_step", stopped)
        trained(tmp_path / "stopped", init, "transfornn", **options)
    trained(tmp_path / "stopped", init, "transfornn", **options)
    for key in ("loss", "valid_loss", "valid_best"):
        assert records(tmp_path / "stopped", key) == pytest.approx(records(tmp_path / "whole", key), abs=1e-6)
    with pytest.raises(ModelError, match=r"the run there has lr 0\.01, not 0\.02"):
        trained(tmp_path / "stopped", init, "transfornn", **{**options, "lr": 0.02})


def test_text_beside_the_lists_counts(tmp_path: Path) -> None:
    init, text = tmp_path / "init", tmp_path / "text"
    save_folder(init, zoo.neural("lstm"), "lstm", {})
    text.write_text("D D D D\n" * 20)
    lm = zoo.neural("lstm")
    losses = []
    for share in (0.0, 10.0):
        out = tmp_path / str(share)
        trained(out, init, "lstm", [str(text)], lm_loss=share, steps=1, passes=0, log_every=1)
        losses += records(out, "loss")
    a_token = -sum(lm.score_words([("D", "D", "D", "D")])[0]) / 5
    assert losses[1] - losses[0] == pytest.approx(10 * a_token, rel=0.03)  # dropout


def test_written_text_is_seen_in_the_form_of_the_lm(tmp_path: Path) -> None:
    init, said = tmp_path / "init", list[str]()
    save_folder(init, zoo.neural("transfornn"), "transfornn", {})
    written = some_lists(12)
    for each in written:
        each.sentences = [[word.lower() + "." for word in words] for words in each.sentences]
    recipe, plan = TextRecipe([], "", init=str(init)), {"lr": 0.01, "passes": 2, "batch_tokens": 150}
    for name, lists in (("plain", some_lists(12)), ("written", written)):
        data = TrainingLists(lists, lists, 1.0, {}, [])
        run_on_lists("transfornn", {}, recipe, data, plan, str(tmp_path / name), "cpu", said.append)
    assert records(tmp_path / "written", "valid_loss") == records(tmp_path / "plain", "valid_loss")
    assert any("shown to the LM in the form of its own text" in line for line in said)


def test_bad_input(tmp_path: Path) -> None:
    init = tmp_path / "init"
    save_folder(init, zoo.neural("lstm"), "lstm", {})
    same = [ErrorList("u", [("A",), ("B",)], [0.0, 1.0], [2.0, 2.0])]
    for lists, options, start, message in (
        (same, {}, str(init), "no list to train on: in each, all hypotheses have as many errors"),
        (some_lists(), {}, None, "starts from a trained LM: give --init"),
        (some_lists(), {"posterio": 1.0}, str(init), "training has no setting 'posterio'"),
        (some_lists(), {"text": "windows", "carry": True}, str(init), "carries no state; leave out carry=true"),
    ):
        data, recipe = TrainingLists(lists, lists, 1.0, {}, []), TextRecipe([], "", init=start)
        with pytest.raises(ModelError, match=message):
            run_on_lists("lstm", {}, recipe, data, options, str(tmp_path / "out"), "cpu", lambda line: None)
    with pytest.raises(ModelError, match="runs in one process"):
        data, recipe = TrainingLists(same, same, 1.0, {}, []), TextRecipe([], "", init=str(init))
        run_on_lists("lstm", {}, recipe, data, {}, str(tmp_path / "x"), "cpu", lambda line: None, 2)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("ZZZ", r"the lists: 6 of 8 words unknown \(75.0 %\) to the LM"),
        ("\u2581A", "utterance u: found '\u2581A', a piece"),
    ],
)
def test_lists_that_the_lm_cannot_read_are_refused(word: str, message: str, tmp_path: Path) -> None:
    save_folder(tmp_path / "init", zoo.neural("lstm"), "lstm", {})
    lists = [ErrorList("u", [("A", word, word), (word,)], [0.0, 1.0], [2.0, 1.0])]
    data, recipe = TrainingLists(lists, lists, 1.0, {}, []), TextRecipe([], "", init=str(tmp_path / "init"))
    with pytest.raises(VocabError, match=message):
        run_on_lists("lstm", {}, recipe, data, {}, str(tmp_path / "out"), "cpu", lambda line: None)
