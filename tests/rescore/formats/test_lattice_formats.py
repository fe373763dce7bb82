"""OpenFst text, k2 and HTK SLF: lattices written and read again, foreign files, bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from rescore.errors import FormatError, RescoreError, ScoreError
from rescore.formats import copy_lattices, read_lattices, write_lattices
from rescore.formats.kaldi_archive import archive_pieces
from rescore.formats.symbols import SymbolTable
from rescore.lattices.build import build_lattice
from rescore.lattices.paths import best_path
from rescore.skipping import Skip
from rescore.types import Alignments, Lattice
from tests.rescore.lattices.test_paths import lattices, make, score_sums

WORDS = "<eps> 0\nA 1\nB 2\nC 3\n"
OPENFST = "one\n0 1 A 0.5\n0 1 B 1.5\n1 2 <eps> 0.25\n2 0.5\n\ntwo\n0 1 C\n1\n\n"


def lattice_of(scores: dict[str, list[float]]) -> Lattice:
    """0 -A|'tis-> 1 -eps-> 2 -B-> 3."""
    return Lattice(
        "utt-1",
        4,
        np.array([0, 0, 1, 2], dtype=np.int32),
        np.array([1, 1, 2, 3], dtype=np.int32),
        np.array([1, 2, 0, 3], dtype=np.int32),
        {name: np.array(column) for name, column in scores.items()},
        ["", "A", "'tis", "B"],
        np.array([0.0, 0.25, 0.5, 1.0]),
    )


def same(one: Lattice, two: Lattice) -> bool:
    words = [[lattice.symbols[label] for label in lattice.labels] for lattice in (one, two)]
    arrays = all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("src", "dst"))
    scores = one.scores.keys() == two.scores.keys() and all(
        np.allclose(one.scores[name], two.scores[name]) for name in one.scores
    )
    return arrays and scores and words[0] == words[1] and one.utt_id == two.utt_id


def test_slf_round_trip(tmp_path: Path) -> None:
    lattice = lattice_of({"am": [-1.5, -2, 0, -3.25], "graph": [-1, -2, -3, -4], "transfornn": [-1e-9, 0, -0.1, 1e9]})
    assert write_lattices(f"slf:{tmp_path / 'out'}", [lattice]) == 1
    (again,) = read_lattices(f"slf:{tmp_path / 'out'}")
    assert same(again, lattice) and np.array_equal(again.times, lattice.times)
    assert list(again.scores) == ["am", "graph", "transfornn"]


@settings(max_examples=20, deadline=None)
@given(lattice=lattices(symbols=("", "a", "b", "d-e")))
def test_any_lattice_in_slf_and_openfst(tmp_path_factory: pytest.TempPathFactory, lattice: Lattice) -> None:
    from rescore.formats.common import Place
    from rescore.formats.slf import read_lattice
    from rescore.formats.slf_write import format_lattice

    file = tmp_path_factory.getbasetemp() / "utt.slf"
    file.write_text(format_lattice(lattice, Place(file)))
    assert score_sums(read_lattice(file)) == score_sums(lattice)
    lattice.scores = {"am": lattice.scores["am"]}
    target = f"openfst:{tmp_path_factory.getbasetemp() / 'lat.fst.txt'}"
    write_lattices(target, [lattice])
    (again,) = read_lattices(target)
    assert score_sums(again) == score_sums(lattice)


def test_slf_bad_scores(tmp_path: Path) -> None:
    lattice = lattice_of({f"score{number}": [0.0] * 4 for number in range(10)})
    with pytest.raises(FormatError, match="HTK's format has place for 9 more"):
        write_lattices(f"slf:{tmp_path / 'out'}", [lattice])
    lattice = lattice_of({"am": [0.0] * 4})
    lattice.utt_id = "a/b"
    with pytest.raises(FormatError, match=r"cannot be the name of a file, .* kaldi-lat:PATH"):
        write_lattices(f"slf:{tmp_path / 'out'}", [lattice])


@pytest.mark.parametrize("epsilon", ["<eps>", "<epsilon>", "-"])
def test_epsilons_of_openfst(tmp_path: Path, epsilon: str) -> None:
    (tmp_path / "lat.fst.txt").write_text(OPENFST.replace("<eps>", epsilon))
    assert next(read_lattices(str(tmp_path / "lat.fst.txt"))).symbols == ["", "A", "B"]


