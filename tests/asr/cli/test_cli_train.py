"""`asr train` and `asr average` from audio to a model folder, and what they say of options that do not fit."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from asr.cli.main import cli
from asr.cli.train import SETTINGS, command
from asr.dataset.loader import PADDING
from asr.decoding.greedy_search import greedy
from asr.errors import AsrError, ConfigError, DataError
from asr.model.checkpoint import load_model, read_checkpoint
from asr.model.rnnt_loss import check_backend
from asr.training.config import TransducerTrainConfig
from asr.training.run import TrainPlan, make_batches, run_here
from lm_zoo.text.tokenizer import build_pieces
from rescore.errors import RescoreError
from tests.lm_zoo.training.test_processes import free_port

WORDS = {"LOW": 300.0, "MID": 700.0, "HIGH": 1500.0, "TOP": 3000.0}
ENCODER = {"channels": 8, "dim": 32, "layers": 1, "heads": 2, "feedforward": 64, "dropout": 0.0}
CONFIG = {"encoder": ENCODER, "decoder": "stateless", "decoder_dim": 32, "joiner_dim": 32, "decoder_dropout": 0.0}


def spoken(words: list[str], rng: np.random.Generator) -> np.ndarray:
    """A tone of 0.2 s for each word, after 0.1 s of near silence; 16 kHz."""
    parts = []
    for word in words:
        time = np.arange(3200) / 16000
        parts += [np.zeros(1600), 0.3 * np.sin(2 * np.pi * WORDS[word] * rng.uniform(0.97, 1.03) * time)]
    samples = np.concatenate([*parts, np.zeros(1600)])
    return (samples + 0.003 * rng.standard_normal(len(samples))).astype(np.float32)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 utterances of three tone words, their tokens, and a tiny configuration."""
    lhotse = pytest.importorskip("lhotse")
    soundfile = pytest.importorskip("soundfile")
    folder = tmp_path_factory.mktemp("tones")
    rng = np.random.default_rng(0)
    cuts = []
    for index in range(48):
        words = rng.choice(list(WORDS), 3).tolist()
        soundfile.write(folder / f"u{index}.wav", spoken(words, rng), 16000)
        recording = lhotse.Recording.from_file(folder / f"u{index}.wav")
        segment = lhotse.SupervisionSegment(f"u{index}", f"u{index}", 0.0, recording.duration, text=" ".join(words))
        cuts.append(lhotse.MonoCut(f"u{index}", 0.0, recording.duration, 0, [segment], recording=recording))
    lhotse.CutSet.from_cuts(cuts).to_file(folder / "cuts.jsonl.gz")
    build_pieces(dict.fromkeys(WORDS, 5), 26, "bpe").save(folder)
    (folder / "tiny.json").write_text(json.dumps(CONFIG))
    return folder


