"""The training loop: it learns, continues after a kill, halves, stops early, and agrees with itself under DDP."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lm_zoo.errors import LMError, ModelError, VocabError
from lm_zoo.registry import build, load
from lm_zoo.text.batches import TokenText, tokenize
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from lm_zoo.training import runtime
from lm_zoo.training import train as train_module
from lm_zoo.training.config import LMProgress, TrainConfig, of_warm_up
from lm_zoo.training.distributed import Ranks
from lm_zoo.training.optimizers import learning_rate, make_optimizers
from lm_zoo.training.train import planned_steps, train
from lm_zoo.training.transfer import new_lm
from rescore.cli.main import cli
from tests.lm_zoo.zoo import NEURAL, neural

VOCAB = WordVocabulary([SOS_EOS, UNK, *"ABCDEFGH"], "upper")
SETTINGS = {"dim": 16, "heads": 2, "feedforward": 24, "layers": 1, "rnn_layers": 1, "dropout": 0.1}


def text(seed: int, sentences: int = 200) -> TokenText:
    """Letters that mostly follow the alphabet: easy to learn."""
    rng = np.random.default_rng(seed)

    def sentence() -> list[str]:
        start, length = rng.integers(0, 8), rng.integers(1, 9)
        return ["ABCDEFGH"[(start + i) % 8] for i in range(length)]

    return tokenize(VOCAB, [sentence() for _ in range(sentences)])


def config(**changes: Any) -> TrainConfig:
    values = {
        "batch_tokens": 128,
        "steps": 40,
        "warmup": 5,
        "lr": 0.01,
        "valid_every": 20,
        "save_every": 10,
        "log_every": 5,
        "window": 12,
        "batch_windows": 8,
    }
    return TrainConfig(**(values | changes))


class Killed(Exception):
    pass


def records(folder: Path, key: str = "loss") -> list[tuple[int, float]]:
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [(line["step"], line[key]) for line in lines if key in line]


@pytest.mark.parametrize("mode", ["sentences", "windows"])
def test_it_learns_and_the_folder_is_an_lm(tmp_path: Path, mode: str) -> None:
    progress = train("transfornn", SETTINGS, VOCAB, text(0), text(1), tmp_path, config(steps=80, text=mode))
    assert progress.finished and progress.step == 80
    assert progress.best_loss < 0.7 * math.log(len(VOCAB))
    lm = load(str(tmp_path))
    assert lm.score_words([tuple("ABC")])[0][1] > lm.score_words([tuple("AGC")])[0][1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"text": "windows", "accumulate": 2},
        {"text": "windows", "carry": True},
        {"optimizer": "sgd", "momentum": 0.9},
    ],
)
def test_a_killed_run_continues_in_mid_epoch_with_the_same_losses(tmp_path: Path, changes: dict[str, Any]) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train("transfornn", SETTINGS, VOCAB, text(0), text(1), straight, config(**changes))

    def kill(record: dict[str, Any]) -> None:
        if record["step"] == 25:
            raise Killed

    with pytest.raises(Killed):
        train("transfornn", SETTINGS, VOCAB, text(0), text(1), killed, config(**changes), report=kill)
    progress = train("transfornn", SETTINGS, VOCAB, text(0), text(1), killed, config(**changes))
    assert progress.epoch > 0  # the run is longer than an epoch, and was killed within one
    assert records(killed) == records(straight)
    assert records(killed, "valid_loss") == records(straight, "valid_loss")


def test_a_run_that_was_killed_behind_its_last_step_has_each_validation_once(tmp_path: Path) -> None:
    """A checkpoint of the last step is there already."""

    def kill(record: dict[str, Any]) -> None:
        if "valid_loss" in record and record["step"] == 10:
            raise Killed

    plan = config(steps=10, valid_every=7)
    with pytest.raises(Killed):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, plan, report=kill)
    assert not train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, plan).stale
    assert [step for step, _ in records(tmp_path, "valid_loss")] == [7, 10]


def test_a_run_that_was_killed_before_its_first_checkpoint_has_each_record_once(tmp_path: Path) -> None:
    def kill(record: dict[str, Any]) -> None:
        if record["step"] == 5:
            raise Killed

    plan = config(steps=10, save_every=100, log_every=1)
    with pytest.raises(Killed):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, plan, report=kill)
    train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, plan)
    assert [step for step, _ in records(tmp_path)] == list(range(1, 11))


@pytest.mark.parametrize("shorter", [{"steps": 24}, {"passes": 1}])
def test_a_stopped_run_that_is_asked_for_less_than_it_has_is_refused(tmp_path: Path, shorter: dict[str, int]) -> None:
    def kill(record: dict[str, Any]) -> None:
        if record["step"] == 30:
            raise Killed

    with pytest.raises(Killed):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(save_every=25), report=kill)
    before = (tmp_path / "checkpoint" / "state.json").read_bytes()
    with pytest.raises(
        ModelError, match=r"25 steps, \d pass(es)? and a part already; asked for \d+ (step|pass)(s|es)? in all"
    ):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(**shorter))
    assert (tmp_path / "checkpoint" / "state.json").read_bytes() == before


def test_steps_follow_from_passes(tmp_path: Path) -> None:
    """Whatever the batches: three passes see every token three times, and are validated after each."""
    words = text(0)
    targets = len(words.tokens) + len(words.offsets) - 1
    for name, changes in (
        ("sentences", {}),
        ("joined", {"join": 20}),
        ("windows", {"text": "windows"}),
        ("accumulate", {"text": "windows", "accumulate": 3}),
        ("carry", {"text": "windows", "carry": True}),
    ):
        plan = config(passes=3, valid_every=0, **changes)
        progress = train("lstm", {"dim": 8}, VOCAB, words, text(1), tmp_path / name, plan)
        assert (progress.epoch, progress.tokens) == (3, 3 * targets), name
        assert len(records(tmp_path / name, "valid_loss")) == 3
        assert abs(progress.step - planned_steps(words, VOCAB, plan, 1)) <= 6
        rates = [rate for _, rate in records(tmp_path / name, "lr")]
        assert rates[-1] < 0.1 * max(rates), "the learning rate has fallen by the end"


def test_another_text_or_setting_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """Whether the run is finished, stopped, or was killed before its first checkpoint."""
    lines, others, out = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "lm"
    lines.write_text("A B C\nB C D\n" * 30)
    others.write_text("A B D\nB C D\n" * 30)
    words = ["train-lm", "lstm", "--valid", str(lines), "--out", str(out), "--tokens", "word", "--train", "steps=3"]

    def run(*more: str) -> None:
        cli.main(["--quiet", *words, "--set", "dim=8", *more], standalone_mode=False)

    run("--text", str(lines))
    lines_before = (out / "log.jsonl").read_text()
    for more, message in (
        (["--text", str(others)], r"text \[\"a.txt \(blake2b .*not \[\"b.txt"),
        (["--text", str(lines), "--train", "lr=0.5"], r"has lr 0.002, not 0.5; choose another --out"),
        (["--text", str(lines), "--train", "seed=2"], r"has seed 1, not 2"),
        (["--text", str(lines), "--set", "dropout=0.5"], r"has dropout 0.1, not 0.5"),
        (["--text", str(lines), "--vocab-size", "5"], r"has vocab_size null, not 5"),
    ):
        with pytest.raises(ModelError, match=message):
            run(*more)
    shutil.rmtree(out / "checkpoint")
    with pytest.raises(ModelError, match=r"has lr"):
        run("--text", str(lines), "--train", "lr=0.5")
    assert (out / "log.jsonl").read_text() == lines_before


def test_a_run_that_failed_before_its_first_step_holds_nobody_back(tmp_path: Path) -> None:
    lines = tmp_path / "a.txt"
    lines.write_text("A B C\nB C D\n" * 30)
    words = ["--quiet", "train-lm", "lstm", "--text", str(lines), "--valid", str(lines), "--out", str(tmp_path / "lm")]
    words += ["--set", "dim=8", "--train", "steps=3"]
    with pytest.raises(LMError, match="nothing"):
        cli.main([*words, "--vocab", "nothing"], standalone_mode=False)
    (tmp_path / "other").write_text("X Y\n")
    with pytest.raises(VocabError, match="words unknown"):  # its vocabulary is there
        cli.main([*words, "--vocab", str(tmp_path / "other")], standalone_mode=False)
    cli.main([*words, "--tokens", "word"], standalone_mode=False)
    assert load(str(tmp_path / "lm")).knows("A")
    with pytest.raises(ModelError, match="the run there has tokens"):
        cli.main([*words, "--tokens", "unigram"], standalone_mode=False)


def test_a_run_without_a_record_holds_nobody_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where memory does not suffice for its batches."""
    lines, out = tmp_path / "a.txt", tmp_path / "lm"
    lines.write_text("A B C\nB C D\n" * 30)
    words = ["--quiet", "train-lm", "lstm", "--text", str(lines), "--valid", str(lines), "--out", str(out)]
    words += ["--tokens", "word", "--set", "dim=8", "--train", "steps=3"]

    def fail(*_: Any) -> int:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(train_module.LMRun, "_step", fail)
        cli.main(words, standalone_mode=False)
    assert (out / "log.jsonl").read_text() == ""
    cli.main([*words, "--train", "batch_tokens=20"], standalone_mode=False)
    assert json.loads((out / "run.json").read_text())["train"]["batch_tokens"] == 20


