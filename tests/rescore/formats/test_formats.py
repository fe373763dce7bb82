"""Specs (`FORMAT:PATH?OPTION=VALUE`), guessing, and what all N-best readers and writers have in common."""

from __future__ import annotations

import importlib
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rescore import console
from rescore.errors import FormatError, RescoreError, ScoreError, UsageError
from rescore.formats import is_lattice, parse_spec, read_lattices, read_nbest, write_nbest
from rescore.formats.table import FORMATS
from rescore.types import LARGEST, Hypothesis, NbestList

# one spec of each N-best format, with names of scores that it can hold
SPECS = {
    "jsonl": ("jsonl:lists.jsonl", ("am", "lm", "words", "transfornn")),
    "jsonl.gz": ("lists.jsonl.gz", ("am", "lm")),
    "jsonl.xz": ("lists.jsonl.xz", ("any name/é",)),
    "mlm": ("lists.json", ("score",)),
    "mlm named": ("mlm:lists.gz?score=am", ("am",)),
    "kaldi": ("kaldi:lists", ("am", "nolm", "lm", "nn", "transfornn.big")),
    "espnet": ("espnet:lists", ("score",)),
    "espnet named": ("espnet:lists?score=am", ("am",)),
    "nemo": ("lists.tsv?n=3", ("score",)),
    "nemo named": ("nemo:lists?score=am&n=3", ("am",)),
    "srilm": ("srilm:lists?scores=lm,am,x", ("lm", "am", "x")),
    "srilm 3": ("lists.nbest", ("am", "lm", "words")),
}
every_format = pytest.mark.parametrize("name", SPECS)


def spec_in(folder: Path, name: str) -> str:
    spec = SPECS[name][0]
    prefix, colon, rest = spec.rpartition(":")
    return f"{prefix}{colon}{folder}/{rest}"


def path_of(spec: str) -> Path:
    return parse_spec(spec)[1]


def make_lists(names: tuple[str, ...], utterances: int = 3, size: int = 3) -> Iterator[NbestList]:
    for utt in range(utterances):
        hyps = [Hypothesis(("A",) * rank + (f"W{utt}",), dict.fromkeys(names, -rank - utt / 7)) for rank in range(size)]
        yield NbestList(f"utt{utt + 1:06d}", hyps)


# ---- specs


@pytest.mark.parametrize(
    ("spec", "name", "path"),
    [
        ("jsonl:a/b.txt", "jsonl", "a/b.txt"),
        ("a/b.jsonl", "jsonl", "a/b.jsonl"),
        ("a/b.jsonl.gz", "jsonl", "a/b.jsonl.gz"),
        ("a.json.xz", "mlm", "a.json.xz"),
        ("a.tsv?n=10", "nemo", "a.tsv"),
        ("nemo:a?n=10&manifest=b/c.json", "nemo", "a"),
        ("a.nbest.gz", "srilm", "a.nbest.gz"),
        ("a.slf.gz", "slf", "a.slf.gz"),
        ("a.lat", "slf", "a.lat"),
        ("kaldi:exp/a", "kaldi", "exp/a"),
        ("jsonl:run:1/a:2", "jsonl", "run:1/a:2"),
        ("run/1:2/a.jsonl", "jsonl", "run/1:2/a.jsonl"),
        ("./a:2.jsonl", "jsonl", "a:2.jsonl"),
        ("what?.jsonl", "jsonl", "what?.jsonl"),
    ],
)
def test_parse_spec(spec: str, name: str, path: str) -> None:
    assert parse_spec(spec) == (name, Path(path))