def test_openfst(tmp_path: Path) -> None:
    (tmp_path / "lat.fst.txt").write_text(OPENFST)
    one, two = read_lattices(str(tmp_path / "lat.fst.txt"))
    best = best_path(one, {"score": 1.0})
    assert best.words == ("A",) and best.scores["score"] == -1.25
    assert best_path(two, {"score": 1.0}).words == ("C",)


def test_openfst_with_numbers_and_kaldi_weights(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text(WORDS)
    (tmp_path / "lat").write_text("u\n0 1 9 3 0.5,2\n1 2 9 0 1,3\n2 0,0.5\n\n")
    (lattice,) = read_lattices(f"openfst:{tmp_path / 'lat'}?words={tmp_path / 'words.txt'}")
    best = best_path(lattice, {"graph": 1.0})
    assert best.words == ("C",) and best.scores == {"graph": -1.5, "am": -5.5, "words": 1.0}
    target = f"openfst:{tmp_path / 'out'}?words={tmp_path / 'words.txt'}"
    write_lattices(target, [lattice])
    again = best_path(next(read_lattices(target)), {"graph": 1.0})
    assert again == best and "0\t1\t3\t0.5,2.0\n" in (tmp_path / "out").read_text()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "an empty lattice"),
        ("0 x A 1\n1\n", "found 'x', expected the number of a state"),
        ("0 1 A 1\n1 nan\n", "weight 'nan', expected a number"),
        ("0 1 A B 1 1\n1\n", "expected 3 or 4 fields"),
        ("0 1 A 1\n1 0 B 1\n1\n", "cycle"),
        ("0 1 A 1,2\n1 5\n", "weight '5', expected two numbers"),
        ("0 1 A inf\n1\n", "no path from start node 0"),
        ("0 1 A -inf\n1\n", "a weight is minus infinity, expected a cost"),
        ("0 1 A BadNumber\n1 2 B 2.5\n2\n", "weight 'BadNumber', expected a number"),
        ("0 1 A 2,5x\n1 2 B 1e-3\n2\n", "weight '2,5x', expected"),
        ("0 1 A NaN\n1 2 B 2\n2\n", "weight 'NaN', expected a number"),
    ],
)
def test_bad_openfst(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "lat").write_text(f"bad\n{lines}\n{OPENFST}")
    with pytest.raises(FormatError, match=f"lat:1: utterance 'bad': .*{message}"):
        list(read_lattices(f"openfst:{tmp_path / 'lat'}"))
    skip = Skip()
    assert len(list(read_lattices(f"openfst:{tmp_path / 'lat'}", skip))) == 2 and skip.count == 1


def test_infinite_costs_are_left_out_as_of_kaldi_archives(tmp_path: Path) -> None:
    """As fstprint writes what is not connected."""
    rows = "0\t1\t{}\t0.5,1,3_3\n0\t2\t{}\t1,2,5\n0\t1\t{}\t0.5,Infinity,4_4\n1\t0,0,\n2\tInfinity,Infinity,\n\n"
    (tmp_path / "words").write_text("one\n" + rows.format("A", "B", "C"))
    (tmp_path / "ids").write_text("one \n" + rows.format(1, 2, 3))
    (tmp_path / "words.txt").write_text(WORDS)
    (lattice,), (kaldi,) = (
        list(read_lattices(spec)) for spec in (f"openfst:{tmp_path / 'words'}", f"kaldi:{tmp_path / 'ids'}")
    )
    assert same(lattice, kaldi) and lattice.alignments is not None and lattice.alignments.string(0) == (3, 3)
    assert lattice.counts == {"removed_arcs": 3, "removed_states": 1}


def test_numbers_of_states_that_are_not_there_are_not_counted(tmp_path: Path) -> None:
    (tmp_path / "gaps.fst.txt").write_text("u\n0 1000000 A 0.5\n0 70 B 1\n1000000\n\n")
    (lattice,) = read_lattices(str(tmp_path / "gaps.fst.txt"))
    assert lattice.counts == {"removed_states": 1, "removed_arcs": 1}


