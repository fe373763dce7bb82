"""`rescore nbest --context`: the text before an utterance, against a slow loop over single hypotheses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lm_zoo.inference.interpolation import interpolate
from lm_zoo.registry import save_folder
from rescore.errors import UsageError
from rescore.formats import read_nbest
from rescore.types import Hypothesis, NbestList, Words
from rescore.workflows import scoring
from rescore.workflows.combine import read_scores
from rescore.workflows.context import TextBefore, last_words
from rescore.workflows.recordings import find_recordings
from tests.lm_zoo.zoo import neural
from tests.rescore.workflows.test_scoring import run, write_lists

SCALES = {"am": 0.5, "lstm": 2.0}


def some_lists() -> list[NbestList]:
    """Two recordings whose utterances come mixed and not in their order; the LM changes many first hypotheses."""
    rng = np.random.default_rng(1)
    made = []
    for utt_id in ("b-2", "a-10", "a-9", "b-1", "a-1", "b-3", "a-2"):
        words = {tuple(map(str, rng.choice(["A", "B", "C", "D"], rng.integers(0, 4)))): None for _ in range(5)}
        hyps = [Hypothesis(each, {"am": -0.3 * rank}) for rank, each in enumerate(words)]
        made.append(NbestList(utt_id, hyps))
    return made


@torch.no_grad()
def slow_score(lm: Any, text: list[Words], most: int | None, words: Words) -> float:
    """The sum of a sentence's scores in one sequence of all that stands before it."""
    before = [word for sentence in text if sentence for word in (*sentence, "</s>")]
    kept, left = list[str](), len(before) if most is None else most
    for word in reversed(before):
        if word != "</s>":
            left -= 1
        if left < 0 or (left == 0 and word == "</s>"):
            break
        kept.insert(0, word)
    ids = lm.vocab.ids
    tokens = torch.tensor([[lm.vocab.eos if word == "</s>" else ids[word] for word in (*kept, *words)]]).long()
    return float(lm.score(tokens, torch.tensor([tokens.shape[1]]))[0, len(kept) :].sum())


def slow_run(
    lm: Any, lists: list[NbestList], most: int | None, decided: bool
) -> tuple[dict[str, list[float]], dict[str, Words]]:
    """Scores of all hypotheses and the best hypotheses, one after the other."""
    scores, best, texts = dict[str, list[float]](), dict[str, Words](), dict[str, list[Words]]()
    for nbest in sorted(lists, key=lambda nbest: (nbest.utt_id[0], int(nbest.utt_id[2:]))):
        text = texts.setdefault(nbest.utt_id[0], [])
        found = scores[nbest.utt_id] = [slow_score(lm, text, most, hyp.words) for hyp in nbest.hyps]
        totals = [
            SCALES["am"] * hyp.scores["am"] + SCALES["lstm"] * s for hyp, s in zip(nbest.hyps, found, strict=True)
        ]
        best[nbest.utt_id] = nbest.hyps[int(np.argmax(totals))].words
        text.append(best[nbest.utt_id] if decided else nbest.hyps[0].words)
    return scores, best


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(tmp_path / "lstm", neural("lstm"), "lstm", {})
    return tmp_path / "lstm"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.json"
    path.write_text(json.dumps({"scales": SCALES}))
    return path


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("context", ["all", "3", "1"])
def test_scores_are_those_in_the_text_so_far(
    tmp_path: Path, folder: Path, weights: Path, context: str, decided: bool
) -> None:
    source, out = write_lists(tmp_path / "in.jsonl", some_lists()), tmp_path / "out"
    options = ["--weights", weights] if decided else []
    result = run("nbest", "--nbest", source, "--lm", folder, "--out", out, "--context", context, *options)
    assert result.exit_code == 0, result.exception
    expected, best = slow_run(neural("lstm"), some_lists(), None if context == "all" else int(context), decided)
    scored = {nbest.utt_id: nbest for nbest in read_scores(out)}
    for utt_id, scores in expected.items():
        assert [hyp.scores["lstm"] for hyp in scored[utt_id].hyps] == pytest.approx(scores, abs=1e-4)
    assert list(scored) == ["b-2", "b-1", "b-3", "a-10", "a-9", "a-1", "a-2"]  # as soon as a recording is whole
    if decided:
        lines = dict(line.partition(" ")[::2] for line in (out / "1best.txt").read_text().splitlines())
        assert lines == {utt_id: " ".join(words) for utt_id, words in best.items()}
        assert any(words != nbest.hyps[0].words for nbest in some_lists() if (words := best[nbest.utt_id]))
    how_much = "all words" if context == "all" else f"the last {context} words"
    of = "rescored best hypotheses" if decided else "first hypotheses"
    assert (
        f"context: {how_much} before an utterance in its recording, of the {of}; 2 recordings of 7 utterances, "
        "told by ids up to the number at their end" in result.output
    )
    info = json.loads((out / "weights.json").read_text())["info"]["context"]
    assert (info["words"], info["of"]) == ("all" if context == "all" else int(context), of)


