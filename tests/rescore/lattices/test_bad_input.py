"""Lattices that are damaged or odd, at the command line: one clear line and exit code 2, or handled and counted."""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rescore.errors import ScoreError
from rescore.formats import read_lattices, read_nbest
from rescore.formats.kaldi_archive import write_records
from rescore.formats.kaldi_text import parse_text
from rescore.lattices.log_zero import LOG_ZERO
from rescore.lattices.neural_lm import LatticeLM
from rescore.lattices.ngram_lm import expand_ngram, ngram_nbest
from rescore.lattices.paths import total_scores
from tests.lm_zoo import zoo
from tests.rescore.lattices.test_ngram_lm import ALL_SCALES, ARPA, ToyTrigram
from tests.rescore.lattices.test_paths import SCALES, make

Rescore = Callable[..., tuple[int, str, str]]
WORDS = "<eps> 0\na 1\nb 2\n"
FORMATS = ("kaldi", "kaldi-text", "openfst", "slf", "k2")
Arc = tuple[int, int, int]  # source, target, word id; the last state of a lattice is its final one
GOOD: list[Arc] = [(0, 1, 1), (0, 1, 2), (1, 2, 2)]
NAMES = ("good-1", "bad", "good-2")


def source_of(folder: Path, form: str, bad: list[Arc], states: int = 3) -> str:
    """A source of three lattices, the second of them `bad`; words as ids, but in SLF."""
    lattices = dict(zip(NAMES, (GOOD, bad, GOOD), strict=True))
    sizes = dict(zip(NAMES, (3, states, 3), strict=True))
    (folder / "words.txt").write_text(WORDS)
    path = folder / f"lattices.{form}"
    if form == "slf":
        path.mkdir()
        for name, arcs in lattices.items():
            (path / f"{name}.slf").write_text(slf_text(arcs, sizes[name]))
    elif form == "k2":
        save_k2(path, list(lattices.values()), list(sizes.values()))
    elif form == "openfst":
        texts = [f"{name}\n{arc_lines(arcs, '')}{sizes[name] - 1}\n\n" for name, arcs in lattices.items()]
        path.write_text("".join(texts))
    else:
        texts = [f"{name} \n{arc_lines(arcs, ',2,7')}{sizes[name] - 1}\n\n" for name, arcs in lattices.items()]
        path.write_text("".join(texts))
        if form == "kaldi":
            bodies = [text.split("\n", 1)[1].removesuffix("\n") for text in texts]
            write_records(path.with_suffix(".ark"), map(parse_text, NAMES, bodies), {})
            path = path.with_suffix(".ark")
    return f"{form.split('-')[0]}:{path}" + ("" if form == "slf" else f"?words={folder / 'words.txt'}")


def arc_lines(arcs: list[Arc], weight: str) -> str:
    return "".join(f"{src} {dst} {word} 1{weight}\n" for src, dst, word in arcs)


def slf_text(arcs: list[Arc], states: int) -> str:
    lines = ["VERSION=1.0", f"start=0 end={states - 1}", f"N={states} L={len(arcs)}"]
    lines += [f"I={state} t={state}" for state in range(states)]
    words = ["!NULL", "a", "b"]
    lines += [f"J={j} S={s} E={e} W={words[w]} a=-2 l=-1" for j, (s, e, w) in enumerate(arcs)]
    return "\n".join([*lines, ""])


def save_k2(path: Path, lattices: list[list[Arc]], sizes: list[int]) -> None:
    """An FsaVec, where one more state and arcs with label -1 to it end a lattice."""
    torch = pytest.importorskip("torch")
    from rescore.formats.k2 import save

    rows = [[*arcs, (size - 1, size, -1)] for arcs, size in zip(lattices, sizes, strict=True)]
    bits = np.float32(-3.0).view(np.int32)
    flat = np.array([(s, e, w, bits) for arcs in rows for s, e, w in arcs], dtype=np.int32)
    states, arcs = np.cumsum([0, *(size + 1 for size in sizes)]), np.cumsum([0, *map(len, rows)])
    packed = np.concatenate([[len(rows), 0], states, arcs, flat.reshape(-1)]).astype(np.int32)
    lm = torch.full((len(flat),), -1.0)
    labels = torch.tensor([w for arcs in rows for _, _, w in arcs], dtype=torch.int32)
    save({"arcs": torch.from_numpy(packed), "aux_labels": labels, "lm_scores": lm}, NAMES, path)


