"""The training loop: it learns, continues after a kill, and ends its budget at a rate of zero."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asr.errors import CheckpointError, ConfigError
from asr.model.average import between
from asr.model.checkpoint import read_checkpoint
from asr.model.config import EncoderConfig, TransducerConfig
from asr.training import train as loop
from asr.training.config import TransducerProgress, TransducerTrainConfig
from asr.training.schedule import inner_matrices, rate_share
from asr.training.step import Batches, noisy
from asr.training.train import train
from lm_zoo.text.tokenizer import build_pieces
from lm_zoo.text.vocabulary import PieceVocabulary
from lm_zoo.training.distributed import Ranks
from lm_zoo.training.run_log import summary_writer
from lm_zoo.training.runtime import Progress, TrainingRun

WORDS = ["LOW", "MID", "HIGH", "TOP"]


@cache
def vocabulary() -> PieceVocabulary:
    return build_pieces(dict.fromkeys(WORDS, 5), 16, "bpe")


@dataclass
class Loss:
    simple: Tensor
    pruned: Tensor
    ctc: Tensor | None
    problems: dict[int, str]


class StandIn(nn.Module):
    """A model with a Transducer's interface: CTC on the mean of four frames, spoilt at will."""

    def __init__(self, dim: int = 24, dropout: float = 0.1) -> None:
        super().__init__()
        size = len(vocabulary())
        self.config = TransducerConfig(vocab_size=size, encoder=EncoderConfig(features=8, dim=dim, heads=2))
        self.inner = nn.Sequential(nn.Linear(8, dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dim, dim), nn.ReLU())
        self.simple_am = nn.Linear(dim, size)
        self.ctc = nn.Identity()  # the head, of which the loss makes no use

    @property
    def decoder(self) -> nn.Module:
        """What noise is added to."""
        return self.simple_am

    def loss(self, features: Tensor, lengths: Tensor, tokens: list[list[int]], options: Any) -> Loss:
        frames = features.unflatten(1, (-1, 4)).mean(2)
        scores = self.decoder(self.inner(frames)).log_softmax(-1)
        sizes = torch.tensor([len(row) for row in tokens])
        flat = torch.tensor([token for row in tokens for token in row])
        ctc = nn.functional.ctc_loss(scores.float().transpose(0, 1), flat, lengths // 4, sizes, reduction="none")
        ctc = ctc * torch.where(features[:, 0, 0] > 90, float("nan"), 1.0)
        return Loss(ctc, ctc, None, dict.fromkeys(torch.nonzero(ctc == 0).flatten().tolist(), "not finite: zero"))


def batch(number: int, size: int = 4) -> dict[str, Any]:
    """Words as steady features of 16 frames: one feature a word."""
    rng = torch.Generator().manual_seed(number)
    spoken = torch.randint(len(WORDS), (size, 3), generator=rng)
    features = torch.nn.functional.one_hot(spoken, 8).float().repeat_interleave(48, 1)
    features += 0.1 * torch.randn(features.shape, generator=rng)
    texts = [" ".join(WORDS[word] for word in row) for row in spoken.tolist()]
    return {
        "features": features,
        "lengths": torch.full((size,), features.shape[1]),
        "texts": texts,
        "ids": [f"utt{number}-{index}" for index in range(size)],
    }


def batches(count: int = 10, spoil: Any = lambda batch: batch) -> Batches:
    def epoch(number: int, skip: int) -> Iterable[dict[str, Any]]:
        return (spoil(batch(1000 * number + index)) for index in range(skip, count))

    return epoch


def config(**changes: Any) -> TransducerTrainConfig:
    values = {"max_steps": 40, "warm_step": 5, "base_lr": 0.01, "valid_every": 20, "save_every_n": 10, "log_every": 5}
    return TransducerTrainConfig(**(values | {"average_period": 10} | changes))


def run(out: Path, settings: TransducerTrainConfig, **changes: Any) -> TransducerProgress:
    torch.manual_seed(1)
    values = {"train_batches": batches(), "valid_batches": batches(2)} | changes
    model = values.pop("model", None) or StandIn()
    return train(model, vocabulary(), out=out, config=settings, **values)


def records(folder: Path, key: str = "loss") -> list[tuple[int, float]]:
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [(line["step"], line[key]) for line in lines if key in line]


def test_averages_of_a_run_are_those_of_the_models_it_went_through(tmp_path: Path) -> None:
    """Seven batches an epoch, a running average every five: checkpoints stand between its updates."""
    model, seen = StandIn(), list[dict[str, Tensor]]()

    def keep(record: dict[str, Any]) -> None:
        if "loss" in record:
            seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})

    settings = config(max_steps=None, num_epochs=4, average_period=5, log_every=1, valid_every=100)
    run(tmp_path, settings, model=model, train_batches=batches(7), valid_batches=None, report=keep)
    assert len(seen) == 28
    for last, first in ((3, 1), (4, 3), (2, 1), (4, 0)):
        paths = [tmp_path / f"epoch-{last}.pt", tmp_path / f"epoch-{first}.pt"]
        ends = [read_checkpoint(path) if path.exists() else None for path in paths]
        assert ends[0] is not None
        found = between(ends[0], ends[1], paths)
        chosen = [seen[batch - 1] for batch in range(5, 29, 5) if 7 * first // 5 * 5 < batch <= 7 * last]
        assert len(chosen) == 7 * last // 5 - 7 * first // 5
        for name in found:
            expected = torch.stack([weights[name].double() for weights in chosen]).mean(0)
            torch.testing.assert_close(found[name], expected.float(), rtol=1e-5, atol=1e-6)


class Killed(Exception):
    pass


def killer(step: int) -> Any:
    def kill(record: dict[str, Any]) -> None:
        if record["step"] == step:
            raise Killed

    return kill


def test_it_learns_and_keeps_icefalls_files(tmp_path: Path) -> None:
    progress = run(tmp_path, config(max_steps=None, num_epochs=6))
    assert progress.finished and (progress.epoch, progress.step) == (7, 60)
    losses = [loss for _, loss in records(tmp_path)]
    assert losses[-1] < 0.4 * losses[0]
    names = {path.name for path in tmp_path.glob("*.pt")}
    assert {"epoch-1.pt", "epoch-6.pt", "checkpoint-30.pt", "best-train-loss.pt", "best-valid-loss.pt"} <= names
    contents = read_checkpoint(tmp_path / "epoch-6.pt")
    keys = {"model", "model_avg", "optimizer", "scheduler", "grad_scaler", "sampler", "batch_idx_train", "cur_epoch"}
    assert keys <= contents.keys()
    assert contents["batch_idx_train"] == 60 and contents["average_period"] == 10
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert summary_writer(tmp_path / "again", print) is None or list((tmp_path / "tensorboard").iterdir())


@pytest.mark.parametrize("changes", [{}, {"max_steps": None, "num_epochs": 4}, {"variational_noise": 0.05}])
def test_a_killed_run_continues_in_mid_epoch_with_the_same_losses(tmp_path: Path, changes: dict[str, Any]) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    settings = config(save_every_n=7, **changes)
    run(straight, settings)
    with pytest.raises(Killed):
        run(killed, settings, report=killer(25))
    progress = run(killed, settings)
    assert progress.step == 40 and records(killed) == records(straight)
    assert records(killed, "valid_loss") == records(straight, "valid_loss")
    if not changes:
        ends = [read_checkpoint(folder / "checkpoint-40.pt")["model_avg"] for folder in (straight, killed)]
        assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())


