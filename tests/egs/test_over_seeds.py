"""Perplexities over seeds."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from tests.scripts import load_script


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("egs/shared/over_seeds.py")


def row(name: str, ppl: float) -> dict[str, Any]:
    return {"lm": name, "ppl_word": ppl, "ppl_tail1": 10 * ppl}


def test_means_and_changes_seed_by_seed(script: ModuleType, tmp_path: Path) -> None:
    """Of 90, 92 and 94: s = 2, t(0.975, 2) = 4.3027, so half of the interval is 4.3027 * 2 / sqrt(3) = 4.97."""
    rows = [row("source", 400.0)]
    rows += [row(f"a.{seed}", value) for seed, value in ((1, 100.0), (2, 100.0), (3, 100.0))]
    rows += [row(f"b.{seed}", value) for seed, value in ((1, 90.0), (2, 92.0), (3, 94.0))]
    rows += [row("0.25 ngram + 0.75 a.1", 50.0), row("0.3 ngram + 0.7 a.2", 50.0)]
    (tmp_path / "ppl.json").write_text(json.dumps(rows))
    arguments = [str(tmp_path / "ppl.json"), "--against", "a", "--out", str(tmp_path / "ppl.md")]
    result = CliRunner().invoke(script.main, arguments)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "ppl.md").read_text() == result.output
    assert result.output.splitlines() == [
        "| LM | seeds | perplexity | Tail-1 | against a, % |",
        "|---|---:|---:|---:|---:|",
        "| source | 1 | 400.0 | 4000.0 | - |",
        "| a | 3 | 100.0 ± 0.0 | 1000.0 ± 0.0 | - |",
        "| b | 3 | 92.0 ± 5.0 | 920.0 ± 49.7 | -8.00 ± 4.97 |",
        "| ngram + a | 2 | 50.0 ± 0.0 | 500.0 ± 0.0 | -50.00 ± 0.00 |",
    ]


def test_perplexities_that_are_not_known_are_dashes(script: ModuleType, tmp_path: Path) -> None:
    rows = [row("a.1", 100.0), {"lm": "b.1", "ppl_word": None, "ppl_tail1": 5.0}, {"lm": "c.1"}]
    (tmp_path / "ppl.json").write_text(json.dumps(rows))
    arguments = [str(tmp_path / "ppl.json"), "--against", "a", "--out", str(tmp_path / "ppl.md")]
    result = CliRunner().invoke(script.main, arguments)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[3:] == ["| b | 1 | - | 5.0 | - |", "| c | 1 | - | - | - |"]


def test_what_is_wrong_is_told(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "ppl.json"
    arguments = [str(path), "--against", "c", "--out", str(tmp_path / "ppl.md")]
    for content, message in (
        ("[1]", "expected what rescore ppl --json writes"),
        ('{"lm": "a"}', "expected what rescore ppl --json writes"),
        ('[{"lm": "a", "ppl_word": "x"}]', "expected what rescore ppl --json writes"),
        (json.dumps([row("a.1", 1.0), row("a.1", 2.0)]), "two rows of 'a' with the seed '1'"),
        (json.dumps([row("a.1", 1.0)]), "--against c: expected one of a"),
    ):
        path.write_text(content)
        result = CliRunner().invoke(script.main, arguments)
        assert result.exit_code == 2 and message in result.output
    assert not (tmp_path / "ppl.md").exists()
