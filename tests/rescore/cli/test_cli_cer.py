"""`rescore tune --cer` and what follows from its weights: Chinese without blanks, a word an utterance."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import rescore as rs
from rescore.cli.main import cli
from rescore.errors import WeightsError
from rescore.files import read_kaldi_text, write_kaldi_text
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList
from rescore.weights import load_weights
from rescore.workflows.error_lists import error_lists
from rescore.workflows.normalising import Normaliser
from tests.rescore.runs import LM, write_inputs

REF = "今天天气很好"


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


@pytest.fixture(autouse=True)
def few_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescore.tuning.risk_tune.INNER", 2)


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """No hypothesis is right; the LM likes the one with one wrong character, and short ones more."""
    texts = {"今夭夭气很好": (-1.0, -22.0), "今天夭气很好": (-2.0, -20.0), "今": (-9.0, -4.0)}
    hyps = [Hypothesis((text,), {"am": am, "lm": lm}) for text, (am, lm) in texts.items()]
    write_nbest(f"jsonl:{tmp_path / 'dev.jsonl'}", [NbestList(f"u{n}", hyps) for n in range(6)])
    write_kaldi_text(tmp_path / "ref", {f"u{n}": (REF,) for n in range(6)})
    return tmp_path


def test_scales_are_those_of_characters(dev: Path) -> None:
    """Word errors are the same for every scale: each hypothesis is one wrong word."""
    args = ("tune", "--scores", dev / "dev.jsonl", "--ref", dev / "ref", "--folds", 2)
    words = run(*args, "--out", dev / "words.json")
    assert "dev WER 100.00 % (6 errors), oracle 100.00 %" in words.stdout
    assert load_weights(dev / "words.json").info["rate"] == "WER"
    found = run(*args, "--cer", "--out", dev / "w.json", "--cross-fit", dev / "cross")
    assert "dev CER 16.67 % (6 errors), oracle 16.67 %" in found.stdout
    assert "cross-validated CER 16.67 %" in found.stdout and "WER" not in found.stdout
    weights = load_weights(dev / "w.json")
    assert weights.info["rate"] == "CER" and " --cer" in weights.info["command"]
    assert weights.info["data"]["words"] == 36 and weights.scales["lm"] > 0.5
    python = rs.tune(rs.read_nbest(dev / "dev.jsonl"), dev / "ref", cer=True, folds=2)
    assert python.scales == weights.scales and python.info["rate"] == "CER" and "dev CER" in python._caption()
    run("combine", "--scores", dev / "dev.jsonl", "--weights", dev / "w.json", "--out", dev / "best")
    for folder in ("best", "cross"):
        assert set(read_kaldi_text(dev / folder / "1best.txt").values()) == {("今天夭气很好",)}
    assert json.loads((dev / "best" / "weights.json").read_text())["info"]["rate"] == "CER"


def test_fewest_errors_are_those_of_characters(dev: Path) -> None:
    args = ("tune", "--scores", dev / "dev.jsonl", "--ref", dev / "ref", "--objective", "errors", "--folds", 0)
    found = run(*args, "--fix", "am=1", "--fix", "words=10", "--cer", "--out", dev / "w.json")
    assert "dev CER 16.67 % (6 errors), oracle 16.67 %" in found.stdout
    assert "(same CER from 0.5 to " in found.stdout and "WER" not in found.stdout


def test_words_are_characters_in_lists_without_words(dev: Path) -> None:
    """A reward for each of six characters keeps the LM from the text that was cut off; it does nothing for one word."""
    weights = dev / "w.json"
    weights.write_text('{"scales": {"am": 1, "lm": 2, "words": 6}}')
    run("combine", "--scores", dev / "dev.jsonl", "--weights", weights, "--out", dev / "words")
    weights.write_text('{"scales": {"am": 1, "lm": 2, "words": 6}, "info": {"rate": "CER"}}')
    run("combine", "--scores", dev / "dev.jsonl", "--weights", weights, "--out", dev / "characters")
    assert read_kaldi_text(dev / "words" / "1best.txt")["u0"] == ("今",)
    assert read_kaldi_text(dev / "characters" / "1best.txt")["u0"] == ("今天夭气很好",)
    lists = rs.read_nbest(dev / "dev.jsonl")
    assert rs.combine(lists, rs.read_weights(weights))[0].hyps[0].words == ("今天夭气很好",)
    [made] = error_lists(str(dev / "dev.jsonl"), {"u0": (REF,)}, load_weights(weights), common=True)
    assert made.errors == [2.0, 1.0, 5.0] and made.sentences[2] == ("今",)
    assert made.scores[2] == -9.0 + 2 * -4.0 + 6 * 1


def test_minimum_bayes_risk_is_of_characters(tmp_path: Path) -> None:
    """The two that differ in one character speak for each other, the most probable one is alone."""
    texts = {"甲乙丙丁": 0.4, "甲乙戊己": 0.3, "甲乙戊庚": 0.25, "甲乙 戊庚": 0.05}
    hyps = [Hypothesis(tuple(text.split()), {"am": math.log(share)}) for text, share in texts.items()]
    nbest = rs.Lists([NbestList("u", hyps)])
    info = {"decision": "mbr", "inverse_temperature": 1.0}
    by_words = rs.combine(nbest, rs.Weights({"am": 1.0}, info))[0].hyps
    by_characters = rs.combine(nbest, rs.Weights({"am": 1.0}, {**info, "rate": "CER"}))[0].hyps
    assert by_words[0].words == ("甲乙丙丁",)
    assert by_characters[0].words[0].startswith("甲乙戊")
    assert len(by_characters) == 3  # those that differ in blanks alone are one


def test_weights_of_another_rate_are_refused() -> None:
    weights = rs.Weights({"am": 1.0}, {"rate": "TER"})
    with pytest.raises(WeightsError, match=r"""weights: 'rate' in "info" is 'TER'; expected one of WER, CER"""):
        Normaliser.of(weights)


@pytest.mark.parametrize("objective", ["errors", "risk"])
@pytest.mark.parametrize("decision", ["map", "mbr"])
def test_lattices(dev: Path, objective: str, decision: str) -> None:
    """No path has a right second word; `世戒` and `世界` have one right character of it."""
    arcs = [
        "0 1 你好 a=-1 l=0",
        "1 2 世界 a=-4 l=-8",
        "1 2 是戒 a=-1 l=-9",
        "1 2 世戒 a=-2 l=-8.5",
        "2 3 !NULL a=0 l=0",
    ]
    links = [f"J={n} S={s} E={e} W={w} {a} {m}" for n, (s, e, w, a, m) in enumerate(map(str.split, arcs))]
    text = "\n".join(["VERSION=1.0", "N=4 L=5", *(f"I={n}" for n in range(4)), *links]) + "\n"
    (dev / "lat").mkdir()
    for n in range(6):
        (dev / "lat" / f"u{n}.slf").write_text(text)
    write_kaldi_text(dev / "ref", {f"u{n}": ("你好世间",) for n in range(6)})
    args = ("tune", "--lattices", dev / "lat", "--ref", dev / "ref", "--out", dev / "w.json", "--folds", 2, "--cer")
    found = run(*args, "--objective", objective, "--decision", decision, "--cross-fit", dev / "cross")
    assert "dev CER 25.00 % (6 errors), oracle 25.00 %" in found.stdout
    weights = load_weights(dev / "w.json")
    assert weights.info["rate"] == "CER" and weights.info["cv_wer"] == 25.0 and weights.scales["lm"] > 1.0
    for best in ("best-path", "mbr"):
        result = run("lattice", best, dev / "lat", "--weights", dev / "w.json", "--ref", dev / "ref")
        assert result.stdout.startswith("%CER 25.00 [ 6 / 24, 0 ins, 0 del, 6 sub ]")
    assert read_kaldi_text(dev / "cross" / "1best.txt")["u0"][0] == "你好"


@pytest.mark.slow
def test_a_whole_run_of_characters(tmp_path: Path) -> None:
    write_inputs(tmp_path, dev=12, test=12)
    files = ("--dev", tmp_path / "dev.jsonl.gz", "--test", tmp_path / "test.jsonl.gz", "--ref", tmp_path / "text")
    result = run("run", *files, "--lm", LM, "--cer", "--out", tmp_path / "run")
    assert "decided on dev: toy (CER " in result.output
    made, table = (json.loads((tmp_path / "run" / name).read_text()) for name in ("run.json", "table.json"))
    for step in ("scales of toy", "comparison"):
        assert " --cer" in made["steps"][step]["command"]
    assert table["how"]["rate"] == "CER"
    assert load_weights(tmp_path / "run" / "test" / "toy" / "weights.json").info["rate"] == "CER"
    page = (tmp_path / "run" / "report.html").read_text()
    assert "CER against each scale" in page and "Characters fixed and broken" in page and "WER" not in page