def test_colon_in_a_path_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run:1").mkdir()
    assert parse_spec("run:1/new.jsonl") == ("jsonl", Path("run:1/new.jsonl"))
    Path("a:2.jsonl").touch()
    assert parse_spec("a:2.jsonl") == ("jsonl", Path("a:2.jsonl"))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("jsnl:a.jsonl", r"unknown format 'jsnl' \(did you mean 'jsonl'\?\); there are: jsonl, mlm, .*\./jsnl:a.jsonl"),
        ("a.txt", "no such file or folder; to write one of this name, say its format: FORMAT:PATH with one of: jsonl"),
        (__file__, "the format cannot be guessed: FORMAT:PATH with one of: jsonl, mlm"),
        ("exp", "no such file or folder"),
        ("", "no path"),
        ("jsonl:", "no path after 'jsonl:'"),
        ("a.jsonl?n=3", "jsonl has no option 'n'; it has: none"),
        ("a.tsv?m=3", "nemo has no option 'm'; it has: n, manifest, score, characters"),
        ("a.tsv?n=3&score=a&n=5", "n= is given twice, expected once"),
        ("a.json?score=", "score= has no value; give one, or leave it out"),
    ],
)
def test_specs_that_cannot_be_understood(
    spec: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where nothing has these names
    for function in (parse_spec, is_lattice, read_nbest, read_lattices):
        with pytest.raises(UsageError, match=problem):
            function(spec)  # type: ignore[operator]
    with pytest.raises(UsageError, match=problem):
        write_nbest(spec, [])


def test_the_working_folder_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [NbestList("a", [Hypothesis(("HE",), {"score": -1.0})])]
    write_nbest(f"espnet:{tmp_path / 'decoded'}", lists)
    monkeypatch.chdir(tmp_path / "decoded")
    for here in (".", "./", "../decoded", "espnet:."):
        assert list(read_nbest(here)) == lists


def test_of_a_folder_of_scores_the_lists_are_named(tmp_path: Path) -> None:
    for name in ("scores.jsonl.gz", "nbest.jsonl.gz", "1best.txt"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"is a folder; say .* in it: .*/nbest.jsonl.gz or .*/scores.jsonl.gz$"):
        parse_spec(str(tmp_path))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("words_text", "kaldi"),
        ("archives.3/words_text", "kaldi"),
        ("1best_recog/text", "espnet"),
        ("output.1/1best_recog/text", "espnet"),
        ("logdir/output.12/1best_recog/text", "espnet"),
        ("a.slf.gz", "slf"),
        ("b.lat", "slf"),
    ],
)
def test_folders_are_known_by_what_is_in_them(tmp_path: Path, file: str, name: str) -> None:
    folder = tmp_path / "x.jsonl"  # the name of a folder says nothing
    (folder / file).parent.mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot be guessed"):
        parse_spec(str(folder))
    (folder / file).touch()
    assert parse_spec(str(folder)) == (name, folder)


def test_table_of_formats() -> None:
    for name, entry in FORMATS.items():
        assert entry.name == name and entry.kind in ("nbest", "lattice") and entry.description
        module = importlib.import_module(entry.module)
        reader, writer = ("read", "write") if entry.kind == "nbest" else ("read_lattices", "write_lattices")
        assert callable(getattr(module, reader)) and hasattr(module, writer) != entry.read_only
    assert {entry.name for entry in FORMATS.values() if entry.kind == "lattice"} >= {"slf", "kaldi-lat"}


def test_the_page_of_formats_names_all_options() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/formats.md").read_text().splitlines()
    for name, entry in FORMATS.items():
        rows = [row for row in page if row.startswith(f"| `{entry.alias or name}` |")]
        for option in entry.options:
            assert any(re.search(rf"[?&`]{option}=", row) for row in rows), f"{name}: {option}="


def test_lattices_are_not_lists() -> None:
    assert is_lattice("a.slf") and not is_lattice("a.jsonl")
    with pytest.raises(UsageError, match="slf holds lattices, expected N-best"):
        read_nbest("a.slf")
    with pytest.raises(UsageError, match="slf holds lattices, expected N-best"):
        write_nbest("a.slf", [])
    with pytest.raises(UsageError, match="jsonl holds N-best lists, expected lattices"):
        read_lattices("a.jsonl")


# ---- round trips

CHARACTERS = "aB'é漢😀\"\\,:;{}[]-0_.<>%"  # all that some format could stumble over
WORD = st.text(CHARACTERS, max_size=4).map(lambda word: f"w{word}")
SCORE = st.floats(-LARGEST, LARGEST)
UTT_ID = st.from_regex(r"[a-z][a-z0-9._-]{0,6}", fullmatch=True)


@st.composite
def nbest_lists(draw: st.DrawFn, name: str) -> list[NbestList]:
    scores = SPECS[name][1]
    size = st.just(3) if name.startswith("nemo") else st.integers(1, 3)
    lists = []
    for utt_id in draw(st.lists(UTT_ID, unique=True, min_size=1, max_size=4)):
        hyps = [
            Hypothesis(tuple(draw(st.lists(WORD, max_size=3))), {score: draw(SCORE) for score in scores})
            for _ in range(draw(size))
        ]
        lists.append(NbestList(utt_id, hyps, draw(st.none() | st.lists(WORD, max_size=3).map(tuple))))
    return lists


