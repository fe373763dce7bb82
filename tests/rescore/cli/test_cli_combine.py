"""`rescore combine` from end to end."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli
from rescore.errors import UsageError, WeightsError
from rescore.formats import read_nbest, write_nbest
from rescore.types import Hypothesis, NbestList, Weights
from rescore.weights import load_weights, save_weights


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


def test_minimum_bayes_risk(tmp_path: Path) -> None:
    """The best hypothesis stands alone; two others agree on most words: by softmax 0.42, 0.31, 0.28."""
    hyps = [Hypothesis(tuple(words), {"am": am}) for words, am in (("XY", 0.0), ("ABC", -6.0), ("ABD", -8.0))]
    write_nbest(f"jsonl:{tmp_path / 'scores.jsonl.gz'}", [NbestList("u", hyps)])
    args = ("combine", "--scores", tmp_path, "--scale", "am=0.5", "--out")
    run(*args, tmp_path / "max")
    run(*args, tmp_path / "mbr", "--mbr", 0.1)
    assert (tmp_path / "max" / "1best.txt").read_text() == "u X Y\n"
    assert (tmp_path / "mbr" / "1best.txt").read_text() == "u A B C\n"
    (combined,) = read_nbest(str(tmp_path / "mbr" / "nbest.jsonl.gz"))
    assert [hyp.words for hyp in combined.hyps] == [tuple("ABC"), tuple("ABD"), tuple("XY")]
    assert load_weights(tmp_path / "mbr" / "weights.json").info == {
        "decision": "mbr",
        "inverse_temperature": 0.1,
    }
    written = tmp_path / "mbr" / "weights.json"
    result = run("combine", "--scores", tmp_path, "--weights", written, "--out", tmp_path / "n")
    assert "tuned for" not in result.stderr
    for name in ("1best.txt", "nbest.jsonl.gz", "weights.json"):
        assert (tmp_path / "n" / name).read_bytes() == (tmp_path / "mbr" / name).read_bytes()
    run(*args, tmp_path / "sharp", "--mbr", 5)
    assert (tmp_path / "sharp" / "1best.txt").read_text() == "u X Y\n"
    assert run(*args, tmp_path / "bad", "--mbr", 0).exit_code == 2
    for bad in ("nan", "inf"):
        result = run(*args, tmp_path / "bad", "--mbr", bad)
        assert result.exit_code == 2 and f"found '{bad}', expected a finite number" in result.output


@pytest.mark.parametrize("decision", ["map", "mbr", "first"])
def test_minimum_bayes_risk_goes_before_the_decision_of_the_weights(tmp_path: Path, decision: str) -> None:
    hyps = [Hypothesis(tuple(words), {"am": am}) for words, am in (("XY", 0.0), ("ABC", -6.0), ("ABD", -8.0))]
    write_nbest(f"jsonl:{tmp_path / 'scores.jsonl.gz'}", [NbestList("u", hyps)])
    info = {"seed": 3, "decision": decision, "inverse_temperature": 5.0}
    save_weights(tmp_path / "w.json", Weights({"am": 0.5}, info))
    args = ("combine", "--scores", tmp_path, "--weights", tmp_path / "w.json", "--out")
    run(*args, tmp_path / "as")
    assert (tmp_path / "as" / "1best.txt").read_text() == "u X Y\n"
    result = run(*args, tmp_path / "mbr", "--mbr", 0.1)
    said = "mbr at 5" if decision == "mbr" else decision
    assert f"w.json: tuned for the decision {said}, but combined for mbr at 0.1" in result.stderr
    assert (tmp_path / "mbr" / "1best.txt").read_text() == "u A B C\n"
    used = load_weights(tmp_path / "mbr" / "weights.json")
    assert used.info == {"seed": 3, "decision": "mbr", "inverse_temperature": 0.1}
    run("combine", "--scores", tmp_path, "--weights", tmp_path / "mbr" / "weights.json", "--out", tmp_path / "again")
    assert (tmp_path / "again" / "1best.txt").read_text() == "u A B C\n"


def test_options_that_contradict(scores: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="either --weights FILE or --scale"):
        run("combine", "--scores", scores, "--out", tmp_path / "out")
    with pytest.raises(UsageError, match="either --weights FILE or --scale"):
        run("combine", "--scores", scores, "--out", tmp_path, "--scale", "am=1", "--weights", tmp_path / "w.json")
    with pytest.raises(WeightsError, match="utterance u has no score 'nn', which the weights have a scale for"):
        run("combine", "--scores", scores, "--out", tmp_path / "out", "--scale", "nn=0.1")
    assert not (tmp_path / "out").exists()


def test_an_lm_whose_scale_is_0_need_not_be_scored(scores: Path, tmp_path: Path) -> None:
    """As of `rescore tune` over more LMs than help."""
    run("combine", "--scores", scores, "--out", tmp_path / "with", "--scale", "am=1")
    result = run("combine", "--scores", scores, "--out", tmp_path / "out", "--scale", "am=1", "--scale", "nn=0")
    assert "not among the scores, and not needed, as their scales are 0: nn" in result.stderr
    for name in ("1best.txt", "nbest.jsonl.gz"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "with" / name).read_bytes()


def test_help_has_an_example() -> None:
    assert "Example: rescore combine" in run("combine", "-h").stdout
