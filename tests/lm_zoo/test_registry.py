"""Model folders: written, read back, and refused with a clear message when something does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.registry import KINDS, build, count_parameters, describe, find, load, model_class, save_folder, settings_of
from lm_zoo.text.batches import tokenize
from lm_zoo.text.tokenizer import build_pieces, build_words, count_words
from lm_zoo.text.vocabulary import PieceVocabulary, WordVocabulary
from lm_zoo.training.config import TrainConfig
from lm_zoo.training.train import train
from tests.lm_zoo.zoo import NEURAL, WORDS, neural


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(tmp_path / "lm", neural("transfornn"), "transfornn", {"data": ["made up"]})
    return tmp_path / "lm"


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize("name", NEURAL)
def test_round_trip(tmp_path: Path, name: str) -> None:
    lm = neural(name)
    save_folder(tmp_path / "exact", lm, NEURAL[name][0], {})
    save_folder(tmp_path / "half", lm, NEURAL[name][0], {}, half=True)
    sentences = [("A", "B", "ZZZ"), ()]
    exact, half = (load(str(tmp_path / kind)).score_words(sentences) for kind in ("exact", "half"))
    assert exact == lm.score_words(sentences)
    for got, wanted in zip(half, exact, strict=True):
        assert got == pytest.approx(wanted, abs=0.02)


def test_options_of_a_bayesian_lm(tmp_path: Path) -> None:
    save_folder(tmp_path, neural("bayesian"), "bayesian", {})
    found = [load(f"{tmp_path}?samples=2{more}").score_words([("A", "B")]) for more in ("", "&seed=1", "&seed=2")]
    assert found[0] == found[1] != found[2]
    asked = [load(f"{tmp_path}?samples=2{more}").with_uncertainty for more in ("", "&uncertainty=true")]
    assert asked == [False, True]


WRONG = ("seed=9223372036854775808", "samples=3", "uncertainty=maybe", "other=1")


@pytest.mark.parametrize(
    "options", ["", "samples", "samples=0", "samples=x", "seed=1", *(f"samples=2&{option}" for option in WRONG)]
)
def test_options_that_a_bayesian_lm_has_not(options: str, tmp_path: Path) -> None:
    save_folder(tmp_path, neural("bayesian"), "bayesian", {})
    with pytest.raises(ModelError, match=r"found the options '.*', expected samples=K, seed=S and uncertainty=true"):
        load(f"{tmp_path}?{options}")


def test_pieces_round_trip(tmp_path: Path) -> None:
    vocab = build_pieces({"HELLO": 5, "WORLD": 3, "HELL": 2, "WORD": 9}, 20, "bpe")
    torch.manual_seed(0)
    lm = build("lstm", vocab, {"dim": 8}).eval()
    save_folder(tmp_path, lm, "lstm", {})
    again = load(str(tmp_path))
    assert isinstance(again.vocab, PieceVocabulary)
    assert (again.vocab.bos, again.vocab.eos, again.vocab.unk, again.vocab.case) == (1, 1, 2, "upper")
    assert again.score_words([("HELLO", "WORD")]) == lm.score_words([("HELLO", "WORD")])
    assert not again.knows("Ж") and again.knows("WORLDHELL")
    for mark in ("<sos/eos>", "<blk>", "A<blk>"):
        assert again.vocab.encode_word(mark) == (2,) and not again.knows(mark)


def test_words_are_not_saved_beside_the_pieces_of_another_lm(tmp_path: Path) -> None:
    """Pieces are what is read where both are there."""
    (tmp_path / "bpe.model").write_bytes(b"pieces")
    lm, text = neural("lstm"), tokenize(neural("lstm").vocab, [["A", "B"]])
    with pytest.raises(ModelError, match=r"bpe.model: the pieces of another LM, in a folder for one over words"):
        save_folder(tmp_path, lm, "lstm", {})
    with pytest.raises(ModelError, match=r"bpe.model: the pieces of another LM"):
        train("lstm", {"dim": 8}, lm.vocab, text, text, tmp_path, TrainConfig(steps=1))
    assert [path.name for path in tmp_path.iterdir()] == ["bpe.model"]


def test_a_default_can_be_given_by_hand() -> None:
    """Those below 0, too, as a whole number: `--set rnn_dropout=-1`."""
    assert settings_of("transfornn", {"rnn_dropout": -1})["rnn_dropout"] == -1
    for name, value in (("rnn_dropout", -2), ("layers", -1)):
        with pytest.raises(ModelError, match=f"setting '{name}' is {value}, expected"):
            settings_of("transfornn", {name: value})


def test_sentencepiece_says_when_the_text_is_too_small() -> None:
    with pytest.raises(VocabError, match=r"cannot make 5000 bpe pieces of 1 words: .* --vocab-size N"):
        build_pieces({"A": 1}, 5000, "bpe")


def test_words_by_frequency() -> None:
    vocab = build_words(count_words([["b", "a", "b", "c"], ["<unk>", "c", "b"]]), size=4)
    assert vocab.words == ["<sos/eos>", "<unk>", "b", "c"]
    assert vocab.case == "lower"


def test_unknown_words_of_the_text_are_one_token() -> None:
    vocab = build_pieces(count_words([["bus", "<unk>"], ["sub", "<unk>"]] * 3), 12, "bpe")
    assert vocab.encode_word("<unk>") == (vocab.unk,)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"no LM is called 'gpt9'.*shipped are: "):
        load("gpt9")
    with pytest.raises(ModelError, match=r"no kind of LM is called 'x'; there are: .*lstm, ngram"):
        model_class("x")


def test_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"not a model folder, it has no config.json"):
        find(str(tmp_path))
    (tmp_path / "lm.txt").write_text("x")
    with pytest.raises(ModelError, match=r"not an n-gram file"):
        find(str(tmp_path / "lm.txt"))


def test_vocabulary_that_does_not_fit_the_weights(folder: Path) -> None:
    WordVocabulary([*WORDS, "EXTRA"]).save(folder)
    with pytest.raises(VocabError, match=r"the vocabulary has 11 tokens, but the weights are for 10"):
        load(str(folder))


def test_missing_vocabulary(folder: Path) -> None:
    (folder / "words.txt").unlink()
    with pytest.raises(VocabError, match=r"no vocabulary; expected bpe.model or words.txt"):
        load(str(folder))


def test_malformed_vocabulary(folder: Path) -> None:
    (folder / "words.txt").write_text("<sos/eos> 0\n<unk> 2\n")
    with pytest.raises(VocabError, match=r"words.txt:2: found '<unk> 2', expected 'WORD 1'"):
        load(str(folder))


def test_weights_of_another_shape(folder: Path) -> None:
    change_config(folder, settings={"dim": 16, "heads": 2, "feedforward": 99, "layers": 2})
    with pytest.raises(ModelError, match=r"'layers.0.linear1.bias' has the shape \(24,\).*\(99,\)"):
        load(str(folder))


def test_weights_that_are_missing_or_too_many(folder: Path) -> None:
    settings = {"dim": 16, "heads": 2, "feedforward": 24}
    change_config(folder, settings={**settings, "layers": 3})
    with pytest.raises(ModelError, match=r"lacks 'layers.2"):
        load(str(folder))
    change_config(folder, settings={**settings, "layers": 1})
    with pytest.raises(ModelError, match=r"has 'layers.1.*does not call for"):
        load(str(folder))


@pytest.mark.parametrize("content", [b"", b"not a model at all"])
def test_damaged_weights(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"model.safetensors: damaged or truncated"):
        load(str(folder))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model.safetensors is missing"):
        load(str(folder))


def test_config_errors(folder: Path) -> None:
    change_config(folder, settings={"width": 3})
    with pytest.raises(ModelError, match=r"transfornn has no setting 'width'; it has: dim"):
        load(str(folder))
    change_config(folder, settings={"dim": "wide"})
    with pytest.raises(ModelError, match=r"setting 'dim' is 'wide', expected something like 512"):
        load(str(folder))
    change_config(folder, settings={"dim": 10, "heads": 3})
    with pytest.raises(ModelError, match=r"dim 10 is not a multiple of heads 3"):
        load(str(folder))
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config.json: not JSON"):
        load(str(folder))


def test_describe_has_what_the_command_prints(folder: Path) -> None:
    rows = describe([folder])
    assert [(row["kind"], row["params"]) for row in rows] == [("transfornn", count_parameters(neural("transfornn")))]
    for row in describe():
        assert row["kind"] in KINDS
        assert row["bytes"] > 0 and row["params"] > 0
        assert row["word_ppl"] > 1
