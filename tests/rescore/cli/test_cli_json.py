"""`--json PATH|-` wherever a result is printed: the same as data, and with `-` nothing else on standard output."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from asr.cli.main import cli as asr
from rescore.cli.main import cli as rescore
from rescore.cli.results import show
from rescore.errors import UsageError
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList
from rescore.weights import load_weights
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS

LM = "toy=tests.toy_lm:Toy?likes=A"
SILENT = {  # what they say goes to standard error, or is no result of numbers: texts, pages, files
    "rescore": {
        *(
            "sample",
            "curves",
            "push-lm",
            "report",
            "count",
            "transcripts",
            "convert",
            "train-lm",
            "convert-lm",
            "import-lm",
            "export-lm",
        ),
        *("icefall-decode", "train-ngram", "kaldi archives", "kaldi lattices", "kaldi score", "lattice nbest"),
        *("lattice rescore", "lattice convert", "lattice prune", "lattice posteriors", "lattice draw"),
    },
    "asr": {"train", "average", "prepare", "add-noise", "synthesise"},
}


def leaves(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands by their names."""
    context = click.Context(group, **group.context_settings)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, f"{name} ")
        else:
            yield before + name, command


@pytest.mark.parametrize("program", ["rescore", "asr"])
def test_every_command_with_a_result_has_the_option(program: str) -> None:
    without = {
        name
        for name, command in leaves({"rescore": rescore, "asr": asr}[program])
        if not any("--json" in option.opts for option in command.params)
    }
    assert without == SILENT[program]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("lat.1").write_text(TEXT)
    Path("words.txt").write_text(WORDS)
    Path("text").write_text("utt-a A C\nutt-b B B\n")
    Path("sentences").write_text("A C\nB B\n")
    lists = [
        NbestList(name, [Hypothesis(("B",), {"am": -1.0}), Hypothesis(ref, {"am": -2.0})])
        for name, ref in (("utt-a", ("A", "C")), ("utt-b", ("B", "B")))
    ]
    write_nbest("jsonl:dev/scores.jsonl.gz", lists)
    Path("counts").write_text("3 A\n1 B\n")
    return tmp_path


def alone(*arguments: str) -> Any:
    """What the command prints with `--json -`, all of it JSON."""
    result = CliRunner().invoke(rescore, [*arguments, "--json", "-"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_error_rates(folder: Path) -> None:
    wer = alone("wer", "--ref", "text", "--hyp", "jsonl:dev/scores.jsonl.gz", "--tail", "counts")
    assert (wer["wer"], wer["errors"], wer["words"], wer["name"]) == (75.0, 3, 4, "WER")
    assert wer["tail1"]["words"] >= 2 and wer["normalise"] == "none"
    lattices = ("kaldi:lat.1", "--ref", "text")
    assert alone("lattice", "oracle", *lattices)["errors"] == 1
    best = alone("lattice", "best-path", *lattices)
    assert (best["errors"], best["absent"]) == (1, 0)
    assert alone("lattice", "best-path", "kaldi:lat.1") == {"utt-a": ["A", "C"], "utt-b": ["B"]}
    assert alone("lattice", "mbr", *lattices)["words"] == 4
    info = alone("lattice", "info", *lattices)
    assert info["lattices"] == 2 and info["oracle"]["errors"] == 1 and info["arcs"]["all"] > 2
    lines = CliRunner().invoke(rescore, ["wer", "--ref", "text", "--hyp", "dev", "--json", "wer.json"]).stdout
    assert lines.startswith("%WER 75.00") and json.loads(Path("wer.json").read_text())["errors"] == 3


def test_scores_and_scales(folder: Path) -> None:
    counts = alone("nbest", "--nbest", "jsonl:dev/scores.jsonl.gz", "--lm", LM, "--out", "scored")
    assert (counts["utterances"], counts["hypotheses"]) == (2, 4)
    options = ("--objective", "errors", "--folds", "0")
    tuned = alone("tune", "--scores", "scored", "--ref", "text", "--out", "w.json", *options)
    weights = load_weights("w.json")
    assert (tuned["scales"], tuned["info"]) == (weights.scales, weights.info)
    combined = alone("combine", "--scores", "scored", "--weights", "w.json", "--out", "best")
    assert combined["utterances"] == 2 and combined["unused"] == []
    assert alone("compare", "--ref", "text", "best=best")["rows"][0]["name"] == "best"
    for share in ("1/2", "2/2"):
        part = alone("nbest", "--nbest", "jsonl:dev/scores.jsonl.gz", "--lm", LM, "--out", "parts", "--split", share)
        assert part["utterances"] in (0, 1, 2)
    assert alone("merge", "parts")["hypotheses"] == 4
    again = CliRunner().invoke(rescore, ["merge", "parts", "--scale", "am=1"])
    assert isinstance(again.exception, UsageError)
    assert "no shares to be merged; it is there already" in str(again.exception)
    assert str(again.exception).endswith("rescore combine --scores parts")


def test_perplexities_and_lms(folder: Path) -> None:
    (row,) = alone("ppl", "--lm", LM, "--text", "sentences")
    shared = ["ppl", "--lm", LM, "--text", "sentences", "--json", "ppl.json", "--split", "1/1"]
    assert CliRunner().invoke(rescore, shared).exit_code == 0
    assert alone("merge", "ppl.json") == json.loads(Path("ppl.json").read_text()) == [row]
    assert row["sentences"] == 2 and row["ppl_word"] > 0
    assert {"transfornn", "ngram"} <= {each["name"] for each in alone("lms")}


def test_numbers_that_are_none_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    show({"a": math.nan, "b": [math.inf, 1.5], "c": (1,)}, ["not printed"], Path("-"))
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": [1]}
