"""Kaldi's lattices as they are written: graph costs, tables of words, alignments, what cannot be written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from rescore.errors import FormatError, RescoreError, UsageError
from rescore.formats import copy_lattices, parse_spec, read_lattices, write_lattices
from rescore.formats.kaldi_fst import RawLattice
from rescore.formats.kaldi_lattice import to_lattice
from rescore.formats.symbols import SymbolTable
from rescore.lattices.build import build_lattice, normalize_words
from rescore.lattices.paths import best_path
from rescore.text import TextNormalizer
from rescore.types import Lattice
from tests.rescore.formats.test_kaldi_lattice import WORDS, raw_lattices, write
from tests.rescore.formats.test_lattice_formats import same


def test_arcs_side_by_side_into_the_end_stay_arcs(tmp_path: Path) -> None:
    """A state has but one final weight."""
    scores = {"graph": np.array([-1.0, -2.0, -0.5]), "am": np.zeros(3)}
    ends = np.array([0, 1, 1]), np.array([1, 2, 2]), np.array([1, 0, 0])
    lattice = build_lattice("u", 3, *ends, scores, ["", "1"], 0, 2)
    for target in ("lat.ark", "lat.txt?text=yes"):
        write_lattices(f"kaldi:{tmp_path / target}", [lattice])
        (again,) = read_lattices(f"kaldi:{tmp_path / target.partition('?')[0]}?words=ids")
        assert sorted(again.scores["graph"].tolist()) == [-2.0, -1.0, -0.5, 0.0]


def test_a_lattice_without_an_arc(tmp_path: Path) -> None:
    none = np.zeros(0)
    lattice = Lattice("u", 1, *[none.astype(np.int32)] * 3, {"graph": none, "am": none}, [""])
    write_lattices(f"kaldi:{tmp_path / 'lat.ark'}", [lattice])
    (again,) = read_lattices(f"kaldi:{tmp_path / 'lat.ark'}?words=ids")
    assert best_path(again, {"am": 1.0}).words == () and again.scores["graph"].tolist() == [0.0]


@settings(max_examples=40, deadline=None)
@given(raw=raw_lattices())
def test_a_lattice_written_and_read_again_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, raw: RawLattice
) -> None:
    try:
        lattice = to_lattice(raw, SymbolTable())
    except RescoreError:
        return  # a cycle or no path
    path = tmp_path_factory.getbasetemp() / "again.ark"
    for options in ("", "?text=yes"):
        assert write_lattices(f"kaldi:{path}{options}", [lattice]) == 1
        (again,) = read_lattices(f"kaldi:{path}?words=ids")
        assert again.num_states == lattice.num_states
        for name in ("src", "dst", "labels"):
            assert np.array_equal(getattr(again, name), getattr(lattice, name)), name
        assert again.symbols == lattice.symbols
        for name, column in lattice.scores.items():
            assert np.array_equal(again.scores[name], column)
        assert again.alignments is not None and lattice.alignments is not None
        assert np.array_equal(again.alignments.ids, lattice.alignments.ids)
        assert np.array_equal(again.alignments.offsets, lattice.alignments.offsets)


def test_what_goes_into_the_graph_cost(tmp_path: Path) -> None:
    lattice = next(read_lattices(write(tmp_path)))
    lattice.scores["ngram"] = np.full(lattice.num_arcs, -2.0)
    target = f"kaldi:{tmp_path / 'out'}?words={tmp_path / 'words.txt'}"
    write_lattices(target, [lattice])
    (again,) = read_lattices(target)
    assert (tmp_path / "out" / "num_jobs").read_text() == "1\n"
    assert again.scores["graph"].tolist() == [-2.5, -3.5, -2.25, -2.125]
    source = f"kaldi:{tmp_path / 'out.gz'}?words={tmp_path / 'words.txt'}"
    target = f"{source}&graph=ngram"
    write_lattices(target, [lattice])
    assert next(read_lattices(source)).scores["graph"].tolist() == [-2.0] * 4
    with pytest.raises(FormatError, match="utterance 'utt-a': no score 'x' for the graph cost; it has: graph, am"):
        write_lattices(f"{target},x", [lattice])


@pytest.mark.parametrize("place", ["-", "/dev/stdout"])
def test_lattices_go_to_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], place: str
) -> None:
    """It was taken for a folder; k2 made one called `-`, for the table of words."""
    (lattice,) = lattices = list(read_lattices(write(tmp_path)))[:1]
    words = tmp_path / "words.txt"
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert write_lattices(f"kaldi:{place}?words={words}", lattices) == 1
    (tmp_path / "piped.ark").write_bytes(capsysbinary.readouterr().out)
    (again,) = read_lattices(f"kaldi:{tmp_path / 'piped.ark'}?words={words}")
    assert same(again, lattice)
    for spec in (f"kaldi:{place}", f"k2:{place}"):
        with pytest.raises(FormatError, match="word 'A' needs a number; say which table has it"):
            write_lattices(spec, lattices)
    assert not any(Path().iterdir())


def test_copies_go_to_an_open_file(tmp_path: Path) -> None:
    """As of bash's >(command)."""
    copy_lattices(write(tmp_path), f"kaldi-lat:{tmp_path / 'whole.ark'}")
    with open(tmp_path / "out", "wb") as stream:
        copy_lattices(write(tmp_path), f"kaldi-lat:/dev/fd/{stream.fileno()}")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole.ark").read_bytes()


