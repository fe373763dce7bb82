"""Kaldi's lattice archives: round trips, corrupt archives, and Kaldi's own results on real lattices."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lm_zoo.ngram.openfst import Details
from rescore.errors import FormatError, RescoreError, UsageError
from rescore.files import open_binary
from rescore.formats import is_lattice, kaldi_archive, parse_spec, read_lattices, write_lattices
from rescore.formats.kaldi_archive import read_all, read_records
from rescore.formats.kaldi_fst import COMPACT, PLAIN, RawLattice, format_binary
from rescore.formats.kaldi_lattice import to_lattice
from rescore.formats.kaldi_text import format_text, parse_text
from rescore.formats.symbols import SymbolTable, read_symbols
from rescore.lattices.paths import best_path
from rescore.skipping import Skip
from rescore.types import Alignments

# Two sentences, as `lattice-copy ark:- ark,t:-` prints them; state ids are not in topological order.
TEXT = """utt-a 
0\t2\t1\t0.5,10,7_7_8
0\t2\t2\t1.5,8,7_9_9
2\t1\t3\t0.25,2.5,5
1\t0.125,0.5,6_6

utt-b 
0\t1\t2\t1,2,
1

"""  # noqa: W291
WORDS = "<eps> 0\nA 1\nB 2\nC 3\n"


def same(one: RawLattice, two: RawLattice) -> bool:
    mine, other = vars(one), vars(two)
    for name in ("finals", "counts", "ilabels", "olabels", "costs", "next_states"):
        if not np.array_equal(mine[name], other[name]) or mine[name].dtype != other[name].dtype:
            return False
    for name in ("strings", "final_strings"):
        if not np.array_equal(mine[name].ids, other[name].ids):
            return False
        if not np.array_equal(mine[name].offsets, other[name].offsets):
            return False
    return (one.utt_id, one.arc_type, one.start) == (two.utt_id, two.arc_type, two.start)


def strings(draw: st.DrawFn, count: int, arc_type: str) -> Alignments:
    lengths = draw(hnp.arrays(np.int64, count, elements=st.integers(0, 3))) if arc_type == COMPACT else np.zeros(count)
    total = int(lengths.sum())
    return Alignments.of_lengths(draw(hnp.arrays(np.int32, total, elements=st.integers(0, 2**31 - 1))), lengths)


@st.composite
def raw_lattices(draw: st.DrawFn) -> RawLattice:
    """Any records, with cycles, dead states, any start; the last state is final, so that text has it."""
    arc_type = draw(st.sampled_from([COMPACT, PLAIN]))
    states = draw(st.integers(1, 5))
    counts = draw(hnp.arrays(np.int64, states, elements=st.integers(0, 3)))
    arcs = int(counts.sum())
    cost = st.floats(-(2.0**20), 2.0**60, width=32)
    finals = draw(hnp.arrays(np.float32, (states, 2), elements=cost))
    finals[draw(hnp.arrays(bool, states))] = np.inf
    finals[-1] = 0.0
    ilabels, olabels = draw(hnp.arrays(np.int32, (2, arcs), elements=st.integers(0, 2**31 - 1)))
    final_strings = strings(draw, states, arc_type)
    final_strings = final_strings.take(np.where(np.isfinite(finals[:, 0]), np.arange(states), -1))
    return RawLattice(
        draw(st.text("ab-ü_1", min_size=1)),
        arc_type,
        draw(st.integers(0, states - 1)),
        finals,
        final_strings,
        counts,
        olabels if arc_type == COMPACT else ilabels,
        olabels,
        draw(hnp.arrays(np.float32, (arcs, 2), elements=cost)),
        strings(draw, arcs, arc_type),
        draw(hnp.arrays(np.int32, arcs, elements=st.integers(0, states - 1))),
        Details(properties=draw(st.integers(0, 2**64 - 1))),
    )


def archive(raws: list[RawLattice], text: bool = False) -> bytes:
    if text:
        return b"".join(f"{raw.utt_id} \n{format_text(raw)}\n".encode() for raw in raws)
    return b"".join(raw.utt_id.encode() + b" " + format_binary(raw) for raw in raws)


@pytest.mark.parametrize("text", [False, True])
@settings(max_examples=40, deadline=None)
@given(raws=st.lists(raw_lattices(), min_size=1, max_size=3))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, text: bool, raws: list[RawLattice]) -> None:
    path = tmp_path_factory.getbasetemp() / "lat.1.gz"
    data = archive(raws, text)
    path.write_bytes(gzip.compress(data, 1))
    again = list(read_records(path))
    assert len(again) == len(raws)
    for raw, found in zip(raws, again, strict=True):
        if text and raw.counts[raw.start] == 0 and np.isinf(raw.finals[raw.start]).any():
            continue  # a start state without a line is none
        assert same(raw, found)
    if not text:
        assert archive(again) == data


@settings(max_examples=40, deadline=None)
@given(raw=raw_lattices(), cut=st.floats(0, 1, exclude_max=True))
def test_a_truncated_archive_names_the_utterance(
    tmp_path_factory: pytest.TempPathFactory, raw: RawLattice, cut: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "lat.ark"
    raw.utt_id = "utt"
    good = archive([RawLattice(**{**vars(raw), "utt_id": "good"})])
    bad = archive([raw])
    path.write_bytes(good + bad[: max(1, int(cut * len(bad)))])
    skip = Skip()
    found = list(read_records(path, skip))
    assert [raw.utt_id for raw in found] == ["good"] and skip.count == 1
    with pytest.raises(FormatError, match=rf"utterance '.*' at byte {len(good)}: "):
        list(read_records(path))


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    raws=st.lists(raw_lattices(), min_size=3, max_size=3),
    at=st.floats(0, 1, exclude_max=True),
    value=st.integers(0, 255),
    text=st.booleans(),
)
def test_any_byte_may_be_wrong(
    tmp_path_factory: pytest.TempPathFactory, raws: list[RawLattice], at: float, value: int, text: bool
) -> None:
    """Whatever one byte of the middle record is, reading ends in lattices or in FormatErrors."""
    path = tmp_path_factory.getbasetemp() / "lat.ark"
    for raw, name in zip(raws, "abc", strict=True):
        raw.utt_id = name
    parts = [bytearray(archive([raw], text)) for raw in raws]
    parts[1][int(at * len(parts[1]))] = value
    path.write_bytes(b"".join(parts))
    found = [raw.utt_id for raw in read_records(path, Skip())]
    assert found[0] == "a" or text
    try:
        list(read_records(path))
    except FormatError as error:
        assert str(path) in str(error)


def test_a_corrupt_record_between_good_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raws = [parse_text(name, TEXT.split("\n\n")[0].split("\n", 1)[1]) for name in ("one", "two", "three")]
    parts = [archive([raw]) for raw in raws]
    broken = bytearray(parts[1])
    struct.pack_into("<i", broken, len("two ") + 74 + 8, -3)  # behind the header and the first state's final costs
    path = tmp_path / "lat.1"
    path.write_bytes(parts[0] + broken + parts[2])
    skip = Skip()
    assert [raw.utt_id for raw in read_records(path, skip)] == ["one", "three"]
    assert skip.count == 1
    assert f"utterance 'two' at byte {len(parts[0])}: state 0 has a final string of -3 ids" in capsys.readouterr().err
    with pytest.raises(FormatError, match="utterance 'two' at byte"):
        list(read_records(path))
    path.write_bytes(parts[0] + parts[1][:-30] + parts[2] + b"junk \0\0\0\0" + parts[1])
    skip = Skip()
    assert [raw.utt_id for raw in read_records(path, skip)] == ["one", "three", "two"]
    assert skip.count == 2


def test_a_corrupt_text_record(tmp_path: Path) -> None:
    path = tmp_path / "lat.txt"
    good = TEXT.split("\n\n")[0]
    for bad, message in (
        ("0 1 x 1,2,\n1", "found 'x', expected a number"),
        ("0 1 1 1,2,3\n1 0", "weight '0', expected graph,acoustic"),
        ("0 1 1 1,2,3\n0 1 1 1;2,3\n1", "weight '1;2,3', expected graph,acoustic"),
        ("0 1 1 1,2,3_x\n1", "string of transition ids"),
        ("0 1 1 2 3 1,2\n1", "6 fields"),
        ("0 1 1 nan,2,3\n1", "NaN"),
        ("0 99999999 1 1,2,3\n1", "state 99999999 in a lattice of 2 lines"),
    ):
        path.write_text(f"{good}\n\nbad \n{bad}\n\n{TEXT.split(chr(10) * 2)[1]}\n\n")
        with pytest.raises(FormatError, match="utterance 'bad' at byte") as error:
            list(read_records(path))
        assert message in str(error.value)
        assert [raw.utt_id for raw in read_records(path, Skip())] == ["utt-a", "utt-b"]


def test_damaged_gzip(tmp_path: Path) -> None:
    raw = parse_text("one", TEXT.split("\n\n")[0].split("\n", 1)[1])
    path = tmp_path / "lat.1.gz"
    path.write_bytes(gzip.compress(archive([raw] * 50))[:-30])
    with pytest.raises(FormatError, match="truncated or damaged"):
        list(read_records(path))
    path.write_bytes(b"no gzip")
    with pytest.raises(FormatError, match="truncated or damaged"):
        list(read_records(path))


def write(folder: Path, text: str = TEXT) -> str:
    (folder / "lat.1").write_text(text)
    (folder / "words.txt").write_text(WORDS)
    return f"kaldi:{folder / 'lat.1'}?words={folder / 'words.txt'}"


def test_lattices(tmp_path: Path) -> None:
    first, second = read_lattices(write(tmp_path))
    assert first.utt_id == "utt-a" and first.num_states == 4
    assert [first.symbols[label] for label in first.labels] == ["A", "B", "C", ""]
    assert first.scores["graph"].tolist() == [-0.5, -1.5, -0.25, -0.125]
    assert first.scores["am"].tolist() == [-10.0, -8.0, -2.5, -0.5]
    assert first.alignments is not None
    assert [first.alignments.string(arc) for arc in range(4)] == [(7, 7, 8), (7, 9, 9), (5,), (6, 6)]
    assert first.times is not None and first.times.tolist() == [0.0, 0.03, 0.04, 0.06]
    assert best_path(first, {"graph": 1.0, "am": 1.0}).words == ("B", "C")
    assert best_path(first, {"graph": 1.0, "am": 0.1}).words == ("A", "C")
    assert second.num_states == 3 and best_path(second, {"graph": 1.0}).words == ("B",)


def test_words_are_numbers_without_a_table(tmp_path: Path) -> None:
    write(tmp_path)
    lattice = next(read_lattices(f"kaldi:{tmp_path / 'lat.1'}?words=ids&frame_shift=0.03"))
    assert lattice.symbols == ["", "1", "2", "3"]
    assert lattice.times is not None and lattice.times[-1] == pytest.approx(0.18)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "an empty lattice: no start state"),
        ("0 1 1 1,2,\n1 0 1 1,2,\n1\n", "cycle"),
        ("0 1 1 1,2,\n", "no path from start"),
        ("0 1 17 1,2,\n1\n", r"word id 17 is not in .*words.txt; give the words.txt that belongs"),
        ("0 1 1 Infinity,2,\n1\n", "no path from start"),
        ("0 1 1 -Infinity,2,\n1\n", "a cost of an arc is NaN or minus infinity"),
        ("0 1 1 1,2,\n1 0,-inf,\n", "a cost of a final state is NaN or minus infinity"),
    ],
)
def test_lattices_that_make_no_sense(tmp_path: Path, lines: str, message: str) -> None:
    spec = write(tmp_path, f"bad \n{lines}\n{TEXT}")
    with pytest.raises(FormatError, match=f"lat.1: utterance 'bad'( at byte 0)?: .*{message}"):
        list(read_lattices(spec))
    skip = Skip()
    assert [lattice.utt_id for lattice in read_lattices(spec, skip)] == ["utt-a", "utt-b"]
    assert skip.count == 1


def test_odd_lattices(tmp_path: Path) -> None:
    """Dead and unreachable states, a sentence of no word, one of no arc, epsilons only."""
    spec = write(tmp_path, "a \n0 1 1 1,2,\n0 2 1 1,2,\n3 1 1 1,2,\n1\n\nb \n0\n\nc \n0 1,2,4\n\nd \n0 1 0 1,2,\n1\n\n")
    a, b, c, d = read_lattices(spec)
    assert a.num_states == 3 and a.counts == {"removed_states": 2, "removed_arcs": 2}
    for lattice, graph in ((b, 0.0), (c, -1.0), (d, -1.0)):
        best = best_path(lattice, {"am": 1.0})
        assert best.words == () and best.scores["graph"] == graph


def test_plain_lattices(tmp_path: Path) -> None:
    """Transition ids and words on separate arcs; two lengths into one state: no times."""
    spec = write(tmp_path, "u \n0 1 5 1 0.5,1\n1 2 6 0 0,2\n0 2 7 2 1,1\n2 0.25,0.5\n\n")
    (lattice,) = read_lattices(spec)
    assert lattice.times is None and lattice.alignments is not None
    assert [lattice.alignments.string(arc) for arc in range(4)] == [(5,), (7,), (6,), ()]
    assert best_path(lattice, {"graph": 1.0}).words == ("A",)


def test_folders_of_jobs(tmp_path: Path) -> None:
    first, second = TEXT.split("\n\n")[:2]
    for job, text in ((2, first), (10, second), *((job, f"x{job} \n0\n") for job in (1, 3, 4, 5, 6, 7, 8, 9))):
        (tmp_path / f"lat.{job}.gz").write_bytes(gzip.compress(f"{text}\n\n".replace("\n\n\n", "\n\n").encode()))
    ids = [raw.utt_id for _, raw in read_all(tmp_path)]
    assert ids == ["x1", "utt-a", *(f"x{job}" for job in range(3, 10)), "utt-b"]
    assert is_lattice(f"kaldi:{tmp_path}") and parse_spec(str(tmp_path))[0] == "kaldi-lat"
    (tmp_path / "num_jobs").write_text("11\n")
    with pytest.raises(FormatError, match=r"lat.11.gz is missing, expected lat.1.gz to lat.11.gz"):
        list(read_all(tmp_path))
    (tmp_path / "num_jobs").unlink()
    (tmp_path / "lat.3.gz").write_bytes(gzip.compress((first + "\n\n").encode()))
    with pytest.raises(FormatError, match=r"lat.3.gz: utterance 'utt-a': this utterance id occurs a second time"):
        list(read_all(tmp_path))


def test_no_lattices(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no lattices in this folder"):
        list(read_all(tmp_path))
    with pytest.raises(FormatError, match="no such file"):
        list(read_all(tmp_path / "lat.1.gz"))
    (tmp_path / "lat.1").write_text("")
    with pytest.raises(FormatError, match="no lattice in it"):
        list(read_all(tmp_path))
    (tmp_path / "lat.1").write_text("utt a text file\n")
    with pytest.raises(FormatError, match="expected a binary or a text lattice"):
        list(read_all(tmp_path))
    with pytest.raises(UsageError, match="frame_shift=x"):
        list(read_lattices(f"kaldi:{tmp_path / 'lat.1'}?frame_shift=x"))


def test_more_arcs_than_there_can_be(tmp_path: Path) -> None:
    """The upper half of the number of arcs, an int64."""
    data = archive([parse_text("one", "0 1 3 0.5,1,7\n1\n")])
    (tmp_path / "lat.1").write_bytes(data.replace(struct.pack("<ii", 1, 0), struct.pack("<ii", 1, 1), 1))
    with pytest.raises(FormatError, match="utterance 'one' at byte 0: state 0 has 4294967297 arcs"):
        list(read_records(tmp_path / "lat.1"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.replace(b"vector", b"consts"), "FST type 'consts'"),
        (lambda data: data.replace(b"lattice44", b"lattice88"), "arc type 'compactlattice88'"),
        (lambda data: data.replace(struct.pack("<ii", 2, 0), struct.pack("<ii", 2, 1)), "symbol table"),
    ],
)
def test_other_headers(tmp_path: Path, change: Callable[[bytes], bytes], message: str) -> None:
    raw = parse_text("one", TEXT.split("\n\n")[0].split("\n", 1)[1])
    (tmp_path / "lat.1").write_bytes(change(archive([raw])))
    with pytest.raises(FormatError, match=message):
        list(read_records(tmp_path / "lat.1"))


def test_text_with_line_ends_of_windows(tmp_path: Path) -> None:
    """As in Kaldi, a line of blanks ends a lattice too; a bad one is passed over to there."""
    (tmp_path / "lat.txt").write_text(TEXT)
    expected = list(read_records(tmp_path / "lat.txt"))
    for text in (TEXT.replace("\n", "\r\n"), TEXT.replace("\n\n", "\n \t\n")):
        (tmp_path / "new.txt").write_bytes(text.encode())
        assert all(map(same, read_records(tmp_path / "new.txt"), expected))
        (tmp_path / "new.txt").write_bytes(text.replace("8,7_9_9", "8").encode())
        skip = Skip()
        assert [raw.utt_id for raw in read_records(tmp_path / "new.txt", skip)] == ["utt-b"] and skip.count == 1


def test_an_index_is_not_written(tmp_path: Path) -> None:
    lattices = read_lattices(write(tmp_path))
    with pytest.raises(UsageError, match=r"out\.scp: an index is read, not written; name .*out\.ark"):
        write_lattices(f"kaldi-lat:{tmp_path / 'out.scp'}", lattices)
    assert not (tmp_path / "out.scp").exists()


def test_little_is_read_for_a_line_of_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lat.ark").write_text(TEXT * 20_000)
    asked = list[int]()

    @contextmanager
    def counted(path: Path, offset: int) -> Iterator[Callable[[int], bytes]]:
        with open_binary(path, offset) as read:

            def counting(size: int) -> bytes:
                asked.append(size)
                return read(size)

            yield counting

    monkeypatch.setattr(kaldi_archive, "open_binary", counted)
    line = f"utt-b {tmp_path / 'lat.ark'}:{TEXT.index('utt-b') + len('utt-b ')}"
    _, raw = kaldi_archive.read_line(tmp_path / "lat.scp", 1, line)
    assert raw.utt_id == "utt-b" and sum(asked) <= 1 << 16


def test_what_is_read_ahead_is_not_copied_for_each_key(tmp_path: Path) -> None:
    archive = kaldi_archive._Archive(tmp_path, lambda size: b"", b"\n \r\n" + b"u" * 10_000_000)
    tracemalloc.start()
    assert archive.find_key() and archive.at == 4
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_symbol_tables(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text(WORDS)
    assert read_symbols(path).words == {0: "<eps>", 1: "A", 2: "B", 3: "C"}
    for text, message in (
        ("A 1\nB\n", r"words.txt:2: found 'B', expected 'WORD ID'"),
        ("A 1\nB x\n", r"words.txt:2: found 'B x'"),
        ("A 1\nB 1\n", r"words.txt:2: id 1 occurs a second time"),
        ("A 1\nA 2\n", r"words.txt:2: word 'A' occurs a second time"),
        ("", "empty file"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=message):
            read_symbols(path)


def test_indonesian_archive_is_copied_byte_by_byte(shared_data: Path) -> None:
    path = shared_data / "kaldi_lattices" / "indonesian" / "decode" / "lat.1.gz"
    assert archive(list(read_records(path))) == gzip.decompress(path.read_bytes())


def test_text_of_the_indonesian_archive(shared_data: Path) -> None:
    path = shared_data / "kaldi_lattices" / "indonesian" / "decode" / "lat.1.gz"
    for raw in read_records(path):
        assert same(raw, parse_text(raw.utt_id, format_text(raw)))


def test_cycles_are_named_by_utterance() -> None:
    raw = parse_text("u", "0 1 1 1,2,\n1 1 1 1,2,\n1\n")
    with pytest.raises(RescoreError, match="cycle"):
        to_lattice(raw, SymbolTable())
