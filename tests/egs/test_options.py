"""Options of recipes as they reach the commands, which are only written down."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_zoo.registry import pretrained
from tests.scripts import ROOT

Run = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs `egs/SCRIPT OPTION...` in a copy, in tmp_path/egs; gives the lines `rescore ...` that it calls."""
    shutil.copytree(
        ROOT / "egs", tmp_path / "egs", symlinks=True, ignore=shutil.ignore_patterns("exp*", "data", "*.png")
    )
    called, commands = tmp_path / "called", tmp_path / "bin"
    commands.mkdir()
    (commands / "rescore").write_text(
        f'#!/bin/sh\n[ "$*" != lms ] || exec echo {" ".join(sorted(pretrained()))}\necho "$@" >> {called}\n'
        '[ "$1" != lms ] || exit 2\n'
    )
    (commands / "rescore").chmod(0o755)

    def run(script: str, *options: str, code: int = 0) -> list[str]:
        words = ["bash", str(tmp_path / "egs" / script), *options]
        env = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == code, done.stderr
        print(done.stderr, file=sys.stderr)
        return called.read_text().splitlines() if called.exists() else []

    return run


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("librispeech/ASR/run.sh", ("--lms", "transfornn lstmm")),
        ("librispeech/ASR/run.sh", ("--fusion-lm", "lstmm?samples=2")),
        ("mini_librispeech/ASR/run.sh", ("--lms", "lstmm lstm")),
        ("pocketsphinx/run.sh", ("--lms", "exp/lstm lstmm")),
        ("moonshine/run.sh", ("--lms", "hf:smollm2 lstmm")),
        ("shared/rescore.sh", ("--lms", "lstmm")),
        ("icefall/rescore.sh", ("--ngram", "lstmm")),
    ],
)
def test_names_of_lms_are_checked_before_the_first_stage(
    script: str, options: tuple[str, ...], run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(script, *options, code=2) == []
    assert "no LM is called 'lstmm', and there is no such file or folder" in capfd.readouterr().err


def test_lms_are_evaluated_on_the_device_that_is_given(run: Run, tmp_path: Path) -> None:
    where = ("--device", "cuda:1", "--stage")
    run("moonshine/run.sh", "--noise", "", *where, "3", "--stop-stage", "3")
    data = tmp_path / "data"
    touch(*(data / "slf_pocketsphinx" / name for name in ("lat", "dev.text", "test.text")))
    run("pocketsphinx/run.sh", "--data", str(data), *where, "3", "--stop-stage", "3")
    touch(data / "lat.1.gz", data / "num_jobs", data / "words.txt", data / "text")
    places = [word for name in ("lang", "dev", "dev-data", "test", "test-data") for word in (f"--{name}", str(data))]
    run("kaldi/run.sh", *places, *where, "0", "--stop-stage", "0", "--out", str(tmp_path / "out"))
    (tmp_path / "exp").mkdir()
    rows = ("--rows", "lstm", "--further", "", "--exp-dir", str(tmp_path / "exp"))
    called = run("ptb/LM/run.sh", *rows, *where, "3", "--stop-stage", "3")
    called = [line for line in called if line.startswith(("nbest", "lattice rescore", "ppl"))]
    assert len(called) == 3 + 2 + 1 + 3 and all(" --device cuda:1" in line for line in called), called
    assert all(" --max-unknown 0.5" in line for line in called if line.startswith(("lattice", "ppl"))), called


def test_no_lms_on_books_where_none_are_asked_for(run: Run, tmp_path: Path) -> None:
    assert run("librispeech/LM/run.sh", "--mini", "true", "--books-lms", "", "--stage", "2", "--stop-stage", "2") == []
    assert not (tmp_path / "egs/librispeech/LM/exp").exists()


def test_no_fusion_without_scales_for_it(run: Run, tmp_path: Path) -> None:
    decode = tmp_path / "egs/librispeech/ASR/decode.py"
    decode.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path / "called"}\n')
    called = run("librispeech/ASR/run.sh", "--mini", "true", "--fusion-scales", "", "--stage", "3", "--stop-stage", "3")
    assert len(called) == 3 and not any("--lm" in line for line in called)


