"""One check at every door: words that an LM does not know are counted, and refused where they are too many."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rescore as rs
from lm_zoo.errors import VocabError
from lm_zoo.registry import save_folder
from rescore.cli.main import cli
from tests.lm_zoo.zoo import ARPA, neural
from tests.rescore.formats.test_kaldi_lattice import TEXT

WORDS = {
    "right": "<eps> 0\nA 1\nB 2\nC 3\nD 4\n",
    "lower": "<eps> 0\na 1\nb 2\nc 3\nd 4\n",
    "other": "<eps> 0\nUNO 1\nDUE 2\nTRE 3\nA 4\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A neural LM over A to H, an n-gram over A to D, lattices, lists and texts of three kinds of words."""
    save_folder(tmp_path / "nn", neural("lstm"), "lstm", {})
    (tmp_path / "toy.arpa").write_text(ARPA)
    (tmp_path / "lat.1.gz").write_bytes(gzip.compress(TEXT.encode()))
    for kind, table in WORDS.items():
        words = [line.split()[0] for line in table.splitlines()[1:4]]
        (tmp_path / f"{kind}.words").write_text(table)
        (tmp_path / f"{kind}.txt").write_text(" ".join(words) + "\n")
        hyps = [{"words": " ".join(words), "scores": {"am": -1.0}}]
        (tmp_path / f"{kind}.jsonl").write_text(json.dumps({"utt_id": "u", "hyps": hyps}) + "\n")
        (tmp_path / f"{kind}.1").mkdir()
        (tmp_path / f"{kind}.1/words_text").write_text(f"u-1 {' '.join(words)}\n")
    return tmp_path


def doors(folder: Path, kind: str) -> dict[str, list[object]]:
    lattices, out = f"kaldi:{folder}/lat.1.gz?words={folder}/{kind}.words", folder / "out"
    nn, ngram = ("--lm", folder / "nn"), ("--ngram", folder / "toy.arpa")
    scales = ("--scale", "nn=1", "--scale", "ngram=1")
    return {
        "nbest": ["nbest", "--nbest", folder / f"{kind}.jsonl", *nn, "--out", out],
        "nbest-ngram": ["nbest", "--nbest", folder / f"{kind}.jsonl", *ngram, "--out", out],
        "ppl": ["ppl", *nn, "--text", folder / f"{kind}.txt"],
        "ppl-window": ["ppl", *nn, "--text", folder / f"{kind}.txt", "--window", 3],
        "kaldi": ["kaldi", "score", folder / f"{kind}.1", *nn],
        "lattice": ["lattice", "rescore", lattices, f"slf:{out}", *nn, *scales[:2]],
        "lattice-ngram": ["lattice", "rescore", lattices, f"slf:{out}", *ngram, *scales[2:]],
        "lattice-nbest": ["lattice", "rescore", lattices, f"{out}.jsonl", *nn, *scales[:2], "-n", 3],
        "convert": ["convert", lattices, f"{out}.jsonl", *ngram, *scales[2:], "--jobs", 2],
    }


DOORS = list(doors(Path(), "right"))


def run(arguments: list[object]) -> Any:
    return CliRunner().invoke(cli, list(map(str, arguments)))


def told(door: str, result: Any, share: str) -> bool:
    """Whether the share of unknown words was said; `ppl` has it in its table."""
    return f"({share})" in result.stdout if door.startswith("ppl") else f" unknown ({share})" in result.stderr


@pytest.fixture(autouse=True)
def _kenlm() -> None:
    pytest.importorskip("kenlm", reason="n-gram LMs need kenlm")


@pytest.mark.parametrize("door", DOORS)
def test_known_words_pass_and_are_counted(folder: Path, door: str) -> None:
    result = run(doors(folder, "right")[door])
    assert result.exit_code == 0, result.output
    assert told(door, result, "0.0 %")


@pytest.mark.parametrize("door", DOORS)
def test_another_case_is_seen_in_that_of_the_lm(folder: Path, door: str) -> None:
    """The scores are those of the text in the LM's case, and what comes out has the case that came in."""
    seen = run(doors(folder, "lower")[door])
    shutil.rmtree(folder / "out", ignore_errors=True)
    expected = run(doors(folder, "right")[door])
    assert seen.exit_code == expected.exit_code == 0, seen.output
    assert seen.stdout == expected.stdout and told(door, seen, "0.0 %")
    assert "in the form of its own text" in seen.stderr and "in the form of" not in expected.stderr


@pytest.mark.parametrize("door", DOORS)
def test_another_case_is_refused_if_text_is_seen_as_it_is(folder: Path, door: str) -> None:
    result = run([*doors(folder, "lower")[door], "--text-view", "exact"])
    assert isinstance(result.exception, VocabError)
    assert "but the LM was trained on upper-case text" in str(result.exception)
    assert not list(folder.glob("out*.jsonl")) and not list(folder.glob("out/*.slf*"))