def test_the_speed_is_that_of_all_steps_since_the_last_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither ends of epochs nor validations make it faster or slower; all batches are alike here."""
    ticks = itertools.count()
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    settings = config(max_steps=None, num_epochs=5, log_every=5, valid_every=4)
    run(tmp_path, settings, train_batches=batches(7))
    speeds = [speed for _, speed in records(tmp_path, "frames_per_s")]
    assert len(speeds) == 7 and len(set(speeds)) == 1


def test_other_batches_in_mid_epoch_are_said(tmp_path: Path) -> None:
    said: list[str] = []
    made = {"train_cuts": ["a"], "max_duration": 200.0}
    with pytest.raises(Killed):
        run(tmp_path, config(save_every_n=6, log_every=1), made_of=made, report=killer(8), train_batches=batches(20))
    now = {"train_cuts": ["a"], "max_duration": 100.0}
    progress = run(tmp_path, config(max_steps=7), made_of=now, remark=said.append, train_batches=batches(40))
    assert progress.batch == 13  # 6 batches of 200 s are 12 of 100 s, and one more
    assert any("(max_duration 200.0, now 100.0); the epoch goes on at about batch 12" in line for line in said)


def test_longer_batches_do_not_end_the_epoch(tmp_path: Path) -> None:
    """Two of three batches of 100 s are no whole one of 300 s."""
    with pytest.raises(Killed):
        made = {"max_duration": 100.0}
        run(tmp_path, config(save_every_n=2, log_every=1), made_of=made, report=killer(3), train_batches=batches(3))
    used: list[int] = []

    def one_batch(epoch: int, skip: int) -> Iterator[Any]:
        used.append(skip)
        yield from batches(1)(epoch, skip)

    run(tmp_path, config(max_steps=3), made_of={"max_duration": 300.0}, train_batches=one_batch)
    assert used == [0]


@pytest.mark.parametrize("batch", [6, 20])
def test_other_augmentation_is_said(batch: int, tmp_path: Path) -> None:
    """In mid-epoch and at the end of one; the batches are the same ones."""
    said: list[str] = []
    made = {"max_duration": 200.0, "enable_spec_aug": True, "musan_cuts": None}
    with pytest.raises(Killed):
        kill = killer(batch + 2)
        run(tmp_path, config(save_every_n=6, log_every=1), made_of=made, report=kill, train_batches=batches(batch))
    now = {**made, "enable_spec_aug": False, "musan_cuts": "noise.jsonl.gz"}
    progress = run(tmp_path, config(max_steps=24), made_of=now, remark=said.append, train_batches=batches(batch))
    assert progress.step == 24
    found = '(enable_spec_aug true, now false; musan_cuts null, now "noise.jsonl.gz")'
    assert f"{tmp_path}: goes on with other training data {found}" in said


def test_muon_takes_the_inner_matrices_and_continues_after_a_kill(tmp_path: Path) -> None:
    model = StandIn()
    assert [tuple(p.shape) for p in inner_matrices(model)] == [(24, 8), (24, 24)]  # not the layer of the tokens
    settings = config(optimizer="muon")
    run(tmp_path / "straight", settings)
    with pytest.raises(Killed):
        run(tmp_path / "killed", settings, report=killer(25))
    run(tmp_path / "killed", settings)
    assert records(tmp_path / "killed") == records(tmp_path / "straight")
    assert records(tmp_path / "straight")[-1][1] < 0.5 * records(tmp_path / "straight")[0][1]
    with pytest.raises(CheckpointError, match=r"the run has another optimizer than adamw"):
        run(tmp_path / "killed", config())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_gradients_that_are_no_numbers_move_no_weights_whichever_optimiser_has_them(optimizer: str) -> None:
    model = StandIn()
    settings = config(optimizer=optimizer)
    made = loop.TransducerRun(model, vocabulary(), settings, Path(), {}, Ranks.start("cpu"), print, print)
    made.scaler = FoundPerOptimizer()
    before = [p.detach().clone() for p in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model.simple_am.weight.grad = torch.full_like(model.simple_am.weight, float("nan"))
    assert not made._update() and made.scaler.updated
    assert all(map(torch.equal, before, model.parameters()))


class FoundPerOptimizer:
    """A scaler of float16, which notes infinities for each optimiser by itself and steps the others."""

    updated = False

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None: ...

    def is_enabled(self) -> bool:
        return True

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    def update(self) -> None:
        self.updated = True


class ScalesAsTorch(FoundPerOptimizer):
    """Its state is that of torch's scaler, which refuses that of one that is not enabled."""

    loaded: dict[str, Any] | None = None

    def scale(self, loss: Tensor) -> Tensor:
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {"scale": 2.0**16}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not state:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance")
        self.loaded = state


