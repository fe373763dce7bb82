"""k2's search: its lattices against all alignments, its N-best against sums over paths."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from asr.decoding.decode import Decoder
from asr.decoding.k2_beam_search import (
    fast_beam_search,
    nbest_of_lattice,
    sum_over_paths,
    token_lattices,
    word_lattices,
)
from asr.decoding.lattice_search import AM, lattice_search, word_lattice
from asr.decoding.options import DecodeOptions
from asr.decoding.word_graph import load_graph, word_graph
from asr.errors import ConfigError, DataError
from asr.model.config import TransducerConfig
from asr.model.decoder import make_decoder
from rescore.formats import read_lattices
from rescore.formats.k2 import write_lattices
from rescore.formats.symbols import SymbolTable, read_symbols
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.paths import best_path
from rescore.lattices.prune import prune_beam
from rescore.types import Hypothesis, Lattice
from tests.asr.tiny import Tiny, alignments, log_sum, pieces, vocabulary
from tests.counting import count_paths

SIZE = 18
WIDE = {"beam": 1e4, "max_contexts": 10**4, "max_states": 10**5}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_lattice_holds_every_alignment_with_its_score(k2: Any, seed: int) -> None:
    model = Tiny(SIZE, seed=seed)
    encoded, lengths = model.encoded(2, 1)
    lattices = token_lattices(fast_beam_search(model, encoded, lengths, **WIDE), ["a", "b"], pieces(SIZE))
    for row, lattice in enumerate(lattices):
        truth = alignments(model, encoded[row, : lengths[row]])
        assert count_paths(lattice) == sum(map(len, truth.values()))
        assert best_path(lattice, AM).scores["am"] == pytest.approx(max(map(max, truth.values())), abs=1e-4)
        assert lattice.times is not None and lattice.times.max() == pytest.approx(0.04 * int(lengths[row]))


def test_our_own_search_gives_the_same_words_with_icefalls_decoder(k2: Any) -> None:
    model = Tiny(SIZE)
    torch.manual_seed(8)
    model.decoder = make_decoder(TransducerConfig(SIZE, decoder="stateless", decoder_dim=6)).eval()
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.normal_(0.0, 1.0)
    encoded, lengths = model.encoded(3, 2, 3)
    ids = ["a", "b", "c"]
    theirs = word_lattices(fast_beam_search(model, encoded, lengths, **WIDE), ids, pieces(SIZE), beam=7.0)
    tokens = lattice_search(model, encoded, lengths, ids, pieces(SIZE), beam=1e9, max_contexts=10**6)
    for mine, other in zip((word_lattice(lattice, pieces(SIZE), 7.0) for lattice in tokens), theirs, strict=True):
        one, two = (exact_nbest(lattice, AM, 20) for lattice in (mine, other))
        assert [hyp.words for hyp in one.hyps] == [hyp.words for hyp in two.hyps]
        assert [h.scores["am"] for h in one.hyps] == pytest.approx([h.scores["am"] for h in two.hyps], abs=1e-4)


def test_small_beams_lose_little(k2: Any) -> None:
    model = Tiny(SIZE, seed=3)
    encoded, lengths = model.encoded(12, 7)
    wide = token_lattices(fast_beam_search(model, encoded, lengths, 30.0, 200, 400), ["a", "b"], pieces(SIZE))
    small = token_lattices(fast_beam_search(model, encoded, lengths, 8.0, 8, 32), ["a", "b"], pieces(SIZE))
    for one, other in zip(wide, small, strict=True):
        assert best_path(other, AM).scores["am"] <= best_path(one, AM).scores["am"] + 1e-4
        assert other.num_arcs < one.num_arcs


def test_files_of_icefall_are_read_by_rescore(k2: Any, tmp_path: Path) -> None:
    model = Tiny(SIZE, seed=3)
    fsas = fast_beam_search(model, *model.encoded(6, 4), beam=8.0, max_contexts=8, max_states=32)
    write_lattices(fsas, ["a", "b"], tmp_path / "lattices.pt")
    (tmp_path / "tokens.txt").write_text(
        "".join(f"{name or '<blk>'} {t}\n" for t, name in enumerate(pieces(SIZE).names))
    )
    spec = f"k2:{tmp_path / 'lattices.pt'}?words={tmp_path / 'tokens.txt'}"
    for lattice, ours in zip(read_lattices(spec), token_lattices(fsas, ["a", "b"], pieces(SIZE)), strict=True):
        assert best_path(lattice, AM).words == best_path(ours, AM).words


def test_a_graph_of_words_allows_its_words_only(k2: Any, tmp_path: Path) -> None:
    words = {"CAT": 1, "THE": 2}
    tokens = {word: vocabulary(SIZE).encode_word(word) for word in words}
    lines, state = [], 1
    for word, ids in tokens.items():
        chain = [0, *range(state, state + len(ids) - 1), 0]
        state += len(ids) - 1
        for place, token in enumerate(ids):
            lines.append((chain[place], chain[place + 1], token, words[word] if place == 0 else 0, -0.1))
    lines.append((0, state, -1, -1, 0.0))
    text = "\n".join(" ".join(map(str, line)) for line in sorted(lines)) + f"\n{state}\n"
    graph = k2.arc_sort(k2.Fsa.from_str(text, acceptor=False))
    torch.save(graph.as_dict(), tmp_path / "LG.pt")
    (tmp_path / "words.txt").write_text("<eps> 0\nCAT 1\nTHE 2\n")
    model = Tiny(SIZE, seed=3)
    found = load_graph(tmp_path, pieces(SIZE))
    fsas = fast_beam_search(model, *model.encoded(9, 5), **WIDE, graph=found)
    near = word_lattices(fsas, ["a", "b"], pieces(SIZE), found, beam=2.0)
    for lattice, cut in zip(word_lattices(fsas, ["a", "b"], pieces(SIZE), found, beam=None), near, strict=True):
        assert set(lattice.symbols) <= {"", "CAT", "THE"} and len(lattice.symbols) > 1
        expected = prune_beam(lattice, found.scales, 2.0)
        assert cut.num_arcs == expected.num_arcs < lattice.num_arcs
        assert np.sort(cut.scores["am"]) == pytest.approx(np.sort(expected.scores["am"]))
    with pytest.raises(DataError, match=r"LG.pt: not a graph, expected LG.pt"):
        load_graph(tmp_path / "none", pieces(SIZE))


def as_newer_k2(k2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 1.24 on arcs into the final state do not say of which arc of the graph they come (seen with 1.24.4)."""
    plain = k2.RnntDecodingStreams.format_output

    def format_output(self: Any, *args: Any, **options: Any) -> Any:
        fsas = plain(self, *args, **options)
        for name in ("lm_scores", "reached"):
            value = getattr(fsas, name)
            setattr(fsas, name, torch.where(fsas.labels == -1, torch.zeros_like(value), value))
        return fsas

    monkeypatch.setattr(k2.RnntDecodingStreams, "format_output", format_output)


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("lm_scale", [0.0, 0.25, 1.0])
def test_scores_of_the_graph_stand_apart(
    k2: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lm_scale: float, newer: bool
) -> None:
    """`am` is that of a search without them, `lm` the LM's own sum, the end of the sentence with it."""
    if newer:
        as_newer_k2(k2, monkeypatch)
    (tmp_path / "words.txt").write_text("<eps> 0\nCAT 1\nTHE 2\n")
    logs, model = {"CAT": -3.0, "THE": -1.0, "</s>": -2.0, "</s> behind CAT": -0.5}, Tiny(SIZE, seed=3)

    def lists(cat: float, the: float, end: float, behind_cat: float) -> list[Hypothesis]:
        arcs = [f"{state} 0 4 2 {the}\n{state} 1 3 1 {cat}\n" for state in (0, 1)]
        worse = f"0 2 -1 -1 {end - 1}\n"  # as `k2.remove_epsilon` may leave it
        text = f"{arcs[0]}0 2 -1 -1 {end}\n{worse}{arcs[1]}1 2 -1 -1 {behind_cat}\n2\n"
        graph = word_graph(
            k2.arc_sort(k2.Fsa.from_str(text, acceptor=False)), read_symbols(tmp_path / "words.txt"), lm_scale
        )
        fsas = fast_beam_search(model, *model.encoded(3), **WIDE, graph=graph)
        (lattice,) = word_lattices(fsas, ["a"], pieces(SIZE), graph, beam=None)
        return exact_nbest(lattice, graph.scales, 20).hyps

    plain, found = {hyp.words: hyp.scores["am"] for hyp in lists(0.0, 0.0, 0.0, 0.0)}, lists(*logs.values())
    assert len(found) == len(plain) > 5
    for hyp in found:
        assert hyp.scores["am"] == pytest.approx(plain[hyp.words], abs=1e-4)
        end = "</s> behind CAT" if hyp.words[-1:] == ("CAT",) else "</s>"
        assert hyp.scores["lm"] == pytest.approx(sum(logs[word] for word in (*hyp.words, end)), abs=1e-4)
    totals = [hyp.scores["am"] + lm_scale * hyp.scores["lm"] for hyp in found]
    assert totals == sorted(totals, reverse=True)


