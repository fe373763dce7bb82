"""Lattices whose words are numbers: their table is told, found in one of the usual places, or asked for."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli
from rescore.errors import FormatError, UsageError
from rescore.files import read_kaldi_text
from rescore.formats import can_copy, copy_lattices, read_lattices, write_lattices
from rescore.types import Lattice
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS

OTHER = WORDS.replace("A 1", "X 1")
BEST = {"utt-a": ("A", "C"), "utt-b": ("B",)}
OPENFST = "utt-a\n0 1 1 0.5\n1 2 3 0.5\n2\n\nutt-b\n0 1 2 0.5\n1\n\n"
COMMANDS = (
    ["lattice", "best-path"],
    ["lattice", "info"],
    ["lattice", "mbr"],
    ["lattice", "nbest", "out.jsonl"],
    ["lattice", "oracle", "--ref", "text"],
    ["lattice", "posteriors"],
    ["lattice", "prune", "out.slf", "--beam", "5"],
    ["lattice", "convert", "slf:out"],
    ["convert", "out.jsonl"],
)


@pytest.fixture(params=["kaldi", "k2", "openfst"])
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Lattices in `exp/tri1/decode`, of words that are numbers, without a table anywhere."""
    if request.param == "k2":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    folder = Path("exp/tri1/decode")
    folder.mkdir(parents=True)
    Path("text").write_text("utt-a A C\nutt-b B\n")
    if request.param == "openfst":
        (folder / "lat.fst.txt").write_text(OPENFST)
        return f"openfst:{folder}/lat.fst.txt"
    (folder / "lat.1.gz").write_bytes(gzip.compress(TEXT.encode()))
    if request.param == "kaldi":
        return f"kaldi:{folder}"
    write_lattices(f"k2:{folder}/lat.pt", read_lattices(f"kaldi:{folder}?words=ids"))
    (folder / "lat.1.gz").unlink()
    return f"k2:{folder}/lat.pt"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def best(source: str, *options: str) -> tuple[dict[str, tuple[str, ...]], str]:
    """The words of the best paths, and what was said."""
    result = run("lattice", "best-path", source, *options, "--out", "best.txt")
    if result.exception is not None:
        raise result.exception
    return read_kaldi_text("best.txt"), result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_no_command_takes_numbers_for_words(source: str, command: list[str]) -> None:
    name, rest = (command[:1], command[1:]) if command[0] == "convert" else (command[:2], command[2:])
    result = run(*name, source, *rest)
    assert isinstance(result.exception, UsageError)
    assert "its words are numbers; which table has them? Give --words FILE (in Python words=" in str(result.exception)
    assert not list(Path().glob("out*"))


def test_numbers_are_words_where_it_is_said(source: str) -> None:
    assert best(source, "--words", "ids")[0] == {"utt-a": ("1", "3"), "utt-b": ("2",)}
    assert run("lattice", "convert", source, "kaldi:out.ark", "--words", "ids").exit_code == 0
    assert [lattice.symbols[1:] for lattice in read_lattices("kaldi:out.ark?words=ids")][1:] == [["2"]]


@pytest.mark.parametrize(
    "place",
    ["exp/tri1/decode/words.txt", "exp/tri1/graph_tg/words.txt", "data/lang/words.txt", "data/lang_tg/words.txt"],
)
def test_a_table_in_a_usual_place_is_taken_and_named(source: str, place: str) -> None:
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_text(WORDS)
    found, said = best(source)
    assert found == BEST
    assert "words are those of" in said and place.rpartition("tri1/")[2] in said


def test_equal_tables_are_one_and_others_are_ambiguous(source: str) -> None:
    for place in ("exp/tri1/graph/words.txt", "data/lang/words.txt"):
        Path(place).parent.mkdir(parents=True)
        Path(place).write_text(WORDS)
    assert best(source)[0] == BEST
    Path("data/lang/words.txt").write_text(OTHER)
    with pytest.raises(UsageError, match=r"\(.*graph/words.txt, data/lang/words.txt differ\)"):
        best(source)
    assert best(source, "--words", "data/lang/words.txt")[0]["utt-a"] == ("X", "C")


def test_the_table_of_the_same_name_goes_before_others(source: str) -> None:
    path = Path(source.partition(":")[2])
    own = path / "words.txt" if path.is_dir() else path.with_suffix(".words.txt")
    Path("data/lang").mkdir(parents=True)
    Path("data/lang/words.txt").write_text(OTHER)
    own.write_text(WORDS)
    assert best(source)[0] == BEST


def test_openfst_with_words_needs_no_table(tmp_path: Path) -> None:
    (tmp_path / "lat.fst.txt").write_text(OPENFST.replace("0 1 1", "0 1 A"))
    first, second = read_lattices(f"openfst:{tmp_path}/lat.fst.txt")
    assert (first.symbols, second.symbols) == (["", "A", "3"], ["", "2"])