def asr(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if isinstance(result.exception, RescoreError):
        raise result.exception
    return result


def training(data: Path, out: Path, *more: object) -> Result:
    plan = ["--warm-step", 6, "--log-every", 10, "--enable-spec-aug", "false", "--seed", 1]
    model = ["--config", data / "tiny.json", "--bpe-model", data / "bpe.model"] if "--init" not in more else []
    return asr("train", "--train-cuts", data / "cuts.jsonl.gz", "--exp-dir", out, *model, *plan, *more)


def losses(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [line["pruned"] for line in lines if "pruned" in line]


@pytest.mark.slow
def test_tones_are_learnt_averaged_and_learnt_on(data: Path, tmp_path: Path) -> None:
    plan = ["--max-duration", 8, "--base-lr", 0.01, "--optimizer", "muon"]
    plan += ["--max-steps", 180, "--save-every-n", 5, "--valid-every", 60]
    done = training(data, tmp_path, *plan, "--valid-cuts", data / "cuts.jsonl.gz")
    assert done.exit_code == 0, done.output
    assert "M parameters, 26 tokens" in done.output and "s of audio a second" in done.output
    assert "validation loss" in done.output
    assert losses(tmp_path)[-1] < 0.02 * losses(tmp_path)[0]
    assert right(tmp_path / "model", data) > 0.6

    last = 180
    done = asr("average", "--exp-dir", tmp_path, "--iter", last, "--avg", 2, "--half")
    assert f"average of checkpoint-{last}.pt, checkpoint-{last - 5}.pt" in done.output
    folder = tmp_path / f"iter-{last}-avg-2"
    assert json.loads((folder / "config.json").read_text())["trained"]["steps"] == last
    again = tmp_path / "again"
    done = training(data, again, "--init", folder, "--max-steps", 10, "--base-lr", 0.0001, "--max-duration", 8)
    assert done.exit_code == 0, done.output
    assert losses(again)[0] < 2.0 * losses(tmp_path)[-1]


@torch.no_grad()
def right(folder: Path, data: Path) -> float:
    """The share of the training utterances that a greedy search gets wholly right."""
    from asr.dataset.loader import LoaderOptions, make_loader
    from asr.dataset.manifests import load_cuts

    model, vocab = load_model(folder)
    good = total = 0
    for batch in make_loader(load_cuts(data / "cuts.jsonl.gz"), LoaderOptions(shuffle=False))(1, 0):
        for row, text in zip(
            greedy(model, *model.encoder(batch["features"], batch["lengths"])), batch["texts"], strict=True
        ):
            good += vocab.processor.decode(list(row[0].tokens)) == text
            total += 1
    assert total == 48
    return good / total


def test_a_process_that_loads_data_and_ends_is_one_error(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of one that the system has killed for its memory."""
    monkeypatch.setattr("asr.dataset.loader.load_samples", lambda cut: os._exit(9))
    with pytest.raises(DataError, match=r"data has ended \(DataLoader worker .*\): the memory, .* fewer --num-workers"):
        training(data, tmp_path, "--num-epochs", 1, "--num-workers", 1)


@pytest.mark.slow
def test_a_run_continues_where_it_is_told_to(data: Path, tmp_path: Path) -> None:
    plan = ("--num-epochs", 3, "--save-every-n", 2, "--max-duration", 24)
    training(data, tmp_path, *plan)
    whole = read_checkpoint(tmp_path / "epoch-3.pt")
    done = training(data, tmp_path, *plan, "--start-epoch", 3)
    assert "epoch-2.pt, epoch 3" in done.output
    assert same(whole, read_checkpoint(tmp_path / "epoch-3.pt"))
    done = training(data, tmp_path, *plan, "--start-batch", 4)
    assert "checkpoint-4.pt" in done.output
    assert same(whole, read_checkpoint(tmp_path / "epoch-3.pt"))
    done = training(data, tmp_path, *plan, "--start-epoch", 1)
    assert "continuing" not in done.output
    assert same(whole, read_checkpoint(tmp_path / "epoch-3.pt"))
    assert "continuing from" in training(data, tmp_path, *plan).output  # finished: nothing more to do


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.allclose(tensor, other["model"][name], atol=1e-6) for name, tensor in one["model"].items())


def test_options_that_do_not_fit_each_other(data: Path, tmp_path: Path) -> None:
    cases: list[tuple[list[object], type[AsrError], str]] = [
        (["--max-steps", 5, "--lr-epochs", 3], ConfigError, "are for runs without --max-steps"),
        (["--use-fp16", 1, "--use-bf16", 1], ConfigError, "expected one of them"),
        (["--enable-musan", 1], ConfigError, "needs the noise: --musan-cuts"),
        (["--use-fp16", 1], ConfigError, "float16 needs a GPU"),
        (["--prune-range", 1], ConfigError, "prune_range is 1"),
        (["--init", data], AsrError, "not a model folder"),
        (["--init", tmp_path / "x/model", "--start-epoch", 1], ConfigError, "--start-epoch 1 removes it; choose"),
        (["--start-batch", 7], AsrError, r"checkpoint-7.pt: no such checkpoint"),
    ]
    for options, error, message in cases:
        with pytest.raises(error, match=message):
            training(data, tmp_path / "x", *options)
    with pytest.raises(ConfigError, match=r"needs --config and --bpe-model"):
        asr("train", "--train-cuts", data / "cuts.jsonl.gz", "--exp-dir", tmp_path)
    with pytest.raises(AsrError, match=r"no_such.model: no such file, expected the sentencepiece model"):
        asr(*["train", "--train-cuts", "x", "--exp-dir", tmp_path, "--config", "small", "--bpe-model", "no_such.model"])


@pytest.mark.parametrize(
    ("file", "typed", "kept"),
    [
        ({"num_epochs": 40}, ["--max-steps", "4"], {"max_steps": 4}),
        ({"max_minutes": 240}, ["--num-epochs", "2", "--seed", "1"], {"num_epochs": 2, "seed": 1}),
        ({"num_epochs": 40}, ["--lr-epochs", "3"], {"num_epochs": 40, "lr_epochs": 3.0}),
    ],
)
def test_how_long_a_recipe_says_gives_way_to_the_command_line(
    file: dict[str, Any], typed: list[str], kept: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[TransducerTrainConfig] = []
    monkeypatch.setattr("asr.training.run.run", lambda plan, config: found.append(config))
    line = ["--train-cuts", "x", "--valid-cuts", "x", "--exp-dir", str(tmp_path), *typed]
    CliRunner().invoke(command, line, default_map=file, catch_exceptions=False)
    assert found == [TransducerTrainConfig(dtype="float32", **kept)]
    with pytest.raises(ConfigError, match="are for runs without --max-steps"):
        both = {"num_epochs": 40, "max_steps": 3}
        CliRunner().invoke(command, line[: -len(typed)], default_map=both, catch_exceptions=False)


def test_settings_of_the_model(data: Path, tmp_path: Path) -> None:
    """They are kept with the model; the run goes on with the same ones alone."""
    plan = ("--max-steps", 1, "--max-duration", 8)
    changed = ("--set", "encoder.s4_dim=3", "--context-size", 1)
    assert training(data, tmp_path, *plan, *changed).exit_code == 0
    config = json.loads((tmp_path / "model" / "config.json").read_text())["config"]
    assert (config["encoder"]["s4_dim"], config["context_size"], config["vocab_size"]) == (3, 1, 26)
    assert "continuing" in training(data, tmp_path, *plan, "--set", "context_size=1", *changed[:2]).output
    with pytest.raises(AsrError, match=r"it has encoder.s4_dim 3, now 2; context_size 1, now 2; choose another --exp-"):
        training(data, tmp_path, *plan)
    for options, message in [
        (["--set", "encoder.s4_dim"], "expected NAME=VALUE"),
        (["--set", "vocab_size=30"], "vocab_size is the number of tokens of --bpe-model"),
        (["--set", "encoder.features=40"], "found an encoder of 40 features, expected 80"),
        (["--init", tmp_path / "model", "--set", "encoder.s4_dim=3"], "leave out --config, --set and --context-size"),
    ]:
        with pytest.raises(RescoreError, match=message):
            training(data, tmp_path / "x", *plan, *options)


def test_the_loss_of_both_backends_is_the_same(data: Path, tmp_path: Path) -> None:
    try:
        import k2  # noqa: F401
    except ImportError as error:
        pytest.skip(f"k2: {error}")
    plan = ("--max-steps", 1, "--max-duration", 8, "--log-every", 1)
    for backend in ("torch", "k2"):
        assert training(data, tmp_path / backend, *plan, "--loss-backend", backend).exit_code == 0
    assert losses(tmp_path / "torch") == pytest.approx(losses(tmp_path / "k2"), rel=1e-5)


def test_the_k2_backend_needs_k2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "k2", None)
    with pytest.raises(ConfigError, match="the loss backend k2 needs k2, which cannot be imported"):
        training(tmp_path / "nothing", tmp_path, "--loss-backend", "k2")  # told before any file is looked for
    monkeypatch.setitem(sys.modules, "k2", SimpleNamespace(with_cuda=False))
    check_backend("k2", "cpu")
    with pytest.raises(ConfigError, match="this k2 was built without CUDA"):
        check_backend("k2", "cuda:1")


def test_the_help_tells_the_defaults() -> None:
    """Of all settings that have one: at the end of each text, in brackets."""
    for item in fields(TransducerTrainConfig):
        if item.name in SETTINGS and item.default is not None:
            told = re.findall(r"\[(\S+?)\]", SETTINGS[item.name][1])
            value = item.default if isinstance(item.default, str) else f"{item.default:g}"
            assert told == [value], item.name


Loaders = tuple[Any, Any]


def of_this_rank(recipe: TrainPlan, settings: TransducerTrainConfig) -> Loaders:
    return tuple(in_double(loader, [loader]) for loader in make_batches(recipe, settings))  # type: ignore[return-value]


def of_both_ranks(recipe: TrainPlan, settings: TransducerTrainConfig) -> Loaders:
    """The loaders of one process that takes in one batch what two processes take in one step."""
    loaders = []
    for rank in ("0", "1"):
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("RANK", rank)
            environment.setenv("WORLD_SIZE", "2")
            loaders.append(make_batches(recipe, settings))
    return in_double(loaders[0][0], [training for training, _ in loaders]), in_double(loaders[0][1], [loaders[0][1]])


def in_double(like: Any, loaders: list[Any]) -> Any:
    """A loader like `like`, of batches in float64, each the batches of all loaders in one."""

    def batches(epoch: int, skip: int) -> Iterator[dict[str, Any]]:
        for parts in zip(*(loader(epoch, skip) for loader in loaders), strict=False):
            rows = [part["features"][i, :length] for part in parts for i, length in enumerate(part["lengths"].tolist())]
            yield {
                "features": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING).double(),
                "lengths": torch.cat([part["lengths"] for part in parts]),
                **{name: [item for part in parts for item in part[name]] for name in ("texts", "ids")},
            }

    batches.left_out = like.left_out  # type: ignore[attr-defined]
    return batches


def run_in_double(recipe: TrainPlan, settings: TransducerTrainConfig) -> None:
    """`asr.training.run.run_here` in float64, for AdamW takes steps of rounding errors where a gradient is zero."""
    loaders = of_this_rank if "WORLD_SIZE" in os.environ else of_both_ranks
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("asr.training.run.make_batches", loaders)
            run_here(recipe, settings)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.slow
def test_two_processes_train_like_one_with_both_batches(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--world-size 2`: the same losses and weights; utterances of several lengths, a second epoch."""
    plan = ["--max-steps", 9, "--max-duration", 4, "--speed-perturb", "true", "--valid-cuts", data / "cuts.jsonl.gz"]
    plan += ["--log-every", 1, "--ctc-scale", 0.2, "--base-lr", 0.01, "--optimizer", "adamw"]
    monkeypatch.setattr("asr.training.run.run_here", run_in_double)
    training(data, tmp_path / "one", *plan)
    training(data, tmp_path / "two", *plan, "--world-size", 2, "--master-port", free_port())
    one, two = logged(tmp_path / "one"), logged(tmp_path / "two")
    assert [line["step"] for line in one] == [*range(1, 10), 9] and one[8]["epoch"] == 2
    for line, other in zip(one, two, strict=True):
        for name, value in line.items():
            assert other[name] == pytest.approx(value, rel=1e-5), (line["step"], name)
    weights, others = (read_checkpoint(tmp_path / name / "checkpoint-9.pt")["model"] for name in ("one", "two"))
    for name, tensor in weights.items():
        assert torch.allclose(others[name], tensor, rtol=1e-5, atol=1e-5), name


def logged(folder: Path) -> list[dict[str, float]]:
    """The log's records without speeds and times."""
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [{name: line[name] for name in line if name[-2:] != "_s" and name != "seconds"} for line in lines]
