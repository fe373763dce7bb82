"""`rescore train-lm --nbest`: lists, references and weights become what an LM is trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from lm_zoo.errors import TextError
from lm_zoo.registry import save_folder
from rescore.errors import ReferencesError, ScoreError, UsageError, WeightsError
from rescore.types import Hypothesis, NbestList, Weights
from rescore.workflows.combine import read_scores
from rescore.workflows.error_lists import error_lists, weights_for
from tests.lm_zoo.zoo import neural
from tests.rescore.workflows.test_scoring import run, write_lists


def some_lists(count: int = 8) -> list[NbestList]:
    """The right words come second: the LM must learn that D follows C."""
    pairs = (("A", "B"), ("B", "A"), ("C", "C"), ("A", "A"))
    made = []
    for number in range(count):
        head = pairs[number % 4]
        hyps = [(*head, "C", "A"), (*head, "C", "D"), (*head, "B", "B")]
        made.append(NbestList(f"u{number}", [Hypothesis(w, {"am": -0.1 * k, "ilm": -1.0}) for k, w in enumerate(hyps)]))
    return made


def test_scores_and_errors(tmp_path: Path) -> None:
    source = write_lists(tmp_path / "in.jsonl", some_lists(1))
    weights, scale = weights_for(str(source), "lm", Weights({"am": 2.0, "ilm": -0.5, "words": 0.1, "lm": 0.3}))
    assert scale == 0.3 and weights.scales == {"am": 2.0, "ilm": -0.5, "words": 0.1}
    [found] = error_lists(str(source), {"u0": ("A", "B", "C", "D"), "other": ()}, weights)
    assert found.name == "u0" and found.sentences[1] == ("A", "B", "C", "D")
    assert found.scores == pytest.approx([2.0 * -0.1 * k + 0.5 + 0.4 for k in range(3)])
    assert found.errors == [1.0, 0.0, 2.0]


def test_weights_have_a_temperature(tmp_path: Path) -> None:
    source = write_lists(tmp_path / "in.jsonl", some_lists(1))
    tuned = Weights({"am": 2.0, "lm": 0.5}, {"decision": "mbr", "inverse_temperature": 0.1})
    weights, scale = weights_for(str(source), "lm", tuned)
    assert (weights.scales["am"], scale) == pytest.approx((0.2, 0.05))


def test_without_weights_every_score_counts_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_lists(tmp_path / "in.jsonl", some_lists(1))
    assert weights_for(str(source), "lm", None)[0].scales == {"am": 1.0}
    assert weights_for(str(source), "ilm", None)[0].scales == {"am": 1.0}
    assert "no --weights: am and lm count with scale 1" in capsys.readouterr().err


def test_a_normaliser_of_the_weights_counts_errors(tmp_path: Path) -> None:
    lists = [NbestList("u", [Hypothesis(("He", "said,"), {"am": 0.0}), Hypothesis(("he", "sat"), {"am": 0.0})])]
    source = write_lists(tmp_path / "in.jsonl", lists)
    [found] = error_lists(str(source), {"u": ("HE", "SAID")}, Weights({"am": 1.0}, {"normalise": "basic"}))
    assert found.errors == [0.0, 1.0]
    assert found.sentences[0] == ("He", "said,")


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    source = str(write_lists(tmp_path / "in.jsonl", some_lists(3)))
    with pytest.raises(ReferencesError, match=r"2 utterances have no reference \(u1, u2\)"):
        error_lists(source, {"u0": ("A",)}, Weights({"am": 1.0}))
    with pytest.raises(WeightsError, match="the weights have no scale for 'lm', the LM to be trained; found: am"):
        weights_for(source, "lm", Weights({"am": 1.0}))
    with pytest.raises(WeightsError, match=r"scale 0 for 'lm', .* changes nothing; give it one: .* --fix lm=0.5"):
        weights_for(source, "lm", Weights({"am": 1.0, "lm": 0.0}, {"decision": "first"}))
    with pytest.raises((WeightsError, ScoreError), match="no score 'bad'"):
        error_lists(source, {f"u{k}": ("A",) for k in range(3)}, Weights({"bad": 1.0}))


@pytest.mark.parametrize(
    ("words", "message"),
    [(("a", "b", "c", "d"), "differ in letter case"), (("\u2581A", "B"), "the references alone are pieces")],
)
def test_references_in_another_form_are_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    """Each word would be wrong, and the LM would learn to make hypotheses short."""
    source = str(write_lists(tmp_path / "in.jsonl", some_lists(2)))
    with pytest.raises(ReferencesError, match=message):
        error_lists(source, {"u0": words, "u1": words}, Weights({"am": 1.0}))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    save_folder(tmp_path / "small", neural("transfornn"), "transfornn", {})
    (tmp_path / "text").write_text("".join(f"{n.utt_id} {' '.join(n.hyps[1].words)}\n" for n in some_lists()))
    (tmp_path / "weights.json").write_text(json.dumps({"scales": {"am": 1.0, "ilm": -0.2, "small": 0.5}}))
    write_lists(tmp_path / "train.jsonl", some_lists()[:4])
    write_lists(tmp_path / "dev.jsonl", some_lists()[4:])
    return {name: tmp_path / name for name in ("small", "text", "weights.json", "train.jsonl", "dev.jsonl")}


def options(files: dict[str, Path]) -> list[Any]:
    lists = ["--nbest", files["train.jsonl"], "--valid", files["dev.jsonl"], "--ref", files["text"]]
    plan = ["--train", "lr=0.01", "--train", "passes=6", "--train", "batch_tokens=40"]
    return ["train-lm", "transfornn", *lists, *plan]


def test_an_lm_is_trained_to_leave_fewer_errors(tmp_path: Path, files: dict[str, Path]) -> None:
    out = tmp_path / "out"
    args = [*options(files), "--init", files["small"], "--weights", files["weights.json"], "--out", out]
    result = run(*args)
    assert result.exit_code == 0, result.exception
    assert "4 lists to train on; 0 where all hypotheses have as many errors left out" in result.output
    assert "step 0  valid errors an utterance: expected" in result.output
    config = json.loads((out / "config.json").read_text())
    assert config["data"] == ["train.jsonl"]
    for name, lm in (("before", files["small"]), ("after", out)):
        weighted = ["--scale", "am=1", "--scale", "ilm=-0.2", "--scale", "lm=0.5"]
        run("nbest", "--nbest", files["dev.jsonl"], "--lm", f"lm={lm}", *weighted, "--out", tmp_path / name)
    right = dict(line.split(" ", 1) for line in files["text"].read_text().splitlines())
    best = dict(line.split(" ", 1) for line in (tmp_path / "after" / "1best.txt").read_text().splitlines())
    assert all(right[utt_id] == words for utt_id, words in best.items())
    gains = [
        after.hyps[1].scores["lm"]
        - after.hyps[0].scores["lm"]
        - before.hyps[1].scores["lm"]
        + before.hyps[0].scores["lm"]
        for before, after in zip(read_scores(tmp_path / "before"), read_scores(tmp_path / "after"), strict=True)
    ]
    assert min(gains) > 0.5
    result = run(*args[:-2], "--out", out, "--train", "posterior=0.5")
    assert "the run there has posterior 1.0, not 0.5" in str(result.exception)


@pytest.mark.parametrize("option", ["--nbest", "--valid", "--ref"])
def test_what_is_read_more_than_once_is_no_pipe(option: str, tmp_path: Path, files: dict[str, Path]) -> None:
    args = [*options(files), "--init", files["small"], "--weights", files["weights.json"], "--out", tmp_path / "out"]
    args[args.index(option) + 1] = "-" if option == "--ref" else "jsonl:-"
    told = "^-: a pipe, which can be read once" if option == "--ref" else "^jsonl:- is a pipe, which is read but once"
    with pytest.raises((UsageError, TextError), match=told):
        raise run(*args).exception
    assert not (tmp_path / "out").exists()


def test_a_column_of_another_name(tmp_path: Path, files: dict[str, Path]) -> None:
    files["weights.json"].write_text(json.dumps({"scales": {"am": 1.0, "mine": 0.5}}))
    args = [*options(files), "--weights", files["weights.json"], "--out", tmp_path / "out"]
    with pytest.raises(WeightsError, match="no scale for 'small'"):
        raise run(*args, "--init", files["small"]).exception
    assert run(*args, "--init", f"mine={files['small']}").exit_code == 0


def test_options_that_do_not_go_together(tmp_path: Path, files: dict[str, Path]) -> None:
    lists, out = options(files), ["--out", tmp_path / "out"]
    text = ["train-lm", "lstm", "--valid", files["text"], *out]
    for args, message in (
        (text, "Missing option '--text', or '--nbest'"),
        ([*text, "--text", files["text"], "--ref", files["text"]], "--ref says nothing without --nbest"),
        ([*text, "--text", files["text"], "--utterances", "common"], "--utterances says nothing without --nbest"),
        ([*text, "--text", files["text"], "--master-port", "65536"], "65536 is not in the range 1<=x<=65535"),
        ([*lists, *out], "--nbest needs --init NAME|DIR"),
        ([*lists, *out, "--init", files["small"], "--vocab", files["small"]], "--vocab says nothing with --nbest"),
        ([*lists, *out, "--init", files["small"], "--tokens", "bpe"], "--tokens says nothing with --nbest"),
    ):
        result = run(*args)
        assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output
    assert isinstance(run(*text).exception, (SystemExit, click.UsageError))