def test_a_kill_between_the_renames_of_a_checkpoint_loses_nothing(tmp_path: Path) -> None:
    train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(steps=20))
    os.replace(tmp_path / "checkpoint", tmp_path / "checkpoint.old")
    (tmp_path / "checkpoint.new").mkdir()
    progress = train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(steps=20))
    assert progress.step == 20 and (tmp_path / "checkpoint").is_dir()
    steps = [step for step, _ in records(tmp_path)]
    assert steps == sorted(set(steps)), "no step was taken twice"


def test_another_model_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, config(steps=10))
    with pytest.raises(ModelError, match=r"choose another --out"):
        train("lstm", {"dim": 12}, VOCAB, text(0), text(1), tmp_path, config(steps=10))


def test_processor_time_is_that_of_all_processes_and_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little each step takes."""
    clock = iter(np.arange(1000) * 0.04)
    monkeypatch.setattr(train_module.time, "process_time", lambda: float(next(clock)))
    monkeypatch.setattr(Ranks, "sum", lambda self, *values: [2 * value for value in values])
    lm = build("lstm", VOCAB, {"dim": 8})
    place = (Ranks(0, 1, torch.device("cpu")), lambda record: None, lambda line: None)
    run = train_module.LMRun(lm, "lstm", config(), tmp_path, {}, *place)
    for _ in range(10):
        run.log(loss=1.0)
    assert [seconds for _, seconds in records(tmp_path, "cpu_seconds")][4::5] == [0.4, 0.8]


def test_early_stop(tmp_path: Path) -> None:
    progress = train(
        "lstm",
        {"dim": 8},
        VOCAB,
        text(0),
        text(1),
        tmp_path,
        config(steps=1000, lr=0.0, warmup=0, valid_every=5, patience=2),
    )
    assert progress.step == 15  # best at 5, then two validations without a better one
    assert progress.stale == 2


def test_no_early_stop_under_cosine_unless_asked(tmp_path: Path) -> None:
    plan = config(steps=60, lr=0.0, warmup=0, valid_every=5)
    assert train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path / "cosine", plan).step == 60
    plan = config(steps=60, lr=0.0, warmup=0, valid_every=5, schedule="newbob", optimizer="sgd")
    assert train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path / "newbob", plan).step == 30


def test_weight_decay_leaves_the_posterior_alone() -> None:
    """Eq. 9 of the Bayesian Transformer paper has the divergence from the prior, and nothing that pulls to zero."""
    settings = {"dim": 16, "heads": 2, "feedforward": 24, "layers": 2, "uncertain": "feedforward"}
    for optimizer in ("adamw", "muon"):
        lm = build("bayesian", VOCAB, settings)
        groups = [group for one in make_optimizers(lm, config(optimizer=optimizer)) for group in one.param_groups]
        decayed = {id(p) for group in groups if group.get("weight_decay") for p in group["params"]}
        names = {name for name, p in lm.named_parameters() if id(p) in decayed}
        assert not [name for name in names if name.startswith("log_sigma") or "layers.0.linear" in name]
        assert "mean.input.embedding.weight" in names
        assert sum(len(group["params"]) for group in groups) == len(list(lm.parameters()))


@pytest.mark.slow
def test_eq_6_to_the_letter_learns_from_the_first_step(tmp_path: Path) -> None:
    """The mixture alone: of a dictionary of zeros nothing would be learnt before it is filled."""
    settings = {"dim": 16, "heads": 2, "feedforward": 24, "layers": 1, "slots": 7, "entries": 4, "residual": False}
    plan = config(steps=80, valid_every=80, log_every=10)
    train("lookup", {**settings, "update_after": 1000}, VOCAB, text(0), text(1), tmp_path, plan)
    losses = [loss for _, loss in records(tmp_path)]
    assert losses[-1] < losses[0] - 0.2
    seeded = [load_file(folder / "model.safetensors")["dictionary"] for folder in (tmp_path,)]
    train("lookup", {**settings, "update_after": 1000}, VOCAB, text(0), text(1), tmp_path / "again", plan)
    assert torch.equal(seeded[0], load_file(tmp_path / "again" / "model.safetensors")["dictionary"])


def test_newbob_halves_once_validation_stalls(tmp_path: Path) -> None:
    settings = config(optimizer="sgd", schedule="newbob", lr=1e-9, warmup=0, valid_every=0, passes=4, patience=9)
    train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path, settings)
    rates = [rate for _, rate in records(tmp_path, "lr")]
    after = [
        line["lr"]
        for line in map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
        if "valid_loss" in line
    ]
    assert rates[0] == 1e-9
    assert after == pytest.approx([1e-9, 0.5e-9, 0.25e-9, 0.125e-9][: len(after)])


def test_warmup_and_cosine() -> None:
    settings = TrainConfig(lr=1.0, warmup=10, steps=110)
    rates = [learning_rate(settings, LMProgress(step=step)) for step in (0, 9, 10, 60, 110)]
    assert rates == pytest.approx([0.1, 1.0, 1.0, 0.505, 0.01])


def test_a_warm_up_that_the_run_does_not_end_is_told_of(tmp_path: Path) -> None:
    """Of a run that is finished nothing is."""
    for length, planned in (({"steps": 6}, 6), ({"passes": 1}, 10)):
        lines: list[str] = []
        plan, out = config(**length, warmup=2 * planned, valid_every=0), tmp_path / str(planned)
        for _ in range(2):
            done = train("lstm", {"dim": 8}, VOCAB, text(0), text(1), out, plan, remark=lines.append)
        assert done.step == planned
        (line,) = (line for line in lines if "warm-up" in line)
        assert f"takes {2 * planned} steps, the run {planned}: the learning rate comes to 50% of lr=0.0" in line
    assert not of_warm_up(config(steps=6, warmup=6))


@pytest.mark.parametrize("kind", ["transformer", "lstm", "transfornn"])
def test_bfloat16_follows_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Behind LSTM layers, too, where torch 1.13 has no layer normalisation of what they give."""
    monkeypatch.setattr(runtime, "slow_in_bfloat16", lambda: False)
    known = {"dim": 16} if kind == "lstm" else {name: SETTINGS[name] for name in SETTINGS if name != "rnn_layers"}
    settings = {**known, "dropout": 0.0, **({} if kind == "transformer" else {"output_norm": True})}
    for dtype in ("float32", "bfloat16"):
        train(kind, settings, VOCAB, text(0), text(1), tmp_path / dtype, config(dtype=dtype))
    exact, rough = (dict(records(tmp_path / dtype))[40] for dtype in ("float32", "bfloat16"))
    assert rough == pytest.approx(exact, rel=0.05)