def one_arc(*words: str) -> Lattice:
    """0 -word-> 1 -word-> ... -word-> N."""
    arcs = np.arange(len(words), dtype=np.int32)
    return Lattice("u", len(words) + 1, arcs, arcs + 1, arcs + 1, {"am": np.zeros(len(words))}, ["", *words])


def words_of(spec: str) -> list[str]:
    (lattice,) = read_lattices(spec)
    return [lattice.symbols[label] for label in lattice.labels if label]


def make(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)


HELLO, WORLD = "<eps> 0\nHELLO 1\nWORLD 2\n", "<eps> 0\nWORLD 1\nHELLO 2\n"


def test_a_copy_by_another_table_has_the_same_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path, one=HELLO, same=HELLO, other=WORLD)
    write_lattices("kaldi-lat:a.ark?words=one.txt", [one_arc("HELLO", "WORLD")])
    assert copy_lattices("kaldi-lat:a.ark?words=one.txt", "kaldi-lat:b.ark?words=other.txt") == 1
    assert words_of("kaldi-lat:b.ark?words=other.txt") == ["HELLO", "WORLD"]
    assert can_copy("kaldi-lat:a.ark?words=one.txt", "kaldi-lat:b.ark?words=same.txt")
    assert can_copy("kaldi-lat:a.ark", "kaldi-lat:b.ark?words=other.txt"), "no other table is known"
    make(tmp_path, words=HELLO)
    assert not can_copy("kaldi-lat:a.ark", "kaldi-lat:b.ark?words=other.txt")


@pytest.mark.parametrize("target", ["b.ark.gz", "b"])
def test_a_table_goes_with_the_lattices_that_are_copied(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lattices("kaldi-lat:a.ark", [one_arc("HELLO", "WORLD")])
    make(tmp_path, words=OTHER, told=WORLD)
    copy_lattices("kaldi-lat:a.ark", f"kaldi-lat:{target}")
    assert words_of(f"kaldi-lat:{target}") == ["HELLO", "WORLD"]
    copy_lattices("kaldi-lat:a.ark?words=told.txt", "kaldi-lat:c.ark")
    assert not Path("c.words.txt").exists()


@pytest.mark.parametrize("path", ["kaldi-lat:a.ark", "k2:a.pt"])
def test_a_table_goes_with_the_lattices_that_are_written_over(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.startswith("k2"):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    make(tmp_path, told=WORLD)
    for options, words in (("", ["A"]), ("", ["NEW"]), ("?words=told.txt", ["HELLO"]), ("", ["A"]), ("", ["7"])):
        write_lattices(path + options, [one_arc(*words)])
        assert Path("a.words.txt").exists() == (options == "" and words != ["7"])
        told = "?words=ids" if words == ["7"] else options
        assert words_of(path + told) == words


def test_a_table_of_other_lattices_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path, told=WORLD)
    for name in ("a.ark", "a.gz"):
        write_lattices(f"kaldi-lat:{name}", [one_arc("HELLO", "WORLD")])
    for name in ("a.gz", "a.xz"):  # one that is written over, and a new one
        with pytest.raises(UsageError, match=r"would be read by a\.words\.txt, .* differs from told\.txt"):
            write_lattices(f"kaldi-lat:{name}?words=told.txt", [one_arc("HELLO")])
    with pytest.raises(FormatError, match=r"word 'NEW' is not in a\.words\.txt"):
        write_lattices("kaldi-lat:a.gz", [one_arc("NEW")])
    assert words_of("kaldi-lat:a.ark") == ["HELLO", "WORLD"]


ARPA = (
    "\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-1\t<unk>\t0\n-99\t<s>\t0\n-1\t</s>\t0\n-1\tHELLO\t0\n\n"
    "\\2-grams:\n-1\t<s> HELLO\n\n\\end\\\n"
)


@pytest.mark.parametrize("command", ["convert", "prune --beam 5", "rescore --ngram told.arpa --scale ngram=1"])
def test_a_table_may_be_that_of_what_is_written_alone(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTK lattices hold words, Kaldi's numbers of them."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, told=WORLD)
    (tmp_path / "told.arpa").write_text(ARPA)
    write_lattices("slf:words", [one_arc("HELLO")])
    name, *options = command.split()
    line = ["lattice", name, "slf:words", "kaldi:ids.gz", "--words", "told.txt", *options]
    result = run(*line)
    assert result.exit_code == 0, (result.output, result.exception)
    assert words_of("kaldi-lat:ids.gz?words=told.txt") == ["HELLO"]
    result = run(*("slf:out" if word == "kaldi:ids.gz" else word for word in line))
    assert isinstance(result.exception, UsageError) and "unlike slf:words and slf:out" in str(result.exception)
