"""Strings on arcs (transition ids, tokens) through every operation, against the enumeration of all paths."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rescore.cli.main import cli
from rescore.errors import UsageError
from rescore.formats import read_lattices, write_lattices
from rescore.lattices import epsilons
from rescore.lattices.build import EPSILON, normalize_words
from rescore.lattices.epsilons import remove_epsilons
from rescore.lattices.neural_lm import LatticeLM
from rescore.lattices.ngram_lm import expand_ngram
from rescore.lattices.paths import best_path, total_scores
from rescore.lattices.prune import prune_beam
from rescore.text import TextNormalizer
from rescore.types import Alignments, Lattice
from tests.lm_zoo import zoo
from tests.rescore.lattices.test_ngram_lm import ALL_SCALES, ARPA, ToyTrigram
from tests.rescore.lattices.test_paths import SCALES, all_paths, best_by_words, lattices, make, path_words

LM = zoo.neural("transfornn")
Paths = Counter[tuple[object, ...]]  # words, total, string


@st.composite
def aligned(draw: st.DrawFn, symbols: tuple[str, ...] = ("", "A", "B", "C")) -> Lattice:
    """As `lattices`, with strings of 0 to 3 ids on the arcs, each id once, so that they tell the arcs."""
    lattice = draw(lattices(symbols))
    lengths = np.array(draw(st.lists(st.integers(0, 3), min_size=lattice.num_arcs, max_size=lattice.num_arcs)))
    lattice.alignments = Alignments.of_lengths(np.arange(int(lengths.sum())), lengths.astype(np.int64))
    return lattice


def paths_of(lattice: Lattice) -> Paths:
    """Words, total and string of every path, with how many have them."""
    totals = total_scores(lattice, SCALES)
    strings = lattice.alignments
    assert strings is not None and len(strings.offsets) == lattice.num_arcs + 1
    assert strings.ids.dtype == np.int32 and strings.offsets[-1] == len(strings.ids)
    return Counter(
        (path_words(lattice, path), round(float(totals[path].sum()), 6), sum((strings.string(a) for a in path), ()))
        for path in all_paths(lattice)
    )


@given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=5), st.data())
def test_join(strings: list[list[int]], data: st.DataObject) -> None:
    ids = np.array([number for string in strings for number in string], dtype=np.int32)
    alignments = Alignments.of_lengths(ids, np.array([len(string) for string in strings]))
    group = st.lists(st.integers(-1, len(strings) - 1), max_size=4)
    groups = data.draw(st.lists(group, max_size=4))
    bounds = np.cumsum([0, *map(len, groups)])
    joined = alignments.join(np.array([arc for arcs in groups for arc in arcs], dtype=np.int64), bounds)
    for row, arcs in enumerate(groups):
        assert joined.string(row) == tuple(number for arc in arcs if arc >= 0 for number in strings[arc])


def frames(words: Sequence[tuple[int, int, str]], count: int) -> Lattice:
    """So many frames of silence, an epsilon each with an id and a score of its own, and words between them."""
    arcs = [(frame, frame + 1, "", -float(2**frame), 0.0) for frame in range(count)]
    lattice = make([*arcs, *((src, dst, word, -0.5, 0.0) for src, dst, word in words)], count + 1)
    lattice.alignments = Alignments.of_lengths(np.arange(lattice.num_arcs), np.ones(lattice.num_arcs, dtype=np.int64))
    return lattice


@pytest.mark.parametrize(
    "words",
    [
        [(frame, 9, f"w{frame}") for frame in range(9)],
        [(0, 3, "a"), (2, 3, "b"), (3, 8, "c"), (6, 7, "d"), (7, 9, "e")],
        [(0, 2, "a"), (1, 5, "b"), (5, 7, "c"), (8, 9, "d")],
    ],
)
def test_chains_of_epsilons(words: list[tuple[int, int, str]]) -> None:
    lattice = frames(words, 9)
    before, removed = paths_of(lattice), remove_epsilons(lattice, SCALES)
    assert not ((removed.labels == EPSILON) & (removed.src > 0)).any()
    assert paths_of(removed) <= before
    assert best_by_words(removed) == pytest.approx(best_by_words(lattice))
    assert removed.times is not None and lattice.times is not None
    begins = {
        removed.symbols[label]: removed.times[src] for label, src in zip(removed.labels, removed.src, strict=True)
    }
    assert all(begins[word] == src for src, _, word in words)


def test_ways_through_a_chain_grow_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that leave a chain of silence at every frame: one way to each, not from each frame to all behind it."""
    most = []
    found = epsilons._epsilon_closures

    def closures(*given: Any) -> Any:
        most.append(len((result := found(*given)).target))
        return result

    monkeypatch.setattr(epsilons, "_epsilon_closures", closures)
    for count in (100, 400):
        lattice = make(
            [arc for frame in range(count) for arc in ((frame, frame + 1, "", -1, 0), (frame, count, "a", -2, 0))],
            count + 1,
        )
        assert remove_epsilons(lattice, SCALES).num_arcs < 2 * lattice.num_arcs
        assert most.pop() <= 3 * count


