"""`rescore lms`: the best of several runs, where their losses can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lm_zoo.registry import save_folder
from rescore.cli.main import cli
from tests.lm_zoo.zoo import neural

TEXT: dict[str, Any] = {"recipe": {"valid": "valid.txt (blake2b 0a)"}}
LISTS: dict[str, Any] = {"lists": {"nbest": "a", "valid": "b", "scale": 0.7}, "train": {"posterior": 1.0}}


def trained(folder: Path, loss: float, run: dict[str, Any] | None, name: str = "lstm") -> Path:
    save_folder(folder, neural(name), name.split("-")[0], {"trained": {"valid_loss": loss}})
    if run is not None:
        (folder / "run.json").write_text(json.dumps(run))
    return folder


def lms(*args: object) -> Result:
    return CliRunner().invoke(cli, ["lms", *map(str, args)])


@pytest.mark.parametrize("run", [TEXT, LISTS, None])
def test_the_best_is_of_one_kind_of_loss(tmp_path: Path, run: dict[str, Any] | None) -> None:
    folders = [trained(tmp_path / str(loss), loss, run) for loss in (2.0, 1.0, 3.0)]
    assert lms("--best", *folders).stdout == f"{folders[1]}\n"


@pytest.mark.parametrize(
    ("run", "differs"),
    [
        (LISTS, "loss"),
        ({"recipe": {"valid": "valid.txt (blake2b 0b)"}}, "validation text"),
    ],
)
def test_losses_of_other_data_are_not_compared(tmp_path: Path, run: dict[str, Any], differs: str) -> None:
    result = lms("--best", trained(tmp_path / "a", 2.0, TEXT), trained(tmp_path / "b", 1.0, run))
    assert f"which have another {differs}, so" in str(result.exception)


@pytest.mark.parametrize("change", [{"text": "sentences"}, {"window": 32}, {"carry": True}])
def test_losses_of_text_that_is_read_in_another_way_are_not_compared(tmp_path: Path, change: dict[str, Any]) -> None:
    """In longer windows, more of what a token follows is seen."""
    plan = {"text": "windows", "window": 64, "carry": False}
    first, other = (
        trained(tmp_path / name, loss, {**TEXT, "train": {**plan, **changes}})
        for name, loss, changes in (("a", 2.0, {}), ("b", 1.0, change))
    )
    expected = "which have another way to read the text (sentences or windows, window, carry), so"
    assert expected in str(lms("--best", first, other).exception)
    alike = trained(tmp_path / "c", 1.0, {**TEXT, "train": {**plan, "lr": 0.1}})
    assert lms("--best", first, alike).stdout == f"{alike}\n"


def test_losses_of_other_lists_or_tokens_are_not_compared(tmp_path: Path) -> None:
    other = {**LISTS, "lists": {**LISTS["lists"], "scale": 0.5}}
    result = lms("--best", trained(tmp_path / "a", 2.0, LISTS), trained(tmp_path / "b", 1.0, other))
    assert "another lists or scales" in str(result.exception)
    tokens = trained(tmp_path / "d", 1.0, None)
    (tokens / "words.txt").write_text((tokens / "words.txt").read_text().replace("A ", "Z "))
    result = lms("--best", trained(tmp_path / "c", 2.0, TEXT), tokens)
    assert "another vocabulary" in str(result.exception)


def test_losses_of_lists_are_said_to_be_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [trained(Path("text"), 2.0, TEXT), trained(Path("lists"), 1.0, LISTS)]
    shown = lms(*folders).stdout
    assert "1.0000 errors" in shown and "2.0000" in shown and "2.0000 errors" not in shown
    rows = json.loads(lms(*folders, "--json", "-").stdout)
    assert [row["valid_loss_of"] for row in rows] == ["a token of text", "expected errors of N-best lists"]
