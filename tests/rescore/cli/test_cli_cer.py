"""`rescore tune --cer` and what follows from its weights: Chinese without blanks, a word an utterance."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import rescore as rs
from rescore.cli.main import cli
from rescore.errors import UsageError, WeightsError
from rescore.files import read_kaldi_text, write_kaldi_text
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList, Weights
from rescore.weights import load_weights, save_weights
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


@pytest.fixture
def lattices(dev: Path) -> Path:
    """No path has a right second word; `世戒` has one right character of it, as has `世界`, which the LM likes most."""
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
    return dev


@pytest.mark.parametrize("objective", ["errors", "risk"])
@pytest.mark.parametrize("decision", ["map", "mbr"])
def test_lattices(lattices: Path, objective: str, decision: str) -> None:
    dev = lattices
    args = ("tune", "--lattices", dev / "lat", "--ref", dev / "ref", "--out", dev / "w.json", "--folds", 2, "--cer")
    found = run(*args, "--objective", objective, "--decision", decision, "--cross-fit", dev / "cross")
    assert "dev CER 25.00 % (6 errors), oracle 25.00 %" in found.stdout
    assert ("minimum Bayes risk over lattices decodes by words" in found.stderr) == (decision == "mbr")
    weights = load_weights(dev / "w.json")
    assert weights.info["rate"] == "CER" and weights.info["cv_wer"] == 25.0 and weights.scales["lm"] > 1.0
    for best in ("best-path", "mbr"):
        result = run("lattice", best, dev / "lat", "--weights", dev / "w.json", "--ref", dev / "ref")
        assert result.stdout.startswith("%CER 25.00 [ 6 / 24, 0 ins, 0 del, 6 sub ]")
    assert read_kaldi_text(dev / "cross" / "1best.txt")["u0"][0] == "你好"


def test_lattices_without_weights(lattices: Path) -> None:
    source = lattices / "lat", "--ref", lattices / "ref"
    for command in (("best-path", "--wip", 0), ("mbr", "--scale", "am=1", "--posterior-scale", 99)):
        words, characters = (run("lattice", command[0], *source, *command[1:], *cer) for cer in ((), ("--cer",)))
        assert words.stdout.startswith("%WER 200.00 [ 12 / 6, 6 ins, 0 del, 6 sub ]")
        assert characters.stdout.startswith("%CER 25.00 [ 6 / 24, 0 ins, 0 del, 6 sub ]")
        with pytest.raises(UsageError, match="--cer counts errors, which are those against --ref TEXT"):
            run("lattice", command[0], lattices / "lat", "--cer")


def test_oracle_of_characters(lattices: Path) -> None:
    write_kaldi_text(lattices / "ref", {f"u{n}": ("你", "好世", "戒") for n in range(6)})
    source = "lattice", "oracle", lattices / "lat", "--ref", lattices / "ref", "--out", lattices / "best"
    assert run(*source).stdout.startswith("%WER 100.00 [ 18 / 18, 0 ins, 6 del, 12 sub ]")
    result = run(*source, "--cer", "--json", lattices / "found.json")
    assert result.stdout.startswith("%CER 0.00 [ 0 / 24, 0 ins, 0 del, 0 sub ]")
    assert json.loads((lattices / "found.json").read_text())["name"] == "CER"
    assert read_kaldi_text(lattices / "best")["u0"] == ("你", "好", "世", "戒")
    info = "lattice", "info", lattices / "lat", "--ref", lattices / "ref"
    assert "oracle WER       100.00 [ 18 / 18, " in run(*info).stdout
    result = run(*info, "--cer", "--json", lattices / "info.json")
    assert "oracle CER       0.00 [ 0 / 24, 0 ins, 0 del, 0 sub ]" in result.stdout
    density = "arcs a ref. word"  # words of the references, with --cer too
    assert next(line for line in result.stdout.splitlines() if density in line) in run(*info).stdout
    assert json.loads((lattices / "info.json").read_text())["oracle"]["name"] == "CER"
    with pytest.raises(UsageError, match="--cer counts errors, which are those against --ref TEXT"):
        run("lattice", "info", lattices / "lat", "--cer")
    found = rs.read_lattices(lattices / "lat")
    assert found.oracle(lattices / "ref").errors == 18 and found.oracle(lattices / "ref", cer=True).errors == 0
    assert found[0].oracle(("你好", "世戒"), cer=True).counts.ref_words == 4


def test_scales_of_the_first_pass_are_those_of_characters(lattices: Path) -> None:
    args = ("lattice", "nbest", lattices / "lat", lattices / "found.jsonl", "--ref", lattices / "ref")
    result = run(*args, "--cer")
    assert ": dev CER 25.00 %, oracle 25.00 %" in result.stderr
    weights = load_weights(lattices / "found.weights.json")
    assert weights.info["rate"] == "CER" and "--cer" in weights.info["command"] and weights.scales["lm"] > 0.0
    with pytest.raises(UsageError, match="--cer is for --ref TEXT"):
        run(*args[:4], "--cer")


def test_combined_by_characters_without_tuning(dev: Path) -> None:
    """The two that differ in one character speak for each other, the most probable one is alone."""
    hyps = [
        Hypothesis((text,), {"am": math.log(p)})
        for text, p in {"甲乙丙丁": 0.4, "甲乙戊己": 0.3, "甲乙戊庚": 0.3}.items()
    ]
    write_nbest(f"jsonl:{dev / 'scores.jsonl'}", [NbestList("u", hyps)])
    args = ("combine", "--scores", dev / "scores.jsonl", "--scale", "am=1", "--mbr", 1)
    found = {}
    for name, cer in (("words", ()), ("characters", ("--cer",))):
        run(*args, *cer, "--out", dev / name)
        found[name] = read_kaldi_text(dev / name / "1best.txt")["u"]
    assert found == {"words": ("甲乙丙丁",), "characters": ("甲乙戊己",)}
    made = load_weights(dev / "characters" / "weights.json")
    assert made.info["rate"] == "CER"
    assert rs.combine(rs.Lists([NbestList("u", hyps)]), {"am": 1.0}, 1, cer=True)[0].hyps[0].words == ("甲乙戊己",)
    save_weights(dev / "tuned.json", Weights({"am": 1.0}, {"rate": "WER"}))
    args = (
        "combine",
        "--scores",
        dev / "scores.jsonl",
        "--weights",
        dev / "tuned.json",
        "--out",
        dev / "again",
        "--cer",
    )
    assert "tuned for words, but combined for characters" in run(*args).stderr


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