def assert_refused(rescore: Rescore, source: str, message: str, skipped: int = 1) -> None:
    """Refused with one line that names file and utterance; skipped on request, and counted."""
    code, out, err = rescore("best-path", source)
    last = err.splitlines()[-1]
    assert code == 2 and out == "" and "Traceback" not in err, err
    assert last.startswith("rescore: ") and "bad" in last and re.search(message, last), err
    code, out, err = rescore("best-path", source, "--on-error", "skip")
    assert code == 3 and sorted(line.split()[0] for line in out.splitlines()) == ["good-1", "good-2"], err
    assert re.search(f"skipped: .*{message}", err) and err.splitlines()[-1].startswith(
        f"{skipped} left out because of errors;"
    )
    assert err.count("because of errors") == 1


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("arcs", "message"),
    [
        ([(0, 1, 1), (1, 0, 1), (1, 2, 2)], "cycle"),
        ([(0, 1, 1), (1, 1, 2), (1, 2, 2)], "cycle"),
        ([(0, 1, 1), (1, 2, 2), (2, 1, 2)], "cycle"),
        ([(0, 1, 1), (0, 1, 2)], "no path from start"),
    ],
)
def test_lattices_that_make_no_sense(
    rescore: Rescore, tmp_path: Path, form: str, arcs: list[Arc], message: str
) -> None:
    assert_refused(rescore, source_of(tmp_path, form, arcs), message)


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "slf"])
def test_word_ids_that_are_not_in_words_txt(rescore: Rescore, tmp_path: Path, form: str) -> None:
    assert_refused(rescore, source_of(tmp_path, form, [(0, 1, 17), (1, 2, 1)]), r"word id 17 is not in .*words\.txt")


@pytest.mark.parametrize("form", FORMATS)
def test_dead_and_unreachable_states_are_left_out_and_counted(rescore: Rescore, tmp_path: Path, form: str) -> None:
    """State 1 leads nowhere, states 2 and 3 are starts of their own."""
    source = source_of(tmp_path, form, [(0, 4, 1), (0, 1, 2), (2, 4, 2), (3, 2, 1)], states=5)
    code, out, err = rescore("info", source)
    assert code == 0, err
    assert re.search(r"^removed states +3$", out, re.M) and re.search(r"^removed arcs +3$", out, re.M)
    code, out, _ = rescore("best-path", source)
    assert code == 0 and "bad a\n" in out
    target = f"slf:{tmp_path / 'out'}"
    code, _, err = rescore("rescore", source, target, "--ngram", toy_arpa(tmp_path), "--scale", "ngram=1", *scale(form))
    assert code == 0 and "removed states: 3" in err and "removed arcs: 3" in err
    assert set(rescore("best-path", target)[1].splitlines()) == set(out.splitlines())


def toy_arpa(folder: Path) -> Path:
    pytest.importorskip("kenlm")
    (folder / "toy.arpa").write_text(ARPA)
    return folder / "toy.arpa"


def scale(form: str) -> tuple[str, ...]:
    """`am` has a default, `score` of OpenFst's format has none in rescore."""
    return ("--scale", "score=1") if form == "openfst" else ()


def test_several_start_nodes_in_slf(rescore: Rescore, tmp_path: Path) -> None:
    """HTK's format may leave out start= and end=; then there must be one node of each kind."""
    source = source_of(tmp_path, "slf", [(0, 2, 1), (1, 2, 2)])
    bad = tmp_path / "lattices.slf" / "bad.slf"
    bad.write_text(bad.read_text().replace("start=0 end=2\n", ""))
    assert_refused(rescore, source, "no start= in the header and 2 nodes without a link into them, expected one")
    bad.write_text(slf_text([(0, 1, 1), (0, 2, 2)], 3).replace("start=0 end=2\n", ""))
    assert_refused(rescore, source, "no end= in the header and 2 nodes without a link out of them, expected one")


