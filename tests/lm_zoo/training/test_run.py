"""From text to a model folder: what is said on the way, and what text and vocabularies are refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lm_zoo.errors import ModelError, TextError, VocabError
from lm_zoo.files import save_tensors
from lm_zoo.model_folder import read_tensors
from lm_zoo.training.config import TrainConfig, idle_settings
from lm_zoo.training.run import TextRecipe, run

SETTINGS = {"dim": 8, "heads": 1, "feedforward": 8, "layers": 1}


def trained(folder: Path, options: dict[str, Any], **recipe: Any) -> list[str]:
    """What is said of a short training."""
    lines: list[str] = []
    given = TextRecipe(**{"texts": [str(folder / "text")], "valid": str(folder / "text"), "tokens": "word", **recipe})
    run("transformer", SETTINGS, given, {"steps": 2, "warmup": 0, **options}, str(folder / "lm"), "cpu", lines.append)
    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").write_text("THE CAT SAT\nTHE DOG RAN\n" * 20)
    return tmp_path


def test_a_perplexity_beyond_all_bounds_is_told(folder: Path) -> None:
    options = {"optimizer": "sgd", "lr": 1e5, "clip": 1e9, "valid_every": 1, "steps": 1}
    (line,) = (line for line in trained(folder, options) if "valid ppl" in line)
    assert line == "step 1  valid ppl a token 1.01e+304"


def test_text_of_which_the_vocabulary_knows_next_to_nothing_is_refused(folder: Path) -> None:
    """The table of an icefall recogniser's pieces in the place of their model."""
    pieces = ["<blk>", "<sos/eos>", "<unk>", "\u2581THE", "\u2581CAT", "\u2581SAT", "\u2581DOG", "RAN"]
    (folder / "tokens.txt").write_text("".join(f"{piece} {number}\n" for number, piece in enumerate(pieces)))
    with pytest.raises(VocabError, match=r"^text: 100 of 120 words unknown \(83.3 %\); more than 50% .* bpe.model"):
        trained(folder, {}, vocab=str(folder / "tokens.txt"))
    assert not (folder / "lm" / "config.json").exists()


def test_pieces_are_not_taken_for_words(folder: Path) -> None:
    """As spm_encode writes them; each would be taken apart again.  Of an LM over pieces as words they are the words."""
    (folder / "text").write_text("\u2581THE \u2581CA T\n\u2581THE \u2581DO G\n" * 20)
    with pytest.raises(VocabError, match=r"text, sentence 1: found '\u2581THE', a piece .* join them first: sed"):
        trained(folder, {}, tokens="bpe", vocab_size=13)
    assert "text: 40 sentences, 120 words, 120 tokens, 0 unknown" in " ".join(trained(folder, {}))


def test_a_validation_text_that_does_not_suit_is_told_before_the_training_text_is_read(folder: Path) -> None:
    """Counting the words of a long text, and making tokens of it, takes hours."""
    lines: list[str] = []
    (folder / "valid").write_text("utt-1 THE CAT\nutt-2 THE DOG\nutt-3 THE CAT RAN\n")
    recipe = TextRecipe([str(folder / "text")], str(folder / "valid"), "word")
    with pytest.raises(TextError, match=r"valid: every line begins with what looks like an utterance id"):
        run("transformer", SETTINGS, recipe, {"steps": 2}, str(folder / "lm"), "cpu", lines.append)
    assert not lines
    (folder / "valid").write_text("the cat ran\n")
    with pytest.raises(VocabError, match=r"valid, sentence 1: found 'the', but the LM was trained on upper-case text"):
        run("transformer", SETTINGS, recipe, {"steps": 2}, str(folder / "lm"), "cpu", lines.append)
    assert lines == ["counting words"]


