"""Kaldi's folders, archives, indices and word tables as other systems have them, at the command line."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from rescore.files import read_kaldi_text
from rescore.formats import read_lattices, write_lattices
from rescore.formats.kaldi_archive import read_records
from rescore.formats.kaldi_fst import format_binary
from rescore.formats.kaldi_text import format_text, parse_text
from rescore.formats.symbols import read_symbols
from tests.rescore.lattices.test_bad_input import Rescore

# Start state 2, states in no order; of the words (id 4, cost 1) and (id 5, cost 3) the first is the best.
LINES = "2 0 4 1,10,7_7\n2 3 5 3,10,8\n3 0 0 0,0,8\n1 0,0,\n0 1 {word} 1,1,9\n"
WORDS = "<eps> 0\n<s> 1\n</s> 2\n#0 3\n!SIL 4\nça 5\n你好 6\n<UNK> 7\n"


def job_text(job: int) -> str:
    return f"spk-{job:02d}-ü \n{LINES.format(word=5 + job % 2)}\n"


def expected(jobs: int) -> str:
    return "".join(f"spk-{job:02d}-ü !SIL {'ça' if job % 2 == 0 else '你好'}\n" for job in range(1, jobs + 1))


def binary(text: str) -> bytes:
    """The text record as lattice-copy writes it in binary."""
    key, lines = text.split(" \n", 1)
    return key.encode() + b" " + format_binary(parse_text(key, lines.removesuffix("\n")))


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, Path]:
    (tmp_path / "words.txt").write_bytes(WORDS.replace("\n", "\r\n").encode())
    return "--words", tmp_path / "words.txt"


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("text", [True, False])
def test_folders_of_ten_jobs(
    rescore: Rescore,
    tmp_path: Path,
    words: tuple[str, Path],
    packed: bool,
    text: bool,
) -> None:
    for job in range(1, 11):
        data = job_text(job).encode() if text else binary(job_text(job))
        file = tmp_path / "decode" / f"lat.{job}{'.gz' if packed else ''}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(gzip.compress(data) if packed else data)
    (tmp_path / "decode" / "num_jobs").write_text("10\n")
    sources = [tmp_path / "decode", f"{tmp_path}/decode/lat.*{'.gz' if packed else ''}"]
    for source in (f"kaldi:{sources[0]}", sources[0], f"kaldi:{sources[1]}", f"kaldi:{tmp_path}/decode/lat.?*"):
        code, out, err = rescore("best-path", source, *words)
        assert code == 0 and out == expected(10), err
    code, out, _ = rescore("best-path", f"kaldi:{tmp_path}/decode/lat.[12]*", *words)
    assert [int(line[4:6]) for line in out.splitlines()] == [1, 2, 10]
    code, out, err = rescore("best-path", f"kaldi:{tmp_path}/decode/lab.*", *words)
    assert code == 2 and "lab.*: no file has a name of this pattern" in err
    (tmp_path / "decode" / "lat.3.gz").write_bytes(gzip.compress(job_text(3).encode()))
    (tmp_path / "decode" / "lat.3").write_bytes(job_text(3).encode())
    code, _, err = rescore("best-path", f"kaldi:{sources[0]}", *words)
    assert code == 2 and "two of one job: lat.3 and lat.3.gz; move one of them away" in err
    (tmp_path / "decode" / "lat.3.gz").unlink()
    (tmp_path / "decode" / "lat.3").unlink()
    code, _, err = rescore("best-path", f"kaldi:{sources[0]}", *words)
    assert code == 2 and "lat.3.gz is missing, expected lat.1.gz to lat.10.gz" in err


def write_index(folder: Path, text: bool) -> Path:
    """`lat.ark` and `lat.scp` as lattice-copy ark,scp: (or ark,t,scp:) writes them; offsets are behind `key `."""
    data, lines = b"", []
    for job in range(1, 5):
        record = job_text(job).encode() if text else binary(job_text(job))
        key = record.split(b" ")[0]
        lines.append(f"{key.decode()} {folder}/lat.ark:{len(data) + len(key) + 1}\n")
        data += record
    (folder / "lat.ark").write_bytes(data)
    (folder / "lat.scp").write_text("".join(lines))
    return folder / "lat.scp"


@pytest.mark.parametrize("text", [True, False])
def test_indices(
    rescore: Rescore,
    tmp_path: Path,
    words: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    text: bool,
) -> None:
    index = write_index(tmp_path, text)
    for source in (index, f"kaldi:{index}"):
        assert rescore("best-path", source, *words)[:2] == (0, expected(4))
    lines = index.read_text().splitlines(keepends=True)
    index.write_text("".join(lines[::-1]).replace(f"{tmp_path}/", ""))  # another order; names beside the index
    assert rescore("best-path", index, *words)[1].splitlines() == expected(4).splitlines()[::-1]
    monkeypatch.chdir(tmp_path)
    assert rescore("best-path", "lat.scp", *words)[0] == 0
    assert rescore("convert", "lat.scp", "kaldi:copy.ark")[0] == 0
    assert [raw.utt_id for raw in read_records("copy.ark")] == [line.split()[0] for line in lines[::-1]]
    for line, message in (
        ("u1", "found 'u1', expected 'utt-id FILE:OFFSET'"),
        (
            "u1 gunzip -c lat.1.gz |",
            "'u1' is the output of a command ('gunzip -c lat.1.gz |'), which is never run for lattices",
        ),
        ("u1 nowhere.ark:5", "lat.scp:2: found 'u1 nowhere.ark:5', whose file cannot be read ([Errno 2] No such file"),
        ("u1 lat.ark:30", "lat.ark: utterance 'u1' at byte 29: "),
        ("u1 lat.ark:99999", "lat.ark: utterance 'u1' at byte 99998: the archive ends within this record"),
        (lines[0].split()[0] + " lat.ark:10", "this utterance id occurs a second time"),
    ):
        index.write_text(lines[0] + line + "\n" + lines[1])
        code, out, err = rescore("best-path", index, *words)
        assert code == 2 and out == "" and message in err.splitlines()[-1], err
        if "second time" not in message:
            code, out, err = rescore("best-path", index, *words, "--on-error", "skip")
            assert code == 3 and out == expected(2) and "1 left out because of errors" in err


def test_an_index_of_packed_and_of_single_files(rescore: Rescore, tmp_path: Path, words: tuple[str, Path]) -> None:
    """Files without a key of their own; an offset into the unpacked bytes."""
    raw = parse_text("u", LINES.format(word=5))
    (tmp_path / "one.lat").write_bytes(format_binary(raw))
    (tmp_path / "two.lat").write_text("\n" + format_text(raw) + "\n")
    (tmp_path / "lat.gz").write_bytes(gzip.compress(binary(job_text(1)) + binary(job_text(2))))
    at = len(binary(job_text(1))) + len("spk-02-ü ".encode())
    (tmp_path / "lat.scp").write_text(f"one one.lat\ntwo {tmp_path}/two.lat\nspk-02-ü lat.gz:{at}\n")
    code, out, err = rescore("best-path", tmp_path / "lat.scp", *words)
    assert code == 0 and out == "one !SIL ça\ntwo !SIL ça\nspk-02-ü !SIL ça\n", err


def test_word_tables(rescore: Rescore, tmp_path: Path, words: tuple[str, Path]) -> None:
    """Windows' line ends, disambiguation symbols, words of any script, blanks that are none in Kaldi."""
    assert read_symbols(words[1]).words[5] == "ça" and read_symbols(words[1]).ids["#0"] == 3
    (tmp_path / "lat.1").write_text(job_text(1))
    (tmp_path / "words.txt").write_text(WORDS.replace("你好", "你\u3000好\u00a0x"))
    (tmp_path / "text").write_text("spk-01-ü !SIL 你\u3000好\u00a0x\n")
    code, out, _ = rescore("best-path", f"kaldi:{tmp_path}", *words, "--ref", tmp_path / "text")
    assert code == 0 and out.startswith("%WER 0.00 [ 0 / 2, 0 ins, 0 del, 0 sub ]\n")
    assert read_kaldi_text(tmp_path / "text")["spk-01-ü"] == ("!SIL", "你\u3000好\u00a0x")
    (lattice,) = read_lattices(f"kaldi:{tmp_path}?words={words[1]}")
    write_lattices(f"kaldi:{tmp_path / 'new.ark'}?words={words[1]}", [lattice])
    assert rescore("best-path", f"kaldi:{tmp_path / 'new.ark'}", *words)[1] == "spk-01-ü !SIL 你\u3000好\u00a0x\n"
    (tmp_path / "words.txt").write_bytes(WORDS.encode("utf-16"))
    code, _, err = rescore("best-path", f"kaldi:{tmp_path}", *words)
    assert code == 2 and "words.txt: not UTF-8 text after line 0" in err
    code, _, err = rescore("best-path", f"kaldi:{tmp_path}", "--words", tmp_path / "nowhere.txt")
    assert code == 2 and "nowhere.txt: no such file" in err


