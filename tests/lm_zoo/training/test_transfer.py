"""Starting from a trained LM: fine-tuning, conversion by the command, and what cannot be started from what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.registry import load, load_folder, read_config, save_folder
from lm_zoo.training.run import TextRecipe, run
from lm_zoo.training.train import train
from lm_zoo.training.transfer import convert_lm, inherit_settings, new_lm
from rescore.cli.main import cli
from tests.lm_zoo import zoo
from tests.lm_zoo.models.test_bayesian import VOCAB, plain_folder
from tests.lm_zoo.training.test_train import config, text


def test_fine_tuning_starts_from_the_weights(tmp_path: Path) -> None:
    source = plain_folder(tmp_path)
    settings = inherit_settings("transformer", str(source), {"dropout": 0.2})
    assert settings["dropout"] == 0.2 and settings["dim"] == 16
    lm = new_lm("transformer", VOCAB, settings, 1, str(source))
    train("transformer", settings, VOCAB, text(0), text(1), tmp_path / "tuned", config(steps=1, lr=0.0), lm=lm)
    sentences = [("A", "B"), ("C",)]
    assert load(str(tmp_path / "tuned")).score_words(sentences) == load(str(source)).score_words(sentences)


def test_fine_tuning_by_the_command_takes_vocabulary_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, loaded = plain_folder(tmp_path), list[str]()
    monkeypatch.setattr("lm_zoo.training.transfer.load", lambda name: loaded.append(name) or load(name))
    (tmp_path / "text.txt").write_text("A B C D\nE F\n" * 20)
    command = ["train-lm", "transformer", "--text", str(tmp_path / "text.txt"), "--valid", str(tmp_path / "text.txt")]
    command += ["--init", str(source), "--out", str(tmp_path / "tuned"), "--train", "steps=20", "--train", "warmup=2"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert loaded == [str(source)]  # once
    made = read_config(tmp_path / "tuned")
    assert made["settings"] == read_config(source)["settings"]
    better, before = load(str(tmp_path / "tuned")), load(str(source))
    assert better.score_words([("E", "F")])[0][1] > before.score_words([("E", "F")])[0][1]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("lstm", {}, r"has no 'rnn.weight_ih_l0', so this kind of LM cannot start from it"),
        (
            "transformer",
            {"dim": 24},
            r"'input.embedding.weight' has the shape \(10, 16\), the new LM calls for \(10, 24\)",
        ),
    ],
)
def test_what_cannot_be_started_from_is_told_before_the_text_is_read(
    kind: str, options: dict[str, int], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("A B C D\nE F\n" * 20)
    monkeypatch.setattr("lm_zoo.training.run.tokenise", lambda *_: pytest.fail("the text was read"))
    recipe = TextRecipe([str(tmp_path / "text.txt")], str(tmp_path / "text.txt"), init=str(plain_folder(tmp_path)))
    with pytest.raises(ModelError, match=message):
        run(kind, options, recipe, {"steps": 1}, str(tmp_path / "new"), "cpu", lambda line: None)


def test_the_command_makes_a_bayesian_lm(tmp_path: Path) -> None:
    source = plain_folder(tmp_path)
    known = read_config(source)
    (source / "config.json").write_text(json.dumps({**known, "training": {"text": "sentences", "join": 40}}))
    out = tmp_path / "bayesian"
    for blocks, uncertain in (("1", 2), ("1-2", 4)):
        command = ["convert-lm", "bayesian", str(source), "--set", f"blocks={blocks}", "--out", str(out)]
        result = CliRunner().invoke(cli, command)
        assert result.exit_code == 0, result.output
        assert len(load_folder(out).log_sigma) == uncertain
    made = json.loads((out / "config.json").read_text())
    assert made["data"] == ["made up"] and made["training"]["join"] == 40  # what it has seen before sentences


def test_a_folder_with_a_run_in_it_takes_no_other_lm(tmp_path: Path) -> None:
    """Its log and its card would be beside weights that are not its own."""
    (tmp_path / "run").mkdir()
    for name in ("run.json", "log.jsonl"):
        (tmp_path / "run" / name).write_text("{}\n")
    with pytest.raises(ModelError, match=r"run: has the run of a trained LM in it \(run.json\); choose another --out"):
        convert_lm("bayesian", str(plain_folder(tmp_path)), {}, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["log.jsonl", "run.json"]


def test_what_is_no_lm_of_the_zoo_gives_no_weights_and_no_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("A B\n" * 9)
    Path("2gram.arpa").write_text("\\data\\\nngram 1=1\n\n\\1-grams:\n-1.0 A\n\n\\end\\\n")
    Path("gpt2.gguf").write_bytes(b"GGUF")
    Path("gpt2").mkdir()
    Path("gpt2/config.json").write_text('{"model_type": "gpt2"}')
    train_lm = ["train-lm", "transformer", "--text", "text", "--valid", "text", "--out", "new"]
    for name, kind in (
        ("2gram.arpa", "the file of an n-gram LM"),
        ("hf:gpt2.gguf", "a model of Hugging Face"),
        ("hf:gpt2", "a model of Hugging Face"),
    ):
        for command in (
            [*train_lm, "--init", name],
            [*train_lm, "--vocab", name],
            ["convert-lm", "bayesian", name, "--out", "new"],
        ):
            error = CliRunner().invoke(cli, command).exception
            assert isinstance(error, ModelError)
            assert str(error) == f"'{name}' is {kind}; expected an LM of the zoo, such as train-lm writes"


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    source = str(plain_folder(tmp_path))
    save_folder(tmp_path / "lstm", zoo.neural("lstm"), "lstm", {})
    with pytest.raises(ModelError, match=r"'input.embedding.weight' has the shape \(10, 16\), .* \(10, 8\)"):
        convert_lm("bayesian", source, {"dim": 8}, tmp_path / "x")
    with pytest.raises(ModelError, match=r"has no 'layers"):
        convert_lm("bayesian", str(tmp_path / "lstm"), {"heads": 2}, tmp_path / "x")
    with pytest.raises(ModelError, match=r"has 'layers.1.*', which the new LM has no place for"):
        convert_lm("transformer", source, {"layers": 1}, tmp_path / "x")
    shorter = zoo.WordVocabulary(zoo.WORDS[:-1], "upper")
    with pytest.raises(VocabError, match="10 tokens, the new LM 9"):
        new_lm("transformer", shorter, inherit_settings("transformer", source, {}), 1, source)
    other = zoo.WordVocabulary([*zoo.WORDS[:-1], "OTHER"], "upper")
    with pytest.raises(VocabError, match="10 tokens, the new LM 10, and not the same ones"):
        new_lm("transformer", other, inherit_settings("transformer", source, {}), 1, source)
    with pytest.raises(ModelError, match="no kind of LM is called 'bayes'"):
        inherit_settings("bayes", source, {})
    assert not (tmp_path / "x").exists()
