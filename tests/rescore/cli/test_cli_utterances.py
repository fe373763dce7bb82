"""`--utterances common`: what is not everywhere is left out and counted, in every command with references."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli
from rescore.errors import ReferencesError
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList, Weights
from rescore.weights import load_weights
from rescore.workflows.error_lists import error_lists
from rescore.workflows.normalising import Normaliser
from rescore.workflows.run import Run, plan
from rescore.workflows.run_checks import check_part
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """References of a, b, c; one system with b, c, d, another with a, c, d."""
    monkeypatch.chdir(tmp_path)
    Path("ref").write_text("a A B\nb B\nc C D\n")
    Path("one").write_text("b X\nc C D\nd D\n")
    Path("two").write_text("a A\nc C X\nd D\n")
    lists = [
        NbestList(
            utt_id, [Hypothesis(("X",), {"am": -1.0, "lm": -9.0}), Hypothesis(("C", "D"), {"am": -2.0, "lm": 0.0})]
        )
        for utt_id in ("b", "c", "d")
    ]
    write_nbest("jsonl:dev/scores.jsonl.gz", lists)
    return tmp_path


def test_wer(folder: Path) -> None:
    with pytest.raises(ReferencesError, match="must hold the same utterances"):
        run("wer", "--ref", "ref", "--hyp", "one")
    result = run("wer", "--ref", "ref", "--hyp", "one", "--utterances", "common")
    assert result.stdout.startswith("%WER 33.33 [ 1 / 3,") and "sub ] [PARTIAL]\n" in result.stdout
    assert "1 of 3 references left out (a)" in result.stderr and "1 of 3 hypotheses left out (d)" in result.stderr
    assert "2 utterances that all have are counted" in result.stderr
    found = json.loads(run("wer", "--ref", "ref", "--hyp", "one", "--utterances", "common", "--json", "-").stdout)
    assert (found["utterances"], found["absent"]) == (2, 1)
    Path("none").write_text("x A\n")
    with pytest.raises(ReferencesError, match=r"have no utterance in common \(references: a, b, c; hypotheses: x\)"):
        run("wer", "--ref", "ref", "--hyp", "none", "--utterances", "common")


def test_compare_counts_what_all_systems_have(folder: Path) -> None:
    systems = ("one=one", "two=two", "lists=jsonl:dev/scores.jsonl.gz")
    with pytest.raises(ReferencesError, match="hypotheses of 'one'"):
        run("compare", "--ref", "ref", *systems)
    result = run("compare", "--ref", "ref", *systems, "--utterances", "common", "--json", "-")
    rows = json.loads(result.stdout)["rows"]
    assert [(row["errors"], row["words"], row["utterances"]) for row in rows] == [(0, 2, 1), (1, 2, 1), (2, 2, 1)]
    assert rows[2]["oracle_wer"] == 0.0
    assert "2 of 3 hypotheses of 'two' left out (a, d)" in result.stderr


def test_tune_lists(folder: Path) -> None:
    arguments = ("tune", "--scores", "dev", "--ref", "ref", "--out", "w.json", "--objective", "errors", "--folds", 2)
    with pytest.raises(ReferencesError, match="must hold the same utterances"):
        run(*arguments)
    result = run(*arguments, "--utterances", "common", "--cross-fit", "cross")
    info = load_weights("w.json").info
    assert (info["data"]["utterances"], info["data"]["words"]) == (2, 3) and "--utterances common" in info["command"]
    assert "1 of 3 N-best lists left out (d)" in result.stderr
    assert [line.split()[0] for line in Path("cross/1best.txt").read_text().splitlines()] == ["b", "c"]


def test_tune_lattices(folder: Path) -> None:
    Path("lat.1").write_text(TEXT)
    Path("words.txt").write_text(WORDS)
    Path("text").write_text("utt-a A C\nutt-c B\n")
    arguments = ("tune", "--lattices", "kaldi:lat.1", "--ref", "text", "--out", "w.json", "--objective", "errors")
    with pytest.raises(ReferencesError, match="must hold the same utterances"):
        run(*arguments)
    result = run(*arguments, "--folds", 0, "--utterances", "common")
    assert load_weights("w.json").info["data"]["lattices"] == 1
    assert "1 of 2 lattices left out (utt-b)" in result.stderr


def test_lists_to_train_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refs, weights = {"b": ("B",), "c": ("C", "D")}, Weights({"am": 1.0})
    with pytest.raises(ReferencesError, match="1 utterances have no reference"):
        error_lists("jsonl:dev/scores.jsonl.gz", refs, weights)
    made = error_lists("jsonl:dev/scores.jsonl.gz", refs, weights, common=True)
    assert [each.name for each in made] == ["b", "c"]
    assert "1 utterances without a reference left out (d)" in capsys.readouterr().err


def test_a_whole_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refs, source = {"b": ("B",), "c": ("C", "D")}, "jsonl:dev/scores.jsonl.gz"
    with pytest.raises(ReferencesError, match="1 of 3 utterances have no reference"):
        check_part(source, "dev", refs, Normaliser())
    assert list(check_part(source, "dev", refs, Normaliser(), common=True).refs) == ["b", "c"]
    assert "--dev: 1 of 3 utterances have no reference and are left out: d" in capsys.readouterr().err
    given = Run(
        source, source, [Path("ref")], None, ["toy"], 5, "float32", "cpu", 0.1, None, 0, Path("out"), common=True
    )
    for step in plan(given, {"toy": ["toy"]}):
        assert ("--ref" in step.arguments) == ("--utterances" in step.arguments)
