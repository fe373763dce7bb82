"""From text to a model folder: what is said on the way, and what text and vocabularies are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm_zoo.training.run import TextRecipe, run

SETTINGS = {"dim": 8, "heads": 1, "feedforward": 8, "layers": 1}


def trained(folder: Path, options: dict[str, Any], **recipe: Any) -> list[str]:
    """What is said of a short training."""
    lines: list[str] = []
    given = TextRecipe(**{"texts": [str(folder / "text")], "valid": str(folder / "text"), "tokens": "word", **recipe})
    run("transformer", SETTINGS, given, {"steps": 2, "warmup": 0, **options}, str(folder / "lm"), "cpu", lines.append)
    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").write_text("THE CAT SAT\nTHE DOG RAN\n" * 20)
    return tmp_path


def test_a_perplexity_beyond_all_bounds_is_told(folder: Path) -> None:
    options = {"optimizer": "sgd", "lr": 1e5, "clip": 1e9, "valid_every": 1, "steps": 1}
    (line,) = (line for line in trained(folder, options) if "valid ppl" in line)
    assert line == "step 1  valid ppl a token 1.01e+304"
