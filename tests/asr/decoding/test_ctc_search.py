"""CTC lattices against all alignments, one after another."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import pytest
import torch

from asr.decoding.ctc_search import ctc_lattices
from asr.decoding.lattice_search import AM, word_lattice
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.paths import best_path, forward_scores
from tests.asr.tiny import log_sum, pieces

SIZE = 18


def random_log_probs(frames: int, tokens: int, seed: int = 0) -> torch.Tensor:
    """float64 `(1, frames, SIZE)`; all tokens from `tokens` on are impossible."""
    values = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, frames, SIZE))) * 2
    values[..., tokens:] = -1e9
    return values.log_softmax(2)


def reference(log_probs: torch.Tensor, tokens: int) -> dict[tuple[int, ...], list[float]]:
    """Token sequence -> the scores of all its alignments."""
    found: dict[tuple[int, ...], list[float]] = {}
    for way in product(range(tokens), repeat=log_probs.shape[1]):
        collapsed = tuple(token for token, _ in groupby(way) if token)
        score = sum(float(log_probs[0, frame, token]) for frame, token in enumerate(way))
        found.setdefault(collapsed, []).append(score)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_alignment_is_a_path(seed: int) -> None:
    tokens, log_probs = 7, random_log_probs(4, 7, seed)
    (lattice,) = ctc_lattices(log_probs, torch.tensor([4]), ["u"], pieces(SIZE), beam=1e6, most=tokens, density=None)
    truth = reference(log_probs, tokens)
    total = forward_scores(lattice, lattice.scores["am"], np.logaddexp)[-1]
    assert total == pytest.approx(log_sum([score for scores in truth.values() for score in scores]), abs=1e-9)
    words: dict[tuple[str, ...], float] = {}
    for sequence, scores in truth.items():
        spelled = pieces(SIZE).words(sequence)
        words[spelled] = max(words.get(spelled, -np.inf), *scores)
    whole = word_lattice(lattice, pieces(SIZE), beam=None, most=10**6)
    nbest = exact_nbest(whole, AM, len(words) + 1)
    assert {hyp.words: hyp.scores["am"] for hyp in nbest.hyps} == pytest.approx(words, abs=1e-9)


def test_the_best_path_takes_the_best_token_of_each_frame() -> None:
    log_probs = random_log_probs(40, SIZE, 5)
    (lattice,) = ctc_lattices(log_probs, torch.tensor([30]), ["u"], pieces(SIZE), beam=2.0, most=3)
    best = log_probs[0, :30].max(dim=1)
    tokens = [token for token, _ in groupby(best.indices.tolist()) if token]
    assert lattice.num_arcs <= 200 * 30 * 0.04
    found = best_path(word_lattice(lattice, pieces(SIZE), beam=5.0), AM)
    assert found.words == pieces(SIZE).words(tokens)
    assert found.scores["am"] == pytest.approx(float(best.values.sum()))
    assert lattice.times is not None and lattice.times.max() == pytest.approx(30 * 0.04)


def test_utterances_of_a_batch_do_not_meet() -> None:
    log_probs = torch.cat([random_log_probs(5, SIZE, seed) for seed in (1, 2)])
    together = ctc_lattices(log_probs, torch.tensor([5, 3]), ["a", "b"], pieces(SIZE))
    alone = ctc_lattices(log_probs[1:, :3], torch.tensor([3]), ["b"], pieces(SIZE))
    assert together[1].scores["am"].tolist() == alone[0].scores["am"].tolist() and together[1].utt_id == "b"
