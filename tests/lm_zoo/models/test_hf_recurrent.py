"""Hugging Face models that cannot go on from keys and values alone are scored from the begin of sentence on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lm_zoo.errors import ModelError
from lm_zoo.registry import load
from rescore.api.language_models import load_lm
from tests.lm_zoo import hugging_face

pytest.importorskip("transformers", reason="Hugging Face models need transformers")
SENTENCES = [tuple("ABC"), (), tuple("AD"), tuple("ABCEFABH"), tuple("ABC"), tuple("AB")]


def reference(lm: Any, words: tuple[str, ...], before: tuple[str, ...] = ()) -> list[float]:
    """One sentence behind others, by transformers' own forward pass over all of it, unpadded; scores a word."""
    context, tokens = (lm.tokenizer.encode(" ".join(text), add_special_tokens=False) for text in (before, words))
    read, wanted = [lm.vocab.bos, *context, *tokens], [*tokens, lm.vocab.eos]
    with torch.no_grad():
        rows = lm.model(torch.tensor([read])).logits[0, len(context) :].float().log_softmax(-1)
    return [float(row[token]) for row, token in zip(rows, wanted, strict=True)]


@pytest.mark.parametrize("make", [hugging_face.mamba_model, hugging_face.lfm2_model])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recurrent_models_score_whole_sentences(make: Any, dtype: str, tmp_path: Path) -> None:
    """The shared suite runs over one of them, too; here there are many batches, of sentences of different lengths."""
    lm = load(f"hf:{hugging_face.words(tmp_path / 'lm', make)}").cast(dtype)
    assert not lm.keeps_keys and not lm.takes_trees()
    close = 1e-4 if dtype == "float32" else 0.1
    for found in (lm.score_words(SENTENCES), lm.score_hypotheses(SENTENCES)):
        for words, got in zip(SENTENCES, found, strict=True):
            assert got == pytest.approx(reference(lm, words), abs=close)


def test_recurrent_models_read_the_text_before(tmp_path: Path) -> None:
    lm = load(f"hf:{hugging_face.words(tmp_path / 'lm', hugging_face.lfm2_model)}")
    contexts = [(tuple("DE"), tuple("F")), (tuple("G"),), (), (tuple("G"),), (), (tuple("DE"), tuple("F"))]
    found = lm.score_hypotheses(SENTENCES, contexts=contexts)
    for words, context, got in zip(SENTENCES, contexts, found, strict=True):
        assert got == pytest.approx(reference(lm, words, sum(context, ())), abs=1e-4)


def test_a_step_reads_a_few_prefixes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = load(f"hf:{hugging_face.words(tmp_path / 'lm', hugging_face.lfm2_model)}")
    state, expected = lm.step(lm.initial_state(), torch.zeros(8, dtype=torch.long), torch.arange(8))
    monkeypatch.setattr("lm_zoo.models.hf_causal.BATCH_TOKENS", 3)
    assert torch.allclose(lm.step(lm.initial_state(), torch.zeros(8, dtype=torch.long), torch.arange(8))[1], expected)
    parents = torch.tensor([5, 5, 2])
    after = lm.step(state, parents, torch.tensor([1, 2, 2]))[1]
    for row, (parent, token) in enumerate(zip(parents.tolist(), (1, 2, 2), strict=True)):
        whole = lm.model(torch.tensor([[parent, token]])).logits[0, -1].log_softmax(-1)
        assert torch.allclose(after[row], whole, atol=1e-5)


def test_models_that_predict_other_words_step_by_step_score_whole_sentences(tmp_path: Path) -> None:
    """As do looped ones whose loops share one cache (Dory); here there is one more bias with a cache."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(hugging_face.words(tmp_path / "lm"))

    def shift(part: Any, args: Any, output: Any) -> Any:
        return output + (output.shape[1] == 1) * torch.arange(output.shape[2])

    assert load_lm(model).keeps_keys  # type: ignore[attr-defined]
    model.lm_head.register_forward_hook(shift)
    assert not load_lm(model).keeps_keys  # type: ignore[attr-defined]


def test_models_whose_predictions_depend_on_the_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a causal LM, it looks ahead"):
        load(f"hf:{hugging_face.words(tmp_path / 'lm', hugging_face.cpmant_model)}")


def test_models_that_want_more_than_tokens_are_refused(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(hugging_face.words(tmp_path / "lm"))

    def wants(part: Any, args: Any, output: Any) -> Any:
        raise KeyError("pixel_values")

    model.lm_head.register_forward_hook(wants)
    with pytest.raises(ModelError, match=r"a gpt2 given three tokens fails \('pixel_values'\), not supported"):
        load_lm(model)
