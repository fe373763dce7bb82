"""Whisper's tokens, prompt and features, from a small folder as optimum writes it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from asr.errors import CheckpointError
from asr.seq2seq.tokens import text_of
from asr.seq2seq.whisper import WhisperTokens, byte_letters, mel_filters

WORDS = ["The", "\u0120law", ",", "\u0120caf", "\u00c3", "\u00a9", "<|endoftext|>"]
ADDED = ["<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>", "<|notimestamps|>", "<|0.00|>"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(WORDS)}))
    added = {piece: len(WORDS) + number for number, piece in enumerate(ADDED)}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    settings = {"is_multilingual": True, "suppress_tokens": [2]}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    return tmp_path


def test_tokens_and_prompt(folder: Path) -> None:
    tokens = WhisperTokens(folder)
    assert tokens.prompt == (7, 8, 10, 11) and tokens.end == 6
    assert text_of(tokens, [0, 1, 2, 3, 4, 5, 12]) == "The law, caf\u00e9"
    assert tokens.allowed.tolist() == [True, True, False, True, True, True] + 7 * [False]
    (folder / "generation_config.json").write_text("{}")
    (folder / "added_tokens.json").write_text(json.dumps({ADDED[0]: 7, ADDED[4]: 8}))
    assert WhisperTokens(folder).prompt == (7, 8), "of a model for English alone"


def test_tokens_of_one_file_as_transformers_5_writes_it(folder: Path) -> None:
    before = WhisperTokens(folder)
    vocab, added = (json.loads((folder / name).read_text()) for name in ("vocab.json", "added_tokens.json"))
    tokens = [{"id": number, "content": piece, "special": True} for piece, number in added.items()]
    whole = {"version": "1.0", "added_tokens": tokens, "model": {"type": "BPE", "vocab": vocab, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "vocab.json").unlink()
    found = WhisperTokens(folder)
    assert (found.prompt, found.end, found.spelled) == (before.prompt, before.end, before.spelled)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE"}}))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: has no vocabulary and added tokens"):
        WhisperTokens(folder)


def test_bytes_have_letters() -> None:
    letters = byte_letters()
    assert len(set(letters)) == 256 and letters[ord("A")] == "A" and letters[ord(" ")] == "\u0120"


def test_features_of_a_tone(folder: Path) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 1000 / 16000 * np.arange(32000)).astype(np.float32)
    features = WhisperTokens(folder).features([tone, np.zeros(16000, np.float32)])["input_features"]
    assert features.shape == (2, 80, 3000) and features.dtype == np.float32
    assert mel_filters(80)[:, 25].argmax() == features[0, :, 100].argmax()  # bin 25 of 400 is 1 kHz
    assert features[0].max() - features[0].min() == pytest.approx(2.0)
    assert np.ptp(features[1]) == 0.0


def test_features_are_those_of_transformers(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    noise = np.random.default_rng(1).standard_normal(40000).astype(np.float32) * np.linspace(0, 1, 40000, dtype="f4")
    expected = transformers.WhisperFeatureExtractor()(noise, sampling_rate=16000, return_tensors="np")
    found = WhisperTokens(folder).features([noise])["input_features"]
    assert found == pytest.approx(expected["input_features"], abs=1e-4)


def test_a_folder_without_a_vocabulary_is_told(folder: Path) -> None:
    (folder / "vocab.json").unlink()
    with pytest.raises(CheckpointError, match=r"vocab.json: cannot be read as JSON"):
        WhisperTokens(folder)
    (folder / "vocab.json").write_text('{"a": 1}')
    with pytest.raises(CheckpointError, match=r"lacks <\|startoftranscript\|> or <\|endoftext\|>"):
        (folder / "added_tokens.json").write_text("{}")
        WhisperTokens(folder)