def test_references_for_other_utterances(rescore: Rescore, tmp_path: Path, words: tuple[str, Path]) -> None:
    """Scored is what both have; what one of them lacks is counted and named."""
    (tmp_path / "lat.1").write_text("".join(map(job_text, range(1, 9))))
    (tmp_path / "text").write_text("spk-01-ü !SIL 你好\nspk-02-ü ça\nother-1 ça\nother-2\n")
    source = (f"kaldi:{tmp_path}", *words, "--ref", tmp_path / "text")
    for command in ("best-path", "oracle", "mbr"):
        code, out, err = rescore(command, *source)
        scored = "%WER 33.33 [ 1 / 3, 1 ins, 0 del, 0 sub ] [PARTIAL]\n%SER 50.00 [ 1 / 2 ]\n"
        assert code == 0 and out.startswith(scored), command
        assert "2 references without a lattice are not scored" in err and ": other-1, other-2\n" in err
        names = "spk-03-ü, spk-04-ü, spk-05-ü, spk-06-ü, spk-07-ü and 1 more"
        assert f"6 lattices without a reference are not scored: {names}\n" in err
    assert "Scored 2 sentences, 2 not present in hyp.\n" in rescore("best-path", *source)[1]
    code, out, _ = rescore("info", *source)
    assert code == 0 and "oracle WER       33.33 [ 1 / 3" in out
    assert "arcs a ref. word 3.33\n" in out and re.search("no reference +6 lattices: spk-03-ü, ", out)
    (tmp_path / "text").write_text("other-1 ça\n")
    for command in ("info", "best-path", "oracle", "mbr"):
        code, _, err = rescore(command, *source)
        assert code == 2 and "references and lattices have no utterance in common" in err


def test_text_archives_with_words(rescore: Rescore, tmp_path: Path) -> None:
    """`lattice-copy ark:- ark,t:- | utils/int2sym.pl -f 3 words.txt` is read as OpenFst's text."""
    (tmp_path / "lat.txt").write_text(
        "u1 \n0 1 ça 1,10,7_7\n0 1 b 3,10,8\n1 2 <eps> 0,0,\n2 0.5,0,9\n\nu2 \n0 1 b 1,2,\n1\n\n"
    )
    code, _, err = rescore("best-path", f"kaldi:{tmp_path / 'lat.txt'}")
    assert code == 2 and "utterance 'u1' at byte 0: found 'ça', expected a number" in err and "openfst" in err
    code, out, err = rescore("best-path", f"openfst:{tmp_path / 'lat.txt'}")
    assert code == 0 and out == "u1 ça\nu2 b\n", err
    (lattice, _) = read_lattices(f"openfst:{tmp_path / 'lat.txt'}")
    assert lattice.scores["graph"].sum() == -4.5 and lattice.alignments is not None
    assert [lattice.alignments.string(arc) for arc in range(4)] == [(7, 7), (8,), (), (9,)]