def test_a_run_in_float32_goes_on_in_float16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no scale to take over; later there is."""
    run(tmp_path, config(max_steps=10))
    scaler = ScalesAsTorch()
    monkeypatch.setattr(loop, "grad_scaler", lambda enabled: scaler)
    assert run(tmp_path, config(max_steps=15)).step == 15
    assert scaler.loaded is None
    assert run(tmp_path, config(max_steps=20)).step == 20
    assert scaler.loaded == {"scale": 2.0**16}


def test_a_finished_run_goes_on_when_asked_for_more_or_says_that_it_does_not(tmp_path: Path) -> None:
    lines: list[str] = []
    assert run(tmp_path / "steps", config(max_steps=10)).step == 10
    assert run(tmp_path / "steps", config(max_steps=20), remark=lines.append).step == 20
    assert not any("is finished" in line for line in lines)
    assert run(tmp_path / "steps", config(max_steps=20), remark=lines.append).step == 20
    assert lines[-1].endswith("the run there is finished; it goes on with more (--max-steps or --max-minutes)")
    epochs = config(max_steps=None, num_epochs=1)
    assert run(tmp_path / "epochs", epochs).step == 10
    assert run(tmp_path / "epochs", epochs, remark=lines.append).step == 10
    assert lines[-1].endswith("it goes on with more (--num-epochs)")
    assert run(tmp_path / "epochs", config(max_steps=None, num_epochs=2)).step == 20


@pytest.mark.parametrize("valid", [None, batches(2)])
@pytest.mark.parametrize(("length", "epochs"), [({"max_steps": None, "num_epochs": 2}, 2), ({"max_steps": 25}, 3)])
def test_the_model_folder_says_how_many_epochs_it_has_seen(
    tmp_path: Path, valid: Any, length: dict[str, Any], epochs: int
) -> None:
    """Ten batches are an epoch; one that was begun counts."""
    run(tmp_path, config(**length, valid_every=100), valid_batches=valid)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["trained"]["epochs"] == epochs


def test_a_warm_up_that_the_run_does_not_end_is_told_of(tmp_path: Path) -> None:
    """Behind the first epoch, of ten batches; of a budget the warm-up is a tenth at most."""
    lines: list[str] = []
    run(tmp_path / "short", config(max_steps=None, num_epochs=2, warm_step=80), remark=lines.append)
    (line,) = (line for line in lines if "warm-up" in line)
    assert "takes 80 batches, the run about 20 (2 epochs): the learning rate comes to 25% of its highest" in line
    for settings in (config(max_steps=None, num_epochs=2, warm_step=20), config(warm_step=99)):
        run(tmp_path / str(settings.warm_step), settings, remark=lines.append)
    assert sum("warm-up" in line for line in lines) == 1


def test_a_step_is_validated_once(tmp_path: Path) -> None:
    settings = config(max_steps=None, num_epochs=3, valid_every=5)
    assert run(tmp_path, settings, valid_batches=batches(2)).step == 30
    assert [step for step, _ in records(tmp_path, "valid_loss")] == [5, 10, 15, 20, 25, 30]


def test_batches_that_other_processes_have_used_are_not_used_again(tmp_path: Path) -> None:
    lines: list[str] = []
    made = TrainingRun(tmp_path, Ranks(0, 1, torch.device("cpu")), print, lines.append)
    made.progress = Progress(batch=10)
    made.share_batches(2)
    assert made.progress.batch == 20 and "had 2 processes until here, now 1" in lines[0]
    made.share_batches(1)
    assert made.progress.batch == 20 and len(lines) == 1


def test_a_budget_ends_at_a_rate_of_zero_and_eden_falls_by_batches_and_epochs() -> None:
    steps = TransducerTrainConfig(max_steps=100, warm_step=500)
    rates = [rate_share(steps, TransducerProgress(step=step)) for step in (0, 5, 10, 55, 100)]
    assert rates == pytest.approx([1 / 500, 0.5 * 0.95, 0.9, 0.45, 0.0])  # the warm-up is a tenth of the budget
    minutes = TransducerTrainConfig(max_minutes=2, max_steps=1000, warm_step=10)
    assert rate_share(minutes, TransducerProgress(step=30, seconds=60.0)) == pytest.approx(0.5)
    eden = TransducerTrainConfig(warm_step=0, lr_batches=10, lr_epochs=2)
    assert rate_share(eden, TransducerProgress(step=0, epoch=1)) == 1.0
    assert rate_share(eden, TransducerProgress(step=30, epoch=5)) == pytest.approx(10**-0.25 * 5**-0.25)


def test_a_budget_of_time_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(100000))
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(ticks) / 4)
    progress = run(tmp_path, config(max_steps=None, max_minutes=0.5))
    assert progress.finished and 30.0 <= progress.seconds < 40.0
    assert records(tmp_path, "lr")[-1][1] < 0.1 * 0.01
    assert run(tmp_path, config(max_steps=None, max_minutes=0.5)).step == progress.step  # nothing more to do


def test_settings_and_checkpoints_that_do_not_fit(tmp_path: Path) -> None:
    for changes, message in (
        ({"optimizer": "sgd"}, r"there are: adamw, muon"),
        ({"dtype": "float16"}, r"float16 needs a GPU"),
        ({"dtype": "int8"}, r"found the dtype 'int8'"),
        ({"max_steps": 0}, r"max_steps is 0, expected more than 0"),
        ({"seed": -1}, r"seed is -1, expected 0 or more"),
        ({"seed": 1 << 63}, r"seed is 9223372036854775808, expected less than 9223372036854775808"),  # torch's overflow
        ({"prune_range": 1}, r"prune_range is 1, expected 2 or more"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(tmp_path, config(**changes))
    run(tmp_path, config(max_steps=10))
    with pytest.raises(CheckpointError, match=r"not of a run with this configuration"):
        run(tmp_path, config(), model=StandIn(dim=20))
    with pytest.raises(CheckpointError, match=r"not of a run with these settings: it has clip 5.0, now 1.0; choose"):
        run(tmp_path, config(clip=1.0))
    with pytest.raises(CheckpointError, match=r"epoch-9.pt: no such checkpoint"):
        run(tmp_path, config(), start=tmp_path / "epoch-9.pt")


def test_old_checkpoints_go(tmp_path: Path) -> None:
    run(tmp_path, config(save_every_n=5, keep_last_k=2))
    names = {path.name for path in tmp_path.glob("*-*.pt")}
    assert names == {"checkpoint-35.pt", "checkpoint-40.pt", "epoch-2.pt", "epoch-3.pt"} | {
        "best-train-loss.pt",
        "best-valid-loss.pt",
    }


def test_noise_is_taken_away_again() -> None:
    layer = nn.Linear(4, 4)
    before = layer.weight.detach().clone()
    with noisy(list(layer.parameters()), 0.1):
        assert 0.03 < (layer.weight - before).std() < 0.3
    assert torch.equal(layer.weight, before)