def test_transition_ids_are_written_with_kaldi_weights(tmp_path: Path) -> None:
    lattice = lattice_of({"graph": [-1, -2, -3, -4], "am": [-1.5, -2, 0, -3.25]})
    lattice.alignments = Alignments.of_lengths(np.arange(1, 5), np.array([2, 0, 1, 1]))
    write_lattices(f"openfst:{tmp_path / 'out'}", [lattice])
    (again,) = read_lattices(f"openfst:{tmp_path / 'out'}")
    assert again.alignments is not None
    assert [again.alignments.string(arc) for arc in range(4)] == [(1, 2), (), (3,), (4,)]


def test_openfst_of_a_single_state_keeps_its_scores(tmp_path: Path) -> None:
    """As of an empty utterance: without a weight in the file its score would be another than those of the others."""
    none = np.empty(0, dtype=np.int32)
    scores = {"graph": np.empty(0), "am": np.empty(0)}
    strings = Alignments.of_lengths(none, none)
    lattice = build_lattice("u", 1, none, none, none, scores, [""], 0, 0, alignments=strings)
    write_lattices(f"openfst:{tmp_path}/lat.txt", [lattice])
    (found,) = read_lattices(f"openfst:{tmp_path}/lat.txt")
    assert set(found.scores) == {"graph", "am"} and found.alignments is not None
    assert best_path(found, {"graph": 1.0}).scores == {"graph": 0.0, "am": 0.0, "words": 0.0}


def test_four_fields_may_be_two_labels(tmp_path: Path) -> None:
    (tmp_path / "lat").write_text("u\n0 1 x A\n1 2 y 2\n2 3 z nan\n3\n\n")
    (lattice,) = read_lattices(f"openfst:{tmp_path / 'lat'}")
    assert best_path(lattice, {"score": 1.0}).words == ("A", "2", "nan")
    (tmp_path / "lat").write_text("u\n0 1 x A\n1 2 y 2.5\n2 3 z B\n3\n\n")
    (lattice,) = read_lattices(f"openfst:{tmp_path / 'lat'}")
    assert best_path(lattice, {"score": 1.0}).words == ("A", "2.5", "B")


def test_an_acceptor_of_numbers_without_weights(tmp_path: Path) -> None:
    """As fstprint has it without --acceptor: the fourth field is the word once more, not its cost."""
    (tmp_path / "lat").write_text("u\n0 1 12 12\n0 1 13 13\n1 2 7 7\n2 0.5\n\n")
    (lattice,) = read_lattices(f"openfst:{tmp_path / 'lat'}?words=ids")
    assert lattice.scores["score"].tolist() == [0.0, 0.0, 0.0, -0.5] and lattice.symbols == ["", "12", "13", "7"]
    (tmp_path / "lat").write_text("u\n0 1 12 12\n0 1 13 14\n1\n\n")
    (lattice,) = read_lattices(f"openfst:{tmp_path / 'lat'}?words=ids")
    assert lattice.scores["score"].tolist() == [-12.0, -14.0, 0.0]


def test_openfst_needs_to_know_the_score(tmp_path: Path) -> None:
    with pytest.raises(ScoreError, match=r"say which: PATH\?score=NAME"):
        write_lattices(f"openfst:{tmp_path / 'out'}", [lattice_of({"am": [0.0] * 4, "lm": [1.0] * 4})])


def test_k2_files_need_no_k2(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "words.txt").write_text("<eps> 0\nA 4\nB 5\n'tis 6\n")
    one = lattice_of({"am": [-1.5, -2, 0, -3.25], "lm": [-1, -2, -3, -4], "transfornn": [-1, 0, -0.5, 1]})
    one.alignments = Alignments.of_lengths(np.array([9, 8, 0, 7]), np.ones(4, dtype=np.int64))
    two = lattice_of({name: list(column) for name, column in one.scores.items()})
    two.utt_id = "utt-2"
    target = f"k2:{tmp_path / 'lat.pt'}?words={tmp_path / 'words.txt'}"
    assert write_lattices(target, [one, two]) == 2
    again, other = read_lattices(target)
    assert again.num_states == 5 and again.utt_id == "utt-1" and other.utt_id == "utt-2"
    assert {(words, *scores) for words, *scores in score_sums(again)} == score_sums(one)
    assert again.alignments is not None and again.alignments.ids.tolist() == [9, 8, 0, 7]
    assert copy_lattices(target, f"k2:{tmp_path / 'new.pt'}?words={tmp_path / 'words.txt'}") == 2
    assert same(next(read_lattices(f"k2:{tmp_path / 'new.pt'}?words={tmp_path / 'words.txt'}")), again)


