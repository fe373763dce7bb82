"""The KenLM wrapper: scores against the ARPA file's own numbers, states, vocabularies, bad files."""

from __future__ import annotations

import gzip
import json
import lzma
import math
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lm_zoo.errors import ModelError, VocabError
from lm_zoo.ngram.arpa import read_vocabulary, write_arpa
from lm_zoo.ngram.kenlm_check import check_file
from lm_zoo.ngram.kenlm_lm import NgramLM
from lm_zoo.ngram.kneser_ney import estimate
from lm_zoo.registry import load_ngram
from lm_zoo.text.vocabulary import SOS_EOS, UNK
from tests.lm_zoo import zoo
from tests.lm_zoo.golden.recreate import read_arpa
from tests.lm_zoo.pseudo import pseudo_text

kenlm = pytest.importorskip("kenlm", reason="n-gram LMs need kenlm")


@pytest.fixture(scope="module")
def arpa(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ngram") / "lm.arpa"
    write_arpa(estimate(pseudo_text(1000), 3, [0, 0, 1]), path)
    return path


@pytest.fixture(scope="module", params=[".arpa", ".arpa.gz"])
def lm(request: pytest.FixtureRequest, arpa: Path) -> NgramLM:
    if request.param == ".arpa":
        return NgramLM(arpa)
    path = arpa.with_suffix(".arpa.gz")
    path.write_bytes(gzip.compress(arpa.read_bytes()))
    return NgramLM(path)


def reference(ngrams: dict[str, list[float]], words: tuple[str, ...]) -> float:
    """Natural log-probability of the last word after the others, straight from the ARPA numbers."""
    if words[-1:] == words and words[0] not in ngrams:
        words = ("<unk>",)
    if " ".join(words) in ngrams:
        return ngrams[" ".join(words)][0] * math.log(10)
    backoff = ngrams.get(" ".join(words[:-1]), [0.0, 0.0])[1]
    return backoff * math.log(10) + reference(ngrams, words[1:])


SENTENCES = [*pseudo_text(40, seed=77), [], ["w0", "never", "w1", "w0"]]


def test_scores_are_the_files(lm: NgramLM, arpa: Path) -> None:
    ngrams = read_arpa(arpa.read_text())
    for words, scores in zip(SENTENCES, lm.score_words(SENTENCES), strict=True):
        known = [word if word in ngrams else "<unk>" for word in words]
        history = ["<s>", *known, "</s>"]
        expected = [reference(ngrams, tuple(history[max(0, end - 3) : end])) for end in range(2, len(history) + 1)]
        assert scores == pytest.approx(expected, abs=1e-5)


def test_sentences_are_sums_of_words(lm: NgramLM) -> None:
    sums = [sum(scores) for scores in lm.score_words(SENTENCES)]
    assert lm.score_sentences(SENTENCES) == pytest.approx(sums, rel=1e-6)


def test_states_give_the_same_scores(lm: NgramLM) -> None:
    for words, expected in zip(SENTENCES, lm.score_words(SENTENCES), strict=True):
        state, scores = lm.start(), []
        for word in words:
            score, state, known = lm.extend(state, word)
            scores.append(score)
            assert known == lm.knows(word)
        assert [*scores, lm.end(state)] == pytest.approx(expected, abs=1e-6)
    assert lm.order == 3
    assert not lm.knows("never")


def test_a_pickle_reads_the_file_without_a_word(arpa: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """KenLM's own prints a bar of progress, in each process that an LM goes to, and tells less of a lost file."""
    path = arpa.with_name("pickled.arpa")
    path.write_bytes(arpa.read_bytes())
    lm = NgramLM(path, case="lower")
    lm.name, words = "ours", [("a", "b", "?"), ()]
    packed, scores = pickle.dumps(lm), lm.score_words(words, max_unknown=None)
    copy = pickle.loads(packed)
    assert copy.score_words(words, max_unknown=None) == scores
    assert (copy.name, copy.order, vars(copy).keys()) == ("ours", 3, vars(lm).keys())
    assert capfd.readouterr() == ("", "")
    path.unlink()
    with pytest.raises(ModelError, match="no such file, expected an ARPA file"):
        pickle.loads(packed)


@pytest.mark.parametrize("mark", ["<s>", "</s>"])
def test_marks_of_the_sentence_are_unknown_words(lm: NgramLM, mark: str) -> None:
    marked, unknown = (("w1", word, "w0") for word in (mark, "never"))
    assert lm.score_words([marked]) == lm.score_words([unknown])
    assert lm.score_sentences([marked]) == lm.score_sentences([unknown])
    after = lm.extend(lm.start(), "w1")[1]
    assert lm.extend(after, mark) == lm.extend(after, "never")
    assert not lm.knows(mark)


@pytest.mark.parametrize("odd", ["", "w1 w0", " w1", "w1\t", "w1\nw0", " "])
def test_words_that_are_none_are_unknown(lm: NgramLM, odd: str) -> None:
    """Empty ones, and those with blanks, which KenLM takes apart."""
    words, unknown = (("w1", word, "w0", "w2") for word in (odd, "never"))
    assert lm.score_words([words]) == lm.score_words([unknown])
    assert lm.score_sentences([words]) == lm.score_sentences([unknown])
    for several in [("", "w1 w0"), ("w1 w0", ""), (odd,), ("w0", odd), (odd, "w0"), ("w0 w1", "", "w0")]:
        replaced = tuple(word if lm.knows(word) else "never" for word in several)
        assert lm.score_words([several], None) == lm.score_words([replaced], None)
    after = lm.extend(lm.start(), "w1")[1]
    assert lm.extend(after, odd) == lm.extend(after, "never")
    assert not lm.knows(odd)


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\x85"])
def test_other_blanks_are_letters(tmp_path: Path, blank: str) -> None:
    (tmp_path / "lm.arpa").write_text(zoo.ARPA.replace("\tD\t", f"\tD{blank}X\t").replace("C D", f"C D{blank}X"))
    lm = NgramLM(tmp_path / "lm.arpa")
    word = f"D{blank}X"
    assert lm.knows(word)
    assert lm.score_words([["C", word]])[0][1] == pytest.approx(-0.2 * math.log(10))


def test_unknown_words_in_upper_case_are_one_token(tmp_path: Path) -> None:
    """KenLM takes `<UNK>` for `<unk>`."""
    text = zoo.ARPA.replace("-1.2\t<unk>", "-1.2\t<UNK>")
    (tmp_path / "upper.arpa").write_text(text)
    lm = NgramLM(tmp_path / "upper.arpa")
    assert lm.vocab.words == [SOS_EOS, UNK, *"ABCD"]
    assert lm.score_words([["<UNK>"]], None) == lm.score_words([["never"]], None)
    (tmp_path / "lower.arpa").write_text(zoo.ARPA)
    expected = NgramLM(tmp_path / "lower.arpa").step([None], torch.tensor([0]), torch.tensor([0]))[1]
    torch.testing.assert_close(lm.step([None], torch.tensor([0]), torch.tensor([0]))[1], expected)


def test_a_word_that_stands_twice_is_named(tmp_path: Path) -> None:
    text = zoo.ARPA.replace("ngram 1=7", "ngram 1=8").replace("-0.8\tB", "-0.7\tA\t-0.2\n-0.8\tB")
    (tmp_path / "twice.arpa").write_text(text)
    with pytest.raises(VocabError, match=r"twice\.arpa: the word 'A' stands twice"):
        _ = NgramLM(tmp_path / "twice.arpa").vocab


def test_states_are_values(lm: NgramLM) -> None:
    start = lm.start()
    first, again = lm.extend(start, "w1")[1], lm.extend(lm.start(), "w1")[1]
    other = lm.extend(start, "w2")[1]
    assert start == lm.start()
    assert first == again
    assert first != other
    assert len({first, again, other, start, lm.start()}) == 3
    lm.end(first)
    assert first == again


def test_vocabulary_and_rows(lm: NgramLM) -> None:
    assert lm.vocab.words[:2] == [SOS_EOS, UNK]
    assert set(lm.vocab.words[2:]) == {word for words in pseudo_text(1000) for word in words}
    assert lm.vocab.case == "lower"
    w0, w1 = lm.vocab.ids["w0"], lm.vocab.ids["w1"]
    state, rows = lm.step(lm.initial_state(), torch.zeros(1, dtype=torch.long), torch.tensor([lm.vocab.bos]))
    _, more = lm.step(state, torch.tensor([0, 0]), torch.tensor([w0, lm.vocab.unk]))
    for row in (*rows, *more):
        assert float(row.exp().sum()) == pytest.approx(1.0, abs=1e-5)
    scores = lm.score_words([["w0", "w1"], ["w0"]])
    assert [float(rows[0, w0]), float(more[0, w1])] == pytest.approx(scores[0][:2], abs=1e-5)
    assert float(more[0, lm.vocab.eos]) == pytest.approx(scores[1][1], abs=1e-5)


def test_model_folder(arpa: Path) -> None:
    (arpa.parent / "config.json").write_text(json.dumps({"kind": "ngram", "case": "upper", "file": arpa.name}))
    lm = NgramLM.load(arpa.parent)
    assert lm.vocab.case == "upper"
    assert lm.score_words([["w0"]], max_unknown=None) == NgramLM(arpa).score_words([["w0"]])
    (arpa.parent / "config.json").write_text('{"kind": "ngram"}')
    with pytest.raises(ModelError, match=r"config\.json: expected JSON with 'file'"):
        NgramLM.load(arpa.parent)
    with pytest.raises(ModelError, match="it has no config"):
        NgramLM.load(arpa.parent / "none")


def test_bad_files(arpa: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        NgramLM(tmp_path / "none.arpa")
    text = arpa.read_text()
    bad = {
        "empty.arpa": b"",
        "text.arpa": b"just some words\n",
        "half.arpa": text[: len(text) // 2].encode(),
        "half.arpa.gz": gzip.compress(text.encode())[:2000],
        "half.arpa.xz": lzma.compress(text[: len(text) // 2].encode()),
        "unigrams.arpa": b"\\data\\\nngram 1=3\n\n\\1-grams:\n0\t<s>\n-0.3\t</s>\n-0.3\t<unk>\n\n\\end\\\n",
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelError, match=f"{name}: KenLM cannot read it"):
            NgramLM(tmp_path / name)


@pytest.mark.parametrize("pack", [gzip, lzma])
def test_packed_files_may_have_more_ngrams_than_bytes(pack: Any, tmp_path: Path) -> None:
    path = tmp_path / f"lm.arpa.{'gz' if pack is gzip else 'xz'}"
    counts = "ngram 1=20000\nngram 2={}\n"
    lines = "".join(f"-1.5\tw{number % 10}\n" for number in range(20000))
    path.write_bytes(pack.compress(f"\\data\\\n{counts.format(1)}\n\\1-grams:\n{lines}".encode()))
    assert path.stat().st_size < 20000
    check_file(path)
    path.write_bytes(pack.compress(f"\\data\\\n{counts.format(10**9)}\n\\1-grams:\n{lines}".encode()))
    with pytest.raises(ModelError, match="says 'ngram 2=1000000000', expected a number of n-grams that a file of its"):
        check_file(path)


def test_an_arpa_packed_by_xz_is_read_by_its_name(arpa: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lm.arpa.xz"
    path.write_bytes(lzma.compress(arpa.read_bytes()))
    try:
        kenlm.Model(str(path))
    except (OSError, RuntimeError):
        pass  # built without liblzma
    else:
        assert load_ngram(str(path)).score_words(SENTENCES) == NgramLM(arpa).score_words(SENTENCES)

    def no_xz(*_: Any) -> None:
        raise RuntimeError("This looks like a xz file but xz support was not compiled in.")

    monkeypatch.setattr(kenlm, "Model", no_xz)
    with pytest.raises(ModelError, match=r"lm\.arpa\.xz: .*without liblzma reads no \.xz: unpack it"):
        load_ngram(str(path))


def test_kenlm_missing(arpa: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(ModelError, match="pip install kenlm"):
        NgramLM(arpa)


def binary(words: list[str], has_words: int = 1, count: int | None = None) -> bytes:
    """The parts of a KenLM binary file that its vocabulary is read from; layout in lm/binary_format.cc of KenLM."""
    import struct

    magic = b"mmap lm http://kheafield.com/code format version 5\n\0"
    header = struct.pack("<BxxxfiBxxxI", 2, 1.5, 0, has_words, 0)
    counts = struct.pack("<QQ", len(words) if count is None else count, 0)
    return magic.ljust(88, b"\0") + header + counts + bytes(range(256)) + b"".join(w.encode() + b"\0" for w in words)


def test_vocabulary_of_binary_files(tmp_path: Path) -> None:
    path = tmp_path / "lm.bin"
    path.write_bytes(binary(["<unk>", "<s>", "</s>", "A", "É"]))
    assert read_vocabulary(path) == ["<unk>", "<s>", "</s>", "A", "É"]
    for content, problem in (
        (binary(["<unk>", "A"], has_words=0), "without its words"),
        (binary(["<unk>", "A"], count=3), "found 2 words, the header says 3"),
    ):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=problem):
            read_vocabulary(path)


def test_vocabulary_of_bad_files(tmp_path: Path) -> None:
    for name, content in {
        "a.arpa": b"\\data\\\n\\1-grams:\n-1\tA\n",
        "b.arpa.gz": b"no gzip",
        "c.arpa": b"\xff\n",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelError, match=name):
            read_vocabulary(tmp_path / name)


def test_shared_books(shared_data: Path) -> None:
    """The shipped n-gram on books that it was not trained on."""
    folder = Path(__file__).resolve().parents[3] / "lm_zoo" / "pretrained" / "ngram"
    if not (folder / "lm.arpa.gz").exists():
        pytest.skip("the n-gram LM is not shipped here")
    from lm_zoo.text.sentences import read_sentences

    lm: Any = NgramLM.load(folder)
    sentences = list(read_sentences(shared_data / "books" / "valid.txt.xz"))[:2000]
    scores = [score for row in lm.score_words(sentences) for score in row]
    assert 200 < math.exp(-sum(scores) / len(scores)) < 400


@pytest.mark.parametrize(("unk", "nats"), [("", 230), ("-99\t<unk>\n", 228), ("-1.5\t<unk>\n", 0)])
def test_unknown_words_without_a_probability_are_said(tmp_path: Path, unk: str, nats: int) -> None:
    """As SRILM writes it by default, and with <unk> in the vocabulary alone."""
    path = tmp_path / "lm.arpa"
    unigrams = f"-1\t</s>\n-99\t<s>\t-0.3\n{unk}-0.9\tHE\t-0.2\n"
    counts = f"ngram 1={unigrams.count(chr(10))}\nngram 2=1\n"
    path.write_text(f"\\data\\\n{counts}\n\\1-grams:\n{unigrams}\n\\2-grams:\n-0.3\t<s> HE\n\n\\end\\\n")
    lm = NgramLM(path)
    lm.score_words([["HE", "HE"]])
    assert lm.said() == ""
    lm.score_words([["HE", "HE", "SAID"]])
    assert (f"each unknown word costs {nats} nats" in lm.said()) if nats else lm.said() == ""
