"""The model card of a run, from the command to the page; and what the command refuses and shows before it works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from lm_zoo.errors import ModelError
from lm_zoo.registry import KINDS, neural_class
from lm_zoo.training.card import write_card
from lm_zoo.training.config import TrainConfig
from rescore.cli.kinds import settings_of_class
from rescore.cli.main import cli

OPTIONS = "--tokens word --set dim=8 --set tied=false --train steps=2 --train warmup=1 --longest 5"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card")
    (folder / "books.txt").write_text("THE CAT SAT\nTHE DOG RAN\n" * 20)
    (folder / "valid.txt").write_text("THE CAT RAN\n")
    words = ["train-lm", "lstm", "--text", "books.txt", "--valid", "valid.txt", *OPTIONS.split(), "--out", "mine"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert "mine/README.md: the model card" in done.output
    return folder / "mine"


def test_the_card_says_what_the_lm_is(run: Path) -> None:
    text = (run / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: rescore\n") and "# mine: a language model for rescoring" in text
    for part in ("| kind | lstm |", "| validation perplexity a token | ", "| 2 steps, ", "- books.txt (blake2b "):
        assert part in text
    assert "- validation: valid.txt (blake2b " in text and "- dim: 8\n" in text and "- training, steps: 2\n" in text
    (line,) = (line.strip() for line in text.splitlines() if line.startswith("    rescore train-lm"))
    words = shlex.split(line)
    assert words[:5] == ["rescore", "train-lm", "lstm", "--text", "books.txt"] and words[-2:] == ["--out", "mine"]
    given = OPTIONS.split()
    pairs, shown = ({(a, b) for a, b in zip(w[::2], w[1::2], strict=True)} for w in (given, words[3:]))
    assert pairs <= shown and len(shown) == len(pairs) + 3


def test_the_command_of_a_given_vocabulary_says_nothing_of_its_tokens(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    words = ["train-lm", "lstm", "--text", "books.txt", "--valid", "valid.txt", "--train", "steps=1"]
    for name, given in (("again", "--init mine"), ("same", "--vocab mine --set dim=8")):
        done = CliRunner().invoke(cli, [*words, *given.split(), "--out", name])
        assert done.exit_code == 0 and "says nothing" not in done.output, done.output
        card = Path(name, "README.md").read_text()
        (line,) = (line for line in card.splitlines() if line.startswith("    rescore train-lm"))
        assert "--vocab mine" in line and "--tokens" not in line
    done = CliRunner().invoke(cli, [*words, "--vocab", "mine", "--tokens", "word", "--set", "dim=8", "--out", "told"])
    assert "the vocabulary is that of mine; --tokens word says nothing" in done.output


def test_a_longest_sentence_says_nothing_with_windows(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    words = ["train-lm", "lstm", "--text", "books.txt", "--valid", "valid.txt", *OPTIONS.split()]
    told = "--longest says nothing with --train text=windows"
    windows = [*words, "--train", "text=windows", "--out", "windows"]
    done = CliRunner().invoke(cli, windows)
    assert done.exit_code == 0 and told in done.output, done.output
    assert told not in CliRunner().invoke(cli, [*words, "--out", "sentences"]).output
    at = windows.index("--longest")
    done = CliRunner().invoke(cli, [*windows[:at], *windows[at + 2 : -1], "default"])
    assert done.exit_code == 0 and told not in done.output, done.output


def test_text_with_ids_is_another_text_and_the_command_says_so(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    Path("text").write_text("utt-1 the cat sat\nutt-2 the dog ran\n" * 9)
    words = ["train-lm", "lstm", *OPTIONS.split(), "--out", "other"]
    done = CliRunner().invoke(cli, [*words, "--text", "kaldi:text", "--valid", "kaldi:text"])
    assert done.exit_code == 0, done.output
    card = Path("other/README.md").read_text()
    assert "train-lm lstm --text kaldi:text --valid kaldi:text" in card and "- kaldi:text (blake2b " in card
    done = CliRunner().invoke(cli, [*words, "--text", "text:text", "--valid", "text:text"])
    assert isinstance(done.exception, ModelError) and "the run there has text" in str(done.exception)


def test_a_card_that_is_changed_by_hand_stays(run: Path) -> None:
    card = run / "README.md"
    ours = card.read_text()
    assert write_card(run) and card.read_text() == ours
    for text in (ours.replace("not said yet", "CC BY 4.0"), ours + "More.\n", "# mine\n"):
        card.write_text(text)
        assert not write_card(run) and card.read_text() == text
    card.write_text(ours)


def test_a_wrong_kind_is_refused_before_anything_else() -> None:
    done = CliRunner().invoke(cli, ["train-lm", "transfornm"])
    assert isinstance(done.exception, ModelError)
    assert "no kind of LM is called 'transfornm' (did you mean 'transfornn'?)" in str(done.exception)
    done = CliRunner().invoke(cli, ["train-lm", "ngram"])
    assert isinstance(done.exception, ModelError) and "rescore train-ngram makes n-gram LMs" in str(done.exception)


def test_a_wrong_setting_is_refused_with_the_nearest(tmp_path: Path) -> None:
    words = ["train-lm", "lstm", "--text", "none", "--valid", "none", "--out", str(tmp_path / "out")]
    for option, message in (
        ("--set dmi=8", "lstm has no setting 'dmi' (did you mean 'dim'?)"),
        ("--train stesp=2", "training has no setting 'stesp' (did you mean 'steps'?)"),
    ):
        done = CliRunner().invoke(cli, [*words, *option.split()])
        assert isinstance(done.exception, ModelError) and message in str(done.exception)


@pytest.mark.parametrize("kind", [None, *(kind for kind in KINDS if kind != "ngram")])
def test_help_shows_all_settings_and_what_they_are(kind: str | None) -> None:
    done = CliRunner().invoke(cli, ["train-lm", *([kind] if kind else []), "-h"])
    assert done.exit_code == 0
    assert re.search(r"\n  transfornn +Transformer layers, then LSTM layers\n", done.output)
    classes = [TrainConfig, *([neural_class(kind).Config] if kind else [])]
    for cls in classes:
        for shown, said in settings_of_class(cls):
            assert said, f"{cls.__name__}.{shown} has no comment behind it"
            assert f"\n  {shown} " in done.output
    assert ("train-lm KIND -h  shows them" in done.output) == (kind is None)
