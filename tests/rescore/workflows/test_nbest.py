"""`rescore nbest` and its source: read once, through a pipe too, whose runs cannot be taken up again."""

from __future__ import annotations

import gzip
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock

import pytest

from lm_zoo.base import LanguageModel
from lm_zoo.errors import LMError
from lm_zoo.registry import save_folder
from rescore.errors import RescoreError
from rescore.formats import read_nbest, write_nbest
from rescore.skipping import fail
from rescore.types import Hypothesis, NbestList
from rescore.workers import WorkerDied
from rescore.workflows import nbest as workflow
from rescore.workflows import scoring
from rescore.workflows.columns import LMColumn
from rescore.workflows.scoring import ScoringResult, write_scores
from tests.lm_zoo.zoo import neural
from tests.rescore.workflows.test_scoring import lists, run, write_lists


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(tmp_path / "small", neural("transfornn"), "transfornn", {})
    return tmp_path / "small"


def piped(data: bytes) -> int:
    """The end to read of a pipe that holds `data`, of less than 64 KB."""
    end, other = os.pipe()
    os.write(other, data)
    os.close(other)
    return end


@pytest.mark.parametrize("spec", ["jsonl:{}", "srilm:{}?scores=am"])
def test_lists_through_a_pipe(tmp_path: Path, folder: Path, spec: str) -> None:
    source = tmp_path / "in"
    write_nbest(spec.format(source), lists())
    end = piped(source.read_bytes())
    try:
        result = run("nbest", "--nbest", spec.format(f"/dev/fd/{end}"), "--lm", folder, "--out", tmp_path / "piped")
    finally:
        os.close(end)
    assert result.exit_code == 0, result.exception
    assert "is a pipe, which is read but once: if this run is stopped, the next one begins anew" in result.output
    assert (
        "a pipe" not in run("nbest", "--nbest", spec.format(source), "--lm", folder, "--out", tmp_path / "out").output
    )
    for name in ("scores.jsonl.gz", "nbest.jsonl.gz"):
        assert gzip.decompress((tmp_path / "piped" / name).read_bytes()) == gzip.decompress(
            (tmp_path / "out" / name).read_bytes()
        )
    assert (tmp_path / "piped" / "1best.txt").read_text() == (tmp_path / "out" / "1best.txt").read_text()


def test_a_source_is_read_once(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, read = write_lists(tmp_path / "in.jsonl", lists()), list[str]()
    monkeypatch.setattr(workflow, "read_nbest", lambda spec, *rest: read.append(spec) or read_nbest(spec))
    assert run("nbest", "--nbest", source, "--lm", folder, "--out", tmp_path / "out").exit_code == 0
    assert read == [str(source)]


def test_lengths_in_a_pipe_are_checked_as_lists_come(tmp_path: Path) -> None:
    class Short(LanguageModel):
        vocab = neural("lstm").vocab
        positions = 4

        def check_words(self, words: tuple[str, ...], where: str) -> None:
            if len(words) > 2:
                raise LMError(f"{where} is too long")

    scorers = [LMColumn("lm", Short())]
    pair = [NbestList("a", [Hypothesis(("A",))]), NbestList("b", [Hypothesis(("A", "B", "C"))])]
    end = piped(b"")
    try:
        checked = iter(workflow._within_limits(f"jsonl:/dev/fd/{end}", pair, scorers, fail))
    finally:
        os.close(end)
    assert next(checked).utt_id == "a"
    with pytest.raises(LMError, match="utterance b: hypothesis 1 is too long"):
        next(checked)
    source = tmp_path / "in.jsonl"
    write_nbest(
        str(source), [NbestList(nbest.utt_id, [Hypothesis(nbest.hyps[0].words, {"am": 0.0})]) for nbest in pair]
    )
    with pytest.raises(LMError, match="utterance b: hypothesis 1 is too long"):
        workflow._within_limits(str(source), pair, scorers, fail)


@pytest.mark.parametrize("plan", [None, {"plan": 1}])
def test_parts_of_unknown_lists_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plan: dict[str, int] | None
) -> None:
    monkeypatch.setattr(scoring, "BATCH_WORDS", 1)

    def stopped() -> Any:
        yield from lists(3)[:2]
        raise KeyboardInterrupt

    for before, after in ((None, plan), (plan, None)):
        with pytest.raises(KeyboardInterrupt):
            write_scores(stopped(), [LMColumn("lm", neural("lstm"))], tmp_path, before)
        capsys.readouterr()
        assert write_scores(lists(3), [LMColumn("lm", neural("lstm"))], tmp_path, after) == ScoringResult(3, 0, ANY, 3)
        assert "are not taken over" in capsys.readouterr().err


def test_parts_of_another_version_are_not_used(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scoring, "BATCH_WORDS", 1)
    source = write_lists(tmp_path / "in.jsonl", lists(3))
    source.write_text(source.read_text() + "not json\n")
    for version in ("1", "1", "2"):
        monkeypatch.setattr(workflow, "__version__", version)
        capsys.readouterr()
        with pytest.raises(RescoreError, match=r"in\.jsonl:4"):
            workflow.rescore_nbest(workflow.Request(str(source), [str(folder)], tmp_path / "out"))
        assert ("are not taken over" in capsys.readouterr().err) == (version == "2")


def test_what_another_run_left_is_said_or_kept(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write_lists(tmp_path / "in.jsonl", lists()), tmp_path / "out"

    def score(name: str, nbest: Path) -> str:
        result = run("nbest", "--nbest", nbest, "--lm", f"{name}={folder}", "--out", out)
        assert result.exit_code == 0, result.exception
        return result.output

    scores = out / "scores.jsonl.gz"
    assert "replaced" not in score("one", source)
    assert "replaced" not in score("one", source)
    said = f"scores.jsonl.gz is replaced, with one of an earlier run; to add to it instead: --nbest {scores}"
    assert said in score("two", source).replace("\n", "")
    monkeypatch.setattr("rescore.workflows.nbest.share_out", Mock(side_effect=WorkerDied("of a process")))
    shared = run("nbest", "--nbest", source, "--lm", f"one={folder}", "--out", out, "--executor", "local")
    assert said.replace("with one", "with two") in shared.output.replace("\n", "")
    assert "replaced" not in score("three", scores)
    others = write_lists(
        tmp_path / "others.jsonl", [replace(nbest, utt_id=f"test-{nbest.utt_id}") for nbest in lists()]
    )
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    said = run("nbest", "--nbest", others, "--lm", f"one={folder}", "--out", copy).output.replace("\n", " ")
    assert f"it has scores of other utterances ({lists()[0].utt_id} ...); a folder for each set" in said
    before = {nbest.utt_id for nbest in lists()}
    found = list(read_nbest(f"jsonl:{scores}"))
    assert {nbest.utt_id for nbest in found} == before
    assert all({"two", "three"} <= hyp.scores.keys() and "one" not in hyp.scores for each in found for hyp in each.hyps)
