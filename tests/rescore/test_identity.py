"""Stopped runs of `rescore nbest`: what was scored is taken over only if LMs, lists and options are still the same."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from lm_zoo.errors import ModelError
from lm_zoo.identity import content, lm_identity
from lm_zoo.registry import save_folder
from rescore.cli.main import cli
from rescore.formats import source_identity
from rescore.workflows import scoring
from rescore.workflows.combine import read_scores
from tests.lm_zoo.zoo import ARPA, neural


def run(*args: object) -> Any:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def write_lists(path: Path, words: str = "A B ZZZ") -> Path:
    hyps = [{"words": words, "scores": {"am": -1.0}}]
    path.write_text("".join(json.dumps({"utt_id": f"utt{i}", "hyps": hyps}) + "\n" for i in range(4)))
    return path


def save(folder: Path, change: float = 0.0) -> Path:
    lm = neural("lstm")
    with torch.no_grad():
        lm.output.bias[3] += change
    save_folder(folder, lm, "lstm", {})
    return folder


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The arguments of a run that was stopped after two of four lists."""
    pytest.importorskip("kenlm", reason="n-gram LMs need kenlm")
    (tmp_path / "toy.arpa").write_text(ARPA)
    mix = tmp_path / "mix.json"
    mix.write_text(json.dumps({"scales": {"nn": 0.5, "ngram": 0.5}}))
    arguments = ["nbest", "--nbest", write_lists(tmp_path / "in.jsonl"), "--lm", save(tmp_path / "nn")]
    arguments += ["--ngram", tmp_path / "toy.arpa", "--mix", mix, "--out", tmp_path / "out"]
    monkeypatch.setattr(scoring, "BATCH_WORDS", 1)
    score, calls = scoring.score_batch, []

    def two(*args: Any) -> Any:
        calls.append(args)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return score(*args)

    monkeypatch.setattr(scoring, "score_batch", two)
    assert run(*arguments).exit_code != 0
    monkeypatch.setattr(scoring, "score_batch", score)
    return arguments


def columns(folder: Path) -> list[dict[str, float]]:
    return [hyp.scores for nbest in read_scores(folder) for hyp in nbest.hyps]


def test_the_same_goes_on_and_counts_all_words(stopped: list[object]) -> None:
    result = run(*stopped)
    assert "4 utterances scored, 2 of them by a run that was stopped" in result.stderr
    assert "nn: 4 of 12 hypothesis words unknown" in result.stderr and "ngram: 4 of 12" in result.stderr


def test_another_path_of_the_same_content_goes_on(stopped: list[object], tmp_path: Path) -> None:
    shutil.move(tmp_path / "nn", tmp_path / "elsewhere/nn")
    shutil.move(tmp_path / "in.jsonl", tmp_path / "elsewhere/in.jsonl")
    stopped[2], stopped[4] = tmp_path / "elsewhere/in.jsonl", tmp_path / "elsewhere/nn"
    assert "2 of them by a run that was stopped" in run(*stopped).stderr


def replace_lm(folder: Path) -> None:
    save(folder / "nn", 3.0)


def replace_vocabulary(folder: Path) -> None:
    path = folder / "nn/words.txt"
    path.write_text(path.read_text().replace("A 2", "X 2").replace("B 3", "A 3").replace("X 2", "B 2"))


def replace_ngram(folder: Path) -> None:
    (folder / "toy.arpa").write_text(ARPA.replace("-0.7\tA", "-0.5\tA"))


def replace_lists(folder: Path) -> None:
    """Others of the same size, with the time of those before."""
    times = (folder / "in.jsonl").stat()
    write_lists(folder / "in.jsonl", "B A ZZZ")
    os.utime(folder / "in.jsonl", ns=(times.st_atime_ns, times.st_mtime_ns))


def replace_mix(folder: Path) -> None:
    (folder / "mix.json").write_text(json.dumps({"scales": {"nn": 0.25, "ngram": 0.75}}))


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        (replace_lm, "LM 'nn'"),
        (replace_vocabulary, "LM 'nn'"),
        (replace_ngram, "LM 'ngram'"),
        (replace_lists, "N-best lists"),
        (replace_mix, "--mix"),
    ],
)
def test_what_was_replaced_is_named_and_all_scored_anew(
    stopped: list[object], tmp_path: Path, replace: Callable[[Path], None], said: str
) -> None:
    replace(tmp_path)
    result = run(*stopped)
    assert result.exit_code == 0, result.output
    assert f"not taken over, it had another {said}\n" in result.stderr
    assert "4 utterances scored\n" in result.stderr
    assert run(*stopped[:-1], tmp_path / "fresh").exit_code == 0
    assert columns(tmp_path / "out") == columns(tmp_path / "fresh")


def test_a_damaged_plan_is_not_gone_on_with(stopped: list[object], tmp_path: Path) -> None:
    (tmp_path / "out/.parts/plan.json").write_text('{"nb')
    result = run(*stopped, "--dtype", "bfloat16")
    assert "not taken over, it had another plan, as its file is damaged" in result.stderr
    assert "4 utterances scored\n" in result.stderr


def test_identities(tmp_path: Path) -> None:
    one = lm_identity(str(save(tmp_path / "nn")))
    (tmp_path / "nn/log.jsonl").write_text("{}\n")  # no part of the LM
    assert lm_identity(str(tmp_path / "nn")) == one == lm_identity(str(save(tmp_path / "other")))
    assert lm_identity(f"{tmp_path}/nn?samples=2") != one
    (tmp_path / "toy.arpa").write_text(ARPA)
    assert lm_identity(str(tmp_path / "toy.arpa")) != one
    with pytest.raises(ModelError, match="no LM is called"):
        lm_identity("nothing")
    spec = f"nemo:{write_lists(tmp_path / 'in.jsonl')}?n=2"
    assert source_identity(spec) != source_identity(spec.replace("n=2", "n=4"))


def test_identities_of_kaldis_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns and indices stand for what they name; a table that is found counts, logs beside archives do not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/lat.1.gz").write_bytes(b"one")
    (tmp_path / "lat.scp").write_text("a dev/lat.1.gz:12\nb dev/lat.1.gz:40\n")
    specs = ("kaldi-lat:dev", "kaldi:dev/lat.*.gz", "kaldi:lat.scp", "kaldi-lat:dev?words=ids")
    seen = [[source_identity(spec) for spec in specs]]
    (tmp_path / "dev/score.log").write_text("WER")
    assert [source_identity(spec) for spec in specs] == seen[0]
    for name, data in (("dev/lat.1.gz", b"two"), ("words.txt", b"A 1"), ("data/lang/words.txt", b"A 2")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
        seen.append([source_identity(spec) for spec in specs])
    archive, beside, lang = (
        [now != before for now, before in zip(*pair, strict=True)] for pair in zip(seen[1:], seen, strict=False)
    )
    assert archive == [True] * 4
    assert beside == [False, False, True, False]  # the index's folder
    assert lang == [True, True, True, False]


def test_content_of_folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep/file").write_text("x")
    assert content([tmp_path / "a"]) == content([tmp_path / "b"]) != content([tmp_path / "a"], ["words"])
    (tmp_path / "b/deep/file").rename(tmp_path / "b/file")
    assert content([tmp_path / "a"]) != content([tmp_path / "b"])