def test_an_lm_that_a_graph_has_apart_is_what_is_scaled(k2: Any, tmp_path: Path) -> None:
    fsa = k2.Fsa.from_str("0 0 3 1 -3\n0 1 -1 -1 -1\n1\n", acceptor=False)
    fsa.lm_scores = torch.tensor([-2.0, -1.0])
    assert word_graph(fsa, SymbolTable(), 0.5).fsa.scores.tolist() == [-2.0, -0.5]


def test_sums_over_paths_weigh_the_graph(k2: Any, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<eps> 0\nCAT 1\nTHE 2\n")
    text, model = "0 0 3 1 -3\n0 0 4 2 -1\n0 1 -1 -1 -2\n1\n", Tiny(SIZE, seed=3)
    graph = word_graph(k2.arc_sort(k2.Fsa.from_str(text, acceptor=False)), read_symbols(tmp_path / "words.txt"), 0.3)
    fsas = fast_beam_search(model, *model.encoded(3), **WIDE, graph=graph)
    (lattice,) = word_lattices(fsas, ["a"], pieces(SIZE), graph, beam=None)
    paths: dict[tuple[str, ...], list[float]] = {}
    for words, am, lm in _paths(lattice):
        paths.setdefault(words, []).append(0.5 * (am + 0.3 * lm))
    nbest = nbest_of_lattice(lattice, 20, 0.5, graph.scales)
    totals = [hyp.scores["am"] + 0.3 * hyp.scores["lm"] + hyp.scores["alignments"] for hyp in nbest.hyps]
    assert len(totals) == len(paths) and totals == sorted(totals, reverse=True)
    assert totals == pytest.approx([log_sum(paths[hyp.words]) / 0.5 for hyp in nbest.hyps], abs=1e-4)


def _paths(lattice: Lattice) -> list[tuple[tuple[str, ...], float, float]]:
    """Words, am and lm of every path, one by one."""
    paths: list[list[tuple[tuple[str, ...], float, float]]] = [[] for _ in range(lattice.num_states)]
    paths[0] = [((), 0.0, 0.0)]
    columns = (lattice.src, lattice.dst, lattice.labels, lattice.scores["am"], lattice.scores["lm"])
    for src, dst, label, am, lm in zip(*(column.tolist() for column in columns), strict=True):
        word = (lattice.symbols[label],) if label else ()
        paths[dst].extend((words + word, one + am, other + lm) for words, one, other in paths[src])
    return paths[-1]


def test_graphs_of_others_run_no_code(tmp_path: Path, k2: Any) -> None:
    """Ragged words are read as k2 pickles them; a function that LG.pt names is not called."""
    graph = k2.Fsa.from_str("0 0 1 0.5\n0 0 2 0.5\n0 1 -1 0\n1")
    graph.aux_labels = k2.RaggedTensor([[1, 2], [], [-1]])
    (tmp_path / "words.txt").write_text("<eps> 0\nCAT 1\nTHE 2\n")
    torch.save(graph.as_dict(), tmp_path / "LG.pt")
    found = load_graph(tmp_path, pieces(SIZE)).fsa
    assert found.aux_labels.tolist() == [[1, 2], [], [-1]] and torch.equal(found.arcs.values(), graph.arcs.values())
    (tmp_path / "target").write_text("")
    for contents in ({**graph.as_dict(), "x": Removes(tmp_path / "target")}, Removes(tmp_path / "target")):
        torch.save(contents, tmp_path / "LG.pt")
        with pytest.raises(DataError, match=r"LG.pt: not a graph, expected LG.pt .*unlink in the file"):
            load_graph(tmp_path, pieces(SIZE))
    torch.jit.script(torch.nn.Linear(1, 1)).save(str(tmp_path / "LG.pt"))
    with pytest.raises(DataError, match=r"LG.pt: not a graph, .*TorchScript"):
        load_graph(tmp_path, pieces(SIZE))
    assert (tmp_path / "target").exists()


class Removes:
    """Pickles as a call of `os.unlink`."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.unlink, (str(self.target),)


def test_nbest_ranks_by_the_sum_over_paths() -> None:
    model = Tiny(SIZE, "lstm", seed=9)
    encoded, lengths = model.encoded(2)
    tokens = lattice_search(model, encoded, lengths, ["a"], pieces(SIZE), beam=1e9, max_contexts=10**6)[0]
    lattice = word_lattice(tokens, pieces(SIZE), beam=None, most=10**6)
    everything = [hyp.words for hyp in exact_nbest(lattice, AM, 400).hyps]
    assert log_sum(list(sum_over_paths(lattice, everything, AM).values())) == pytest.approx(
        log_sum([0.0 + score for score in _path_scores(lattice)]), abs=1e-9
    )
    first, viterbi = nbest_of_lattice(lattice, 10, 0.5), exact_nbest(lattice, AM, 10)
    assert {hyp.words for hyp in first.hyps} == {hyp.words for hyp in viterbi.hyps}
    sharp = nbest_of_lattice(lattice, 10, 200.0)
    assert [hyp.words for hyp in sharp.hyps] == [hyp.words for hyp in viterbi.hyps]
    assert [hyp.scores["am"] for hyp in sharp.hyps] == pytest.approx([hyp.scores["am"] for hyp in viterbi.hyps])
    assert [hyp.scores["alignments"] for hyp in sharp.hyps] == pytest.approx([0.0] * 10, abs=0.05)
    best = {hyp.words: hyp.scores["am"] for hyp in viterbi.hyps}
    sums = sum_over_paths(lattice, list(best), {"am": 0.5})
    for hyp in first.hyps:
        assert hyp.scores["am"] == best[hyp.words]
        assert hyp.scores["am"] + hyp.scores["alignments"] == pytest.approx(sums[hyp.words] / 0.5)
    with pytest.raises(ValueError, match="expected a positive number"):
        nbest_of_lattice(lattice, 10, 0.0)


def _path_scores(lattice: Any) -> list[float]:
    """The scores of all paths, one by one."""
    paths: list[list[float]] = [[] for _ in range(lattice.num_states)]
    paths[0] = [0.0]
    for src, dst, am in zip(lattice.src.tolist(), lattice.dst.tolist(), lattice.scores["am"].tolist(), strict=True):
        paths[dst].extend(score + am for score in paths[src])
    return [float(score) for score in np.array(paths[-1])]


def test_what_k2_cannot_do_is_said(k2: Any) -> None:
    model = Tiny(SIZE, "lstm")
    with pytest.raises(ConfigError, match="needs a stateless decoder, found lstm"):
        fast_beam_search(model, *model.encoded(3))
    model = Tiny(SIZE)
    with pytest.raises(DataError, match="utterance 2 of the batch has no frame"):
        fast_beam_search(model, *model.encoded(3, 0))


def test_without_k2_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "k2", None)
    model = Tiny(SIZE)
    with pytest.raises(ConfigError, match=r"fast_beam_search needs k2, which cannot be imported.*--hash=sha256"):
        fast_beam_search(model, *model.encoded(3))


def test_which_search_runs_is_said(
    k2: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """k2's, or our own where k2 is not there or cannot do it; never one for the other without a word."""
    options = DecodeOptions(method="fast_beam_search")
    for model, absent, said in (
        (Tiny(SIZE), False, "fast_beam_search: in k2"),
        (Tiny(SIZE, "lstm"), False, "our own search with the same pruning, as k2's needs a stateless decoder"),
        (Tiny(SIZE), True, "our own search with the same pruning; fast_beam_search needs k2, which cannot be"),
    ):
        with monkeypatch.context() as patch:
            if absent:
                patch.setitem(sys.modules, "k2", None)
            Decoder(model, pieces(SIZE), options)
        assert said in capsys.readouterr().err
