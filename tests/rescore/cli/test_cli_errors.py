"""What users get wrong at the command line: one line that says what was found and what to do, exit code 2."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_zoo.errors import TextError
from lm_zoo.text.sentences import read_sentences
from rescore.cli.door import missing_package, run
from rescore.cli.main import cli

Rescore = Callable[..., tuple[int, str, str]]
LIST = '{"utt_id": "a", "hyps": [{"words": "HE SAID", "scores": {"am": -1.0}}]}\n'
KALDI = "1089-134686-0000 HE HOPED\n1089-134686-0001 STUFF IT\n1089-134686-0002 SO\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "text": "HE SAID\nSHE SAID SO\n",
        "lower": "he said\nso\n",
        "kaldi": KALDI,
        "ref": "a HE SAID\n",
        "lists.jsonl": LIST,
        "file": "",
        "junk.pt": "junk",
    }.items():
        Path(name).write_text(text)
    Path("empty").mkdir()
    return tmp_path


@pytest.fixture
def rescore(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rescore:
    """Exit code, standard output and standard error of the program; a traceback fails the test."""

    def called(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rescore", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            run("rescore", cli)
        return int(ended.value.code or 0), *capsys.readouterr()

    return called


TRAIN = ("--text", "text", "--valid", "text", "--out", "lm", "--tokens", "word")
BAD = [
    (("convert", "nofile", "x.jsonl"), "'nofile': no such file or folder"),
    (("tune", "--lattices", "nofile", "--ref", "ref", "--out", "w"), "'nofile': no such file or folder"),
    (("nbest", "--nbest", "nofile", "--ngram", "ngram", "--out", "x"), "'nofile': no such file or folder"),
    (
        ("nbest", "--nbest", "lists.jsonl", "--ngram", "ngram", "--out", "file"),
        "file: is a file, expected a folder to write",
    ),
    (("train-lm", "lstm", *TRAIN[:4], "--out", "file"), "file: is a file, expected a folder to write"),
    (("convert-lm", "bayesian", "transformer", "--out", "file"), "file: is a file, expected a folder to write"),
    (("tune", "--scores", "empty", "--ref", "ref", "--out", "empty"), "empty: is a folder, expected the name of a fil"),
    (("convert", "lists.jsonl", "x.foo"), "to write one of this name, say its format: FORMAT:PATH with one of: jsonl"),
    (("convert", "text", "x.jsonl"), "'text': the format cannot be guessed: FORMAT:PATH with one of: jsonl"),
    (("tune", "--scores", "lists", "--ref", "ref", "--out", "w"), "lists: no such folder"),
    (("wer", "--ref", "lists.jsonl", "--hyp", "ref"), "lists.jsonl:1: JSON without a reference"),
    (("wer", "--ref", "ref", "--hyp", "text"), "1 of 1 references have no hypotheses (a)"),
    (("ppl", "--ngram", "ngram", "--text", "kaldi"), "utterance id ('1089-134686-0000'); write kaldi:kaldi to leave"),
    (("ppl", "--ngram", "ngram", "--text", "lower", "--text-view", "exact"), "--case upper, text by sed 's/.*/\\U&/'"),
    (("ppl", "--lm", "lstm", "--text", "text", "--window", 0), "0 is not in the range x>=1"),
    (("train-lm", "ngram", *TRAIN), "a neural LM is expected here, found the kind 'ngram'; rescore train-ngram makes"),
    (("train-lm", "foo", *TRAIN), "no kind of LM is called 'foo'; there are: bayesian"),
    (("train-lm", "lstm", *TRAIN, "--set", "dim=0"), "lstm: setting 'dim' is 0, expected 1 or more"),
    (("train-lm", "lstm", *TRAIN, "--set", "rnn_layers=-1"), "setting 'rnn_layers' is -1, expected 1 or more"),
    (("train-lm", "transformer", *TRAIN, "--set", "layers=-1"), "setting 'layers' is -1, expected 0 or more"),
    (("train-lm", "lstm", *TRAIN, "--longest", 0), "0 is not in the range x>=1"),
    (("train-lm", "lstm", *TRAIN, "--vocab-size", 0), "0 is not in the range x>=3"),
    (("train-lm", "lstm", *TRAIN, "--device", "gpu"), "device 'gpu'; expected cpu, cuda or cuda:N"),
    (("convert-lm", "ngram", "transformer", "--out", "lm"), "found the kind 'ngram'; rescore train-ngram makes n-gram"),
    (("export-lm", "lstm", "--out", "empty"), "empty: is a folder"),
    (
        ("lattice", "rescore", "u.slf", "slf:out", "--lm", "ngram", "--scale", "ngram=1"),
        "'ngram' is the score of --ngram; give an n-gram LM with that option",
    ),
    (("lms", "file"), "file: not a model folder, it has no config.json"),
    (("icefall-decode", "text"), "text: is no Python script, expected the decode.py of an icefall recipe"),
    (("icefall-decode", "nofile.py"), "nofile.py: no such file, expected the decode.py of an icefall recipe"),
]


@pytest.mark.parametrize(("args", "expected"), BAD, ids=lambda value: " ".join(map(str, value[:3])))
def test_one_line(args: tuple[object, ...], expected: str, folder: Path, rescore: Rescore) -> None:
    code, _, error = rescore(*args)
    assert code == 2 and expected in error, error
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") == sorted(
        ["text", "lower", "kaldi", "ref", "lists.jsonl", "file", "junk.pt", "empty"]
    )


def test_training_on_a_gpu_that_is_not_there(folder: Path, rescore: Rescore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, error = rescore("train-lm", "lstm", *TRAIN, "--device", "cuda")
    assert code == 2 and error.startswith("rescore: device 'cuda': torch ") and "take the device cpu" in error
    assert not Path("lm").exists()


def test_wer_of_nbest_lists_counts_the_first(folder: Path, rescore: Rescore) -> None:
    code, output, error = rescore("wer", "--ref", "ref", "--hyp", "lists.jsonl")
    assert code == 0 and output.startswith("%WER 0.00 [ 0 / 2,")
    assert "lists.jsonl: N-best lists, of which the first hypotheses are counted" in error


@pytest.mark.parametrize(
    "text",
    ["1ST OF ALL\nHE SAID\nSO\n", "B1 X\nB2 B1\nB3 X\n", "A1 X\nA1 Y\nA2 Z\n", "W1\nW2\nW3\n", "U-1 A\nU-2 B\n"],
)
def test_words_that_are_no_utterance_ids(text: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(text)
    assert [" ".join(words) for words in read_sentences(tmp_path / "text")] == text.splitlines()


def test_utterance_ids_are_kept_where_that_is_wanted(folder: Path) -> None:
    with pytest.raises(TextError, match="every line begins with what looks like an utterance id"):
        list(read_sentences("kaldi"))
    assert next(iter(read_sentences("text:kaldi"))) == ["1089-134686-0000", "HE", "HOPED"]
    assert next(iter(read_sentences("kaldi:kaldi"))) == ["HE", "HOPED"]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "import soundfile",
            "needs the package soundfile, which cannot be imported (.*); pip install 'rescore\\[asr\\]'",
        ),
        ("from lhotse.cut import Cut", "the package lhotse, .*; pip install 'rescore\\[asr\\]'"),
        ("import kaldialign", "the package kaldialign, .*; install rescore again"),
    ],
)
def test_packages_that_are_not_there(
    statement: str, expected: str, rescore: Rescore, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = statement.split()[1].partition(".")[0]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"{package}.cut", raising=False)
    monkeypatch.setattr(cli, "get_command", lambda *_: exec(statement))
    code, _, error = rescore("nbest")
    assert code == 2
    assert re.search(expected, error), error
    assert "Traceback" not in error


def test_a_module_of_ours_that_is_not_there_is_a_bug() -> None:
    assert missing_package(ImportError("cannot import name 'x'", name="rescore.files")) == ""
    assert missing_package(ImportError("no name")) == ""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        RuntimeError("out of memory"),
        ImportError("libtorch.so: cannot map zero-fill pages"),
    ],
)
def test_want_of_memory_anywhere(error: Exception, rescore: Rescore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a thread to be started, torch's own, and what torch is larger than."""

    def starved(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("rescore.evaluation.counts.count_ngrams", starved)
    code, _, err = rescore("count", "--text", "text", "--out", "out")
    assert (code, err) == (2, "rescore: memory does not suffice; give it more, or fewer --workers\n")
    monkeypatch.setattr("rescore.evaluation.counts.count_ngrams", lambda *_, **__: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        rescore("count", "--text", "text", "--out", "out")


ONCE = [
    ("run", "--test", "--dev lists.jsonl --ref ref --lm lstm --out x"),
    ("nbest", "--ngram", "--nbest lists.jsonl --out x"),
    ("tune", "--ref", "--scores lists.jsonl --out x"),
    ("combine", "--scores", "--out x"),
    ("combine", "--weights", "--scores lists.jsonl --out x"),
    ("wer", "--hyp", "--ref ref"),
    ("ppl", "--text", "--lm lstm"),
    ("lattice info", "--ref", "slf:empty"),
]


@pytest.mark.parametrize(("command", "option", "others"), ONCE)
def test_an_input_is_given_once(folder: Path, rescore: Rescore, command: str, option: str, others: str) -> None:
    """The last one alone would count, as of two test sets."""
    code, out, err = rescore(*command.split(), *others.split(), option, "one", option, "two")
    assert (code, out) == (2, "") and f"{option} is given 2 times (one, two), expected once" in err
