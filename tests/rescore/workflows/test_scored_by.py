"""LMs of one name that are not the same: scores and weights know by which they were made."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from lm_zoo.registry import save_folder
from rescore.files import write_kaldi_text
from rescore.workflows.scored_by import known_lms
from tests.lm_zoo.zoo import neural
from tests.rescore.workflows.test_scoring import lists, run, write_lists

TOLD = "the weights were tuned with another LM as 'books' than the one that gave these scores; tune again"


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """Scores of dev by the first of two LMs of one name, and weights."""
    for version, kind in (("1", "transfornn"), ("2", "lstm")):
        save_folder(tmp_path / version / "books", neural(kind), kind, {})
    write_lists(tmp_path / "lists.jsonl", lists(4))
    write_kaldi_text(tmp_path / "ref", {nbest.utt_id: ("A", "B", "C") for nbest in lists(4)})
    assert "tuned with" not in score(tmp_path, "1", "dev")
    out = tmp_path / "w.json"
    result = run("tune", "--scores", tmp_path / "dev", "--ref", tmp_path / "ref", "--objective", "errors", "--out", out)
    assert result.exit_code == 0, result.output
    content = json.loads(out.read_text())
    assert content["info"]["lms"] == known_lms(tmp_path / "dev") and set(content["info"]["lms"]) == {"books"}
    content["scales"]["books"] = 1.0
    out.write_text(json.dumps(content))
    return tmp_path


def score(folder: Path, version: str, out: str, *more: object, source: str = "lists.jsonl") -> str:
    lm = folder / version / "books"
    result = run("nbest", "--nbest", folder / source, "--lm", lm, "--out", folder / out, *more)
    assert result.exit_code == 0, result.exception
    return " ".join(result.output.split())


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_lm_that_was_trained_anew_is_told(tuned: Path, version: str) -> None:
    """By `nbest --weights`, `combine` and `merge`; the same LM is not."""
    weights, other = ("--weights", tuned / "w.json"), version == "2"
    assert (TOLD in score(tuned, version, "test", *weights)) == other
    combined = run("combine", "--scores", tuned / "test", *weights, "--out", tuned / "best")
    assert (TOLD in " ".join(combined.output.split())) == other
    score(tuned, version, "shared", "--split", "1/1")
    merged = run("merge", tuned / "shared", *weights)
    assert merged.exit_code == 0 and (TOLD in " ".join(merged.output.split())) == other
    assert known_lms(tuned / "shared") == known_lms(tuned / "test") == known_lms(tuned / "test/scores.jsonl.gz")
    assert known_lms(tuned / "test/nbest.jsonl.gz") == known_lms(tuned / "test")  # the same scores in another order


def test_a_merge_that_was_stopped_is_completed(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score(tuned, "1", "shared", "--split", "1/1")
    with monkeypatch.context() as patch:
        patch.setattr("rescore.workflows.merge.note_lms", Mock(side_effect=KeyboardInterrupt))
        assert run("merge", tuned / "shared").exit_code != 0
    assert (tuned / "shared/scores.jsonl.gz").exists() and not known_lms(tuned / "shared")
    assert run("merge", tuned / "shared").exit_code == 0
    assert known_lms(tuned / "shared") == known_lms(tuned / "dev") and not (tuned / "shared/.parts").exists()


def test_lms_of_scores_that_were_there_are_kept(tuned: Path) -> None:
    before = known_lms(tuned / "dev")
    save_folder(tuned / "3" / "more", neural("lstm"), "lstm", {})
    both = run("nbest", "--nbest", tuned / "dev/scores.jsonl.gz", "--lm", tuned / "3/more", "--out", tuned / "dev")
    assert both.exit_code == 0
    assert set(known_lms(tuned / "dev")) == {"books", "more"} and known_lms(tuned / "dev")["books"] == before["books"]


def test_lms_of_scores_that_lists_have_already_are_told_too(tuned: Path) -> None:
    score(tuned, "2", "test")
    save_folder(tuned / "3" / "more", neural("lstm"), "lstm", {})
    more = ("--lm", tuned / "3/more", "--weights", tuned / "w.json", "--out", tuned / "both")
    both = run("nbest", "--nbest", tuned / "test/scores.jsonl.gz", *more)
    assert both.exit_code == 0 and TOLD in " ".join(both.output.split())


@pytest.mark.parametrize("note", ["{", "[]", None])
def test_lists_without_a_note_are_not_judged(tuned: Path, note: str | None) -> None:
    (tuned / "dev" / "lms.json").unlink()
    if note is not None:
        (tuned / "dev" / "lms.json").write_text(note)
    assert known_lms(tuned / "dev") == known_lms("espnet:exp/dev") == {}
    done = run("combine", "--scores", tuned / "dev", "--weights", tuned / "w.json", "--out", tuned / "best")
    assert done.exit_code == 0 and "tuned with" not in done.output
