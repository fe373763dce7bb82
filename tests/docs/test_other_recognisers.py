"""The page on other recognisers: its snippets on what these give, torchaudio's own and stand-ins of the same shape."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import rescore as rs
from rescore.cli.main import cli
from tests.docs.pages import ROOT, blocks

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SENTENCES = ["HE SAID SO", "HE SAT SO", "SHE SAID NO", "HE SAID NO", "SO SHE SAT"]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page defines, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in blocks(ROOT / "docs" / "other-recognisers.md", "python"):
        exec(code, names)
    return names


def pairs(hyps: list[rs.Hypothesis]) -> list[tuple[str, dict[str, float]]]:
    return [(" ".join(hyp.words), hyp.scores) for hyp in rs.Lists([rs.NbestList("a", hyps)])[0].hyps]


def test_the_lists_of_the_page_are_written(page: dict[str, Any]) -> None:
    found = rs.read_nbest("dev.jsonl.gz")
    assert pairs(found["a1"].hyps) == [("he said so", {"am": -7.1}), ("he sat so", {"am": -7.9})]


def test_pyctcdecode(page: dict[str, Any]) -> None:
    """Beams have the state of the LM behind the text; those of a batch have not."""
    one = [("HE SAID", None, [("HE", (0, 2))], np.float64(-3.5), np.float64(-9.0))]
    batch = [("HE SAID", [("HE", (0, 2))], -3.5, -9.0)]
    assert pairs(page["of_pyctcdecode"](one)) == pairs(page["of_pyctcdecode"](batch)) == [("HE SAID", {"am": -3.5})]


def arpa() -> Path:
    Path("text.txt").write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    line = "train-ngram --order 2 --discount-fallback --text text.txt --out lm.arpa"
    assert CliRunner().invoke(cli, line.split()).exit_code == 0
    return Path("lm.arpa")


def test_torchaudio(page: dict[str, Any]) -> None:
    """What is left without the LM is what its decoder gives without one."""
    decoders = pytest.importorskip("torchaudio.models.decoder", reason="torchaudio's decoder")
    path = arpa()
    Path("tokens.txt").write_text("".join(f"{token}\n" for token in "-|" + LETTERS))
    Path("lexicon.txt").write_text("".join(f"{word} {' '.join(word)} |\n" for word in WORDS))
    columns = [place for letter in "HE SAID SO" for place in (1 if letter == " " else 2 + LETTERS.index(letter), 0)]
    logits = torch.randn(len(columns), 2 + len(LETTERS), generator=torch.Generator().manual_seed(0))
    logits[torch.arange(len(columns)), columns] += 4.0
    logits[:, 1] += 1.0

    def decoded(lm: Path | None, **weights: float) -> rs.Lists:
        options = {"nbest": 20, "beam_size": 500, "beam_threshold": 500.0, "lm": lm and str(lm)}
        decoder = decoders.ctc_decoder("lexicon.txt", "tokens.txt", **options, **weights)
        (hypotheses,) = decoder(logits.log_softmax(-1)[None])
        return rs.Lists([rs.NbestList("a", page["of_torchaudio"](hypotheses))])

    fused = decoded(path, lm_weight=2.0, word_score=-0.5)
    found = page["without_lm"](fused, "lm.arpa", 2.0, -0.5)
    bare = {hyp.words: hyp.scores["total"] for hyp in decoded(None, word_score=0.0)[0].hyps}
    both = [hyp for hyp in found[0].hyps if hyp.words in bare]
    assert found.columns == ["am", "ngram"] and len(both) >= 3
    for hyp in both:
        assert hyp.scores["am"] == pytest.approx(bare[hyp.words], abs=1e-3)


def test_faster_whisper(page: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    package, audio = ModuleType("faster_whisper"), ModuleType("faster_whisper.audio")
    vars(audio)["pad_or_trim"] = lambda features: features
    monkeypatch.setitem(sys.modules, "faster_whisper", package)
    monkeypatch.setitem(sys.modules, "faster_whisper.audio", audio)
    result = SimpleNamespace(sequences_ids=[[5, 6, 7], [5], []], scores=[-2.0, -4.0, -math.inf])
    model = SimpleNamespace(
        feature_extractor=lambda sound: sound,
        get_prompt=lambda tokenizer, previous, without_timestamps: [1],
        encode=lambda features: features,
        model=SimpleNamespace(generate=lambda features, prompts, **options: [result]),
    )
    tokenizer = SimpleNamespace(decode=lambda ids: " " + " ".join(["HE", "SAID", "SO"][: len(ids)]))
    found = page["of_faster_whisper"](model, tokenizer, np.zeros(16000))
    assert pairs(found) == [("HE SAID SO", {"am": -6.0}), ("HE", {"am": -4.0})]
    result.scores = [-6.0, -4.0, -5.0]
    found = page["of_faster_whisper"](model, tokenizer, np.zeros(16000), length_penalty=0.0)
    assert pairs(found)[2] == ("", {"am": -5.0})


def test_speechbrain(page: dict[str, Any]) -> None:
    """Rows are padded by 0 behind the end; one that has not ended has none."""
    hyps = torch.tensor([[4, 5, 1], [4, 1, 0], [4, 5, 6]])
    log_probs = torch.tensor([[-1.0, -2.0, -0.5], [-1.0, -0.25, 0.0], [-1.0, -2.0, -4.0]])
    found = page["of_speechbrain"](hyps, log_probs, lambda row: " ".join("abc"[token - 4] for token in row), 1)
    assert pairs(found) == [("a b", {"am": -3.5}), ("a", {"am": -1.25}), ("a b c", {"am": -7.0})]


def test_vosk(page: dict[str, Any]) -> None:
    answer = {"alternatives": [{"confidence": 312.5, "text": "he said so"}, {"confidence": 310.0, "text": "he sat"}]}
    found = page["of_vosk"](json.dumps(answer))
    assert pairs(found) == [("he said so", {"score": 312.5}), ("he sat", {"score": 310.0})]
    assert page["of_vosk"]('{"text": ""}') == []


def test_wenet(page: dict[str, Any]) -> None:
    Path("result.txt").write_text("wav a\ncandidate -3.5 HE SAID\ncandidate -4 HE\nwav b\ncandidate -1 SO\n")
    found = page["read_wenet"]("result.txt")
    assert [nbest.utt_id for nbest in found] == ["a", "b"]
    assert pairs(found["a"].hyps) == [("HE SAID", {"score": -3.5}), ("HE", {"score": -4.0})]


def test_services(page: dict[str, Any]) -> None:
    texts = [{"transcript": "he said so", "confidence": 0.9}, {"transcript": " he sat so"}]
    for service in ("of_google", "of_amazon"):
        found = pairs(page[service]({"alternatives": texts}))
        assert found == [("he said so", {"rank": 0.0}), ("he sat so", {"rank": -math.log(2)})]
    azure = {"NBest": [{"Confidence": 0.5, "Lexical": "he said so"}, {"Confidence": 0.0, "Lexical": "he sat so"}]}
    assert pairs(page["of_azure"](azure))[0] == ("he said so", {"confidence": math.log(0.5)})
    assert all(math.isfinite(hyp.scores["confidence"]) for hyp in page["of_azure"](azure))
