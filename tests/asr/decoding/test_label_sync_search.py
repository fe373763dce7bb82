"""Label-synchronous beam search against one that goes number by number, the loss, and all alignments."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
import torch

from asr.decoding.label_sync_search import label_sync_search
from asr.decoding.shallow_fusion import make_fusion
from asr.errors import DataError
from asr.model.rnnt_loss import full_loss
from tests.asr.decoding.test_shallow_fusion import lower_words, neural
from tests.asr.tiny import Tiny, log_sum, pieces, summed, vocabulary

DECODERS = ("stateless", "lstm")
Tokens = tuple[int, ...]


@torch.no_grad()
def log_probs(model: Tiny, encoded: torch.Tensor, tokens: Tokens) -> np.ndarray:
    """float64 `(tokens + 1, frames, vocab)`: of the next symbol after each number of tokens, at each frame."""
    outputs = model.joiner.project_decoder(model.decoder(torch.tensor([tokens], dtype=torch.long))[0])
    joined = model.joiner(model.joiner.project_encoder(encoded).unsqueeze(0), outputs.unsqueeze(1))
    return joined.log_softmax(-1).double().numpy()


def reference(model: Tiny, encoded: torch.Tensor, beam: int) -> dict[Tokens, float]:
    """One utterance; the sums of every prefix are made anew, by the recursion."""

    @cache
    def standing(tokens: Tokens) -> list[float]:
        """At each frame: these tokens have been given, on any alignment."""
        rows, found = log_probs(model, encoded, tokens), list[float]()
        for frame in range(len(encoded)):
            ways = [found[-1] + rows[-1, frame - 1, 0]] if frame else []
            ways += [standing(tokens[:-1])[frame] + rows[-2, frame, tokens[-1]]] if tokens else [0.0] * (frame == 0)
            found.append(log_sum(ways))
        return found

    active: dict[Tokens, float] = {(): 0.0}
    ended: dict[Tokens, float] = {}
    for _ in range(len(encoded) + 1):
        grown = {}
        for tokens in active:
            rows = log_probs(model, encoded, tokens)[-1]
            ended[tokens] = standing(tokens)[-1] + rows[-1, 0]
            for token in range(1, model.config.vocab_size):
                grown[(*tokens, token)] = log_sum(
                    [a + b for a, b in zip(standing(tokens), rows[:, token], strict=True)]
                )
        ended = dict(sorted(ended.items(), key=lambda item: -item[1])[:beam])
        active = dict(sorted(grown.items(), key=lambda item: -item[1])[:beam])
        if len(ended) == beam and max(active.values()) <= min(ended.values()):
            break
    return ended


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("beam", [1, 3, 8])
def test_it_is_the_reference_and_does_not_depend_on_the_batch(decoder: str, beam: int) -> None:
    model = Tiny(6, decoder, seed=4)
    encoded, lengths = model.encoded(7, 9, 0, 1)
    for row, hyps in enumerate(label_sync_search(model, encoded, lengths, beam)):
        if not lengths[row]:
            assert [(hyp.tokens, summed(hyp), hyp.am_after) for hyp in hyps] == [((), 0.0, (0.0,))]
            continue
        truth = reference(model, encoded[row, : lengths[row]], beam)
        assert {hyp.tokens: summed(hyp) for hyp in hyps} == pytest.approx(truth, abs=1e-5)
        totals = [summed(hyp) for hyp in hyps]
        assert totals == sorted(totals, reverse=True)


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_sum_is_that_of_the_loss_and_am_that_of_the_best_alignment(decoder: str) -> None:
    """Alignments with several tokens at a frame are among them."""
    model, crowded = Tiny(4, decoder, seed=3), False
    encoded, lengths = model.encoded(4)
    hyps = label_sync_search(model, encoded, lengths, beam=200)[0]
    assert len(hyps) == 1 + 3 + 9 + 27 + 81
    for hyp in hyps:
        rows, count = log_probs(model, encoded[0], hyp.tokens), len(hyp.tokens)
        logits = torch.from_numpy(rows).transpose(0, 1).unsqueeze(0)
        tokens = torch.tensor([hyp.tokens], dtype=torch.long)
        loss = full_loss(logits, tokens, torch.tensor([4]), torch.tensor([count]))
        assert summed(hyp) == pytest.approx(-float(loss), abs=1e-5)
        truth = {frames: score(rows, hyp.tokens, frames) for frames in places(count, 4)}
        assert hyp.scores["am"] == pytest.approx(max(after[-1] for after in truth.values()), abs=1e-5)
        assert hyp.am_after == pytest.approx(truth[hyp.frames], abs=1e-5)
        crowded = crowded or len(set(hyp.frames)) < count
    assert crowded


def places(count: int, frames: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations_with_replacement(range(frames), count))


def score(rows: np.ndarray, tokens: Tokens, frames: tuple[int, ...]) -> list[float]:
    """Of the alignment that gives each token at its frame: after each token, and of all."""
    found, total, frame = [], 0.0, 0
    for place, (token, at) in enumerate(zip(tokens, frames, strict=True)):
        total += rows[place, frame:at, 0].sum() + rows[place, at, token]
        found.append(total)
        frame = at
    return [*found, total + rows[-1, frame:, 0].sum()]


def test_scores_of_lms_are_what_they_say_of_the_words_and_the_total_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asr.decoding.label_sync_search.KEEP_EVERY", 1)  # LM states are given back at every token
    model = Tiny(18, seed=7)
    encoded, lengths = model.encoded(5, 0)
    one, two = neural(vocabulary(18)), neural(lower_words())
    scales = {"am": 1.0, "alignments": 1.0, "one": 0.7, "two": 1.5, "ilm": -0.3}
    fusion = make_fusion(pieces(18), {"one": (one, 0.7), "two": (two, 1.5)}, ilme_scale=0.3)
    found, empty = label_sync_search(model, encoded, lengths, 12, fusion)
    totals = [sum(scale * hyp.scores[name] for name, scale in scales.items()) for hyp in found]
    assert totals == sorted(totals, reverse=True) and len(found) == 12
    assert empty[0].tokens == () and empty[0].scores.keys() == scales.keys()
    for hyp in found:
        with torch.no_grad():
            truth = one.score(torch.tensor([hyp.tokens], dtype=torch.long), torch.tensor([len(hyp.tokens)])).sum()
        assert hyp.scores["one"] == pytest.approx(float(truth), abs=1e-4)
        words = [word.lower() for word in pieces(18).words(hyp.tokens)]
        assert hyp.scores["two"] == pytest.approx(sum(two.score_words([words], max_unknown=None)[0]), abs=1e-4)
    alone = label_sync_search(model, encoded, lengths, 12)[0]
    assert [hyp.tokens for hyp in alone] != [hyp.tokens for hyp in found]


@pytest.mark.parametrize("beam", [2, 3])
def test_the_search_goes_on_where_an_lm_is_subtracted(beam: int) -> None:
    """The list of a narrow beam is the begin of that of all hypotheses there are, which no stop can cut short."""
    model = Tiny(18, seed=3)
    encoded, lengths = model.encoded(2)
    lm = neural(vocabulary(18))
    few, whole = (
        label_sync_search(model, encoded, lengths, size, make_fusion(pieces(18), {"lm": (lm, -0.5)}))[0]
        for size in (beam, 400)
    )
    assert len(whole) == 1 + 17 + 17 * 17
    assert [hyp.tokens for hyp in few] == [hyp.tokens for hyp in whole[:beam]]


def test_what_may_add_to_a_prefix() -> None:
    lm = neural(vocabulary(18))
    scales = [(0.3, None), (0.3, 0.0), (-0.3, None), (0.3, 0.1)]
    found = [make_fusion(pieces(18), {"lm": (lm, scale)}, ilme_scale=ilme) for scale, ilme in scales]
    found += [make_fusion(pieces(18), {}, word_reward=reward) for reward in (-1.0, 1.0)]
    assert [fusion is not None and fusion.may_add for fusion in found] == [False, False, True, True, False, True]


def test_a_beam_below_one_and_encoded_values_that_are_no_numbers_are_refused() -> None:
    model = Tiny(4)
    encoded, lengths = model.encoded(3)
    with pytest.raises(ValueError, match="beam = 0"):
        label_sync_search(model, encoded, lengths, beam=0)
    with pytest.raises(DataError, match="NaN or infinite"):
        label_sync_search(model, encoded * torch.nan, lengths)
