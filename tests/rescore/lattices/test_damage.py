"""Text of lattices that is cut off or has numbers beyond all bounds: one clear error, and no memory by a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from rescore.errors import FormatError
from rescore.formats import read_lattices, read_nbest
from rescore.formats.symbols import read_symbols
from rescore.lattices.paths import best_path
from rescore.skipping import Skip

LONG = "9" * 5000  # more digits than int() takes
OPENFST = "one\n0 1 A 0.5\n1 2 B 0.25\n2 0.5\n\ntwo\n0 1 C 0.75\n1 2 D 0.5\n2\n\n"
KALDI = "one \n0 1 1 0.5,2,7\n1 2 2 0.25,1,8\n2 0,0,\n\ntwo \n0 1 1 0.75,2,7\n1 2 2 0.5,1,8\n2 0,0,\n\n"


@pytest.mark.parametrize(("form", "text"), [("openfst", OPENFST), ("kaldi-lat", KALDI)])
def test_every_cut_is_found(tmp_path: Path, form: str, text: str) -> None:
    """But one between two lattices, which leaves a whole file."""
    path = tmp_path / "lat.txt"
    whole = text.index("two")
    for length in range(1, len(text) - 1):
        path.write_text(text[:length])
        if text[:length].rstrip("\n") + "\n\n" == text[:whole]:
            continue
        with pytest.raises(FormatError):
            list(read_lattices(f"{form}:{path}?words=ids"))
    path.write_text(text[: len(text) - 1])
    skip = Skip()
    found = read_lattices(f"{form}:{path}?words=ids", skip)
    assert [lattice.utt_id for lattice in found] == ["one"] and skip.count == 1


def test_states_of_openfst_may_have_high_numbers(tmp_path: Path) -> None:
    (tmp_path / "lat").write_text("u\n0 999999999 A 0.5\n999999999 500000000 B 0.5\n500000000\n\n")
    (lattice,) = read_lattices(f"openfst:{tmp_path / 'lat'}")
    assert lattice.num_states == 4 and best_path(lattice, {"score": 1.0}).words == ("A", "B")
    (tmp_path / "lat").write_text("u\n0 999999999 A\n999999999 5 B\n5 999999999 C\n5\n\n")
    with pytest.raises(FormatError, match=r"utterance 'u': the lattice has a cycle \(at or before node 5\)"):
        list(read_lattices(f"openfst:{tmp_path / 'lat'}"))
    (tmp_path / "lat").write_text("u\n900000000 999999999 A\n5\n\n")
    with pytest.raises(FormatError, match=r"no path from start node 900000000 to end node 1000000000"):
        list(read_lattices(f"openfst:{tmp_path / 'lat'}"))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("kaldi-lat", f"u \n0 1 {1 << 63} 1,2,7\n1 0,0,\n\n"),
        ("kaldi-lat", f"u \n0 1 {LONG} 1,2,7\n1 0,0,\n\n"),
        ("kaldi-lat", f"u \n0 {LONG} 1 1,2,7\n{LONG} 0,0,\n\n"),
        ("kaldi-lat", f"u \n0 1 1 1,2,{1 << 63}\n1 0,0,\n\n"),
        ("kaldi-lat", f"u \n0 1 1 1,2,{LONG}\n1 0,0,\n\n"),
        ("kaldi-lat", "u \n0 1 ٣ 1,2,7\n1 0,0,\n\n"),
        ("openfst", f"u\n0 {LONG} A 1\n1\n\n"),
        ("openfst", f"u\n0 1 A A 1,2,{LONG}\n1\n\n"),
        ("openfst", "u\n0 ² A 1\n1\n\n"),
    ],
)
def test_numbers_beyond_all_bounds(tmp_path: Path, form: str, text: str) -> None:
    (tmp_path / "lat.txt").write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=r"lat.txt.*utterance 'u'"):
        list(read_lattices(f"{form}:{tmp_path / 'lat.txt'}"))


def test_an_id_without_end(tmp_path: Path) -> None:
    (tmp_path / "lat.txt").write_text(KALDI + "u" * 5000)
    with pytest.raises(FormatError, match=r"lat.txt: .*no utterance id here"):
        list(read_lattices(f"kaldi-lat:{tmp_path / 'lat.txt'}?words=ids"))
    skip = Skip()
    assert len(list(read_lattices(f"kaldi-lat:{tmp_path / 'lat.txt'}?words=ids", skip))) == 2 and skip.count == 1


def test_numbers_of_words_txt(tmp_path: Path) -> None:
    for number in (LONG, "²", str(1 << 31), "-1"):
        (tmp_path / "words.txt").write_text(f"<eps> 0\nA {number}\n", encoding="utf-8")
        with pytest.raises(FormatError, match=r"words.txt:2: found .*, expected 'WORD ID' with an id from 0"):
            read_symbols(tmp_path / "words.txt")


def test_numbers_of_an_index_and_of_jobs(tmp_path: Path) -> None:
    (tmp_path / "lat.scp").write_text(f"u lat.ark:{LONG}\n")
    with pytest.raises(FormatError, match=r"lat.scp:1: found 'u lat.ark:9+', whose file cannot be read"):
        list(read_lattices(f"kaldi-lat:{tmp_path / 'lat.scp'}"))
    (tmp_path / "lat.1").write_text(KALDI)
    for jobs, missing in (("2000000000", "lat.2.gz is missing"), (LONG, None)):
        (tmp_path / "num_jobs").write_text(jobs)
        if missing:
            with pytest.raises(FormatError, match=missing):
                list(read_lattices(f"kaldi-lat:{tmp_path}?words=ids"))
        else:
            assert len(list(read_lattices(f"kaldi-lat:{tmp_path}?words=ids"))) == 2


def test_keys_of_nbest_lists(tmp_path: Path) -> None:
    (tmp_path / "words_text").write_text(f"u-{LONG} A\n")
    (tmp_path / "acwt").write_text(f"u-{LONG} 1\n")
    with pytest.raises(FormatError, match=r"key 'u-9+.*', expected 'utt-k'"):
        list(read_nbest(f"kaldi:{tmp_path}"))
