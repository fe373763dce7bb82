"""Runs of a recogniser that begin anew in a folder, or go back: what was there of later goes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from asr.errors import CheckpointError
from asr.model.checkpoint import read_checkpoint
from asr.training.run_identity import LAST, newest
from tests.asr.training.test_train import Killed, batches, config, killer, records, run


def test_a_run_anew_in_the_folder_of_an_older_one_keeps_its_own_checkpoints(tmp_path: Path) -> None:
    run(tmp_path, config(max_steps=None, num_epochs=6))
    settings = config(max_steps=None, num_epochs=1, save_every_n=5, keep_last_k=2, base_lr=0.02)
    (tmp_path / LAST).rename(tmp_path / "aside")
    with pytest.raises(CheckpointError, match=r"checkpoints, such as epoch-6.pt, but no last-checkpoint"):
        run(tmp_path, settings)
    (tmp_path / "aside").rename(tmp_path / LAST)
    run(tmp_path, settings, anew=True)
    names = {path.name for path in tmp_path.glob("*-*.pt")}
    best = {"best-train-loss.pt", "best-valid-loss.pt"}
    assert names == {"checkpoint-5.pt", "checkpoint-10.pt", "epoch-1.pt"} | best
    assert read_checkpoint(tmp_path / "checkpoint-10.pt")["base_lr"] == 0.02


def test_a_run_anew_leaves_the_model_of_an_older_one(tmp_path: Path) -> None:
    run(tmp_path, config(max_steps=None, num_epochs=1))
    (tmp_path / "model/README.md").write_text("of mine")
    with pytest.raises(Killed):  # before there is a model
        run(tmp_path, config(max_steps=None, num_epochs=1), report=killer(5), anew=True)
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["README.md"]
    run(tmp_path, config(max_steps=None, num_epochs=1))
    assert model_steps(tmp_path) == 10


def test_a_run_that_goes_back_leaves_the_later_checkpoints(tmp_path: Path) -> None:
    settings = config(max_steps=None, num_epochs=4, keep_last_k=2, save_every_n=10)
    run(tmp_path, settings)
    with pytest.raises(Killed):
        run(tmp_path, settings, start=tmp_path / "epoch-3.pt", report=killer(35))
    assert newest(tmp_path) == tmp_path / "checkpoint-30.pt"  # with the record of its best model
    assert not (tmp_path / "epoch-4.pt").exists() and not (tmp_path / "checkpoint-40.pt").exists()
    run(tmp_path, settings)
    assert {"epoch-3.pt", "epoch-4.pt", "checkpoint-40.pt"} <= {path.name for path in tmp_path.glob("*.pt")}


@pytest.mark.parametrize("valid", [None, batches(2)])
def test_a_run_that_goes_back_leaves_the_later_best_model(tmp_path: Path, valid: Any) -> None:
    """The model that it goes on from is the best one until there is a better one, with its loss."""
    settings = config(max_steps=None, num_epochs=4)
    run(tmp_path, settings, valid_batches=valid)
    assert model_steps(tmp_path) == 40
    with pytest.raises(Killed):  # before the first validation
        run(tmp_path, settings, valid_batches=valid, start=tmp_path / "epoch-2.pt", report=killer(25))
    assert model_steps(tmp_path) == 20
    assert newest(tmp_path) == tmp_path / "checkpoint-20.pt"
    assert not (tmp_path / "best-train-loss.pt").exists()
    if valid:
        best, kept = (read_checkpoint(tmp_path / name) for name in ("best-valid-loss.pt", "checkpoint-20.pt"))
        assert best["batch_idx_train"] == 20
        assert best["best_valid_loss"] == kept["best_valid_loss"] == records(tmp_path, "valid_loss")[-1][1]
    run(tmp_path, settings, valid_batches=valid)
    assert model_steps(tmp_path) == 40
    assert read_checkpoint(tmp_path / "best-train-loss.pt")["batch_idx_train"] == 40


def test_a_run_that_goes_back_keeps_an_earlier_best_model(tmp_path: Path) -> None:
    calls = itertools.count()

    def worse(number: int, skip: int) -> Iterable[dict[str, Any]]:
        """Features of sense at the first validation alone."""
        factor = 1 - 50 * next(calls)
        return batches(2, lambda batch: {**batch, "features": batch["features"] * factor})(number, skip)

    settings = config(max_steps=None, num_epochs=2, valid_every=10)
    run(tmp_path, settings, valid_batches=worse)
    before = (tmp_path / "best-valid-loss.pt").read_bytes()
    with pytest.raises(Killed):
        run(tmp_path, settings, valid_batches=worse, start=tmp_path / "epoch-1.pt", report=killer(15))
    assert model_steps(tmp_path) == 10
    assert (tmp_path / "best-valid-loss.pt").read_bytes() == before


def model_steps(folder: Path) -> int:
    return int(json.loads((folder / "model/config.json").read_text())["trained"]["steps"])
