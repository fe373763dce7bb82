"""`rescore combine` from end to end."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli
from rescore.combine import load_weights, save_weights
from rescore.errors import UsageError, WeightsError
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList, Weights


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    hyps = [Hypothesis(("A",), {"am": -1.0, "lm": -9.0}), Hypothesis(("A", "B"), {"am": -2.0, "lm": -3.0})]
    write_nbest(f"jsonl:{tmp_path / 'scores' / 'scores.jsonl.gz'}", [NbestList("u", hyps), NbestList("v", hyps[:1])])
    return tmp_path / "scores"


def test_scales_on_the_command_line(scores: Path, tmp_path: Path) -> None:
    result = run("combine", "--scores", scores, "--scale", "am=1", "--out", tmp_path / "out")
    assert (tmp_path / "out" / "1best.txt").read_text() == "u A\nv A\n"
    assert "not used: lm" in result.stderr and "0 first hypotheses changed" in result.stderr
    result = run(
        "--quiet", "combine", "--scores", scores, "--scale", "am=0", "--scale", "lm=1", "--out", tmp_path / "o"
    )
    assert (tmp_path / "o" / "1best.txt").read_text() == "u A B\nv A\n"
    assert load_weights(tmp_path / "o" / "weights.json").scales == {"am": 0.0, "lm": 1.0}
    assert result.output == ""


def test_weights_file(scores: Path, tmp_path: Path) -> None:
    save_weights(tmp_path / "w.json", Weights({"words": 1.0}, {"seed": 1}))
    run("combine", "--scores", scores, "--weights", tmp_path / "w.json", "--out", tmp_path / "out")
    assert (tmp_path / "out" / "1best.txt").read_text() == "u A B\nv A\n"
    assert load_weights(tmp_path / "out" / "weights.json").info == {"seed": 1}


def test_options_that_contradict(scores: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="either --weights FILE or --scale"):
        run("combine", "--scores", scores, "--out", tmp_path / "out")
    with pytest.raises(UsageError, match="either --weights FILE or --scale"):
        run("combine", "--scores", scores, "--out", tmp_path, "--scale", "am=1", "--weights", tmp_path / "w.json")
    with pytest.raises(WeightsError, match="utterance u: the weights have a scale for 'nn'"):
        run("combine", "--scores", scores, "--out", tmp_path / "out", "--scale", "nn=0")
    assert not list((tmp_path / "out").iterdir())


def test_help_has_an_example() -> None:
    assert "Example: rescore combine" in run("combine", "-h").stdout
