"""Lists from `generate` of transformers, by a tiny untrained Whisper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import rescore as rs

SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SPECIAL = 4  # tokens below it: padding, begin, end


class Letters:
    """Decodes tokens to letters, a word each."""

    def batch_decode(self, sequences: torch.Tensor, skip_special_tokens: bool) -> list[str]:
        assert skip_special_tokens
        return [" ".join(chr(ord("a") + token) for token in row if token >= SPECIAL) for row in sequences.tolist()]


@pytest.fixture(scope="module")
def model() -> Any:
    transformers = pytest.importorskip("transformers", reason="Whisper of transformers")
    torch.manual_seed(3)
    config = transformers.WhisperConfig(
        **SIZES,
        vocab_size=20,
        num_mel_bins=8,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_source_positions=30,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    made = transformers.WhisperForConditionalGeneration(config).eval()
    for parameter in made.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return made


def generated(model: Any, penalty: float) -> tuple[torch.Tensor, Any]:
    """Two utterances, and the three best of each: those of Whisper's own `generate` are copies."""
    from transformers import GenerationMixin

    features = torch.randn(2, 8, 60, generator=torch.Generator().manual_seed(1))
    wanted = {"num_beams": 3, "num_return_sequences": 3, "max_length": 9, "length_penalty": penalty}
    how = {"return_dict_in_generate": True, "output_scores": True, "decoder_input_ids": torch.tensor([[1, 3]] * 2)}
    return features, GenerationMixin.generate(model, features, **wanted, **how)


@torch.no_grad()
@pytest.mark.parametrize("penalty", [1.0, 0.5])
def test_scores_are_log_probabilities_of_the_sequences(model: Any, penalty: float) -> None:
    features, outputs = generated(model, penalty)
    lists = rs.from_generate(outputs, Letters(), ["one", "two"], length_penalty=penalty)
    assert [nbest.utt_id for nbest in lists] == ["one", "two"] and lists.columns == ["am"]
    assert [len(nbest.hyps) for nbest in lists] == [3, 3]
    hyps = [hyp for nbest in lists for hyp in nbest.hyps]
    for row, (tokens, hyp) in enumerate(zip(outputs.sequences, hyps, strict=True)):
        logits = model(input_features=features[row // 3][None], decoder_input_ids=tokens[None, :-1]).logits[0]
        rows = logits.log_softmax(-1)
        prompt = outputs.sequences.shape[1] - outputs.beam_indices.shape[1]
        ends = int((outputs.beam_indices[row] >= 0).sum()) + prompt
        expected = sum(float(rows[place - 1, tokens[place]]) for place in range(prompt, ends))
        assert hyp.scores["am"] == pytest.approx(expected, abs=1e-3)
        assert " ".join(hyp.words) == Letters().batch_decode(tokens[None], True)[0]


def outputs_of(*scores: float, copies: bool = False) -> Any:
    sequences = torch.tensor([[1, 4 + (0 if copies else number), 2] for number in range(len(scores))])
    indices = torch.tensor([[0, 0, -1]] * len(scores))
    return SimpleNamespace(sequences=sequences, sequences_scores=torch.tensor(scores), beam_indices=indices)


def test_one_utterance_and_unfilled_places(capsys: pytest.CaptureFixture[str]) -> None:
    lists = rs.from_generate(outputs_of(-1.0, -1e9), Letters())
    assert [hyp.scores for hyp in lists["utterance"].hyps] == [{"am": -2.0}]
    said = capsys.readouterr().err
    assert "2 sequences, taken as hypotheses of one utterance" in said and "1 of 2 sequences without a" in said
    assert [nbest.utt_id for nbest in rs.from_generate(vars(outputs_of(-1.0)), Letters(), "a")] == ["a"]


@pytest.mark.parametrize(
    "outputs, utt_ids, message",
    [
        (outputs_of(-1.0, -2.0, -3.0), ["a", "b"], "3 sequences for 2 utt_ids"),
        (outputs_of(-1.0, -2.0), ["a", "a"], "1 of them different"),
        (outputs_of(-1.0, -1e9), ["a", "b"], "utterance b: none of its 1 sequences"),
        (SimpleNamespace(sequences=1), ["a"], "the outputs lack sequences_scores, beam_indices; expected those of gen"),
        (
            outputs_of(-1.0, -1.0, copies=True),
            ["a"],
            "utterance a: the same sequence of tokens .* twice; Whisper's own",
        ),
        ({}, ["a"], "the outputs lack sequences, sequences_scores"),
    ],
)
def test_outputs_that_are_no_lists(outputs: Any, utt_ids: list[str], message: str) -> None:
    with pytest.raises(rs.RescoreError, match=message):
        rs.from_generate(outputs, Letters(), utt_ids)