@every_format
@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(data=st.data())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    lists = data.draw(nbest_lists(name))
    spec = spec_in(tmp_path_factory.mktemp("x"), name)
    assert write_nbest(spec, lists) == len(lists)
    back = list(read_nbest(spec))
    assert [nbest.hyps for nbest in back] == [nbest.hyps for nbest in lists]
    if parse_spec(spec)[0] != "nemo":
        assert [nbest.utt_id for nbest in back] == [nbest.utt_id for nbest in lists]
    if FORMATS[parse_spec(spec)[0]].keeps_refs:
        assert [nbest.ref for nbest in back] == [nbest.ref for nbest in lists]


@every_format
def test_what_is_written_is_known_by_its_name(tmp_path: Path, name: str) -> None:
    spec = spec_in(tmp_path, name)
    write_nbest(spec, make_lists(SPECS[name][1]))
    path = path_of(spec)
    if path.is_dir() or path.suffix not in ("", ".gz"):
        assert parse_spec(str(path)) == (parse_spec(spec)[0], path)


# ---- streams


@pytest.mark.parametrize("name", [name for name in SPECS if not name.endswith("xz")])  # its dictionary is 64 MB
def test_reading_and_writing_take_one_utterance_at_a_time(tmp_path: Path, name: str) -> None:
    """The peak of memory is a small part of the data, and does not hold the lists that are written."""
    names, utterances = SPECS[name][1], 2400  # buffers of files alone take 1 MB from Python 3.14 on
    (tmp_path / "first").mkdir()
    first = spec_in(tmp_path / "first", name)
    write_nbest(first, make_lists(names, 2))  # imports what is needed
    list(read_nbest(first))

    def peaks(folder: Path) -> tuple[int, int]:
        folder.mkdir()
        spec = spec_in(folder, name)
        tracemalloc.start()
        try:
            write_nbest(spec, make_lists(names, utterances))
            for _ in read_nbest(spec):
                pass
            streamed = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            held = list(read_nbest(spec))
            assert len(held) == utterances
            return streamed, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def are_small(streamed: int, whole: int) -> bool:
        return streamed < whole / 2 or streamed < 500_000

    # What other threads of this process take counts, too, such as those that tests before this one have left.
    tries = []
    while len(tries) < 3 and not (tries and are_small(*tries[-1])):
        tries.append(peaks(tmp_path / str(len(tries))))
    assert are_small(*tries[-1]), tries


@every_format
def test_nothing_is_left_of_a_failed_write(tmp_path: Path, name: str) -> None:
    def failing() -> Iterator[NbestList]:
        yield from make_lists(SPECS[name][1])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_nbest(spec_in(tmp_path, name), failing())
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    spec = f"{tmp_path}/a.jsonl"
    write_nbest(spec, make_lists(("am",)))
    before = Path(spec).read_bytes()
    bad = NbestList("bad", [Hypothesis((), {"am": float("nan")})])
    with pytest.raises(ScoreError):
        write_nbest(spec, [*make_lists(("am",)), bad])
    assert Path(spec).read_bytes() == before


@pytest.mark.parametrize("name", ["kaldi", "espnet"])
def test_folders_are_not_overwritten(tmp_path: Path, name: str) -> None:
    spec = spec_in(tmp_path, name)
    write_nbest(spec, make_lists(SPECS[name][1]))
    with pytest.raises(RescoreError, match="lists: exists already; remove it first"):
        write_nbest(spec, make_lists(SPECS[name][1]))
    assert len(list(read_nbest(spec))) == 3


# ---- what no writer takes


@every_format
@pytest.mark.parametrize(
    ("lists", "error", "problem"),
    [
        ([], FormatError, "no utterance to write"),
        ([("a", []), ("b", [0.0])], FormatError, "utterance 'a': no hypotheses"),
        ([("a", [0.0] * 3), ("a", [0.0] * 3)], FormatError, "utterance 'a': this utterance id occurs a second time"),
        ([("a b", [0.0])], FormatError, "utterance id 'a b', expected a string without white space"),
        ([("", [0.0])], FormatError, "utterance id '', expected"),
        ([("a", [0.0, float("nan")])], ScoreError, "utterance 'a': hypothesis 2 has score '.*' nan, expected a finite"),
        ([("a", [float("-inf")])], ScoreError, "utterance 'a': hypothesis 1 has score '.*' -inf, expected a finite"),
    ],
)
def test_lists_that_no_writer_takes(
    tmp_path: Path, name: str, lists: list[tuple[str, list[float]]], error: type[RescoreError], problem: str
) -> None:
    names = SPECS[name][1]
    spec = spec_in(tmp_path, name)
    given_lists = (
        NbestList(utt, [Hypothesis(("A",), dict.fromkeys(names, value)) for value in values]) for utt, values in lists
    )
    with pytest.raises(error, match=problem):
        write_nbest(spec, given_lists)
    assert list(tmp_path.iterdir()) == []


