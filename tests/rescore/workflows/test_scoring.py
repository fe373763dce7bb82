"""Scoring N-best lists with LMs and `rescore nbest`, `ppl`, `lms`, `train-lm`: columns, resuming, messages."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import torch
from click.testing import CliRunner

from lm_zoo.errors import LMError, ModelError
from lm_zoo.inference import scoring as tree_scoring
from lm_zoo.registry import save_folder
from rescore.cli.main import cli
from rescore.errors import RescoreError, ScoreError, UsageError
from rescore.sharing.parts import FOLDER as PARTS
from rescore.types import Hypothesis, NbestList
from rescore.workflows import scoring
from rescore.workflows.columns import LMColumn, open_scorers
from rescore.workflows.combine import read_scores
from rescore.workflows.scoring import ScoringResult, score_batch, write_scores
from tests.lm_zoo.zoo import neural


def lists(count: int = 3) -> list[NbestList]:
    words = [("A", "B", "C"), ("A", "B"), (), ("A", "ZZZ")]
    return [
        NbestList(f"utt{i}", [Hypothesis(w, {"am": -1.0 * k}) for k, w in enumerate(words)], ("A", "B"))
        for i in range(count)
    ]


def write_lists(path: Path, items: list[NbestList]) -> Path:
    lines = (
        {"utt_id": n.utt_id, "hyps": [{"words": " ".join(h.words), "scores": h.scores} for h in n.hyps]} for n in items
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(tmp_path / "small", neural("transfornn"), "transfornn", {})
    return tmp_path / "small"


def run(*args: object) -> Any:
    """The command line in this process; user errors come back as the exception."""
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def test_columns_are_sentence_log_probabilities_beside_the_old_scores() -> None:
    lm = neural("lstm")
    for nbest in score_batch(lists(), [LMColumn("one", lm), LMColumn("two", neural("transformer"))]):
        for hyp in nbest.hyps:
            assert list(hyp.scores) == ["am", "one", "two"]
            assert hyp.scores["one"] == pytest.approx(sum(lm.score_words([hyp.words])[0]), abs=1e-4)


def test_two_lms_of_one_class_keep_apart(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"the column 'small' would be written twice"):
        open_scorers([str(folder), str(folder)], None)
    assert [scorer.column for scorer in open_scorers([str(folder), f"x={folder}"], None)] == ["small", "x"]
    with pytest.raises(UsageError, match=r"no LM given"):
        open_scorers([], None)
    with pytest.raises(LMError, match=r"is a transfornn, expected an n-gram LM; give it with --lm"):
        open_scorers([], str(folder))


def test_no_lm_takes_the_column_of_something_else(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UsageError, match=r"the column 'words' is the number of words; name an LM otherwise"):
        open_scorers([f"words={folder}"], None)
    source = write_lists(tmp_path / "in.jsonl", lists())
    (tmp_path / "mix.json").write_text('{"scales": {"mix": 0.5, "b": 0.5}}')
    lms = ["--lm", f"mix={folder}", "--lm", f"b={folder}", "--mix", tmp_path / "mix.json"]
    wrong = run("nbest", "--nbest", source, *lms, "--out", tmp_path / "out")
    assert "the column 'mix' would be written twice" in str(wrong.exception)


def test_lack_of_memory_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    score = tree_scoring.score

    def little_memory(lm: Any, trie: Any) -> Any:
        if trie.num_nodes > 4:
            raise RuntimeError("CUDA out of memory")
        return score(lm, trie)

    monkeypatch.setattr(tree_scoring, "score", little_memory)
    scorer = LMColumn("lm", neural("lstm"))
    first, second = score_batch(lists(1), [scorer]), score_batch(lists(1), [scorer])
    assert first == second
    assert capsys.readouterr().err.count("lm: memory did not suffice; going on with 2 prefixes or fewer at once") == 1


def test_no_score_is_overwritten() -> None:
    with pytest.raises(ScoreError, match=r"utt0: there is a score 'am' already"):
        score_batch(lists(), [LMColumn("am", neural("lstm"))])


def test_unknown_words_are_counted() -> None:
    scorer = LMColumn("lm", neural("lstm"))
    score_batch(lists(2), [scorer])
    assert (scorer.coverage.words, scorer.coverage.unknown) == (14, 2)


def test_wrong_case_names_the_utterance() -> None:
    lower = [NbestList("u7", [Hypothesis(("a", "b"), {"am": 0.0})])]
    with pytest.raises(LMError, match=r"utterance u7: found 'a', but the LM was trained on upper-case.*--case upper"):
        score_batch(lower, [LMColumn("lm", neural("lstm"), exact=True)])


def test_mix_is_the_interpolation_word_by_word() -> None:
    import math

    one, two = neural("lstm"), neural("transformer")
    scored = score_batch(lists(1), [LMColumn("one", one), LMColumn("two", two)], {"one": 0.25, "two": 0.75})
    for hyp in scored[0].hyps:
        pairs = zip(one.score_words([hyp.words])[0], two.score_words([hyp.words])[0], strict=True)
        expected = sum(math.log(0.25 * math.exp(a) + 0.75 * math.exp(b)) for a, b in pairs)
        assert hyp.scores["mix"] == pytest.approx(expected, abs=1e-4)


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BATCH_WORDS", 1)  # a batch an utterance
    lm = neural("lstm")

    def stopped() -> Any:
        yield from lists(3)[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_scores(stopped(), [LMColumn("lm", lm)], tmp_path, {"plan": 1})
    assert not (tmp_path / "scores.jsonl.gz").exists()
    scorer = LMColumn("lm", lm)
    assert write_scores(lists(3), [scorer], tmp_path, {"plan": 1}) == ScoringResult(3, 2, ANY, 3)
    assert not (tmp_path / PARTS).exists()
    assert [n.utt_id for n in read_scores(tmp_path)] == ["utt0", "utt1", "utt2"]
    again = [n.hyps for n in read_scores(tmp_path)]
    assert write_scores(lists(3), [LMColumn("lm", lm)], tmp_path / "fresh", {"plan": 1}) == ScoringResult(3, 0, ANY, 3)
    assert again == [n.hyps for n in read_scores(tmp_path / "fresh")]


def test_an_error_behind_the_scoring_leaves_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BATCH_WORDS", 1)
    lm = neural("lstm")

    def use(scored: Iterator[NbestList]) -> None:
        next(scored)
        raise ScoreError("no scale")

    with pytest.raises(ScoreError, match="no scale"):
        write_scores(lists(9), [LMColumn("lm", lm)], tmp_path, {"plan": 1}, use=use)
    assert not (tmp_path / "scores.jsonl.gz").exists()
    written = write_scores(lists(9), [LMColumn("lm", lm)], tmp_path, {"plan": 1}, use=lambda s: [n.utt_id for n in s])
    assert written.kept >= 1
    assert written.used == [f"utt{i}" for i in range(9)] == [n.utt_id for n in read_scores(tmp_path)]


def test_an_error_of_the_scoring_leaves_nothing_under_the_final_names(tmp_path: Path, folder: Path) -> None:
    bad = [*lists(2), NbestList("utt2", [Hypothesis(("a",), {"am": 0.0})])]
    source = write_lists(tmp_path / "in.jsonl", bad)
    result = run("nbest", "--nbest", source, "--lm", folder, "--out", tmp_path / "out", "--text-view", "exact")
    assert "utterance utt2: found 'a', but the LM was trained on upper-case" in str(result.exception)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {PARTS}


def test_parts_of_another_plan_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BATCH_WORDS", 1)

    def stopped() -> Any:
        yield from lists(3)[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_scores(stopped(), [LMColumn("lm", neural("lstm"))], tmp_path, {"plan": 1})
    assert write_scores(lists(3), [LMColumn("lm", neural("lstm"))], tmp_path, {"plan": 2}) == ScoringResult(
        3, 0, ANY, 3
    )


def test_nbest_from_source_to_1best(tmp_path: Path, folder: Path) -> None:
    source = write_lists(tmp_path / "in.jsonl", lists())
    result = run("nbest", "--nbest", source, "--lm", folder, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "every score counts with scale 1" in result.output
    assert "small: 3 of 21 hypothesis words unknown" in result.output
    best = (tmp_path / "out" / "1best.txt").read_text().splitlines()
    assert [line.split()[0] for line in best] == ["utt0", "utt1", "utt2"]
    with gzip.open(tmp_path / "out" / "scores.jsonl.gz", "rt") as stream:
        assert set(json.loads(next(stream))["hyps"][0]["scores"]) == {"am", "small"}
    scaled = run(
        "nbest", "--nbest", source, "--lm", folder, "--scale", "am=1", "--scale", "small=0", "--out", tmp_path / "b"
    )
    assert scaled.exit_code == 0, scaled.output
    assert (tmp_path / "b" / "1best.txt").read_text() == "utt0 A B C\nutt1 A B C\nutt2 A B C\n"


def test_device(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_lists(tmp_path / "in.jsonl", lists())
    text = tmp_path / "text.txt"
    text.write_text("A B C\n")
    args = ["nbest", "--nbest", source, "--lm", folder, "--out", tmp_path / "out", "--device"]
    assert run(*args, "cpu").exit_code == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for result in (run(*args, "cuda"), run("ppl", "--lm", folder, "--text", text, "--device", "cuda")):
        assert isinstance(result.exception, ModelError)
        assert "device 'cuda': torch" in str(result.exception)
    monkeypatch.setattr("lm_zoo.inference.devices.find_device", lambda name: torch.device("cuda"))
    assert "dtype int8 is for the CPU" in str(run(*args, "cuda", "--dtype", "int8").exception)


def test_quiet(tmp_path: Path, folder: Path) -> None:
    source = write_lists(tmp_path / "in.jsonl", lists())
    assert run("--quiet", "nbest", "--nbest", source, "--lm", folder, "--out", tmp_path / "out").output == ""


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (["--lm", "gpt9"], LMError, "no LM is called 'gpt9'"),
        (["--lm", "SMALL", "--scale", "am=x"], RescoreError, "'am=x' is no scale"),
        (["--lm", "SMALL", "--device", "tpu"], LMError, "device 'tpu'; expected cpu, cuda or cuda:N"),
        (["--lm", "SMALL", "--scale", "am=1", "--weights", "w.json"], UsageError, "not both"),
        (["--lm", "SMALL", "--weights", "missing.json"], RescoreError, "missing.json: no such file"),
        ([], UsageError, "no LM given"),
    ],
)
def test_messages(tmp_path: Path, folder: Path, args: list[str], error: type, message: str) -> None:
    source = write_lists(tmp_path / "in.jsonl", lists())
    words = [str(folder) if arg == "SMALL" else arg for arg in args]
    result = run("nbest", "--nbest", source, *words, "--out", tmp_path / "out")
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
    assert not (tmp_path / "out" / "scores.jsonl.gz").exists()


def test_a_bad_list_leaves_nothing_under_the_final_names(tmp_path: Path, folder: Path) -> None:
    source = write_lists(tmp_path / "in.jsonl", lists())
    with open(source, "a") as stream:
        stream.write("not json\n")
    result = run("nbest", "--nbest", source, "--lm", folder, "--out", tmp_path / "out")
    assert "in.jsonl:4" in str(result.exception)
    assert not {"scores.jsonl.gz", "1best.txt", "nbest.jsonl.gz"} & {f.name for f in (tmp_path / "out").iterdir()}


def test_ppl_mix_is_tuned_saved_and_used(tmp_path: Path, folder: Path) -> None:
    save_folder(tmp_path / "other", neural("lstm"), "lstm", {})
    text = tmp_path / "text.txt"
    text.write_text("A B C\nC B A ZZZ\nD E\n")
    lms = ["--lm", folder, "--lm", tmp_path / "other"]
    result = run("ppl", *lms, "--text", text, "--tune-mix", text, "--save-mix", tmp_path / "mix.json", "--json", "-")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output[result.output.index("[") : result.output.rindex("]") + 1])
    assert rows[2]["ppl_word"] <= min(rows[0]["ppl_word"], rows[1]["ppl_word"]) + 1e-6
    assert (rows[0]["words"], rows[0]["sentences"], rows[0]["unknown"]) == (9, 3, 1)
    source = write_lists(tmp_path / "in.jsonl", lists())
    used = run("nbest", "--nbest", source, *lms, "--mix", tmp_path / "mix.json", "--out", tmp_path / "out")
    assert used.exit_code == 0, used.output
    assert "mix" in next(iter(read_scores(tmp_path / "out"))).hyps[0].scores
    for scales in (("nbest", "--nbest", source, *lms), ("combine", "--scores", tmp_path / "out")):
        wrong = run(*scales, "--weights", tmp_path / "mix.json", "--out", tmp_path / "out1")
        assert "mix.json: a mixture of LMs by words (rescore ppl --save-mix), not scales" in str(wrong.exception)
    missing = run("nbest", "--nbest", source, *lms, "--mix", tmp_path / "no.json", "--out", tmp_path / "out1")
    assert "no.json: no such file; `rescore ppl --save-mix` writes one" in str(missing.exception)
    wrong = run("nbest", "--nbest", source, *lms[:2], "--mix", tmp_path / "mix.json", "--out", tmp_path / "out2")
    assert "mixes small, other, but the LMs given are small" in str(wrong.exception)


def test_ppl_of_chosen_mixtures(tmp_path: Path, folder: Path) -> None:
    for name in ("lstm", "transfornn"):
        save_folder(tmp_path / name, neural(name), name, {})
    text = tmp_path / "text.txt"
    text.write_text("A B C\nC B A ZZZ\nD E\n")
    lms = [part for name in (folder, tmp_path / "lstm", tmp_path / "transfornn") for part in ("--lm", name)]
    args = ["ppl", *lms, "--text", text, "--tune-mix", text, "--json", "-"]
    chosen = run(*args, "--mixture", "transfornn,small", "--mixture", "lstm,small"), run(*args[:3], *args[5:])
    rows, pair = (json.loads(result.output[result.output.index("[") :]) for result in chosen)
    assert [set(row["weights"]) for row in rows[3:]] == [{"transfornn", "small"}, {"lstm", "small"}]
    assert rows[3]["ppl_word"] == pytest.approx(pair[2]["ppl_word"])
    assert rows[3]["weights"] == pytest.approx(pair[2]["weights"])
    wrong = run(*args, "--mixture", "lstm,big")
    assert "--mixture lstm,big: expected two or more of small, lstm, transfornn" in str(wrong.exception)
    twice = run(*args, "--mixture", "lstm,lstm,small")
    assert "--mixture lstm,lstm,small: expected two or more of" in str(twice.exception), (
        "the weights were not all there"
    )
    alone = run(*args[:-4], "--mixture", "lstm,small")
    assert "--mixture needs --tune-mix" in str(alone.exception)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--lm lstm --tune-mix text", "needs two LMs or more"),
        ("--lm lstm --lm small --tune-mix text --mixture lstm,big", "--mixture lstm,big: expected"),
        ("--lm lstm --lm small --tune-mix none", "none: no such file"),
        ("--lm lstm --lm small --mix none", "none: no such file"),
    ],
)
def test_ppl_refuses_mixtures_before_it_scores(
    line: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    save_folder(folder.parent / "lstm", neural("lstm"), "lstm", {})
    (folder.parent / "text").write_text("A B C\n")
    monkeypatch.setattr("rescore.workflows.perplexity.score_text", lambda *_: pytest.fail("text was scored"))
    result = run("ppl", *line.split(), "--text", "text")
    assert message in str(result.exception)


def test_ppl_windows(tmp_path: Path, folder: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A B C\nC B A\n")
    window = ("ppl", "--lm", folder, "--text", text, "--window", 3, "--json", "-", "--position")
    rows = [json.loads(run(*window, how).stdout)[0] for how in ("all", "final", "carried", "recurrent")]
    assert [row["tokens"] for row in rows] == [8] * 4
    assert len({row["ppl_token"] for row in rows}) == 4
    save_folder(tmp_path / "deep", neural("transformer"), "transformer", {})
    refused = run("ppl", "--lm", tmp_path / "deep", "--text", text, "--window", 3, "--position", "recurrent")
    assert "Transformer has no LSTM layers" in str(refused.exception)
    refused = run("ppl", "--lm", folder, "--text", text, "--position", "carried")
    assert "--position carried is of windows of running text: give --window N" in str(refused.exception)


def test_lms_lists_what_is_shipped() -> None:
    rows = json.loads(run("lms", "--json", "-").output)
    assert all({"name", "kind", "params", "bytes", "word_ppl"} <= set(row) for row in rows)
    assert run("lms").exit_code == 0


def test_train_lm_takes_a_list_of_words(tmp_path: Path) -> None:
    text, words = tmp_path / "text.txt", tmp_path / "words.txt"
    text.write_text("HE SAID SO\nSHE SAID NO\n" * 20)
    words.write_text("SAID\nHE\nNEVER\n")
    small = [part for value in ("dim=8", "heads=2", "layers=1") for part in ("--set", value)]
    args = ["--text", text, "--valid", text, "--vocab", words, "--train", "steps=1", "--out", tmp_path / "lm"]
    result = run("train-lm", "transformer", *args, *small)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "lm" / "words.txt").read_text().split()[::2] == ["<sos/eos>", "<unk>", "HE", "NEVER", "SAID"]
    assert "60 unknown" in result.output


def test_train_lm_from_text_to_a_usable_folder(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("HE SAID SO\nSHE SAID NO\nHE SAID NO\n" * 20)
    out = tmp_path / "lm"
    small = [
        "--set",
        "dim=16",
        "--set",
        "heads=2",
        "--set",
        "feedforward=16",
        "--train",
        "steps=12",
        "--train",
        "warmup=2",
        "--train",
        "batch_tokens=64",
        "--train",
        "valid_every=6",
    ]
    args = ["train-lm", "transfornn", "--text", text, "--valid", text, "--vocab-size", 24, "--out", out]
    result = run(*args, *small)
    assert result.exit_code == 0, result.output
    assert "60 sentences, 180 words" in result.output
    ppl = run("ppl", "--lm", out, "--text", text, "--json", "-")
    assert ppl.exit_code == 0, ppl.output
    bad = run(*args[:2], *args[2:], *small, "--train", "speed=3")
    assert "training has no setting 'speed' (did you mean 'seed'?); it has: optimizer" in str(bad.exception)
    lower = tmp_path / "lower.txt"
    lower.write_text("he said so\n")
    cased = run("train-lm", "lstm", "--text", lower, "--valid", lower, "--vocab", out, "--out", tmp_path / "x")
    assert "found 'he', but the LM was trained on upper-case" in str(cased.exception)


def test_every_command_has_help_with_an_example() -> None:
    from rescore.cli import lattice
    from rescore.cli.main import COMMANDS

    for names in [*((name,) for name in COMMANDS), *(("lattice", name) for name in lattice.COMMANDS)]:
        result = run(*names, "-h")
        assert result.exit_code == 0, (names, result.output)
        assert f"Example: rescore {' '.join(names)}" in result.output, names


def test_exit_code_2_and_one_line(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = "from rescore.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "wer", "--ref", str(tmp_path / "no.txt"), "--hyp", "x"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("rescore: ") and done.stderr.count("\n") == 1


def test_a_bayesian_lm_averages_and_writes_its_uncertainty(tmp_path: Path) -> None:
    save_folder(tmp_path / "bayes", neural("bayesian"), "bayesian", {})
    scorers = open_scorers([f"{tmp_path}/bayes?samples=4&seed=2&uncertainty=true", f"plain={tmp_path}/bayes"], None)
    assert [scorer.columns for scorer in scorers] == [["bayes", "bayes-uncertainty"], ["plain"]]
    (scored,) = score_batch([NbestList("u", [Hypothesis(("A", "B"), {}), Hypothesis((), {})])], scorers)
    average = scorers[0].lm
    for hyp in scored.hyps:
        assert hyp.scores["bayes"] == pytest.approx(sum(average.score_words([hyp.words])[0]), abs=1e-4)
        spread = average.score_with_uncertainty([hyp.words])[1][0]
        assert hyp.scores["bayes-uncertainty"] == pytest.approx(sum(spread), abs=1e-5)
        assert hyp.scores["bayes-uncertainty"] > 0
        assert hyp.scores["plain"] != hyp.scores["bayes"]
    result = run("ppl", "--lm", f"{tmp_path}/bayes?samples=2", "--text", __file__, "--window", 3)
    assert "--window is for one LM at a time; 'bayes' is several (leave ?samples= out)" in str(result.exception)


@pytest.mark.parametrize(
    "options", ["samples=0", "samples=x", "seed=1", "samples=2&draws=3", "samples=2&uncertainty=1"]
)
def test_bad_options_of_a_bayesian_lm(tmp_path: Path, options: str) -> None:
    save_folder(tmp_path / "bayes", neural("bayesian"), "bayesian", {})
    with pytest.raises(ModelError, match=r"expected samples=K"):
        open_scorers([f"{tmp_path}/bayes?{options}"], None)
    save_folder(tmp_path / "plain", neural("transformer"), "transformer", {})
    with pytest.raises(ModelError, match=r"is a transformer, which has no options"):
        open_scorers([f"{tmp_path}/plain?{options}"], None)


def test_lms_lists_runs_and_finds_the_best(tmp_path: Path) -> None:
    for name, loss in (("a", 4.5), ("b", 4.25), ("c", 5.0)):
        save_folder(tmp_path / name, neural("lstm"), "lstm", {"trained": {"valid_loss": loss}})
    folders = [str(tmp_path / name) for name in "abc"]
    result = CliRunner().invoke(cli, ["lms", *folders, "--best"])
    assert (result.exit_code, result.output.strip()) == (0, folders[1])
    rows = json.loads(CliRunner().invoke(cli, ["lms", *folders, "--json", "-"]).output)
    assert [(row["kind"], row["valid_loss"]) for row in rows] == [("lstm", 4.5), ("lstm", 4.25), ("lstm", 5.0)]
    save_folder(tmp_path / "d", neural("lstm"), "lstm", {})
    failed = CliRunner().invoke(cli, ["lms", *folders, str(tmp_path / "d"), "--best"])
    assert isinstance(failed.exception, UsageError)
    assert f"{tmp_path / 'd'} has no validation loss in config.json" in str(failed.exception)