def test_batches_are_of_whole_recordings(
    tmp_path: Path, folder: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lists(tmp_path / "in.jsonl", some_lists())
    args = ("nbest", "--nbest", source, "--lm", folder, "--weights", weights, "--context", "all", "--out")
    run(*args, tmp_path / "one")
    monkeypatch.setattr(scoring, "BATCH_WORDS", 1)
    run(*args, tmp_path / "many")
    pairs = zip(read_scores(tmp_path / "one"), read_scores(tmp_path / "many"), strict=True)
    for one, other in pairs:
        assert one.utt_id == other.utt_id
        for hyp, again in zip(one.hyps, other.hyps, strict=True):
            assert hyp.scores == pytest.approx(again.scores, abs=1e-4)


def test_a_stopped_run_goes_on_with_the_same_context_alone(
    tmp_path: Path, folder: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BATCH_WORDS", 1)
    source, out = write_lists(tmp_path / "in.jsonl", some_lists()), tmp_path / "out"
    args = ["nbest", "--nbest", source, "--lm", folder, "--out", out, "--weights", weights]
    score_batch, calls = scoring.score_batch, []

    def stopped(batch: list[NbestList], *rest: Any) -> list[NbestList]:
        calls.append(batch)
        if batch[0].utt_id.startswith("a"):
            raise KeyboardInterrupt
        return score_batch(batch, *rest)

    def stop() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(scoring, "score_batch", stopped)
            run(*args, "--context", "all")

    stop()
    result = run(*args, "--context", "all")
    assert "7 utterances scored, 3 of them by a run that was stopped" in result.output
    expected, _ = slow_run(neural("lstm"), some_lists(), None, True)
    for nbest in read_scores(out):
        assert [hyp.scores["lstm"] for hyp in nbest.hyps] == pytest.approx(expected[nbest.utt_id], abs=1e-4)
    for other in (["--context", "2"], [], ["--context", "all", "--recording-of", "^."]):
        stop()
        result = run(*args, *other)
        assert "are not taken over, it had another --context" in result.output
        assert result.exit_code == 0


def test_shares_see_the_same_context(
    tmp_path: Path, folder: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BATCH_WORDS", 1)
    source = write_lists(tmp_path / "in.jsonl", some_lists())
    args = ["--lm", folder, "--weights", weights, "--context", "all"]
    run("nbest", "--nbest", source, *args, "--out", tmp_path / "alone")
    for share in ("2/2", "1/2"):
        assert run("nbest", "--nbest", source, *args, "--split", share, "--out", tmp_path / "shared").exit_code == 0
    assert run("merge", tmp_path / "shared", "--weights", weights).exit_code == 0
    assert list(read_scores(tmp_path / "shared")) == list(read_scores(tmp_path / "alone"))
    for name in ("1best.txt", "weights.json"):
        assert (tmp_path / "shared" / name).read_text() == (tmp_path / "alone" / name).read_text()


def test_an_interpolation_and_uncertainty_see_the_context(tmp_path: Path, folder: Path, weights: Path) -> None:
    save_folder(tmp_path / "bayesian", neural("bayesian"), "bayesian", {})
    source, mix = write_lists(tmp_path / "in.jsonl", some_lists()), tmp_path / "mix.json"
    mix.write_text(json.dumps({"scales": {"lstm": 0.25, "bayesian": 0.75}}))
    drawn = f"bayesian={tmp_path / 'bayesian'}?samples=2&uncertainty=true"
    lms = ["--lm", folder, "--lm", drawn, "--mix", mix]
    result = run("nbest", "--nbest", source, *lms, "--context", "all", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.exception
    from lm_zoo.registry import load

    parts = [load(str(folder)), load(drawn.partition("=")[2])]
    nbest = next(nbest for nbest in read_scores(tmp_path / "out") if nbest.utt_id == "a-2")
    before = next(each for each in some_lists() if each.utt_id == "a-1").hyps[0].words
    sentences = [hyp.words for hyp in nbest.hyps]
    rows = [lm.score_hypotheses(sentences, contexts=[(before,)] * len(sentences)) for lm in parts]
    for hyp, one, two in zip(nbest.hyps, *rows, strict=True):
        assert hyp.scores["mix"] == pytest.approx(interpolate(np.array([one, two]), [0.25, 0.75]).sum(), abs=1e-4)
        assert hyp.scores["bayesian-uncertainty"] > 0


def test_lms_of_single_sentences_are_named(tmp_path: Path, folder: Path) -> None:
    source = write_lists(tmp_path / "in.jsonl", some_lists())
    trainings = ({"text": "sentences"}, {"text": "windows"}, {"text": "sentences", "join": 64})
    for text, training, warned in zip(("alone", "windows", "joined"), trainings, (True, False, False), strict=True):
        save_folder(tmp_path / text, neural("lstm"), "lstm", {"training": training})
        for context in ([], ["--context", "all"]):
            args = ["--lm", tmp_path / text, *context, "--out", tmp_path / "out"]
            result = run("nbest", "--nbest", source, *args)
            said = f"{text}: trained on single sentences, so text before them may do harm" in result.output
            assert said == (warned and bool(context))
    args = ["--lm", tmp_path / "alone", "--context", "all", "--out", tmp_path / "shared"]
    assert run("nbest", "--nbest", source, *args, "--split", "1/1").exit_code == 0
    merged = run("merge", tmp_path / "shared").output  # of processes that say nothing, too
    assert "alone: trained on single sentences, so" in merged and "context: all words before an utterance" in merged


def test_lists_in_a_pipe(tmp_path: Path, folder: Path, weights: Path) -> None:
    source = write_lists(tmp_path / "in.jsonl", some_lists())
    args = ["--lm", folder, "--weights", weights, "--context", "all"]
    run("nbest", "--nbest", source, *args, "--out", tmp_path / "file")
    end, other = os.pipe()
    os.write(other, source.read_bytes())
    os.close(other)
    try:
        result = run("nbest", "--nbest", f"jsonl:/dev/fd/{end}", *args, "--out", tmp_path / "pipe")
    finally:
        os.close(end)
    assert result.exit_code == 0, result.exception
    assert list(read_scores(tmp_path / "file")) == list(read_scores(tmp_path / "pipe"))


def test_the_field_recording_is_kept(tmp_path: Path, folder: Path) -> None:
    source = tmp_path / "in.jsonl"
    lines = [
        {"utt_id": utt_id, "recording": name, "hyps": [{"words": "A B", "scores": {"am": 0.0}}]}
        for utt_id, name in (("x", "one"), ("y", "one"), ("z", "two"))
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run("nbest", "--nbest", source, "--lm", folder, "--context", "5", "--out", tmp_path / "out")
    assert "2 recordings of 3 utterances, told by the field 'recording' of the lists" in result.output
    for name in ("scores.jsonl.gz", "nbest.jsonl.gz"):
        found = [nbest.recording for nbest in read_nbest(f"jsonl:{tmp_path / 'out' / name}")]
        assert found == ["one", "one", "two"]
    run("convert", source, tmp_path / "again.jsonl", "--case", "lower")
    assert [nbest.recording for nbest in read_nbest(str(tmp_path / "again.jsonl"))] == ["one", "one", "two"]


def test_wrong_options(tmp_path: Path, folder: Path) -> None:
    source = write_lists(tmp_path / "in.jsonl", some_lists())
    args = ("nbest", "--nbest", source, "--lm", folder, "--out", tmp_path / "out")
    for value in ("0", "-3", "some", "1.5"):
        result = run(*args, "--context", value)
        assert result.exit_code == 2
        assert "expected a number of words, from 1, or all" in result.output
    with pytest.raises(UsageError, match="are for --context"):
        raise run(*args, "--recording-of", "a").exception
    assert not (tmp_path / "out" / "scores.jsonl.gz").exists()


def test_last_words() -> None:
    texts: list[Words] = [("A", "B"), (), ("C",), ("D", "E", "F")]
    assert last_words(texts, None) == (("A", "B"), ("C",), ("D", "E", "F"))
    assert last_words(texts, 100) == last_words(texts, None)
    assert last_words(texts, 5) == (("B",), ("C",), ("D", "E", "F"))
    assert last_words(texts, 4) == (("C",), ("D", "E", "F"))
    assert last_words(texts, 2) == (("E", "F"),)
    assert last_words([], 3) == last_words([(), ()], None) == ()


def test_a_recording_that_lost_an_utterance_is_still_scored() -> None:
    lists = some_lists()
    before = TextBefore(None, find_recordings(iter(lists)))
    groups = list(before.groups(nbest for nbest in lists if nbest.utt_id != "a-9"))
    assert [[nbest.utt_id for nbest in group] for group in groups] == [["b-2", "b-1", "b-3"], ["a-10", "a-1", "a-2"]]