@pytest.mark.parametrize("name", ["lm_scores", "am_scores", "arcs", "utt_ids", "tokens", "x_values"])
def test_k2_keeps_its_own_names(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    lattice = lattice_of({"am": [0.0] * 4, "lm": [1.0] * 4, name: [2.0] * 4})
    with pytest.raises(FormatError, match=f"lattice 'utt-1' has a score '{name}', a name that k2's files have for"):
        write_lattices(f"k2:{tmp_path / 'lat.pt'}", [lattice])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damaged", [1, 2])
def test_ids_by_number_need_every_k2_file(tmp_path: Path, damaged: int) -> None:
    torch = pytest.importorskip("torch")
    for number in (1, 2, 3):
        torch.save({"arcs": torch.tensor([[0, 1, -1, 0]], dtype=torch.int32)}, tmp_path / f"{number}.pt")
    (tmp_path / f"{damaged}.pt").write_bytes(b"junk")
    found = []
    with pytest.raises(FormatError, match=rf"{damaged}\.pt: cannot be read"):
        found += [lattice.utt_id for lattice in read_lattices(f"k2:{tmp_path}?words=ids", Skip())]
    with pytest.raises(FormatError, match="no utterance ids in it, and none can be made" if damaged == 1 else "2.pt"):
        list(read_lattices(f"k2:{tmp_path}?words=ids", Skip()))


def test_k2_tells_words_from_ids(tmp_path: Path) -> None:
    """Labels that are words are no alignments; some arcs may have no id where others have."""
    pytest.importorskip("torch")
    lattice = lattice_of({"am": [0.0] * 4})
    for strings in (None, Alignments.of_lengths(np.array([7, 9]), np.array([1, 0, 1, 0]))):
        lattice.alignments = strings
        write_lattices(f"k2:{tmp_path / 'lat.pt'}", [lattice])
        (again,) = read_lattices(f"k2:{tmp_path / 'lat.pt'}")
        if strings is None:
            assert again.alignments is None
        else:
            assert again.alignments is not None and again.alignments.ids.tolist() == [7, 9]
            assert again.alignments.lengths.tolist() == [1, 0, 1, 0, 0]


def test_k2_writes_a_lattice_without_an_arc(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    none = np.zeros(0)
    write_lattices(f"k2:{tmp_path / 'lat.pt'}", [Lattice("u", 1, *[none.astype(np.int32)] * 3, {"am": none}, [""])])
    (again,) = read_lattices(f"k2:{tmp_path / 'lat.pt'}")
    assert best_path(again, {"am": 1.0}).words == () and again.scores["am"].tolist() == [0.0]


def test_words_of_k2_are_aux_labels_where_there_are_tokens_too(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    arcs = torch.tensor([[0, 1, 3, 0], [1, 2, -1, 0]], dtype=torch.int32)
    labels = {name: torch.tensor([word, -1], dtype=torch.int32) for name, word in (("tokens", 5), ("aux_labels", 7))}
    for names, word in ((["tokens", "aux_labels"], "7"), (["aux_labels", "tokens"], "7"), (["tokens"], "5"), ([], "3")):
        torch.save({"arcs": arcs, "utt_ids": ["u"], **{name: labels[name] for name in names}}, tmp_path / "lat.pt")
        (lattice,) = read_lattices(f"k2:{tmp_path / 'lat.pt'}?words=ids")
        assert best_path(lattice, {"am": 1.0}).words == (word,)


@pytest.mark.parametrize("backwards", [False, True])
def test_files_of_one_number_are_in_the_order_of_their_names(
    tmp_path: Path, backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were in that of the file system, which gave ids by number to other lattices on another machine."""
    names = ["01.pt", "1.pt", "001.pt", "2.pt", "10.pt"]
    monkeypatch.setattr(Path, "iterdir", lambda path: (path / name for name in names[:: -1 if backwards else 1]))
    monkeypatch.setattr(Path, "glob", lambda path, pattern: path.iterdir())
    expected = ["001.pt", "01.pt", "1.pt", "2.pt", "10.pt"]
    assert [piece.path.name for piece in archive_pieces(tmp_path / "*.pt")] == expected
    for number, name in enumerate(names):
        dump_linear(tmp_path / name, f"utt-{number}")
    assert [lattice.utt_id for lattice in read_lattices(f"k2:{tmp_path}?words=ids")] == [
        f"utt-{names.index(name)}" for name in expected
    ]


def dump_linear(path: Path, utt_id: str) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"arcs": torch.tensor([[0, 1, -1, 0]], dtype=torch.int32), "utt_ids": [utt_id]}, path)


def test_bad_k2_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "lat.pt"
    with pytest.raises(FormatError, match="no such file"):
        list(read_lattices(f"k2:{path}?words=ids"))
    for content, message in (
        (b"junk", "cannot be read as torch.save"),
        ({"x": 1}, "no dict with 'arcs'"),
        ({"arcs": torch.zeros(7, dtype=torch.int32)}, "not that of an Fsa"),
        ({"arcs": torch.zeros(0, 4, dtype=torch.int32), "utt_ids": ["u"]}, "'u': an empty lattice"),
        ({"arcs": torch.tensor([[0, 1, -1, 0]], dtype=torch.int32), "utt_ids": ["u", "v"]}, "2 utterance ids for 1"),
        ({"arcs": Path("x")}, "cannot be read"),
    ):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        with pytest.raises(FormatError, match=message):
            list(read_lattices(f"k2:{path}?words=ids"))


def test_scores_of_half_precision(tmp_path: Path) -> None:
    """numpy has no bfloat16, which a tensor of an LM under autocast may have."""
    torch = pytest.importorskip("torch")
    from rescore.formats.k2 import save, to_dict
    from rescore.formats.symbols import NewTable

    entries = to_dict([lattice_of({"am": [-1.0] * 4})], NewTable())
    entries["nn"] = torch.full((entries["aux_labels"].numel(),), -0.5, dtype=torch.bfloat16)
    save(entries, ["u"], tmp_path / "u.pt")
    (again,) = read_lattices(f"k2:{tmp_path / 'u.pt'}?words=ids")
    assert set(again.scores["nn"]) == {-0.5}


def test_icefall_calls(tmp_path: Path) -> None:
    """An FsaVec with ragged and with plain labels; the file as icefall saves it, and as `write_lattices` does."""
    k2 = pytest.importorskip("k2")
    torch = pytest.importorskip("torch")
    from rescore.formats.k2 import to_dict, to_lattices
    from rescore.formats.k2 import write_lattices as dump

    one = k2.Fsa.from_str("0 1 5 -0.5\n0 2 3 -1.5\n1 2 4 -0.25\n2 3 -1 -2\n3")
    two = k2.Fsa.from_str("0 1 6 -1\n1 2 -1 -3\n2")
    for fsa, words in ((one, [7, 0, 9, -1]), (two, [8, -1])):
        fsa.aux_labels = torch.tensor(words, dtype=torch.int32)
        fsa.lm_scores = torch.full((len(words),), -0.125)
    fsas = k2.create_fsa_vec([one, two])
    dump(fsas, ["a", "b"], tmp_path / "2.pt")
    torch.save(fsas.as_dict(), tmp_path / "10.pt")
    (tmp_path / "ids").write_text("a\nb\nc\nd\n")
    found = list(read_lattices(f"k2:{tmp_path}?words=ids&ids={tmp_path / 'ids'}"))
    assert [lattice.utt_id for lattice in found] == ["a", "b", "c", "d"]
    best = best_path(found[2], {"am": 1.0, "lm": 1.0})
    assert best.words == ("7", "9") and best.scores == {"am": -2.375, "lm": -0.375, "words": 2.0}
    assert same(found[0], next(to_lattices(one, ["a"])))
    again = k2.Fsa.from_dict(to_dict(found[:2]))
    assert again.shape == (2, None, None) and torch.equal(again.arcs.values(), fsas.arcs.values())
    assert torch.equal(again.aux_labels, fsas.aux_labels) and torch.allclose(again.lm_scores, fsas.lm_scores)
    del fsas.aux_labels
    fsas.aux_labels = k2.RaggedTensor([[7, 8], [], [9], [-1], [8], [-1]])
    dump(fsas, ["a", "b"], tmp_path / "ragged.pt")
    torch.save(fsas.as_dict(), tmp_path / "theirs.pt")
    for file in ("ragged.pt", "theirs.pt"):
        first, second = read_lattices(f"k2:{tmp_path / file}?words=ids")
        assert first.num_states == 5 and best_path(first, {"words": 1.0}).words == ("7", "8", "9")
        assert best_path(second, {"am": 1.0}).words == ("8",)


@pytest.mark.parametrize("name", ["kaldi-lat:{}.ark", "kaldi-lat:{}", "k2:{}.pt", "openfst:{}.fst.txt?score=am"])
def test_lattices_without_a_word_are_read_again(tmp_path: Path, name: str) -> None:
    """Whose table has no words."""
    pytest.importorskip("torch")
    spec = name.format(tmp_path / "silent")
    write_lattices(spec, [make([(0, 1, "", -1.0, -2.0)], 2)])
    (again,) = read_lattices(spec.partition("?")[0])
    assert best_path(again, dict.fromkeys(again.scores, 1.0)).words == ()


def test_impossible_arcs_of_k2(tmp_path: Path) -> None:
    """-inf less -inf is no number, and no warning."""
    pytest.importorskip("torch")
    write_lattices(f"k2:{tmp_path / 'lat.pt'}", [make([(0, 1, "a", -np.inf, -np.inf), (0, 1, "b", -1.0, -2.0)], 2)])
    with np.errstate(invalid="raise"):
        (again,) = read_lattices(f"k2:{tmp_path / 'lat.pt'}")
    assert best_path(again, {"am": 1.0}).scores == {"am": -1.0, "lm": -2.0, "words": 1.0}
    assert again.counts["removed_arcs"] == 1


def test_unequal_scores_are_refused_by_k2(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    one, two = lattice_of({"am": [0.0] * 4}), lattice_of({"lm": [0.0] * 4})
    one.symbols = two.symbols = ["", "1", "2", "3"]
    two.utt_id = "utt-2"
    with pytest.raises(FormatError, match="lattice 'utt-2' has scores lm, expected am"):
        write_lattices(f"k2:{tmp_path / 'lat.pt'}", [one, two])
    with pytest.raises(RescoreError, match="2 utterance ids for 1 lattices"):
        from rescore.formats.k2 import to_dict, to_lattices

        list(to_lattices(to_dict([one], SymbolTable()), ["a", "b"]))


def words_and_am(lattice: Lattice) -> set[tuple[object, ...]]:
    """Of every path; Kaldi's format adds graph costs of 0."""
    return {sums[:2] for sums in score_sums(lattice)}


@pytest.mark.parametrize("spec", ["kaldi-lat:{}/out", "k2:{}/out.pt"])
def test_words_that_no_table_can_hold_are_refused(tmp_path: Path, spec: str) -> None:
    """They were written into a words.txt that could not be read."""
    lattice = lattice_of({"am": [0.0] * 4})
    lattice.symbols = ["", "A", "B C", "D"]
    with pytest.raises(FormatError, match="word 'B C' is empty or has white space in it, so that no table can hold it"):
        write_lattices(spec.format(tmp_path), [lattice])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("spec", ["kaldi-lat:{}/out", "k2:{}/out.pt"])
@pytest.mark.parametrize("words", [["5", "apples", "10"], ["0", "1", "2"], ["01", "1", "2"]])
def test_numbers_among_words(tmp_path: Path, spec: str, words: list[str]) -> None:
    """Words are ids only where all words of the first lattice are, not just the first."""
    lattice = lattice_of({"am": [-1.5, -2, 0, -3.25]})
    lattice.symbols = ["", *words]
    write_lattices(spec.format(tmp_path), [lattice])
    assert words_and_am(next(read_lattices(spec.format(tmp_path)))) == words_and_am(lattice)


@pytest.mark.parametrize("spec", ["kaldi-lat:{}/out", "k2:{}/out.pt", "openfst:{}/out"])
def test_words_that_are_all_numbers_are_remarked_on(
    tmp_path: Path, spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lattice = lattice_of({"am": [-1.5, -2, 0, -3.25]})
    lattice.symbols = ["", "3", "4", "5"]
    write_lattices(spec.format(tmp_path), [lattice])
    assert "words are numbers, written as they are; read it with ?words=ids" in capsys.readouterr().err
    assert words_and_am(next(read_lattices(spec.format(tmp_path) + "?words=ids"))) == words_and_am(lattice)
