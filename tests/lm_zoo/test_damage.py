"""Models that are damaged, or made to exhaust the memory: one clear error when they are loaded."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lm_zoo.base import LanguageModel
from lm_zoo.errors import LMError, ModelError, VocabError
from lm_zoo.inference.perplexity import score_text
from lm_zoo.ngram import kenlm_check
from lm_zoo.ngram.kenlm_lm import NgramLM
from lm_zoo.reading import parse_json
from lm_zoo.registry import build, load, save_folder
from tests.lm_zoo import kenlm_files, zoo
from tests.lm_zoo.icefall.test_checkpoints import rnn_checkpoint

WEIGHTS = "model.safetensors"


@pytest.fixture(params=["transformer", "lstm", "lookup", "bayesian", "icefall-transformer"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model folder."""
    save_folder(tmp_path / "lm", zoo.neural(request.param), zoo.NEURAL[request.param][0], {})
    return tmp_path / "lm"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(folder: Path, value: float) -> None:
    load(str(folder))
    weights = load_file(folder / WEIGHTS)
    name = max(weights)
    weights[name].flatten()[0] = value
    save_file(weights, folder / WEIGHTS)
    message = rf"{WEIGHTS}: '{name}' has 1 of {weights[name].numel()} values that are NaN or infinite"
    with pytest.raises(ModelError, match=message):
        load(str(folder))


@pytest.mark.parametrize("size", [10**5, 10**9, 10**18, 10**30])
@pytest.mark.parametrize("setting", ["dim", "feedforward", "layers", "rnn_layers", "slots", "embedding_dim"])
def test_sizes_beyond_the_weights(folder: Path, setting: str, size: int) -> None:
    config = json.loads((folder / "config.json").read_text())
    if setting not in config["settings"]:
        return
    config["settings"][setting] = size
    (folder / "config.json").write_text(json.dumps(config))
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match=r"config\.json: |calls for"):
            load(str(folder))
        assert tracemalloc.get_traced_memory()[1] < 1 << 28  # of modules; tensors are not traced
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("key, value", [("case", "none"), ("case", 3), ("settings", [1]), ("kind", ["lstm"])])
def test_configs_of_other_kinds_of_values(folder: Path, key: str, value: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(ModelError):
        load(str(folder))


@pytest.mark.parametrize("settings", [{"dim": 0}, {"dim": -4}, {"heads": 0}, {"dim": 10**30}])
def test_sizes_that_no_model_has(settings: dict[str, int]) -> None:
    with pytest.raises(ModelError, match="transformer: "):
        build("transformer", zoo.neural("lstm").vocab, {**zoo.SMALL, **settings})


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, '"\\ud800"', '{"a": "\\udfff\\ud800"}', "{"])
def test_json_that_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"too deeply|digits|surrogate|Expecting"):
        parse_json(text)


def test_pairs_of_surrogates_are_characters() -> None:
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.parametrize("data", [b"", b"x", b"\x00" * 100, None])
def test_vocabularies_that_are_damaged(data: bytes | None, tmp_path: Path) -> None:
    from tests.asr.tiny import vocabulary

    lm = build("lstm", vocabulary(), {"dim": 4})
    save_folder(tmp_path, lm, "lstm", {})
    found = (tmp_path / "bpe.model").read_bytes()
    (tmp_path / "bpe.model").write_bytes(found[: len(found) // 2] if data is None else data)
    with pytest.raises(VocabError, match=r"bpe\.model"):
        load(str(tmp_path))


def test_words_that_are_not_utf8(tmp_path: Path) -> None:
    save_folder(tmp_path, zoo.neural("lstm"), "lstm", {})
    (tmp_path / "words.txt").write_bytes(b"\xff 0\n")
    with pytest.raises(VocabError, match=r"words\.txt: cannot be read"):
        load(str(tmp_path))


def test_checkpoints_of_others_with_nan(tmp_path: Path) -> None:
    from lm_zoo.icefall.checkpoints import import_lm
    from tests.asr.tiny import vocabulary

    tensors = rnn_checkpoint()
    for name in [name for name in tensors if name.startswith(("input_embedding", "output_linear"))]:
        tensors[name] = torch.full((len(vocabulary()), *tensors[name].shape[1:]), float("nan"))
    torch.save({"model": tensors}, tmp_path / "epoch-1.pt")
    (tmp_path / "bpe.model").write_bytes(vocabulary().model)
    with pytest.raises(ModelError, match=r"epoch-1.pt: '.*' has \d+ of \d+ values that are NaN or infinite"):
        import_lm(tmp_path / "epoch-1.pt", tmp_path / "bpe.model", tmp_path / "lm")


class Broken(LanguageModel):
    """An LM that gives NaN to a word."""

    vocab = zoo.neural("lstm").vocab

    def score_words(self, sentences: list[list[str]], **_: Any) -> list[list[float]]:
        return [[float("nan") if word == "B" else -1.0 for word in [*words, "</s>"]] for words in sentences]

    def knows(self, word: str) -> bool:
        return True


def test_perplexity_of_nan_is_an_error() -> None:
    with pytest.raises(LMError, match="text, sentence 2: an LM gave NaN"):
        score_text([Broken()], [["A"], ["A", "B"]], "text")


@pytest.mark.parametrize(
    "counts", ["ngram 1=4000000000", "ngram 1=" + "9" * 30, "ngram 2=70000", "ngram 2=-99", "ngram 2=+4"]
)
def test_counts_beyond_the_size_of_an_arpa_file(counts: str, tmp_path: Path) -> None:
    """KenLM takes -99 for a huge number, which ended the process."""
    path = tmp_path / "a.arpa"
    path.write_text(zoo.ARPA.replace("ngram 1=7" if "1=" in counts else "ngram 2=4", counts))
    with pytest.raises(ModelError, match=r"a\.arpa: says 'ngram .*', expected a number of n-grams that a file of"):
        NgramLM(path)


@pytest.mark.parametrize("data", [kenlm_files.PROBING, kenlm_files.TRIE])
def test_kenlms_binary_files(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    (tmp_path / "a.arpa").write_text(zoo.ARPA)
    sentences = [["A", "B"], [], ["C", "D", "X"]]
    for found, expected in zip(
        NgramLM(path).score_words(sentences), NgramLM(tmp_path / "a.arpa").score_words(sentences), strict=True
    ):
        assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "at, form, value", [(108, "<Q", 0), (92, "<f", 0.0), (92, "<f", float("nan")), (108, "<Q", 1 << 62), (88, "<B", 0)]
)
def test_damaged_headers_of_kenlm_end_no_process(
    at: int, form: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of words, the share of empty places in its tables, the order."""
    monkeypatch.setattr(kenlm_check, "SECONDS", 2)
    path = tmp_path / "a.bin"
    data = bytearray(kenlm_files.PROBING)
    struct.pack_into(form, data, at, value)
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"a\.bin: (a damaged KenLM binary file|KenLM cannot read it)"):
        NgramLM(path)