@pytest.mark.parametrize(
    ("recipe", "parts", "options"),
    [
        ("mini_librispeech", ("train-clean-5", "dev-clean-2"), ()),
        ("librispeech", ("train-clean-100", "dev-clean"), ("--mini", "true")),
    ],
)
def test_mini_recipes_take_their_own_parts_alone(
    run: Run, tmp_path: Path, recipe: str, parts: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """lhotse unpacks those of Mini LibriSpeech beside LibriSpeech's: speakers of dev-clean are in dev-clean-2, too."""
    corpus = tmp_path / "dl/LibriSpeech"
    for part in ("train-clean-5/1", "dev-clean-2/13", "dev-clean/13", "train-clean-100/2", "test-clean/3"):
        (corpus / part).mkdir(parents=True)
    touch(tmp_path / "dl/dev-clean-speaker-split.json")
    (tmp_path / "bin/asr").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path / "called"}\n')
    (tmp_path / "bin/asr").chmod(0o755)
    (called,) = run(f"{recipe}/ASR/prepare.sh", "--dl-dir", str(tmp_path / "dl"), "--stop-stage", "1", *options)
    assert f"--librispeech {corpus} -p {parts[0]} -p {parts[1]} --split " in called


def test_synthetic_speech_is_the_same_however_its_text_is_named(run: Run, tmp_path: Path) -> None:
    """What is done for LibriSpeech's recipe, which names it from its own folder, is done for its own `run.sh`."""
    touch(*(tmp_path / f"books/{part}.txt.xz" for part in ("train", "valid", "test")))
    (tmp_path / "bin/asr").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path / "called"}\n')
    (tmp_path / "bin/asr").chmod(0o755)
    called = run("synthetic/ASR/prepare.sh", "--text-dir", "../../../books")
    assert len(called) == 5 and all(f" {tmp_path / 'books'}/" in line for line in called)


def test_aishell_without_neural_lms(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "egs/aishell/ASR"
    (recipe / "decode.py").write_text(f'#!/bin/sh\necho "decode $@" >> {tmp_path / "called"}\n')
    touch(recipe / "exp/decoded/lattices-dev-x.pt", recipe / "exp/decoded/lattices-test-x.pt")
    touch(recipe / "exp/decoded/nbest-test-fast_beam_search.jsonl.gz")
    called = run("aishell/ASR/run.sh", "--kinds", "", "--fusion", "", "--device", "cpu", "--stage", "3")
    assert sum(line.startswith("decode") for line in called) == 3
    assert [line.split()[0] for line in called if not line.startswith(("decode", "lattice"))] == [
        *("convert", "convert"),  # its lists have the n-gram's scores: rescore nbest has nothing to do
        *("tune", "combine", "tune"),
        "compare",
    ]
    assert not any("--lm" in line.split() for line in called)


def test_aishell_says_first_that_the_lm_of_the_fusion_is_not_trained(run: Run, tmp_path: Path) -> None:
    train = tmp_path / "egs/aishell/ASR/train.py"
    train.write_text(f'#!/bin/sh\necho "train $@" >> {tmp_path / "called"}\n')
    options = ("--device", "cpu", "--musan", "false", "--stage", "1", "--stop-stage", "1")
    assert run("aishell/ASR/run.sh", "--kinds", "transformer", *options, code=2) == []
    assert len(run("aishell/ASR/run.sh", "--kinds", "transformer", "--fusion", "", *options)) == 1
    assert len(run("aishell/ASR/run.sh", *options)) == 2


def test_no_mixtures_of_rows_that_are_not_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "egs/swbd/LM/exp").mkdir()
    (called,) = run("swbd/LM/run.sh", "--rows", "bayes_ff_1 bayes_ff_1-2", "--stage", "3")
    mixtures = [word for word in called.split() if word.startswith("ngram,") or word.startswith("exp/")]
    pairs = [word for lm in ("transformer", "bayes_ff_1", "bayes_ff_1-2") for word in (f"exp/{lm}", f"ngram,{lm}")]
    assert sorted(mixtures) == sorted([*pairs, "ngram,bayes_ff_1,transformer"])


def test_adaptation_ends_where_the_best_of_its_grid_cannot_be_told(run: Run, tmp_path: Path) -> None:
    exp = tmp_path / "egs/pitt/LM/exp/10"
    touch(*(exp / kind / "tried/0.1-0/.done" for kind in ("tuned", "tuned-twice")))
    grid = ("--sizes", "10", "--rates", "0.1", "--dropouts", "0", "--seeds", "1")
    run("pitt/LM/run.sh", *grid, "--stage", "1", "--stop-stage", "1", code=2)
    assert not (exp / "tuned/1").is_symlink()
