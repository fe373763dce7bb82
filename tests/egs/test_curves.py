"""Curves of training runs: the points are those of the logs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from lm_zoo.training.train import train
from rescore.errors import UsageError
from tests.egs.conftest import ROOT
from tests.lm_zoo.training.test_train import VOCAB, config, text


def curves() -> Any:
    spec = importlib.util.spec_from_file_location("curves", ROOT / "egs" / "shared" / "curves.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    plan = config(text="windows", passes=3, valid_every=0)
    for name, goes_on in (("one", 2), ("one", 3), ("two", 3)):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path / name, config(**{**vars(plan), "passes": goes_on}))
    module, lines = curves(), []
    monkeypatch.setattr(pyplot, "close", lambda figure: lines.extend(figure.axes[0].lines + figure.axes[1].lines))
    module.main(
        ["--out", str(tmp_path / "c.png"), str(tmp_path / "one"), f"B={tmp_path / 'two'}"], standalone_mode=False
    )
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert [line.get_label() for line in lines[:2]] == ["one", "B"]
    assert list(lines[0].get_xdata()) == pytest.approx([1, 2, 3])
    hours = list(lines[2].get_xdata())
    assert hours == sorted(hours) and hours[0] > 0, "the processor time goes on over continuations"


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no log.jsonl; expected the folder of a run"):
        curves().read_run(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"step": 1, "valid_loss": 2.0}\n')
    with pytest.raises(UsageError, match="no validation with cpu_seconds yet"):
        curves().read_run(tmp_path)