@pytest.mark.parametrize(("ids_an_arc", "most"), [(0, 40), (1, 110)])
def test_strings_of_many_long_ways_take_little_memory(ids_an_arc: int, most: int) -> None:
    """Each way is long where epsilons go to near states alone, and the arcs of all ways were held at once."""
    count = 250
    reach = [(src, dst) for src in range(count) for dst in range(src + 1, min(count, src + 7))]
    words = [(src, src + 1, "AB"[src % 2], -1.0, 0.0) for src in range(count)]
    lattice = make([*((src, dst, "", -(float(dst - src) ** 2), 0.0) for src, dst in reach), *words], count + 1)
    lengths = np.full(lattice.num_arcs, ids_an_arc)
    lattice.alignments = Alignments.of_lengths(np.arange(lengths.sum()), lengths)
    tracemalloc.start()
    try:
        remove_epsilons(lattice, SCALES)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert peak < most


@settings(max_examples=60, deadline=None)
@given(aligned(), st.integers(1, 5))
def test_strings_are_joined_block_by_block(lattice: Lattice, at_once: int) -> None:
    whole = remove_epsilons(lattice, SCALES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epsilons, "AT_ONCE", at_once)
        assert paths_of(remove_epsilons(lattice, SCALES)) == paths_of(whole)


@settings(max_examples=60, deadline=None)
@given(aligned())
def test_epsilon_removal(lattice: Lattice) -> None:
    """The paths that stay are paths of the lattice, and the best of each word sequence is among them."""
    before, after = paths_of(lattice), paths_of(remove_epsilons(lattice, SCALES))
    assert after <= before
    best = {words: max(total for other, total, _ in before if other == words) for words, _, _ in before}
    for words, total in best.items():
        assert any(row[:2] == (words, total) for row in after)
    if not ((lattice.labels == EPSILON) & (lattice.src > 0)).any():
        assert after == before


@settings(max_examples=60, deadline=None)
@given(aligned())
def test_ngram_expansion(lattice: Lattice) -> None:
    before = paths_of(remove_epsilons(lattice, SCALES))
    expanded = expand_ngram(lattice, ToyTrigram(), "ngram", ALL_SCALES)
    assert paths_of(expanded) == before
    assert paths_of(expand_ngram(lattice, ToyTrigram(), "ngram", ALL_SCALES, beam=1e9)) == before
    assert paths_of(expand_ngram(lattice, ToyTrigram(), "ngram", ALL_SCALES, beam=2.0)) <= before


@settings(max_examples=20, deadline=None)
@given(aligned(), st.sampled_from([None, 0, 1]))
def test_neural_expansion(lattice: Lattice, context: int | None) -> None:
    before = paths_of(remove_epsilons(lattice, SCALES))
    for beam in (None, 1.0):
        (result,) = LatticeLM({"nn": LM}, {**SCALES, "nn": 0.5}, context=context, beam=beam)([lattice])
        after = paths_of(result)
        assert after == before if beam is None else after <= before


@settings(max_examples=40, deadline=None)
@given(aligned(), st.integers(0, 8))
def test_pruning(lattice: Lattice, beam: int) -> None:
    before, after = paths_of(lattice), paths_of(prune_beam(lattice, SCALES, beam))
    assert after <= before
    assert max(total for _, total, _ in after) == max(total for _, total, _ in before)
    assert paths_of(prune_beam(lattice, SCALES, 1e9)) == before


@settings(max_examples=40, deadline=None)
@given(aligned(("", "a", "d-e", ".")))
def test_normalising(lattice: Lattice) -> None:
    """A word that becomes several keeps its string on the first of them."""
    normalizer = TextNormalizer(case="upper", delete=".", split="-")
    scales = {name: scale for name, scale in SCALES.items() if name != "words"}
    normal = normalize_words(lattice, normalizer)
    before = Counter((normalizer.words(words), string) for words, _, string in paths_of(lattice).elements())
    assert Counter((words, string) for words, _, string in paths_of(normal).elements()) == before
    assert max(best_by_words(normal, scales).values()) == pytest.approx(max(best_by_words(lattice, scales).values()))