@pytest.mark.parametrize("form", ["kaldi", "openfst", "slf", "k2"])
@pytest.mark.parametrize("arcs", [[], [(0, 1, 0), (0, 1, 0), (1, 2, 0)]], ids=["none", "epsilons"])
def test_lattices_without_words(rescore: Rescore, tmp_path: Path, form: str, arcs: list[Arc]) -> None:
    """An empty sentence passes through every command, and from every format into every other."""
    source = source_of(tmp_path, form, arcs, states=3 if arcs else 1)
    (tmp_path / "ref").write_text("good-1 a b\nbad\ngood-2 b\n")
    lm = ("--ngram", toy_arpa(tmp_path), "--scale", "ngram=1", *scale(form))
    words = f"?words={tmp_path / 'words.txt'}"
    for args in (
        ("info", source, "--ref", tmp_path / "ref"),
        ("oracle", source, "--ref", tmp_path / "ref"),
        ("posteriors", source, *scale(form)),
        ("mbr", source, *scale(form), "--network", tmp_path / "network"),
        ("draw", source, "--utt", "bad", *scale(form)),
        ("prune", source, f"kaldi:{tmp_path / 'pruned.ark'}{words}", "--beam", 9, "--posterior", 0.2),
        ("prune", source, f"kaldi:{tmp_path / 'pruned.ark'}{words}", "--arcs-per-word", 1),
        ("rescore", source, f"slf:{tmp_path / 'rescored'}", *lm),
        ("rescore", source, tmp_path / "new.jsonl", *lm, "-n", 5, "--ngram-beam", 0),
        ("nbest", source, tmp_path / "lists.jsonl", "-n", 5, "--jobs", 1),
        ("convert", source, f"slf:{tmp_path / 'new-slf'}"),
        ("convert", source, f"kaldi:{tmp_path / 'new.ark'}{words}"),
        ("convert", source, f"openfst:{tmp_path / 'new.fst'}{words}"),
        ("convert", source, f"k2:{tmp_path / 'new.pt'}{words}"),
    ):  # fmt: skip
        code, out, err = rescore(*args)
        if form in ("slf", "k2") and args[-1] == f"openfst:{tmp_path / 'new.fst'}{words}":
            assert code == 2 and "the format holds one score" in err
        else:
            assert code == 0, (args, err)
    for name in ("lists.jsonl", "new.jsonl"):
        hyps = {nbest.utt_id: [hyp.words for hyp in nbest.hyps] for nbest in read_nbest(str(tmp_path / name))}
        assert hyps["bad"] == [()] and len(hyps["good-1"]) == (2 if name == "lists.jsonl" else 1)
    for spec in (
        source,
        f"slf:{tmp_path / 'new-slf'}",
        f"kaldi:{tmp_path / 'new.ark'}{words}",
        f"k2:{tmp_path / 'new.pt'}{words}",
    ):
        code, out, err = rescore("best-path", spec)
        assert code == 0 and "bad" in out.splitlines(), err


def test_records_without_a_start_state(rescore: Rescore, tmp_path: Path) -> None:
    source = source_of(tmp_path, "kaldi-text", GOOD)
    path = tmp_path / "lattices.kaldi-text"
    path.write_text(re.sub(r"bad \n.*?\n\n", "bad \n\n", path.read_text(), flags=re.S))
    assert_refused(rescore, source, "utterance 'bad': an empty lattice: no start state")


def file_of(source: str) -> Path:
    return Path(re.sub(r"^\w+:|\?.*$", "", source))


@pytest.mark.parametrize("packed", [False, True])
def test_truncated_kaldi_archives(rescore: Rescore, tmp_path: Path, packed: bool) -> None:
    """What stands before the damage is read; the record cut in two is named with its key and offset."""
    path = file_of(source_of(tmp_path, "kaldi", GOOD))
    words = f"?words={tmp_path / 'words.txt'}"
    data = path.read_bytes()
    at = data.index(b"good-2 ")
    if packed:
        path = path.with_suffix(".gz")
        path.write_bytes(gzip.compress(data * 40, 0)[: at + 30])  # level 0: bytes as they are
        at = data.index(b"bad ") if at + 30 - 15 < at else at
    else:
        path.write_bytes(data[: at + 40])
    source = f"kaldi:{path}{words}"
    code, out, err = rescore("best-path", source)
    assert code == 2 and out == ""
    assert re.search(rf"rescore: {re.escape(str(path))}: utterance '.*' at byte {at}: the archive ends within", err), (
        err
    )
    if packed:
        assert "compressed file is truncated or damaged" in err
    code, out, err = rescore("best-path", source, "--on-error", "skip")
    assert code == 3 and out == "good-1 a b\nbad a b\n" and "1 left out because of errors" in err


