"""`--normalise` of wer, tune, combine and compare, from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import rescore as rs
from rescore.cli.main import cli
from rescore.errors import ReferencesError
from rescore.files import write_kaldi_text
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList
from rescore.weights import load_weights


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """Lists in which the right words are written in two ways, the first of them as probable as the wrong ones."""
    texts = {"Mister Hail came.": -1.0, "Mr. Hale came.": -1.1, "Mister Hale came": -1.2}
    hyps = [Hypothesis(tuple(text.split()), {"am": am}) for text, am in texts.items()]
    write_nbest(f"jsonl:{tmp_path / 'dev' / 'scores.jsonl.gz'}", [NbestList(f"u{i}", hyps) for i in range(4)])
    write_kaldi_text(tmp_path / "ref", {f"u{i}": ("MISTER", "HALE", "CAME") for i in range(4)})
    return tmp_path


def test_wer_in_written_text_and_normalised(dev: Path) -> None:
    write_kaldi_text(dev / "hyp", {f"u{i}": ("Mr.", "Hale", "came.") for i in range(4)})
    assert run("wer", "--ref", dev / "ref", "--hyp", dev / "hyp").stdout.startswith("%WER 100.00 [ 12 / 12")
    said = run("wer", "--ref", dev / "ref", "--hyp", dev / "hyp", "--normalise", "librispeech").stdout
    assert said == "%WER 0.00 [ 0 / 12, 0 ins, 0 del, 0 sub ]\n%SER 0.00 [ 0 / 4 ]\ntext normalised by librispeech\n"


def test_combine_and_compare_repeat_what_tune_used(dev: Path) -> None:
    out, best = dev / "w.json", dev / "best"
    said = run("tune", "--scores", dev / "dev", "--ref", dev / "ref", "--out", out, "--normalise", "librispeech")
    assert "dev WER 0.00 % (0 errors)" in said.stdout and "text normalised by librispeech\n" in said.stdout
    assert "librispeech: 4 of 12 hypotheses became equal to another of their list; am is the log of" in said.stderr
    info = load_weights(out).info
    assert info["normalise"] == "librispeech" and info["command"].endswith("--normalise librispeech")
    run("combine", "--scores", dev / "dev", "--weights", out, "--out", best)
    assert (best / "1best.txt").read_text() == "".join(f"u{i} Mr. Hale came.\n" for i in range(4))
    assert load_weights(best / "weights.json").info["normalise"] == "librispeech"
    table = dev / "table.json"
    said = run("compare", "--ref", dev / "ref", f"first={dev / 'dev'}", f"best={best}", "--json", table, "--markdown")
    content = json.loads(table.read_text())
    assert [row["errors"] for row in content["rows"]] == [4, 0] and content["how"]["normalise"] == "librispeech"
    assert "Text normalised by librispeech." in said.stdout
    assert "all texts normalised by librispeech, with which 'best' was combined (--normalise none," in said.stderr
    said = run("compare", "--ref", dev / "ref", f"best={best}", "--normalise", "none", "--json", table)
    assert "normalised" not in said.output and json.loads(table.read_text())["how"]["normalise"] == "none"
    assert run("wer", "--ref", dev / "ref", "--hyp", best).stdout.endswith("\ntext normalised by librispeech\n")
    assert rs.wer(dev / "ref", best).wer == 0 and rs.wer(dev / "ref", best, normalise="none").wer == 100


def test_scales_of_the_command_line_are_normalised_too(dev: Path) -> None:
    args = ("combine", "--scores", dev / "dev", "--scale", "am=1", "--out", dev / "best")
    run(*args, "--normalise", "librispeech")
    assert (dev / "best" / "1best.txt").read_text().startswith("u0 Mr. Hale came.\n")
    run(*args)
    assert (dev / "best" / "1best.txt").read_text().startswith("u0 Mister Hail came.\n")
    assert load_weights(dev / "best" / "weights.json").info == {}


def test_lattices_are_tuned_in_normalised_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("<eps> 0\nMr. 1\nHale, 2\nhail 3\n")
    Path("lat.1").write_text("u0 \n0 1 1 0,1,\n1 2 2 3,5,\n1 2 3 0.5,6,\n2\n\n")
    Path("ref").write_text("u0 MISTER HALE\n")
    tune = (
        "tune",
        "--lattices",
        "kaldi:lat.1",
        "--ref",
        "ref",
        "--out",
        "w.json",
        "--objective",
        "errors",
        "--folds",
        0,
    )
    with pytest.raises(ReferencesError, match="letter case"):
        Path("words.txt").write_text("<eps> 0\nmr. 1\nhale, 2\nhail 3\n")
        run(*tune)
    Path("words.txt").write_text("<eps> 0\nMr. 1\nHale, 2\nhail 3\n")
    assert run(*tune, "--normalise", "librispeech").stdout.startswith("dev WER 0.00 % (0 errors)")
    weights = load_weights("w.json")
    assert weights.info["normalise"] == "librispeech" and "--normalise librispeech" in weights.info["command"]
    best = ("lattice", "best-path", "kaldi:lat.1", "--weights", "w.json")
    assert run(*best).stdout == "u0 Mr. Hale,\n"  # what is written keeps its form
    assert run(*best, "--ref", "ref").stdout.startswith("%WER 0.00 [ 0 / 2")
    mbr = ("lattice", "mbr", "kaldi:lat.1", "--weights", "w.json", "--ref", "ref")
    assert run(*mbr).stdout.startswith("%WER 0.00 [ 0 / 2")


@pytest.mark.parametrize("decision", ["map", "mbr"])
def test_scales_of_lattices_are_tuned_for_the_words_that_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    """A dash is a word of the search, though none of the references; two writings of a word share no probability."""
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("<eps> 0\nHale, 1\nHALE 2\nhail 3\n- 4\n")
    dash = "0 1 4 0,0,\n1 2 1 0,1,\n0 2 3 0,1.5,\n2\n"  # `- Hale,` or, with fewer words, `hail`
    longer = "0 1 1 0,1,\n1 2 3 0,0,\n0 2 1 0,1.5,\n2\n"  # fewer words are right here
    twice = "0 2 1 0,1.01,\n0 2 2 0,1.01,\n0 2 3 0,1,\n2\n"
    texts = [f"u{n} \n{(dash, longer, longer, twice)[n % 4]}\n" for n in range(8)]
    Path("lat.1").write_text("".join(texts))
    Path("ref").write_text("".join(f"u{n} hale\n" for n in range(8)))
    tune = ("tune", "--lattices", "kaldi:lat.1", "--ref", "ref", "--out", "w.json", "--objective", "errors")
    run(*tune, "--decision", decision, "--normalise", "basic", "--folds", 2, "--cross-fit", "cross")
    info = load_weights("w.json").info
    command = "mbr" if decision == "mbr" else "best-path"
    found = run("lattice", command, "kaldi:lat.1", "--weights", "w.json", "--ref", "ref").stdout
    assert found.startswith(f"%WER {info['wer']:.2f} [ {info['errors']} / 8")
    assert run("wer", "--ref", "ref", "--hyp", "cross").stdout.startswith(f"%WER {info['cv_wer']:.2f} ")
    assert set((tmp_path / "cross" / "1best.txt").read_text().split()) & {"Hale,", "hail"}
