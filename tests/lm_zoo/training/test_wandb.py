"""Records for Weights & Biases, to a stand-in of its package."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lm_zoo.errors import ModelError
from lm_zoo.training.run import TextRecipe, run


class Wandb:
    """In the place of the package wandb: what was begun, logged and finished."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.finished = 0

    def init(self, **options: Any) -> Any:
        self.begun.append(options)
        return SimpleNamespace(id="abc", log=self.log, finish=self.finish)

    def log(self, figures: dict[str, Any], step: int) -> None:
        self.logged.append((step, figures))

    def finish(self) -> None:
        self.finished += 1


def trained(folder: Path, **options: Any) -> None:
    (folder / "text").write_text("A B C\nB A\n" * 30)
    recipe = TextRecipe([str(folder / "text")], str(folder / "text"), tokens="word")
    plan = {"steps": 4, "log_every": 2, "warmup": 1, **options}
    run("lstm", {"dim": 8}, recipe, plan, str(folder / "run"), "cpu", lambda line: None)


def test_every_record_goes_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    trained(tmp_path, wandb="lms")
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [{"step": step, **figures} for step, figures in wandb.logged] == [
        {"step": record.pop("step"), **record} for record in records
    ]
    (begun,) = wandb.begun
    assert (begun["project"], begun["name"], begun["id"], begun["resume"]) == ("lms", "run", None, "allow")
    assert begun["config"]["kind"] == "lstm" and begun["config"]["settings"]["dim"] == 8 and wandb.finished == 1
    trained(tmp_path, wandb="lms", steps=6)  # goes on as the same one
    assert wandb.begun[1]["id"] == "abc" and [step for step, _ in wandb.logged][-1] == 6
    trained(tmp_path, steps=8)  # and without
    assert len(wandb.begun) == 2


def test_without_the_package_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModelError, match=r"need the package wandb .*; pip install wandb, or leave --train wandb=PROJ"):
        trained(tmp_path, wandb="lms")
    assert not (tmp_path / "run").exists()