@pytest.mark.parametrize(
    ("form", "left", "message"),
    [
        ("openfst", "good-2\n0 1 1", "utterance 'good-2': the file ends within this lattice"),
        ("openfst", "good-2\n", "utterance 'good-2': the file ends within this lattice"),
        ("openfst", "good-2\n0 1 1 1\n0 1 2 1\n1 2 2 1\n2\n", "utterance 'good-2': the file ends within this lattice"),
        (
            "kaldi-text",
            "good-2 \n0 1 1 1,2,7\n0 1 2 1,2,7\n1 2 2 1,2,7\n2\n",
            "'good-2' .*: the archive ends within",
        ),
        ("slf", "J=1 S=0", r"bad.slf:8: the line does not end: cut off"),
        ("slf", "E=1 W=a a=-2 l=-1\n", "bad.slf: the header says L=3, found 1 links"),
        ("slf", "", "bad.slf: empty file"),
    ],
)
def test_other_truncated_files(rescore: Rescore, tmp_path: Path, form: str, left: str, message: str) -> None:
    """`left` is the last that is left of the file."""
    source = source_of(tmp_path, form, GOOD)
    path = file_of(source) / "bad.slf" if form == "slf" else file_of(source)
    text = path.read_text()
    path.write_text(text[: text.rindex(left) + len(left)] if left else "")
    code, out, err = rescore("best-path", source)
    assert code == 2 and out == "" and re.search(message, err.splitlines()[-1]), err
    code, out, err = rescore("best-path", source, "--on-error", "skip")
    assert code == 3 and len(out.splitlines()) == 2 and "1 left out because of errors" in err


