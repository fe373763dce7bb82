"""Token and word lattices against all alignments, and against k2."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from asr.decoding.beam_search import modified_beam_search
from asr.decoding.lattice_search import AM, lattice_search, word_lattice
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.paths import best_path, forward_scores
from rescore.types import Lattice
from tests.asr.tiny import Tiny, alignments, log_sum, pieces
from tests.counting import count_paths

SIZE = 18


def search(model: Tiny, *lengths: int, **settings: object) -> tuple[list[Lattice], torch.Tensor]:
    encoded, sizes = model.encoded(*lengths)
    ids = [f"utt{row}" for row in range(len(lengths))]
    return lattice_search(model, encoded, sizes, ids, pieces(SIZE), **settings), encoded  # type: ignore[arg-type]


@pytest.mark.parametrize(("decoder", "context"), [("stateless", None), ("lstm", 3)])
def test_without_pruning_every_alignment_is_in_the_lattice(decoder: str, context: int | None) -> None:
    model = Tiny(SIZE, decoder)
    lattices, encoded = search(model, 2, 1, 0, beam=1e9, max_contexts=10**6, context=context)
    for row, length in enumerate((2, 1, 0)):
        lattice, truth = lattices[row], alignments(model, encoded[row, :length])
        assert count_paths(lattice) == sum(map(len, truth.values())) == SIZE**length
        total = forward_scores(lattice, lattice.scores["am"], np.logaddexp)[-1]
        assert total == pytest.approx(log_sum([score for scores in truth.values() for score in scores]), abs=1e-5)
        best = max(max(scores) for scores in truth.values())
        assert best_path(lattice, AM).scores["am"] == pytest.approx(best, abs=1e-5)


def test_words_have_the_best_score_of_all_their_alignments() -> None:
    model = Tiny(SIZE, "lstm", seed=9)
    lattices, encoded = search(model, 2, beam=1e9, max_contexts=10**6)
    truth: dict[tuple[str, ...], float] = {}
    for tokens, scores in alignments(model, encoded[0]).items():
        words = pieces(SIZE).words(tokens)
        truth[words] = max(truth.get(words, -np.inf), max(scores))
    nbest = exact_nbest(word_lattice(lattices[0], pieces(SIZE), beam=None, most=10**6), AM, len(truth) + 1)
    assert {hyp.words: hyp.scores["am"] for hyp in nbest.hyps} == pytest.approx(truth, abs=1e-5)


@pytest.mark.parametrize("decoder", ["stateless", "lstm"])
def test_a_pruned_lattice_keeps_the_best_and_is_well_formed(decoder: str) -> None:
    model = Tiny(SIZE, decoder, seed=11)
    lattices, _ = search(model, 12, 7, 1, beam=12.0, max_contexts=6)
    wide, _ = search(model, 12, 7, 1, beam=40.0, max_contexts=60)
    encoded, lengths = model.encoded(12, 7, 1)
    beams = modified_beam_search(model, encoded, lengths, 4)
    for lattice, large, hyps, length in zip(lattices, wide, beams, (12, 7, 1), strict=True):
        words = word_lattice(lattice, pieces(SIZE), beam=3.0)
        best = best_path(words, AM)
        assert best.words == pieces(SIZE).words(
            [pieces(SIZE).names.index(name) for name in best_path(lattice, AM).words]
        )
        assert best.scores["am"] == pytest.approx(best_path(lattice, AM).scores["am"], abs=1e-9)
        assert best.scores["am"] <= best_path(large, AM).scores["am"] + 1e-9
        assert (words.src < words.dst).all()
        assert words.times is not None and words.times[-1] == pytest.approx(0.04 * length)
        assert (words.times[words.dst] >= words.times[words.src]).all()
        assert best.words in {pieces(SIZE).words(hyp.tokens) for hyp in hyps} or length > 1


@pytest.mark.usefixtures("k2")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_beam_gives_the_lattice_of_k2(seed: int) -> None:
    fast = pytest.importorskip("asr.decoding.k2_beam_search")
    model = Tiny(SIZE, seed=seed)
    encoded, lengths = model.encoded(4, 2, 1)
    ids = ["a", "b", "c"]
    fsas = fast.fast_beam_search(model, encoded, lengths, beam=1e4, max_contexts=10**4, max_states=10**4)
    ours = lattice_search(model, encoded, lengths, ids, pieces(SIZE), beam=1e9, max_contexts=10**6)
    for mine, theirs in zip(ours, fast.token_lattices(fsas, ids, pieces(SIZE)), strict=True):
        one, other = best_path(mine, AM), best_path(theirs, AM)
        assert one.words == other.words
        assert one.scores["am"] == pytest.approx(other.scores["am"], abs=1e-3)
        assert count_paths(mine) == count_paths(theirs)
