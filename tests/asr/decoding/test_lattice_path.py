"""The 1-best of one search in the lattice of another: always there, with its own score or a better one."""

from __future__ import annotations

import numpy as np
import pytest

from asr.decoding.decode import Decoder
from asr.decoding.lattice_path import best_score, with_path, word_arcs
from asr.decoding.lattice_search import AM, lattice_search, word_lattice
from asr.decoding.options import DecodeOptions
from asr.decoding.prefixes import SearchHypothesis
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.paths import best_path
from tests.asr.tiny import Tiny, pieces
from tests.counting import count_paths

SIZE = 18


@pytest.mark.parametrize("decoder", ["stateless", "lstm"])
@pytest.mark.parametrize("method", ["greedy_search", "modified_beam_search"])
def test_lists_and_lattices_tell_the_same_of_the_1_best(decoder: str, method: str) -> None:
    missing = 0
    for seed in range(6):
        model = Tiny(SIZE, decoder, seed=seed)
        encoded, lengths = model.encoded(14, 9, 3, 1, seed=seed)
        ids = list("abcd")
        narrow = {"beam": 4.0, "max_contexts": 2, "lattice_beam": 1.0}
        decoder_ = Decoder(model, pieces(SIZE), DecodeOptions(method, lattices=True, **narrow))  # type: ignore[arg-type]
        alone = lattice_search(model, encoded, lengths, ids, pieces(SIZE), 4.0, 2)
        for found, tokens in zip(decoder_.search(encoded, lengths, ids), alone, strict=True):
            first, lattice = found.nbest.hyps[0], found.lattice
            assert lattice is not None and (lattice.src < lattice.dst).all()
            inside = {hyp.words: hyp.scores["am"] for hyp in exact_nbest(lattice, AM, 1000).hyps}
            assert inside[first.words] >= first.scores["am"] - 1e-3
            assert best_score(lattice, first.words) == pytest.approx(inside[first.words], abs=1e-9)
            without = word_lattice(tokens, pieces(SIZE), 1.0)
            if best_score(without, first.words) < first.scores["am"] - 1e-3:
                missing += 1
                assert inside[first.words] == pytest.approx(first.scores["am"], abs=1e-6)
                assert count_paths(lattice) == count_paths(without) + 1
            else:
                assert count_paths(lattice) == count_paths(without)
            assert lattice.times is not None and lattice.times[-1] == word_lattice(tokens, pieces(SIZE)).times[-1]  # type: ignore[index]
            assert (lattice.times[lattice.dst] >= lattice.times[lattice.src]).all()
    assert missing or method == "greedy_search"


def test_what_stands_behind_an_unknown_piece_is_a_word() -> None:
    """An arc has one word at most."""
    names = pieces(SIZE).names
    the, unk, rest = names.index("\u2581THE"), names.index("\u2581<unk>"), names.index("T")
    hyp = SearchHypothesis((the, unk, rest, rest), (2, 4, 5, 8), {"am": -9.0}, (-1.0, -3.0, -4.0, -7.0, -9.0))
    labels, frames, am = word_arcs(hyp, pieces(SIZE))
    assert labels == ["THE", "<unk>", "TT"] and frames == [5, 6] and am == [-3.0, -1.0, -5.0]
    model = Tiny(SIZE, seed=9)
    found = lattice_search(model, *model.encoded(5), ["a"], pieces(SIZE), 1e9, 50)[0]
    symbols = word_lattice(found, pieces(SIZE), None).symbols
    assert not [word for word in symbols if " " in word or ("<unk>" in word and word != "<unk>")]


def test_words_of_a_hypothesis_with_times_and_scores() -> None:
    names = pieces(SIZE).names
    the, other, rest = (
        next(k for k, name in enumerate(names) if test(name))
        for test in (
            lambda name: name == "\u2581THE",
            lambda name: name.startswith("\u2581") and name[1:] not in ("THE", "<unk>"),
            lambda name: name and not name.startswith(("\u2581", "<")),
        )
    )
    hyp = SearchHypothesis((the, other, rest, the), (2, 4, 5, 8), {"am": -9.0}, (-1.0, -3.0, -4.0, -7.0, -9.0))
    labels, frames, am = word_arcs(hyp, pieces(SIZE))
    assert labels == ["THE", names[other][1:] + names[rest], "THE"] and frames == [5, 9] and am == [-3.0, -4.0, -2.0]
    model = Tiny(SIZE, seed=1)
    encoded, lengths = model.encoded(10)
    lattice = word_lattice(lattice_search(model, encoded, lengths, ["a"], pieces(SIZE), 4.0, 2)[0], pieces(SIZE), 1.0)
    assert best_score(lattice, labels) == -np.inf
    longer = with_path(lattice, hyp, pieces(SIZE))
    assert best_score(longer, labels) == pytest.approx(-9.0)
    assert best_path(longer, AM).scores["am"] == max(best_path(lattice, AM).scores["am"], -9.0)
    assert with_path(longer, hyp, pieces(SIZE)) is longer
    silent = with_path(lattice, SearchHypothesis((), (), {"am": -50.0}, (-50.0,)), pieces(SIZE))
    assert best_score(silent, []) >= -50.0