def test_truncated_k2_files(rescore: Rescore, tmp_path: Path) -> None:
    source = source_of(tmp_path, "k2", GOOD)
    data = file_of(source).read_bytes()
    file_of(source).write_bytes(data[: len(data) // 2])
    for more in ((), ("--on-error", "skip")):
        code, out, err = rescore("best-path", source, *more)
        assert code == 2 and out == "" and "cannot be read as torch.save" in err
    assert "no lattice in it that can be read" in err.splitlines()[-1]


def test_one_file_of_a_folder_is_damaged(rescore: Rescore, tmp_path: Path) -> None:
    """The other files are read: Kaldi's jobs, k2's dumps."""
    for form, name in (("kaldi", "lat.{}.gz"), ("k2", "{}.pt")):
        if form == "k2":
            pytest.importorskip("torch")
        folder = tmp_path / form
        folder.mkdir()
        source = source_of(tmp_path, form, GOOD)
        data = file_of(source).read_bytes()
        for job in (1, 2, 3):
            copy = data
            for utt_id in NAMES if form == "kaldi" else ():
                copy = copy.replace(utt_id.encode() + b" ", f"{utt_id}-{job} ".encode())
            (folder / name.format(job)).write_bytes(gzip.compress(copy) if form == "kaldi" else copy)
        (folder / name.format(2)).write_bytes(b"no such thing")
        if form == "k2":
            (folder / name.format(3)).unlink()
        spec = f"{form}:{folder}?words={tmp_path / 'words.txt'}"
        code, out, err = rescore("best-path", spec)
        assert code == 2 and name.format(2) in err.splitlines()[-1]
        code, out, err = rescore("best-path", spec, "--on-error", "skip")
        assert code == 3 and len(out.splitlines()) == (6 if form == "kaldi" else 3), err
        assert "1 left out because of errors" in err


@pytest.mark.parametrize("text", [False, True])
def test_a_corrupt_record_between_good_ones(rescore: Rescore, tmp_path: Path, text: bool) -> None:
    """Each command stops with key and byte offset, or goes on behind it and counts."""
    source = source_of(tmp_path, "kaldi-text" if text else "kaldi", GOOD)
    path = file_of(source)
    data = bytearray(path.read_bytes())
    at = data.index(b"bad ")
    if text:
        data[at + 5 : at + 6] = b"x"
    else:
        struct.pack_into("<i", data, at + len("bad ") + 74 + 8, -3)  # length of the first state's final string
    path.write_bytes(data)
    (tmp_path / "ref").write_text("good-1 a b\nbad a b\ngood-2 a a\n")
    out_of = {name: tmp_path / name for name in ("pruned.ark", "new.ark", "copy.ark", "lists.jsonl", "rescored")}
    lm = ("--ngram", toy_arpa(tmp_path), "--scale", "ngram=1")
    for args in (
        ("info", source),
        ("best-path", source),
        ("best-path", source, "--ref", tmp_path / "ref"),
        ("oracle", source, "--ref", tmp_path / "ref"),
        ("posteriors", source),
        ("mbr", source),
        ("draw", source, "--utt", "good-2"),
        ("prune", source, f"kaldi:{out_of['pruned.ark']}?words={tmp_path / 'words.txt'}", "--beam", 9),
        ("rescore", source, f"slf:{out_of['rescored']}", *lm),
        ("nbest", source, out_of["lists.jsonl"], "--jobs", 1),
        ("convert", source, f"kaldi:{out_of['copy.ark']}"),
        ("convert", source, f"kaldi:{out_of['new.ark']}?words={tmp_path / 'words.txt'}", "--case", "lower"),
    ):  # fmt: skip
        code, _, err = rescore(*args)
        assert code == 2 and not any(path.exists() for path in out_of.values()), (args, err)
        assert f"{path}: utterance 'bad' at byte {at}: " in err.splitlines()[-1], (args, err)
    for args in (
        ("info", source),
        ("best-path", source, "--ref", tmp_path / "ref"),
        ("oracle", source, "--ref", tmp_path / "ref"),
        ("posteriors", source),
        ("mbr", source),
        ("prune", source, f"kaldi:{out_of['pruned.ark']}?words={tmp_path / 'words.txt'}", "--beam", 9),
        ("rescore", source, f"slf:{out_of['rescored']}", *lm),
        ("nbest", source, out_of["lists.jsonl"], "--jobs", 1),
        ("convert", source, f"kaldi:{out_of['copy.ark']}"),
        ("convert", source, f"kaldi:{out_of['new.ark']}?words={tmp_path / 'words.txt'}", "--case", "lower"),
    ):  # fmt: skip
        code, _, err = rescore(*args, "--on-error", "skip")
        assert code == 3 and f"utterance 'bad' at byte {at}: " in err, (args, err)
        assert "1 left out because of errors" in err, (args, err)
    assert len(list(read_nbest(str(out_of["lists.jsonl"])))) == 2
    for name in ("pruned.ark", "copy.ark", "new.ark"):
        assert [lattice.utt_id for lattice in read_lattices(f"kaldi:{out_of[name]}")] == ["good-1", "good-2"]


def test_nothing_but_bad_lattices(rescore: Rescore, tmp_path: Path) -> None:
    source = source_of(tmp_path, "kaldi-text", GOOD)
    file_of(source).write_text("bad \n0 1 x 1,2,\n1\n\nworse \n0 1 1 1,2,\n1 0 1 1,2,\n1\n\n")
    out = tmp_path / "out.ark"
    for args in (("info",), ("best-path",), ("mbr",), ("posteriors",), ("prune", f"kaldi:{out}", "--beam", 1),
                 ("nbest", tmp_path / "out.jsonl"), ("convert", f"slf:{tmp_path / 'slf'}")):  # fmt: skip
        code, stdout, err = rescore(args[0], source, *args[1:], "--on-error", "skip")
        assert code == 2 and stdout == "" and err.count("skipped: ") == 2, (args, err)
        assert re.search("no lattice|no utterance|no N-best|empty", err.splitlines()[-1]), (args, err)
        assert not out.exists()


MINUS_INF = ARPA.replace("-0.5\ta\t-0.125", "-inf\ta\t-0.125").replace("-0.25\t<s> a", "-inf\t<s> a")


@pytest.mark.parametrize("beam", [(), ("--ngram-beam", 5)])
def test_an_ngram_that_forbids_words(rescore: Rescore, tmp_path: Path, beam: tuple[object, ...]) -> None:
    """Forbidden paths go behind all others, and are kept where there is no other; they are counted."""
    source = source_of(tmp_path, "kaldi", [(0, 1, 1), (1, 2, 1)])
    toy_arpa(tmp_path).write_text(MINUS_INF)
    lm = ("--ngram", tmp_path / "toy.arpa", "--scale", "ngram=1", *beam)
    code, _, err = rescore("rescore", source, tmp_path / "out.jsonl", *lm, "-n", 1)
    assert code == 0 and re.search(r"words with an LM score of -inf \(log p = -228 is taken\): [1-9]", err), err
    first = {nbest.utt_id: nbest.hyps[0] for nbest in read_nbest(str(tmp_path / "out.jsonl"))}
    assert first["bad"].words == ("a", "a") and first["bad"].scores["ngram"] < 2 * LOG_ZERO
    assert first["good-1"].words == ("b", "b") and first["good-1"].scores["ngram"] > LOG_ZERO
    for target in (f"slf:{tmp_path / 'slf'}", f"kaldi:{tmp_path / 'out.ark'}?words={tmp_path / 'words.txt'}"):
        code, _, err = rescore("rescore", source, target, *lm)
        assert code == 0, err
        code, out, err = rescore("best-path", target)
        assert code == 0 and "bad a a" in out, err


class Forbidding(ToyTrigram):
    """Gives -inf to `b`, and something else to `c`."""

    def __init__(self, of_c: float = -1.0) -> None:
        self.of_c = of_c

    def extend(self, state: tuple[str, ...], word: str) -> tuple[float, tuple[str, ...], bool]:
        logprob, longer, known = super().extend(state, word)
        return {"b": -np.inf, "c": self.of_c}.get(word, logprob), longer, known


def test_scores_of_lms_that_are_no_numbers() -> None:
    lattice = make([(0, 1, "b", 0, 0), (0, 1, "a", -50, 0), (1, 2, "b", 0, 0)], 3)
    for beam in (None, 0.0, 1.0, 1000.0):
        expanded = expand_ngram(lattice, Forbidding(), "ngram", ALL_SCALES, beam)
        assert np.isfinite(total_scores(expanded, ALL_SCALES)).all() and expanded.counts["impossible_words"] >= 2
        nbest, _ = ngram_nbest(lattice, Forbidding(), "ngram", ALL_SCALES, 2, beam)
        assert [hyp.words for hyp in nbest.hyps] == [("a", "b"), ("b", "b")]
    lattice = make([(0, 1, "c", 0, 0)], 2)
    for bad in (np.nan, np.inf):
        with pytest.raises(ScoreError, match=f"lattice 'utt': the LM 'ngram' gave {bad} to a word"):
            expand_ngram(lattice, Forbidding(bad), "ngram", ALL_SCALES)


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_neural_scores_that_are_no_numbers(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    from lm_zoo.inference.history_cache import Histories

    extend = Histories.extend

    def broken(self: Histories, *args: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, longer = extend(self, *args)
        return np.full_like(scores, value), longer

    monkeypatch.setattr(Histories, "extend", broken)
    lattice = make([(0, 1, "A", 0, 0), (0, 1, "B", -1, 0), (1, 2, "A", 0, 0)], 3)
    plan = LatticeLM({"nn": zoo.neural("transfornn")}, {**SCALES, "nn": 0.5}, beam=1.0)
    if np.isnan(value):
        with pytest.raises(ScoreError, match="lattice 'utt': the LM 'nn' gave nan to a word"):
            plan([lattice])
        return
    (result,) = plan([lattice])
    assert result.counts["impossible_words"] > 0 and set(result.scores["nn"]) == {LOG_ZERO}


def test_no_beam_of_the_neural_lms_leaves_nothing(rescore: Rescore, tmp_path: Path) -> None:
    """Merged histories, and a beam that leaves out nearly all."""
    from lm_zoo.registry import save_folder

    save_folder(tmp_path / "nn", zoo.neural("transfornn"), "transfornn", {})
    rng = np.random.default_rng(9)
    states = int(rng.integers(4, 8))
    ends = [(s, e, word) for s in range(states) for e in range(s + 1, states + 1) for word in "ABC"]
    links = [(*end, 3 * rng.normal()) for end in ends if rng.random() < 0.4 or (end[1], end[2]) == (end[0] + 1, "A")]
    lines = ["VERSION=1.0", f"N={states + 1} L={len(links)}", *(f"I={state}" for state in range(states + 1))]
    lines += [f"J={j} S={s} E={e} W={w} a={a}" for j, (s, e, w, a) in enumerate(links)]
    (tmp_path / "u1.slf").write_text("\n".join([*lines, ""]))
    lm = ("--lm", tmp_path / "nn", "--scale", "nn=4", "--scale", "words=0.25", "--context", 1)
    for target, more in ((tmp_path / "out.jsonl", ("-n", 1)), (f"slf:{tmp_path / 'out'}", ())):
        code, _, err = rescore("rescore", tmp_path / "u1.slf", target, *lm, "--beam", 0.5, *more)
        assert code == 0 and re.search(r"pruned (states|arcs): [1-9]", err), err
    assert next(iter(read_nbest(str(tmp_path / "out.jsonl")))).hyps[0].words
    code, _, err = rescore("rescore", tmp_path / "u1.slf", tmp_path / "out.jsonl", *lm, "--beam", -1)
    assert code == 2 and "-1.0 is not in the range x>=0" in err
