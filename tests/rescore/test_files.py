"""Reading, atomic writing, Kaldi text."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.errors import TextError
from lm_zoo.text.sentences import read_sentences
from rescore.errors import FormatError, RescoreError
from rescore.files import (
    atomic_folder,
    atomic_path,
    atomic_text,
    is_manifest,
    read_chunks,
    read_kaldi_text,
    read_lines,
    require_folder,
    write_kaldi_text,
)
from rescore.formats import read_lattices
from rescore.workflows.compare import read_hypotheses

TEXT = "one\ntwo é\n\nfour\n"
LINES = [(1, "one"), (2, "two é"), (3, ""), (4, "four")]
SUFFIXES = ["", ".gz", ".xz"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_written_text_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"new/folder/text{suffix}"
    with atomic_text(path) as stream:
        stream.write(TEXT)
    assert list(read_lines(path)) == LINES
    assert "".join(read_chunks(path, size=3)) == TEXT
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_compressed_files_are_what_their_names_say(tmp_path: Path) -> None:
    for suffix, module in ((".gz", gzip), (".xz", lzma)):
        path = tmp_path / f"a{suffix}"
        with atomic_text(path) as stream:
            stream.write(TEXT)
        assert module.decompress(path.read_bytes()).decode() == TEXT


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_same_text_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        with atomic_text(tmp_path / f"{name}{suffix}") as stream:
            stream.write(TEXT * 100)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_last_line_without_newline_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\r\ntwo")
    assert list(read_lines(path)) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_error_leaves_the_old_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_text(path) as stream:
        stream.write("new")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_truncated(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    with atomic_text(path) as stream:
        stream.writelines(f"line {number}\n" for number in range(5000))
    path.write_bytes(path.read_bytes()[:-20])
    for read in (read_lines, read_chunks):
        with pytest.raises(FormatError, match=rf"a\{suffix}: compressed file is truncated or damaged after line \d+"):
            list(read(path))  # type: ignore[operator]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_not_compressed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("plain text")
    with pytest.raises(FormatError, match="truncated or damaged after line 0"):
        list(read_lines(path))


def test_unreadable(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("one\nné\n".encode("latin-1"))
    for name, problem in (
        ("none", "no such file"),
        ("", "is a folder"),
        ("latin/x", "cannot be read"),
        ("latin", "not UTF-8"),
    ):
        with pytest.raises(FormatError, match=problem):
            list(read_lines(tmp_path / name))


@pytest.mark.parametrize(
    ("pack", "program"), [(gzip.compress, "zcat"), (lzma.compress, "xzcat"), (bz2.compress, "bzcat")]
)
def test_packed_data_without_its_name_are_told(tmp_path: Path, pack: Callable[[bytes], bytes], program: str) -> None:
    """As through a pipe: `cat lists.jsonl.gz | rescore ... -`."""
    (tmp_path / "packed").write_bytes(pack(b"utt-1 A B\n" * 9))
    with pytest.raises(FormatError, match=rf"packed: packed by \w+; unpack it \({program}\)"):
        list(read_lines(tmp_path / "packed"))
    with pytest.raises(TextError, match=rf"packed:1: packed by \w+; unpack it \({program}\)"):
        list(read_sentences(tmp_path / "packed"))
    with pytest.raises(FormatError, match=r"packed: utterance '\?' at byte 0: packed by \w+; unpack it"):
        list(read_lattices(f"kaldi:{tmp_path / 'packed'}?words=ids"))


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(RescoreError, match="cannot be written, no folder"), atomic_text(tmp_path / "file/new"):
        pass
    with pytest.raises(RescoreError, match="is a folder, expected the name of a file"), atomic_path(tmp_path):
        pass
    for there in (tmp_path, tmp_path / "file"):
        with pytest.raises(RescoreError, match="exists already"), atomic_folder(there):
            pass
    assert (tmp_path / "file").read_text() == "old"


def test_atomic_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new/folder"):
        with atomic_folder(tmp_path / name) as folder:
            (folder / "a").write_text("text")
            assert not (tmp_path / name / "a").exists()
        assert (tmp_path / name / "a").read_text() == "text"
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "other") as folder:
        (folder / "a").write_text("text")
        raise ZeroDivisionError
    assert {child.name for child in tmp_path.iterdir()} == {"empty", "new"}


def test_atomic_folder_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with atomic_folder("here") as folder:
        (folder / "a").write_text("text")
    with atomic_text("there") as stream:
        stream.write("text")
    assert (tmp_path / "here/a").exists() and (tmp_path / "there").exists()


WORD = st.text("aB'é漢-0_.\\\"", min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(texts=st.dictionaries(WORD, st.lists(WORD, max_size=4).map(tuple), min_size=1))
def test_kaldi_text_round_trip(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, tuple[str, ...]]) -> None:
    path = tmp_path_factory.mktemp("kaldi") / "text"
    write_kaldi_text(path, texts)
    assert list(read_kaldi_text(path).items()) == list(texts.items())


def test_bad_kaldi_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    cases = (
        ("a X\na Y\n", "text:2: utterance 'a' occurs a second time"),
        ("a X\n\n", "text:2: empty line"),
        ("", "empty"),
    )
    for text, problem in cases:
        path.write_text(text)
        with pytest.raises(FormatError, match=problem):
            read_kaldi_text(path)


def test_require_folder(tmp_path: Path) -> None:
    assert require_folder(tmp_path) == tmp_path
    with pytest.raises(RescoreError, match="no such folder"):
        require_folder(tmp_path / "none")


def test_references_of_lhotses_manifests(tmp_path: Path) -> None:
    lhotse = pytest.importorskip("lhotse")
    from lhotse.testing.dummies import dummy_cut, dummy_supervision

    said = [dummy_supervision(k, start=2 - k, duration=0.5, text=text) for k, text in enumerate("ab")]
    cut = dummy_cut(0, duration=5.0, supervisions=said)
    silent = dummy_cut(1, duration=5.0, supervisions=[])
    mixed = silent.mix(cut.with_id("noise"), offset_other_by=1.0, preserve_id="left").mix(silent.with_id("more"))
    for manifest, texts in (
        (lhotse.SupervisionSet.from_segments(said), {said[0].id: ("a",), said[1].id: ("b",)}),
        (lhotse.CutSet.from_cuts([cut]), {cut.id: ("b", "a")}),
        (lhotse.CutSet.from_cuts([mixed]), {mixed.id: ("b", "a")}),
    ):
        manifest.to_file(str(tmp_path / "manifest.jsonl.gz"))
        assert read_kaldi_text(tmp_path / "manifest.jsonl.gz") == texts
    lhotse.CutSet.from_cuts([silent]).to_file(str(tmp_path / "silent.jsonl"))
    with pytest.raises(FormatError, match=r"silent.jsonl:1: JSON without a reference .*manifest of NeMo or lhotse"):
        read_kaldi_text(tmp_path / "silent.jsonl")


def test_references_of_lists_and_of_nemos_manifests(tmp_path: Path) -> None:
    lists, manifest = tmp_path / "lists.jsonl", tmp_path / "manifest.json"
    lists.write_text('{"utt_id": "a", "ref": "HE SAID", "hyps": []}\n{"id": "b", "nbest": [], "ref": ["SO"]}\n')
    assert read_kaldi_text(lists) == {"a": ("HE", "SAID"), "b": ("SO",)}
    manifest.write_text('{"audio_filepath": "wav/a.1.flac", "duration": 1.5, "text": "he  said"}\n')
    assert read_kaldi_text(manifest) == {"a.1": ("he", "said")}
    with pytest.raises(FormatError, match=r"JSON without a hypothesis .* expected audio_filepath and pred_text"):
        read_kaldi_text(manifest, "hyp")
    manifest.write_text('{"audio_filepath": "wav/a.1.flac", "text": "he  said", "pred_text": "she said"}\n')
    assert read_kaldi_text(manifest, "hyp") == {"a.1": ("she", "said")} == read_hypotheses(str(manifest))
    assert read_kaldi_text(manifest) == {"a.1": ("he", "said")}
    manifest.write_text('{"audio_filepath": "a.flac", "text": "he  said", "pred_text_ctc": "she said"}\n')
    assert read_kaldi_text(manifest, "hyp") == {"a": ("she", "said")}
    manifest.write_text('{"audio_filepath": "a.flac", "pred_text_ctc": "she said", "pred_text_rnnt": "he said"}\n')
    with pytest.raises(FormatError, match=r":1: transcripts of several models \(pred_text_ctc, pred_text_rnnt\)"):
        read_kaldi_text(manifest, "hyp")
    manifest.write_text('{"audio_filepath": "a.flac", "offset": 1.5, "text": "he"}\n' * 2)
    with pytest.raises(FormatError, match="'a' occurs a second time, expected an 'utt_id' each, also of parts of one"):
        read_kaldi_text(manifest)
    manifest.write_text('{"id": 0, "audio_filepath": "wav/a.1.flac", "text": "he said"}\n')  # is an id
    assert read_kaldi_text(manifest) == {"0": ("he", "said")}
    manifest.write_text('{"utt_id": "u", "audio_filepath": "a.flac", "hyps": [{"words": "so", "scores": {}}]}\n')
    assert read_hypotheses(f"jsonl:{manifest}") == {"u": ("so",)} and not is_manifest(manifest)
    with pytest.raises(FormatError, match=r"lists.jsonl:1: JSON, expected Kaldi text"):
        read_kaldi_text(lists, side="hyp")
    for line, message in (
        (
            '{"utt_id": "a", "hyps": []}',
            r"JSON without a reference \(utt_id, hyps\), expected utt_id and ref of N-best",
        ),
        ('{"utt_id": "a b", "ref": "A"}', "the id 'a b' has blanks"),
        ('{"utt_id": "a", "ref": "A"', "not JSON"),
    ):
        lists.write_text(f"{line}\n")
        with pytest.raises(FormatError, match=f"lists.jsonl:1: {message}"):
            read_kaldi_text(lists)


def test_recogs_of_icefall(tmp_path: Path) -> None:
    file = tmp_path / "recogs-test-epoch-30.txt"
    file.write_text("a-1:\tref=['IT', \"ISN'T\"]\na-1:\thyp=['IT']\nb:\tref=['B']\nb:\thyp=[]\n")
    assert read_kaldi_text(file) == {"a-1": ("IT", "ISN'T"), "b": ("B",)}
    assert read_kaldi_text(file, "hyp") == {"a-1": ("IT",), "b": ()}
    newer = tmp_path / "recogs-test-epoch-1_avg-1__modified_beam_search__beam-size-4.txt"
    newer.write_text(file.read_text().replace("b:\tref", "a-1:\ttimestamp_hyp=[0.040, 0.120]\nb:\tref"))
    with open(newer, "a", encoding="utf-8") as stream:
        stream.write("b:\ttimestamp_ref=[(0.080, 0.120)]\n")
    assert read_kaldi_text(newer) == read_kaldi_text(file)
    assert read_kaldi_text(newer, "hyp") == read_kaldi_text(file, "hyp")
    file.write_text("a:\tref=['IT]\n")
    with pytest.raises(FormatError, match=r"recogs-test-epoch-30.txt:1: found '\['IT\]', expected a list of words"):
        read_kaldi_text(file)
    file.write_text("a:\tref=" + "[" * 5000 + "]" * 5000 + "\n")
    with pytest.raises(FormatError, match=r"recogs-test-epoch-30.txt:1: found .*, expected a list of words"):
        read_kaldi_text(file)


@settings(deadline=None)
@given(ref=st.lists(st.text(min_size=1)), hyp=st.lists(st.text(min_size=1)))
def test_recogs_hold_all_words_that_python_writes(
    ref: list[str], hyp: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "recogs-any.txt"
    file.write_text(f"u:\tref={ref!r}\nu:\thyp={hyp!r}\n", encoding="utf-8")
    assert read_kaldi_text(file) == {"u": tuple(ref)}
    assert read_kaldi_text(file, "hyp") == {"u": tuple(hyp)}


@pytest.mark.parametrize(
    "line",
    [
        "utt1 1 spk1 0.00 5.20 <o,f0,male> he said so",
        "utt1\tA\tspk1\t0.00\t5.20\the said so",
        "utt1 1 0.10 0.30 he 0.98",
        ';; CATEGORY "0" "" ""',
    ],
)
def test_files_of_stm_and_ctm_are_refused(tmp_path: Path, line: str) -> None:
    """With one line an utterance, channel, speaker and times were words."""
    (tmp_path / "ref").write_text(f"{line}\n")
    with pytest.raises(FormatError, match=r"ref:1: a line of an STM or CTM file, expected Kaldi text: 'utt-id words "):
        read_kaldi_text(tmp_path / "ref")


@pytest.mark.parametrize(
    "lines", ["HE SAID SO\t(spk-u1)\n\t(spk-u2)\n", "A B (spk-u1)\nA C (spk-u2)\n", "A B (spk-u1)\n"]
)
def test_trn_files_are_refused(tmp_path: Path, lines: str) -> None:
    """First words were ids, and ids words: of two such files, right words were counted in small sets."""
    (tmp_path / "ref.trn").write_text(lines)
    with pytest.raises(FormatError, match=r"ref.trn: a TRN file of sclite \('words ... \(utt-id\)' a line\), expected"):
        read_kaldi_text(tmp_path / "ref.trn")


@pytest.mark.parametrize(
    "lines", ["u1 so (noise)\n", "u1 so (2)\n", "u1 so (noise)\nu2 (noise)\n", "u1 so (noise)\nu2 (a) so\n"]
)
def test_words_may_be_in_parentheses(tmp_path: Path, lines: str) -> None:
    (tmp_path / "ref").write_text(lines)
    assert list(read_kaldi_text(tmp_path / "ref")) == ["u1", "u2"][: lines.count("\n")]


def test_files_of_htk_labels_are_refused(tmp_path: Path) -> None:
    """Of one utterance, each of its lines was one: `5 of 5 references have no hypotheses (#!MLF!#, ...)`."""
    (tmp_path / "ref.mlf").write_text('#!MLF!#\n"*/u1.lab"\nA\nB\n.\n')
    with pytest.raises(FormatError, match=r"ref.mlf:1: an MLF of HTK, expected Kaldi text: 'utt-id words "):
        read_kaldi_text(tmp_path / "ref.mlf")


def test_numbers_may_be_words(tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("utt1 1 2 3 4 five\nutt2 A 2.5 is 3\n")
    assert read_kaldi_text(tmp_path / "ref") == {"utt1": ("1", "2", "3", "4", "five"), "utt2": ("A", "2.5", "is", "3")}