def test_lattices_without_strings_stay_so() -> None:
    arcs = np.array([0, 1, 2], dtype=np.int32)
    lattice = Lattice(
        "u", 4, arcs, arcs + 1, np.array([1, 0, 2]), {"am": -1.0 * arcs, "lm": 0.0 * arcs}, ["", "A", "B"]
    )
    assert remove_epsilons(lattice, SCALES).alignments is None
    assert expand_ngram(lattice, ToyTrigram(), "ngram", ALL_SCALES).alignments is None
    (result,) = LatticeLM({"nn": LM}, {**SCALES, "nn": 0.5})([lattice])
    assert result.alignments is None
    lattice.alignments = Alignments.of_lengths(np.array([7, 8, 9, 6]), np.array([1, 2, 1]))
    removed = remove_epsilons(replace(lattice), SCALES)
    assert removed.alignments is not None
    assert [removed.alignments.string(arc) for arc in range(2)] == [(7, 8, 9), (6,)]


# a b (4 and 5 frames, an epsilon of 2 between), or b alone (11 frames); final cost with a string of 1.
KALDI = """utt-a
0 1 1 1,10,4_4_4_4
1 2 0 0.5,0.25,9_9
2 3 2 1,20,5_5_5_5_5
0 3 2 9,90,6_6_6_6_6_6_6_6_6_6_6
3 0.125,0,3

"""