def test_unknown_settings_are_named(tmp_path: Path) -> None:
    for changes, message in (
        ({"optimizer": "adam"}, "adamw, muon, sgd"),
        ({"dtype": "float16"}, "no dtype is called 'float16'; there are: float32, bfloat16"),
        ({"text": "window"}, "no text is called 'window'; there are: sentences, windows"),
        ({"accumulate": 0}, "'accumulate' is 0, expected 1 or more"),
        ({"passes": -1}, "'passes' is -1, expected 0 or more"),
        ({"clip": 0.0}, "'clip' is 0.0, expected more than 0"),
        ({"lr": math.nan}, "'lr' is nan, expected 0 or more"),
        ({"seed": 10**20}, f"'seed' is {10**20}, expected less than {1 << 63}"),
        ({"text": "windows", "join": 64}, "join=64 is for sentences"),
    ):
        with pytest.raises(ModelError, match=message):
            train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path / "x", config(**changes))
    with pytest.raises(ModelError, match=r"no setting 'width'; it has: dim"):
        train("lstm", {"width": 8}, VOCAB, text(0), text(1), tmp_path / "y", config())
    with pytest.raises(ModelError, match=r"'dropout' is 1.5, expected a share from 0 to below 1"):
        train("lstm", {"dropout": 1.5}, VOCAB, text(0), text(1), tmp_path / "y", config())