@pytest.mark.parametrize("door", DOORS)
def test_another_language_is_refused_unless_told(folder: Path, door: str) -> None:
    arguments = doors(folder, "other")[door]
    refused = run(arguments)
    assert isinstance(refused.exception, VocabError)
    assert "more than 50% are refused" in str(refused.exception)
    assert "'DUE'" in str(refused.exception) or door == "convert"  # the words were looked up in other processes
    assert not list(folder.glob("out*.jsonl")) and not list(folder.glob("out/*.slf*"))
    allowed = run([*arguments, "--max-unknown", 1])
    assert allowed.exit_code == 0, allowed.output
    assert told(door, allowed, "100.0 %")
    assert not told(door, allowed, "0.0 %")


def test_words_of_lattices_are_those_of_best_paths(folder: Path) -> None:
    """Most words on arcs may be none at all, where pieces make them; the best path is what the lattice is about."""
    nonce = range(5, 55)
    (folder / "nonce.words").write_text(WORDS["right"] + "".join(f"X{number} {number}\n" for number in nonce))
    arcs = "".join(f"0 1 {number} 1000,1000,\n" for number in nonce)
    (folder / "lat.1.gz").write_bytes(gzip.compress(f"u1 \n0 1 1 1,1,\n{arcs}1 0,0,\n\n".encode()))
    source = f"kaldi:{folder}/lat.1.gz?words={folder}/nonce.words"
    arguments = ["lattice", "rescore", source, f"slf:{folder / 'out'}"]
    result = run([*arguments, "--lm", folder / "nn", "--scale", "nn=1"])
    assert result.exit_code == 0, result.output
    assert "nn: 0 of 1 words on best paths unknown" in result.stderr


@pytest.mark.parametrize("door", ["nbest", "lattice", "convert", "ppl"])
def test_shares_are_looked_at_together(door: str, folder: Path) -> None:
    arguments = [*doors(folder, "other")[door], *(["--json", folder / "out"] if door == "ppl" else [])]
    jobs = arguments.index("--jobs") if "--jobs" in arguments else len(arguments)
    share = [*arguments[:jobs], "--split", "1/1"]
    assert run(share).exit_code == 0
    refused = run(["merge", folder / "out.jsonl" if door == "convert" else folder / "out"])
    assert isinstance(refused.exception, VocabError) and "unknown" in str(refused.exception)
    assert run([*share, "--max-unknown", 1]).exit_code == 0
    assert run(["merge", folder / "out.jsonl" if door == "convert" else folder / "out"]).exit_code == 0


def test_a_share_of_unknown_words_is_not_refused_alone(folder: Path) -> None:
    texts = 400 * ["A B C D A B C D A B"] + 3 * ["UNO DUE TRE"]
    lists = [{"utt_id": f"u{n}", "hyps": [{"words": text, "scores": {"am": 0.0}}]} for n, text in enumerate(texts)]
    (folder / "lists.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lists))
    for share in ("1/2", "2/2"):  # the last words are the second part
        given = ["--nbest", folder / "lists.jsonl", "--ngram", folder / "toy.arpa", "--out", folder / "out"]
        assert run(["nbest", *given, "--split", share]).exit_code == 0
    merged = run(["merge", folder / "out"])
    assert merged.exit_code == 0 and "ngram: 9 of 4009 hypothesis words unknown" in merged.stderr


@pytest.mark.parametrize("door", ["nbest-ngram", "lattice-ngram", "convert", "ppl-ngram"])
@pytest.mark.parametrize("shared", [False, True])
def test_what_unknown_words_cost_is_said(folder: Path, door: str, shared: bool) -> None:
    arpa = folder / "toy.arpa"
    arpa.write_text("".join(line for line in ARPA.splitlines(True) if "<unk>" not in line).replace("1=7", "1=6"))
    told = f"ngram: {arpa} has no <unk>, or one of probability 0: each unknown word costs 230 nats"
    out = folder / ("out.jsonl" if door == "convert" else "out")
    given = {**doors(folder, "other"), "ppl-ngram": ["ppl", "--ngram", arpa, "--text", folder / "other.txt"]}[door]
    given += ["--json", out] if door == "ppl-ngram" else []
    jobs = given.index("--jobs") if shared and "--jobs" in given else len(given)
    result = run([*given[:jobs], *(["--split", "1/1"] if shared else []), "--max-unknown", 1])
    result = run(["merge", out]) if shared else result
    assert result.exit_code == 0, result.output
    assert result.stderr.count(told) == 1


def test_what_unknown_words_cost_is_said_in_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lattices = rs.read_lattices(f"kaldi:{folder}/lat.1.gz?words={folder}/other.words")
    lattices.rescore(ngram=folder / "toy.arpa", weights={"ngram": 1}, max_unknown=1)
    assert "ngram: 3 of 3 words on best paths unknown (100.0 %), scored as <unk>" in capsys.readouterr().err
    (folder / "toy.arpa").write_text(ARPA.replace("-1.2\t<unk>", "-99\t<unk>"))
    lattices.rescore(ngram=folder / "toy.arpa", weights={"ngram": 1}, max_unknown=1)
    assert "probability 0: each unknown word costs 228 nats" in capsys.readouterr().err
    known = rs.read_lattices(f"kaldi:{folder}/lat.1.gz?words={folder}/right.words")
    known.rescore(ngram=folder / "toy.arpa", weights={"ngram": 1})
    assert "unknown" not in capsys.readouterr().err