def run(*args: object) -> str:
    result = CliRunner().invoke(cli, ["lattice", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_commands_keep_strings_and_times(tmp_path: Path) -> None:
    pytest.importorskip("kenlm")
    (tmp_path / "lat.1").write_text(KALDI)
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\nb 2\n")
    (tmp_path / "toy.arpa").write_text(ARPA)
    words = ("--words", tmp_path / "words.txt")
    source, pruned, rescored = (f"kaldi:{tmp_path / name}" for name in ("lat.1", "small.ark", "new.ark"))
    run("prune", source, pruned, *words, "--beam", 30)
    lm = ("--ngram", tmp_path / "toy.arpa", "--scale", "ngram=1", "--scale", "graph=1")
    run("rescore", source, f"{rescored}?words={tmp_path / 'words.txt'}", *words, *lm)
    run("convert", rescored, f"kaldi:{tmp_path / 'new.txt'}?text=yes")
    assert {",4_4_4_4\n", ",9_9\n"} <= {f",{line.split(',')[-1]}" for line in (tmp_path / "new.txt").open()}
    found = []
    for spec in (source, pruned, rescored):
        (lattice,) = read_lattices(f"{spec}?words={tmp_path / 'words.txt'}")
        best = best_path(lattice, {"am": 1.0, "graph": 1.0})
        assert best.words == ("a", "b") and best.scores["am"] == -30.25
        assert lattice.times is not None and lattice.times[-1] == pytest.approx(0.12)
        run("mbr", spec, *words, "--posterior-scale", 1, "--scale", "graph=1", "--ctm", tmp_path / "ctm")
        found.append([line.split()[:5] for line in (tmp_path / "ctm").read_text().splitlines()])
    truth = [["utt-a", "1", "0.000", "0.040", "a"], ["utt-a", "1", "0.060", "0.050", "b"]]
    assert found == [truth] * 3


def test_the_old_lm_is_taken_out_of_the_graph_cost(tmp_path: Path) -> None:
    pytest.importorskip("kenlm")
    (tmp_path / "lat.1").write_text(KALDI)
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\nb 2\n")
    for name, file in (("old.arpa", ARPA), ("new.arpa", ARPA.replace("-0.375\ta b", "-0.125\ta b"))):
        (tmp_path / name).write_text(file)
    lms = ("--ngram", tmp_path / "new.arpa", "--old-ngram", tmp_path / "old.arpa")
    scales = ("--scale", "ngram=1", "--scale", "old-ngram=-1", "--scale", "graph=1")
    source, target = f"kaldi:{tmp_path / 'lat.1'}", f"kaldi:{tmp_path / 'new.ark'}"
    words = ("--words", tmp_path / "words.txt")
    result = CliRunner().invoke(cli, ["lattice", "rescore", source, target, *map(str, (*words, *lms, *scales))])
    assert result.exit_code == 0 and "graph cost made of graph, -old-ngram, ngram" in result.stderr
    (lattice,) = read_lattices(f"{target}?words={tmp_path / 'words.txt'}")
    graph = best_path(lattice, {"am": 1.0, "graph": 1.0}).scores["graph"]
    assert graph == pytest.approx(-2.625 + 0.25 * np.log(10.0))


@settings(max_examples=40, deadline=None)
@given(aligned())
def test_k2_gets_an_arc_for_each_id(lattice: Lattice) -> None:
    from rescore.formats.k2 import one_id_an_arc

    result = one_id_an_arc(lattice)
    assert result.alignments is not None and result.alignments.lengths.max(initial=0) <= 1
    assert paths_of(result) == paths_of(lattice)


def test_tokens_of_k2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A string is never lost: as labels where it has one id an arc, as an arc each on request, else it is said."""
    pytest.importorskip("torch")
    (tmp_path / "lat.1").write_text(KALDI)
    (lattice,) = read_lattices(f"kaldi:{tmp_path / 'lat.1'}?words=ids")
    write_lattices(f"k2:{tmp_path / 'words.pt'}", [lattice])
    assert "1 lattices have arcs with several ids; labels are the words" in capsys.readouterr().err
    target = f"k2:{tmp_path / 'tokens.pt'}?tokens=yes"
    write_lattices(target, [lattice])
    (tokens,) = read_lattices(f"k2:{tmp_path / 'tokens.pt'}?words=ids")
    assert tokens.num_arcs == 4 + 2 + 5 + 11 + 1 + 1
    removed = remove_epsilons(tokens, {"am": 1.0})
    write_lattices(target, [removed])
    (again,) = read_lattices(f"k2:{tmp_path / 'tokens.pt'}?words=ids")
    for result in (tokens, removed, again):
        assert result.alignments is not None
        strings = {sum(map(result.alignments.string, path), ()) for path in all_paths(result)}
        assert strings == {(4,) * 4 + (9,) * 2 + (5,) * 5 + (3,), (6,) * 11 + (3,)}
    with pytest.raises(UsageError, match="tokens=maybe"):
        write_lattices(f"k2:{tmp_path / 'tokens.pt'}?tokens=maybe", [lattice])


def test_empty_strings_stay_empty_by_way_of_k2(tmp_path: Path) -> None:
    """Label 0 of k2 stands for an arc without id here, and for the blank in lattices of a transducer."""
    pytest.importorskip("torch")
    text = "u \n0 1 1 1,2,4_4\n0 2 2 1,2,0\n1 2 0 0.5,0,\n1 3 3 0,1,0_7\n2 3 4 0,1,5_5\n3 0,0,\n\n"
    (tmp_path / "lat.1").write_text(text)
    (lattice,) = read_lattices(f"kaldi:{tmp_path / 'lat.1'}?words=ids")
    lattice.times = np.arange(lattice.num_states, dtype=np.float64)
    write_lattices(f"k2:{tmp_path / 'lat.pt'}?tokens=yes", [lattice])
    write_lattices(f"kaldi:{tmp_path / 'again.ark'}", read_lattices(f"k2:{tmp_path / 'lat.pt'}?words=ids"))
    (again,) = read_lattices(f"kaldi:{tmp_path / 'again.ark'}?words=ids")
    assert strings_by_words(again) == strings_by_words(lattice)
    assert ((5, 5),) not in strings_by_words(again).values() and (0, 5, 5) in strings_by_words(again)[("2", "4")]


def strings_by_words(lattice: Lattice) -> dict[tuple[str, ...], set[tuple[int, ...]]]:
    assert lattice.alignments is not None
    found: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
    for path in all_paths(lattice):
        string = sum(map(lattice.alignments.string, path), ())
        found.setdefault(path_words(lattice, path), set()).add(string)
    return found


def test_words_as_labels_of_k2_are_no_ids(tmp_path: Path) -> None:
    """Of a lattice without ids, k2's labels are the words; they must not come back as transition ids."""
    pytest.importorskip("torch")
    (tmp_path / "lat.fst.txt").write_text("u\n0 1 5 0.5\n1 2 6 0.5\n2\n\n")
    write_lattices(f"k2:{tmp_path / 'lat.pt'}", read_lattices(f"{tmp_path / 'lat.fst.txt'}?words=ids"))
    (lattice,) = read_lattices(f"k2:{tmp_path / 'lat.pt'}?words=ids")
    assert lattice.alignments is None and best_path(lattice, {"am": 1.0}).words == ("5", "6")


@pytest.mark.slow
def test_times_of_the_indonesian_lattices_survive_k2(tmp_path: Path, shared_data: Path) -> None:
    folder = shared_data / "kaldi_lattices" / "indonesian"
    words = f"words={folder / 'words.txt'}"
    first = list(read_lattices(f"kaldi:{folder / 'decode'}?{words}"))
    write_lattices(f"k2:{tmp_path / 'lat.pt'}?{words}&tokens=yes", first)
    write_lattices(f"kaldi:{tmp_path / 'lat.ark'}?{words}", read_lattices(f"k2:{tmp_path / 'lat.pt'}?{words}"))
    count = 0
    for one, two in zip(first, read_lattices(f"kaldi:{tmp_path / 'lat.ark'}?{words}"), strict=True):
        assert one.times is not None and two.times is not None and one.times[-1] == pytest.approx(two.times[-1])
        count += 1
    assert count == 217