def test_decay_of_muon_leaves_out_what_has_a_prior() -> None:
    """The means of a Bayesian LM are held by their prior (Eq. 9), not by weight decay."""
    settings = {"dim": 16, "heads": 2, "layers": 1, "feedforward": 24, "uncertain": "feedforward"}
    lm = build("bayesian", VOCAB, settings)
    still, shrunk = make_optimizers(lm, config(optimizer="muon", muon_decay=0.5))[1].param_groups
    assert [still["weight_decay"], shrunk["weight_decay"]] == [0.0, 0.5]
    undecayed = {name for name in lm.undecayed() if name.startswith("mean.")}
    means = [p for name, p in lm.named_parameters() if p.dim() > 1 and name in undecayed]
    assert {id(mean) for mean in means} == {id(p) for p in still["params"]}
    assert {tuple(p.shape) for p in shrunk["params"]} == {(48, 16), (16, 16)}  # of the attention
    (group,) = make_optimizers(lm, config(optimizer="muon"))[1].param_groups
    assert group["weight_decay"] == 0.0 and len(group["params"]) == len(still["params"] + shrunk["params"])


def test_muon_takes_the_matrices_of_the_layers_and_continues_after_a_kill(tmp_path: Path) -> None:
    settings = config(optimizer="muon", steps=30)
    adamw, muon = make_optimizers(build("transfornn", VOCAB, SETTINGS), settings)
    assert {tuple(p.shape) for p in muon.param_groups[0]["params"]} >= {(64, 16), (24, 16)}  # LSTM, feed-forward
    assert len(adamw.param_groups[0]["params"]) == 1  # the tied embedding
    train("transfornn", SETTINGS, VOCAB, text(0), text(1), tmp_path / "straight", settings)

    def kill(record: dict[str, Any]) -> None:
        if record["step"] == 25:
            raise Killed

    with pytest.raises(Killed):
        train("transfornn", SETTINGS, VOCAB, text(0), text(1), tmp_path / "killed", settings, report=kill)
    train("transfornn", SETTINGS, VOCAB, text(0), text(1), tmp_path / "killed", settings)
    assert records(tmp_path / "killed") == records(tmp_path / "straight")


