"""The training loop: it learns, continues after a kill, ends its budget at a rate of zero, survives bad utterances."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asr import train as loop
from asr.checkpoint import read_checkpoint
from asr.config import EncoderConfig, TransducerConfig
from asr.train import Progress, TrainConfig, train
from lm_zoo.base import PieceVocabulary
from lm_zoo.tokenizer import build_pieces

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

    def __init__(self, dim: int = 24) -> None:
        super().__init__()
        size = len(vocabulary())
        self.config = TransducerConfig(vocab_size=size, encoder=EncoderConfig(features=8, dim=dim, heads=2))
        self.inner = nn.Sequential(nn.Linear(8, dim), nn.ReLU(), nn.Dropout(0.1), nn.Linear(dim, dim), nn.ReLU())
        self.decoder = nn.Linear(dim, size)
        self.seen: list[list[int]] = []

    def loss(self, features: Tensor, lengths: Tensor, tokens: list[list[int]], options: Any) -> Loss:
        self.seen += tokens
        frames = features.unflatten(1, (-1, 4)).mean(2)
        scores = self.decoder(self.inner(frames)).log_softmax(-1)
        sizes = torch.tensor([len(row) for row in tokens])
        flat = torch.tensor([token for row in tokens for token in row])
        ctc = nn.functional.ctc_loss(scores.float().transpose(0, 1), flat, lengths // 4, sizes, reduction="none")
        ctc = ctc + torch.where(features[:, 0, 0] > 90, float("nan"), 0.0)
        return Loss(ctc, ctc, None, dict.fromkeys(torch.nonzero(ctc == 0).flatten().tolist(), "bad: zero"))


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


def batches(count: int = 10, spoil: Any = lambda batch: batch) -> loop.Batches:
    def epoch(number: int, skip: int) -> Iterable[dict[str, Any]]:
        return (spoil(batch(1000 * number + index)) for index in range(skip, count))

    return epoch


def config(**changes: Any) -> TrainConfig:
    values = {"max_steps": 40, "warm_step": 5, "base_lr": 0.01, "valid_every": 20, "save_every_n": 10, "log_every": 5}
    return TrainConfig(**(values | {"average_period": 10} | changes))


def run(out: Path, settings: TrainConfig, **changes: Any) -> Progress:
    torch.manual_seed(1)
    values = {"train_batches": batches(), "valid_batches": batches(2)} | changes
    model = values.pop("model", None) or StandIn()
    return train(model, vocabulary(), out=out, config=settings, **values)


def records(folder: Path, key: str = "loss") -> list[tuple[int, float]]:
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [(line["step"], line[key]) for line in lines if key in line]


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
    assert loop.summary_writer(tmp_path / "again") is None or list((tmp_path / "tensorboard").iterdir())


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
    ends = [read_checkpoint(folder / "checkpoint-40.pt") for folder in (straight, killed)] if changes == {} else []
    for name, tensor in ends[0]["model_avg"].items() if ends else ():
        assert torch.equal(tensor, ends[1]["model_avg"][name])