def _words(lattice: Lattice) -> list[str]:
    return [lattice.symbols[label] for label in lattice.labels if label]


@pytest.mark.parametrize(
    ("target", "own"),
    [
        ("kaldi-lat:out", Path("out/words.txt")),
        ("kaldi-lat:decode_test.si", Path("decode_test.si/words.txt")),
        ("kaldi-lat:out.ark", Path("out.words.txt")),
        ("kaldi-lat:decode.ark", Path("decode.words.txt")),
        ("k2:out", Path("out.words.txt")),
    ],
)
def test_words_without_a_table_are_numbered(
    target: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lattices = list(read_lattices(write(tmp_path)))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").unlink()
    write_lattices(target, lattices)
    assert own.read_text().startswith("<eps> 0\n") and f" words in {own}, numbered" in capsys.readouterr().err
    again = list(read_lattices(target))
    assert [*map(_words, again)] == [*map(_words, lattices)]
    if target.endswith("out.ark"):
        write_lattices(target, lattices[1:])  # the table goes with what is written over
        assert own.read_text() == "<eps> 0\nB 1\n"
        Path("out.ark").unlink()
        own.write_text("<eps> 0\nA 1\n")
        with pytest.raises(FormatError, match=r"word 'B' is not in out\.words\.txt"):
            write_lattices(target, lattices)


@pytest.mark.parametrize(("target", "own"), [("kaldi-lat:out.ark", "out.words.txt"), ("k2:out.pt", "out.words.txt")])
def test_words_keep_the_numbers_of_a_table(
    target: str, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Kaldi's programs, which take it; words that it does not have follow, and the table goes with the lattices."""
    lattices = list(read_lattices(write(tmp_path)))
    monkeypatch.chdir(tmp_path)
    Path("few.txt").write_text("<eps> 0\nB 7\nX 9\n")
    (tmp_path / "words.txt").rename("all.txt")
    write_lattices(f"{target}?numbers=all.txt", lattices)
    assert ": words have the numbers of all.txt\n" in capsys.readouterr().err
    assert Path(own).read_bytes() == Path("all.txt").read_bytes()
    assert [*map(_words, read_lattices(target))] == [*map(_words, lattices)]
    Path(own).unlink()
    write_lattices(f"{target}?numbers=few.txt", lattices)
    said = capsys.readouterr().err
    assert f"words have the numbers of few.txt, but for 2 that it does not have; all are in {own}" in said
    assert Path(own).read_text() == "<eps> 0\nB 7\nX 9\nA 10\nC 11\n"
    assert [*map(_words, read_lattices(target))] == [*map(_words, lattices)]
    with pytest.raises(UsageError, match=r"give \?words=all.txt, or \?numbers=few.txt where there may be new words"):
        write_lattices(f"{target}?words=all.txt&numbers=few.txt", lattices)


def test_a_table_that_is_found_is_not_written_again(tmp_path: Path) -> None:
    lattices = list(read_lattices(write(tmp_path)))
    (tmp_path / "graph").mkdir()
    (tmp_path / "words.txt").rename(table := tmp_path / "graph" / "words.txt")
    target = f"kaldi:{tmp_path / 'decode_pruned'}"
    write_lattices(f"{target}?numbers={table}", lattices)
    assert not (tmp_path / "decode_pruned" / "words.txt").exists()
    assert all(map(same, read_lattices(target), lattices))


def test_a_folder_to_be_written_takes_the_options_of_lattices(tmp_path: Path) -> None:
    assert parse_spec(f"kaldi:{tmp_path / 'new'}?graph=ngram")[0] == "kaldi-lat"
    assert parse_spec(f"kaldi:{tmp_path / 'new'}")[0] == "kaldi"


def test_what_cannot_be_written(tmp_path: Path) -> None:
    lattice = next(read_lattices(write(tmp_path)))
    out = tmp_path / "out.ark"
    with pytest.raises(FormatError, match="utterance 'utt-a': word 'A' needs a number"):
        write_lattices(f"kaldi:{out}?words=ids", [lattice])
    (tmp_path / "words.txt").write_text("<eps> 0\nA 1\n")
    with pytest.raises(FormatError, match=r"utterance 'utt-a': word 'B' is not in .*words.txt"):
        write_lattices(f"kaldi:{out}?words={tmp_path / 'words.txt'}", [lattice])
    lattice.scores["am"][0] = -np.inf
    with pytest.raises(FormatError, match="not finite"):
        write_lattices(f"kaldi:{out}", [lattice])
    with pytest.raises(FormatError, match="no lattice to write"):
        write_lattices(f"kaldi:{out}", [])
    with pytest.raises(UsageError, match="text=maybe"):
        write_lattices(f"kaldi:{out}?text=maybe", [lattice])
    assert not out.exists()


def test_a_text_cut_into_words_keeps_alignments(tmp_path: Path) -> None:
    lattice = next(read_lattices(write(tmp_path)))
    lattice.symbols[1] = "A-D"
    split = normalize_words(lattice, TextNormalizer(split="-"))
    assert split.alignments is not None and split.num_arcs == 5
    assert sorted(split.alignments.string(arc) for arc in range(5)) == [(), (5,), (6, 6), (7, 7, 8), (7, 9, 9)]


def test_graph_costs_by_weights(tmp_path: Path) -> None:
    """3 graph + 6 nn + 1.5 words in units of graph; acoustics stay."""
    (tmp_path / "words.txt").write_text(WORDS)
    (tmp_path / "lat.txt").write_text("utt \n0\t1\t1\t0.5,10,7_7\n1\t2\t2\t1.5,8,5\n2\t0.25,0,\n\n")
    words = f"?words={tmp_path / 'words.txt'}"
    (lattice,) = read_lattices(f"kaldi-lat:{tmp_path / 'lat.txt'}{words}")
    lattice.scores["nn"] = np.array([-1.0, -2.0, 0.0])
    (tmp_path / "weights.json").write_text('{"scales": {"am": 1, "graph": 3, "nn": 6, "words": 1.5}}')
    target = f"kaldi-lat:{tmp_path / 'out.txt'}{words}&text=yes&weights={tmp_path / 'weights.json'}"
    write_lattices(target, [lattice])
    (again,) = read_lattices(f"kaldi-lat:{tmp_path / 'out.txt'}{words}")
    assert again.scores["graph"].tolist() == [-2.0, -5.0, -0.25]
    assert again.scores["am"].tolist() == [-10.0, -8.0, 0.0]
    del lattice.scores["nn"]
    (tmp_path / "weights.json").write_text('{"scales": {"am": 1, "graph": 3, "nn": 0, "words": 1.5}}')
    write_lattices(target, [lattice])  # a scale of 0 leaves a score out, there or not
    (again,) = read_lattices(f"kaldi-lat:{tmp_path / 'out.txt'}{words}")
    assert again.scores["graph"].tolist() == [0.0, -1.0, -0.25]
    with pytest.raises(UsageError, match="give either graph=NAME,-NAME or weights=FILE"):
        write_lattices(f"{target}&graph=nn", [lattice])
    (tmp_path / "weights.json").write_text('{"scales": {"am": 1, "graph": 0}}')
    with pytest.raises(RescoreError, match=r"weights.json: no scale for 'graph'"):
        write_lattices(target, [lattice])
