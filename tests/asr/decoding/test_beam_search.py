"""Modified beam search against the sum over all alignments."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from asr.decoding.beam_search import BeamSearch, modified_beam_search
from asr.decoding.greedy_search import greedy
from tests.asr.tiny import Tiny, alignments, log_sum, summed

DECODERS = ("stateless", "lstm")


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_beam_that_holds_everything_sums_over_all_alignments(decoder: str) -> None:
    model = Tiny(4, decoder)
    encoded, lengths = model.encoded(5, 3)
    found = modified_beam_search(model, encoded, lengths, beam=4**5)
    for row, length in enumerate(lengths.tolist()):
        ways = alignments(model, encoded[row, :length])
        assert {hyp.tokens for hyp in found[row]} == set(ways)
        for hyp in found[row]:
            assert summed(hyp) == pytest.approx(log_sum(ways[hyp.tokens]), abs=1e-5)
            assert hyp.scores["am"] == pytest.approx(max(ways[hyp.tokens]), abs=1e-5)
        scores = [summed(hyp) for hyp in found[row]]
        assert scores == sorted(scores, reverse=True)
        assert log_sum(scores) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_beam_of_one_is_greedy(decoder: str) -> None:
    model = Tiny(7, decoder, seed=3)
    encoded, lengths = model.encoded(14, 9, 1)
    for beam, first in zip(
        modified_beam_search(model, encoded, lengths, 1), greedy(model, encoded, lengths), strict=True
    ):
        assert (beam[0].tokens, beam[0].frames) == (first[0].tokens, first[0].frames)
        assert beam[0].scores["am"] == pytest.approx(first[0].scores["am"], abs=1e-5)
        assert beam[0].scores["alignments"] == 0.0 and "alignments" not in first[0].scores
        assert beam[0].am_after == pytest.approx(first[0].am_after, abs=1e-5)


def icefall(model: Tiny, encoded: torch.Tensor, beam: int) -> dict[tuple[int, ...], float]:
    """One utterance, as icefall's `modified_beam_search` goes: the best `beam` extensions, then equal ones merged."""
    hyps = {(): 0.0}
    for vector in encoded:
        rows, keys = [], list(hyps)
        for key in keys:
            output = model.decoder(torch.tensor([key], dtype=torch.long))[0, -1]
            joined = model.joiner(model.joiner.project_encoder(vector), model.joiner.project_decoder(output))
            rows.append(joined.log_softmax(-1).double() + hyps[key])
        values, places = torch.stack(rows).flatten().topk(min(beam, len(rows) * len(rows[0])))
        hyps = {}
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            parent, symbol = divmod(place, len(rows[0]))
            key = (*keys[parent], symbol) if symbol else keys[parent]
            hyps[key] = float(np.logaddexp(hyps.get(key, -np.inf), value))
    return hyps


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("beam", [2, 5])
def test_a_small_beam_is_icefalls_and_does_not_depend_on_the_batch(decoder: str, beam: int) -> None:
    model = Tiny(7, decoder, seed=4)
    encoded, lengths = model.encoded(10, 13, 0, 6)
    for row, hyps in enumerate(modified_beam_search(model, encoded, lengths, beam)):
        truth = icefall(model, encoded[row, : lengths[row]], beam)
        assert {hyp.tokens: summed(hyp) for hyp in hyps} == pytest.approx(truth, abs=1e-5)


@pytest.mark.parametrize("decoder", DECODERS)
def test_piece_by_piece_is_the_same(decoder: str) -> None:
    """Streams of one batch that wait for each other, and go on."""
    model = Tiny(6, decoder, seed=8)
    encoded, lengths = model.encoded(9, 9)
    run = BeamSearch(model, 2, encoded.device, 4)
    for starts, sizes in [((0, 0), (3, 0)), ((3, 0), (1, 4)), ((4, 4), (5, 5))]:
        part = torch.stack([torch.roll(encoded[row], -start, 0) for row, start in enumerate(starts)])
        run.advance(part, torch.tensor(sizes))
    for row, whole in enumerate(modified_beam_search(model, encoded, lengths, 4)):
        for one, other in zip(run.hypotheses(row), whole, strict=True):
            assert (one.tokens, one.frames) == (other.tokens, other.frames)
            assert summed(one) == pytest.approx(summed(other), abs=1e-5)


def test_frames_are_those_of_the_best_alignment() -> None:
    model = Tiny(5, seed=5)
    encoded, lengths = model.encoded(8)
    for hyp in modified_beam_search(model, encoded, lengths, 6)[0]:
        assert len(hyp.frames) == len(hyp.tokens)
        assert list(hyp.frames) == sorted(set(hyp.frames))
        assert all(0 <= frame < 8 for frame in hyp.frames)
        assert len(hyp.am_after) == len(hyp.tokens) + 1 and hyp.am_after[-1] == hyp.scores["am"]
        projected = model.joiner.project_encoder(encoded[0])
        outputs = model.joiner.project_decoder(model.decoder(torch.tensor([hyp.tokens], dtype=torch.long))[0])
        total, read = 0.0, 0
        for frame in range(8):
            symbol = hyp.tokens[read] if frame in hyp.frames else 0
            total += float(model.joiner(projected[frame], outputs[read]).log_softmax(-1)[symbol])
            if symbol:
                assert hyp.am_after[read] == pytest.approx(total, abs=1e-4)
                read += 1
        assert total == pytest.approx(hyp.scores["am"], abs=1e-4)


@pytest.mark.parametrize(("decoder", "before"), [("stateless", 2), ("lstm", 1)])
def test_the_best_for_each_of_its_tokens(decoder: str, before: int) -> None:
    """icefall's choice: the total over the tokens and those that stand before the first."""
    model = Tiny(5, decoder, seed=4)
    encoded, lengths = model.encoded(12, 9, 0)
    plain, normed = (modified_beam_search(model, encoded, lengths, 6, length_norm=norm) for norm in (False, True))
    for one, other in zip(plain, normed, strict=True):
        totals = [summed(hyp) for hyp in one]
        assert totals == sorted(totals, reverse=True)
        ranks = {hyp.tokens: summed(hyp) / (len(hyp.tokens) + before) for hyp in one}
        assert [hyp.tokens for hyp in other] == sorted(ranks, key=lambda tokens: -ranks[tokens])
    assert any(one[0].tokens != other[0].tokens for one, other in zip(plain, normed, strict=True))


def test_a_beam_below_one_is_refused() -> None:
    model = Tiny(4)
    with pytest.raises(ValueError, match="beam = 0"):
        modified_beam_search(model, *model.encoded(3), beam=0)