@pytest.mark.parametrize("name", NEURAL)
def test_muon_has_no_embedding_nor_softmax_layer(name: str) -> None:
    lm = neural(name)
    adamw, muon = make_optimizers(lm, config(optimizer="muon"))
    of = [{id(p) for group in optimizer.param_groups for p in group["params"]} for optimizer in (adamw, muon)]
    by_muon = {name for name, p in lm.named_parameters() if id(p) in of[1]}
    hidden = {"in_proj", "out_proj", "linear_pos", "linear1", "linear2", "rnn", "embed", "norm", "last_norm"}
    assert by_muon == {name for name, p in lm.named_parameters() if p.dim() == 2 and hidden & set(name.split("."))}
    assert not of[0] & of[1] and of[0] | of[1] == {id(p) for p in lm.parameters()}


@pytest.mark.parametrize("valid_every", [3, 100])
def test_a_run_that_diverges_says_so_and_keeps_the_best_model(tmp_path: Path, valid_every: int) -> None:
    plan = config(steps=12, valid_every=3, save_every=4)
    train("transfornn", SETTINGS, VOCAB, text(0), text(1), tmp_path, plan)
    longer = replace(plan, steps=40, valid_every=valid_every)

    lm = new_lm("transfornn", VOCAB, SETTINGS, 1)

    def spoil(record: dict[str, Any]) -> None:
        if record["step"] == 15 and "loss" in record:
            with torch.no_grad():
                lm.output.bias.fill_(math.nan)

    with pytest.raises(ModelError, match=r"training stopped at step \d+: the .* is infinite or no number"):
        train("transfornn", SETTINGS, VOCAB, text(0), text(1), tmp_path, longer, report=spoil, lm=lm)
    for name in ("model.safetensors", "checkpoint/model.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(tmp_path / name).values())
    assert all(math.isfinite(loss) for key in ("loss", "valid_loss") for _, loss in records(tmp_path, key))
