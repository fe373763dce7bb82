"""`rescore nbest --reuse`: which columns of an earlier scoring are kept, and which are not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lm_zoo import registry
from lm_zoo.errors import LMError
from lm_zoo.registry import save_folder
from rescore.errors import UsageError
from rescore.formats import read_nbest
from rescore.workflows.columns import LMColumn
from tests.lm_zoo.zoo import neural
from tests.rescore.workflows.test_scoring import lists, run, write_lists

OUTPUTS = ("scores.jsonl.gz", "lms.json", "scored.json", "nbest.jsonl.gz", "1best.txt", "weights.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two LMs, lists, and their scores of the first LM."""
    for name, kind in (("one", "transfornn"), ("two", "lstm")):
        save_folder(tmp_path / name, neural(kind), kind, {})
    write_lists(tmp_path / "lists.jsonl", lists(6))
    nbest(tmp_path, "one")
    return tmp_path


def nbest(folder: Path, *lms: str, more: tuple[object, ...] = (), out: str = "out") -> str:
    given = [word for lm in lms for word in ("--lm", folder / lm)]
    result = run("nbest", "--nbest", folder / "lists.jsonl", *given, *more, "--out", folder / out)
    assert result.exit_code in (0, 3), result.exception
    return " ".join(result.output.split())


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Column -> hypotheses that its LM was evaluated of."""
    counted, seen = Counter[str](), LMColumn._seen

    def counting(self: LMColumn, given: Any, contexts: Any) -> Any:
        counted[self.column] += sum(len(each.hyps) for each in given)
        return seen(self, given, contexts)

    monkeypatch.setattr(LMColumn, "_seen", counting)
    return counted


def same(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in OUTPUTS)


def test_what_was_scored_is_kept_in_any_order(folder: Path, evaluated: Counter[str]) -> None:
    told = nbest(folder, "two", "one", more=("--reuse",))
    assert evaluated == {"two": 24} and "one: kept, " in told
    assert next(read_nbest(str(folder / "out/scores.jsonl.gz"))).columns == ["am", "two", "one"]
    nbest(folder, "two", "one", out="anew")
    assert same(folder / "out", folder / "anew")
    evaluated.clear()
    nbest(folder, "one", "two", more=("--reuse",))
    assert not evaluated
    nbest(folder, "one", "two")
    assert evaluated == {"one": 24, "two": 24}  # without --reuse


def test_lms_of_kept_columns_are_not_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Mock(side_effect=registry.load)
    monkeypatch.setattr(registry, "load", loaded)
    nbest(folder, "two", "one", more=("--reuse",))
    assert [Path(call.args[0]).name for call in loaded.call_args_list] == ["two"]
    nbest(folder, "two", "one", more=("--reuse", "--max-unknown", "0.9"))
    assert loaded.call_count == 1
    nbest(folder, "two", "one", more=("--reuse", "--max-unknown", "0.2"))  # the words are counted again
    assert loaded.call_count == 3
    nbest(folder, "two", "one", out="anew")
    assert all((folder / "out" / name).read_bytes() == (folder / "anew" / name).read_bytes() for name in OUTPUTS[:2])


def test_by_shares(folder: Path, evaluated: Counter[str]) -> None:
    for share in ("1/2", "2/2"):
        nbest(folder, "one", "two", more=("--reuse", "--split", share))
    assert evaluated == {"two": 24} and run("merge", folder / "out").exit_code == 0
    nbest(folder, "one", "two", out="anew")
    assert same(folder / "out", folder / "anew")
    evaluated.clear()
    nbest(folder, "one", "two", more=("--reuse",))
    assert not evaluated


def test_scores_of_a_run_that_was_killed_at_its_end_are_kept(
    folder: Path, evaluated: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lms = ["--lm", folder / "one", "--lm", folder / "two", "--reuse", "--out", folder / "out"]
    for last in ("scoring.remove_parts", "nbest.note_lms"):
        with monkeypatch.context() as patch:
            patch.setattr(f"rescore.workflows.{last}", Mock(side_effect=KeyboardInterrupt))
            assert run("nbest", "--nbest", folder / "lists.jsonl", *lms).exit_code != 0
    assert evaluated == {"two": 24}
    nbest(folder, "one", "two", more=("--reuse",))
    assert evaluated == {"two": 24}


def other_lists(folder: Path) -> None:
    write_lists(folder / "lists.jsonl", lists(6)[::-1])


def other_lm(folder: Path) -> None:
    save_folder(folder / "one", neural("lstm"), "lstm", {})


def other_scores(folder: Path) -> None:
    write_lists(folder / "scores.jsonl", list(read_nbest(str(folder / "out/scores.jsonl.gz")))[1:])
    (folder / "out/scores.jsonl.gz").write_bytes((folder / "scores.jsonl").read_bytes())


def damaged(folder: Path) -> None:
    (folder / "out/scored.json").write_text("[]")


def other_version(folder: Path) -> None:
    path = folder / "out/scored.json"
    path.write_text(path.read_text().replace('"version": "', '"version": "0'))


@pytest.mark.parametrize("change", [other_lists, other_lm, other_scores, damaged, other_version])
def test_scores_of_something_else_are_not_kept(
    folder: Path, evaluated: Counter[str], change: Callable[[Path], None]
) -> None:
    change(folder)
    assert "kept" not in nbest(folder, "one", "two", more=("--reuse",))
    assert evaluated == {"one": 24, "two": 24}


def test_scores_of_other_settings_are_not_kept(folder: Path, evaluated: Counter[str]) -> None:
    nbest(folder, "one", more=("--reuse", "--dtype", "bfloat16"))
    assert evaluated == {"one": 24}
    nbest(folder, "one", more=("--reuse", "--dtype", "bfloat16", "--on-error", "skip", "--max-unknown", "0.9"))
    assert evaluated == {"one": 24}


def test_utterances_that_were_left_out_are_tried_again(
    folder: Path, evaluated: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = LMColumn.count

    def failing(self: LMColumn, given: Any) -> None:
        if any(each.utt_id == "utt2" for each in given):
            raise LMError("utterance utt2: no")
        count(self, given)

    with monkeypatch.context() as patch:
        patch.setattr(LMColumn, "count", failing)
        nbest(folder, "one", more=("--on-error", "skip"))
    assert len([*read_nbest(str(folder / "out/scores.jsonl.gz"))]) == 5
    nbest(folder, "one", more=("--reuse",))
    nbest(folder, "one", out="anew")
    assert same(folder / "out", folder / "anew")


def test_what_has_no_columns_of_sentences_is_refused(folder: Path) -> None:
    (folder / "mix.json").write_text(json.dumps({"scales": {"one": 0.5, "two": 0.5}}))
    for more in (["--context", "all"], ["--mix", folder / "mix.json"]):
        given = ["--lm", folder / "one", "--lm", folder / "two", "--reuse", *more, "--out", folder / "out"]
        result = run("nbest", "--nbest", folder / "lists.jsonl", *given)
        assert isinstance(result.exception, UsageError) and "--reuse is for columns" in str(result.exception)