@every_format
@pytest.mark.parametrize("word", ["", "A B", "A\n", "\r", "A\x0c"])
def test_words_that_would_not_read_back_the_same(tmp_path: Path, name: str, word: str) -> None:
    hyps = [Hypothesis(("A", word), dict.fromkeys(SPECS[name][1], 0.0)) for _ in range(3)]
    with pytest.raises(FormatError, match=r"utterance 'a': word .* is empty or has white space"):
        write_nbest(spec_in(tmp_path, name), [NbestList("a", hyps)])


@every_format
def test_text_that_utf8_cannot_write(tmp_path: Path, name: str) -> None:
    hyps = [Hypothesis(("\ud800",), dict.fromkeys(SPECS[name][1], 0.0)) for _ in range(3)]
    with pytest.raises(FormatError, match="text that UTF-8 cannot write"):
        write_nbest(spec_in(tmp_path, name), [NbestList("a", hyps)])


def test_lists_without_scores(tmp_path: Path) -> None:
    lists = list(make_lists(()))
    write_nbest(f"{tmp_path}/a.jsonl", lists)
    assert list(read_nbest(f"{tmp_path}/a.jsonl")) == lists
    for name in ("mlm", "kaldi", "espnet", "nemo", "srilm", "srilm 3"):
        with pytest.raises(ScoreError, match="utt000001"):
            write_nbest(spec_in(tmp_path, name), lists)


def test_uneven_score_names(tmp_path: Path) -> None:
    spec = f"{tmp_path}/a.jsonl"
    first = Hypothesis((), {"am": 0.0, "lm": 0.0})
    with pytest.raises(ScoreError, match="'a': hypothesis 2 has no score 'lm'; hypothesis 1 has am, lm"):
        write_nbest(spec, [NbestList("a", [first, Hypothesis((), {"am": 0.0})])])
    with pytest.raises(ScoreError, match="hypothesis 2 has a score 'x' that hypothesis 1 does not have; it has am, lm"):
        write_nbest(spec, [NbestList("a", [first, Hypothesis((), {"am": 0.0, "lm": 0.0, "x": 0.0})])])


@pytest.mark.parametrize("name", ["mlm", "espnet", "nemo"])
def test_formats_of_one_score(tmp_path: Path, name: str) -> None:
    spec = spec_in(tmp_path, name)
    lists = list(make_lists(("am", "lm")))
    with pytest.raises(ScoreError, match="'utt000001': the format holds one score a hypothesis; here are: am, lm; say"):
        write_nbest(spec, lists)
    chosen = f"{spec}{'&' if '?' in spec else '?'}score="
    with pytest.raises(ScoreError, match="no score 'x'; there are: am, lm"):
        write_nbest(chosen + "x", lists)
    write_nbest(chosen + "lm", lists)
    assert [hyp.scores for nbest in read_nbest(chosen + "lm") for hyp in nbest.hyps] == [
        {"lm": hyp.scores["lm"]} for nbest in lists for hyp in nbest.hyps
    ]
    assert {tuple(hyp.scores) for nbest in read_nbest(spec) for hyp in nbest.hyps} == {("score",)}


@pytest.mark.parametrize("name", ["kaldi", "espnet", "nemo", "srilm"])
def test_references_that_are_left_out_are_counted(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(console.QUIET, raising=False)
    lists = list(make_lists(SPECS[name][1]))
    lists[0].ref = lists[2].ref = ("A",)
    write_nbest(spec_in(tmp_path, name), lists)
    assert "no place for references; those of 2 utterances are left out" in capsys.readouterr().err


def test_numpy_scores_are_written_as_numbers(tmp_path: Path) -> None:
    import numpy as np

    for name, (_, names) in SPECS.items():
        spec = spec_in(tmp_path / name, name)
        values = [dict.fromkeys(names, np.float64(rank)) for rank in range(3)]
        write_nbest(spec, [NbestList("utt000001", [Hypothesis((), scores) for scores in values])])
        assert [hyp.scores for hyp in next(read_nbest(spec)).hyps] == values