@pytest.mark.parametrize("name", ["pipe", "-"])
def test_text_that_can_be_read_once_alone_is_refused(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    os.mkfifo("pipe")
    for given in ({"texts": [name]}, {"texts": ["text", f"kaldi:{name}"]}, {"valid": name}):
        with pytest.raises(TextError, match=f"^(kaldi:)?{name}: a pipe, which can be read once alone"):
            trained(folder, {}, **given)
    assert not (folder / "lm").exists()


def test_each_text_is_held_against_the_case_of_a_given_vocabulary(folder: Path) -> None:
    (folder / "words").write_text("A B C\n")
    (folder / "upper").write_text("A B C\n" * 1200)
    (folder / "lower").write_text("A B C\na b c\n")
    texts = [str(folder / name) for name in ("upper", "lower")]
    with pytest.raises(VocabError, match="lower, sentence 2: found 'a', but the LM was trained on upper-case text"):
        trained(folder, {}, texts=texts, valid=texts[0], vocab=str(folder / "words"))


def test_sentences_are_counted_as_they_stand_in_the_text(folder: Path) -> None:
    said = trained(folder, {}, longest=2)
    assert (
        said.count("text: 40 sentences, 120 words, 120 tokens, 0 unknown, 40 sentences of more than 2 tokens cut") == 2
    )


@pytest.mark.parametrize(
    ("options", "processes", "message"),
    [
        ({"carry": True}, 1, "add text=windows"),
        ({"join": 9, "text": "windows"}, 1, "join=9 is for sentences"),
        ({"carry": True, "text": "windows"}, 2, "trains in one process, found 2"),
    ],
)
def test_settings_that_do_not_go_together_are_told_before_text_is_read(
    folder: Path, options: dict[str, Any], processes: int, message: str
) -> None:
    recipe = TextRecipe([str(folder / "nothing")], str(folder / "nothing"))
    with pytest.raises(ModelError, match=message):
        run("lstm", {"dim": 8}, recipe, options, str(folder / "lm"), "cpu", print, processes)
    assert not (folder / "lm").exists()


def test_settings_that_say_nothing_are_told(folder: Path) -> None:
    given = {"optimizer": "sgd", "momentum": 0.5, "muon_decay": 0.1, "window": 9, "lm_loss": 0.2, "lr": 0.1}
    said = [line for line in trained(folder, given) if "says nothing" in line]
    assert said == [
        "training setting 'muon_decay' says nothing with optimizer=sgd, but with muon",
        "training setting 'window' says nothing with text=sentences, but with windows",
        "training setting 'lm_loss' says nothing without --nbest",
    ]
    given = {"text": "windows", "batch_tokens": 99, "passes": 3, "steps": 9}
    assert [*idle_settings(TrainConfig(**given), given, on_lists=False)] == [  # type: ignore[arg-type]
        "training setting 'batch_tokens' says nothing with text=windows, but with sentences",
        "training setting 'steps' says nothing with passes=3, from which the steps follow",
    ]
    useful = {
        "optimizer": "muon",
        "muon_decay": 0.1,
        "text": "windows",
        "window": 9,
        "batch_tokens": 99,
        "lm_loss": 0.2,
        "weight_decay": 0.1,
    }
    assert not [*idle_settings(TrainConfig(**useful), useful, on_lists=True)]  # type: ignore[arg-type]
    said = [*idle_settings(TrainConfig(**useful), useful, on_lists=True, on_text=False)]  # type: ignore[arg-type]
    assert said == [f"training setting '{name}' says nothing without --text" for name in ("text", "window", "lm_loss")]


def test_lines_without_a_word_are_counted(folder: Path) -> None:
    (folder / "more").write_text("u1 THE CAT SAT\nu2 \nu3 THE DOG RAN\n")
    said = trained(folder, {}, texts=[f"kaldi:{folder / 'more'}"])
    assert said.count(f"{folder / 'more'}: 1 of 3 lines have no word and were skipped") == 1


def test_windows_go_over_sentences_of_any_length(folder: Path) -> None:
    """A piece of one would have an end in the running text that the text has not."""
    said = trained(folder, {"text": "windows", "window": 4, "passes": 1, "accumulate": 100}, longest=2)
    assert said.count("text: 40 sentences, 120 words, 120 tokens, 0 unknown") == 2
    records = [json.loads(line) for line in (folder / "lm" / "log.jsonl").read_text().splitlines()]
    assert records[-1]["tokens"] == 160  # the words and ends of one pass


@pytest.mark.parametrize("name", ["texts", "valid"])
def test_marks_of_sentences_are_no_words_to_learn(folder: Path, name: str) -> None:
    marked = folder / "marked"
    marked.write_text("THE CAT SAT\n<s> THE DOG RAN </s>\n")
    with pytest.raises(TextError, match=r"marked, sentence 2: found <s> or </s> as a word; .* remove them"):
        trained(folder, {}, **{name: [str(marked)] if name == "texts" else str(marked)})


def test_what_is_said_of_the_text_of_an_lm_holds_for_one_that_starts_from_it(folder: Path) -> None:
    trained(folder, {})
    first = folder / "first"
    (folder / "lm").rename(first)
    config = json.loads((first / "config.json").read_text())
    said = {"punctuation": True, "numbers": "digits"}
    assert not said.items() <= config.items()
    (first / "config.json").write_text(json.dumps(config | said))
    trained(folder, {}, init=str(first), tokens=None)
    assert said.items() <= json.loads((folder / "lm" / "config.json").read_text()).items()


def with_a_first_lm(folder: Path, **given: Any) -> list[str]:
    """A run that starts from the LM in `folder / "first"`, which is made if it is not there."""
    if not (folder / "first").exists():
        trained(folder, {})
        (folder / "lm").rename(folder / "first")
    return trained(folder, {"steps": given.pop("steps", 2)}, **{"init": str(folder / "first"), "tokens": None, **given})


def test_an_lm_that_is_started_from_is_told_by_its_content(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However its path is written; a Bayesian LM's prior is taken from it each time."""
    with_a_first_lm(folder)
    monkeypatch.chdir(folder)
    said = with_a_first_lm(folder, init="./first", steps=3)
    assert any("it goes on to 3 steps" in line for line in said)
    weights = read_tensors(folder / "first" / "model.safetensors")
    save_tensors(folder / "first" / "model.safetensors", {name: 2 * tensor for name, tensor in weights.items()})
    with pytest.raises(ModelError, match=r'has init "first \(blake2b \w+\)", not "first \(blake2b \w+\)"; choose'):
        with_a_first_lm(folder, steps=4)


def test_a_run_that_knows_lms_by_their_paths_goes_on(folder: Path) -> None:
    """As older ones are written."""
    with_a_first_lm(folder)
    made = json.loads((folder / "lm" / "run.json").read_text())
    made["recipe"] |= {"vocab": "exp/first", "init": "exp/first"}
    (folder / "lm" / "run.json").write_text(json.dumps(made))
    assert any("it goes on to 3 steps" in line for line in with_a_first_lm(folder, steps=3))
    made["recipe"] |= {"init": "exp/other"}
    (folder / "lm" / "run.json").write_text(json.dumps(made))
    with pytest.raises(ModelError, match=r'has init "exp/other", not "first \(blake2b'):
        with_a_first_lm(folder, steps=4)


def test_a_run_that_was_begun_before_there_was_a_setting_goes_on(folder: Path) -> None:
    """As it was: the setting has its default, and no other value."""
    trained(folder, {})
    for name in ("run.json", "checkpoint/state.json"):
        made = json.loads((folder / "lm" / name).read_text())
        del made["settings"]["norm"], made["train"]["muon_decay"]
        (folder / "lm" / name).write_text(json.dumps(made))
    with pytest.raises(ModelError, match=r"the run there has muon_decay 0.0, not 0.5"):
        trained(folder, {"steps": 3, "muon_decay": 0.5})
    assert any("it goes on to 3 steps" in line for line in trained(folder, {"steps": 3}))


def test_a_list_of_words_is_told_by_its_content_and_read_from_no_pipe(folder: Path) -> None:
    words = folder / "words"
    words.write_text("THE CAT SAT DOG RAN")
    trained(folder, {}, vocab=str(words), tokens=None)
    words.write_text("THE CAT SAT DOG")
    with pytest.raises(ModelError, match=r'has vocab "words \(blake2b'):
        trained(folder, {}, vocab=str(words), tokens=None)
    os.mkfifo(folder / "pipe")
    with pytest.raises(TextError, match=r"pipe: a pipe, which can be read once alone"):
        trained(folder, {}, vocab=str(folder / "pipe"), tokens=None)
    with pytest.raises(ModelError, match=r"bpe.model: cannot be read \(No such file or directory\)"):
        trained(folder, {}, vocab=str(folder / "bpe.model"), tokens=None)


def test_no_run_writes_over_the_lm_that_it_starts_from(folder: Path) -> None:
    with_a_first_lm(folder)
    first = folder / "lm"
    (first / "run.json").unlink()  # as of an imported LM
    with pytest.raises(ModelError, match="lm: the run would write over the LM that it starts from; choose another"):
        with_a_first_lm(folder, init=str(first.parent / "first" / ".." / "lm"))


def test_a_model_that_no_run_has_made_stays(folder: Path) -> None:
    """Of `import-lm`, or a copy of one that ships, which has a log; until a validation it would pass for the run's."""
    with_a_first_lm(folder)
    (folder / "lm" / "run.json").unlink()
    shutil.rmtree(folder / "lm" / "checkpoint")
    before = (folder / "lm" / "log.jsonl").read_text()
    with pytest.raises(ModelError, match=r"lm: has a model in it \(config.json\), but not the run that made it"):
        with_a_first_lm(folder)
    assert (folder / "lm" / "log.jsonl").read_text() == before
    assert not (folder / "lm" / "run.json").exists()


def test_a_run_whose_checkpoint_is_gone_says_that_it_begins_anew(folder: Path) -> None:
    said = [*trained(folder, {}), *trained(folder, {})]
    assert not any("begins anew" in line for line in said)
    shutil.rmtree(folder / "lm" / "checkpoint")
    (folder / "lm" / "log.jsonl").write_text("")  # as where it is killed before its first record
    (line,) = (line for line in trained(folder, {}) if "begins anew" in line)
    assert line.endswith(
        "lm: no checkpoint to go on from, the run begins anew; the model there stays until the first validation"
    )
