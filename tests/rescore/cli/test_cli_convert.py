"""`rescore convert`: N-best lists and lattices to N-best lists, counts, messages."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli
from rescore.errors import FormatError, RescoreError, UsageError
from rescore.formats import read_nbest, write_nbest
from rescore.types import Hypothesis, NbestList, Words
from tests.rescore.formats.test_slf import HTK_NODES, SPHINX
from tests.rescore.lattices.test_ngram_lm import ARPA

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    def invoke(*args: object) -> Result:
        result = CliRunner().invoke(cli, ["convert", *map(str, args)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def lattices(tmp_path: Path) -> Path:
    folder = tmp_path / "lattices"
    folder.mkdir()
    for number in range(5):
        (folder / f"utt{number}.slf.gz").write_bytes(gzip.compress(HTK_NODES.encode()))
    return folder


def found(path: Path) -> dict[str, list[tuple[Words, dict[str, float]]]]:
    return {nbest.utt_id: [(hyp.words, hyp.scores) for hyp in nbest.hyps] for nbest in read_nbest(str(path))}


@pytest.mark.parametrize("jobs", [1, 2])
def test_lattices_with_their_own_lm(run: Run, lattices: Path, tmp_path: Path, jobs: int) -> None:
    out = tmp_path / "lists.jsonl.gz"
    result = run(lattices, out, "--scale", "lm=2", "--scale", "words=0", "--jobs", jobs, "--case", "upper")
    lists = found(out)
    assert list(lists) == [f"utt{number}" for number in range(5)]
    assert lists["utt3"] == [
        (("A", "CAT"), {"am": -33.0, "lm": -2.75, "words": 2.0}),
        (("THE", "CAT"), {"am": -31.5, "lm": -4.25, "words": 2.0}),
    ]
    assert "5 utterances, 10 hypotheses written to" in result.stderr
    assert "5 utterances with fewer hypotheses than asked for" in result.stderr
    assert "useless" not in result.stderr


def test_default_scale_of_the_lm_and_n(run: Run, lattices: Path, tmp_path: Path) -> None:
    out = tmp_path / "lists.jsonl"
    result = run(lattices / "utt0.slf.gz", out, "-n", 1)
    assert [words for words, _ in found(out)["utt0"]] == [("a", "cat")]
    assert "fewer" not in result.stderr


@pytest.mark.parametrize("beam", [(), ("--beam", 1000)])
def test_ngram(run: Run, tmp_path: Path, beam: tuple[str, object]) -> None:
    """log10 of `a cat` by hand: -0.25 - (0.125 + 1.0) - 1.5; of `b cat`: -(0.25 + 0.75) - 1.0 - 1.5."""
    pytest.importorskip("kenlm")
    (tmp_path / "toy.arpa").write_text(ARPA)
    (tmp_path / "u.slf").write_text(SPHINX.replace("W=the", "W=b"))
    arguments = (tmp_path / "u.slf", tmp_path / "out.jsonl", "--ngram", tmp_path / "toy.arpa", *beam)
    for scale, order in ((1, ("b", "a")), (10, ("a", "b"))):
        result = run(*arguments, "--scale", f"ngram={scale}")
        lists = found(tmp_path / "out.jsonl")["u"]
        assert tuple(words[0] for words, _ in lists) == order
        scores = dict(lists)["a", "cat"]
        assert scores["ngram"] == pytest.approx(-2.875 * math.log(10))
        assert set(scores) == {"am", "posterior", "ngram", "words"}
        assert "1 arcs of lattices left out: on no path" in result.stderr and "count nothing" not in result.stderr
        assert "of 2 words on best paths unknown" in result.stderr and "useless" not in result.stderr


def test_acoustics_alone_are_remarked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "u.slf").write_text(SPHINX)
    result = run(tmp_path / "u.slf", tmp_path / "out.jsonl")
    assert "ranked by acoustics alone: right for an end-to-end recogniser" in result.stderr
    for scale in ("posterior=20", "am=1"):
        result = run(tmp_path / "u.slf", tmp_path / "out.jsonl", "--scale", scale)
        assert "acoustics alone" not in result.stderr


def test_acoustics_of_another_name_are_remarked_with_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "u.txt").write_text("u\n0 1 a 1.5\n0 1 b 2\n1\n\n")
    arguments = f"openfst:{tmp_path / 'u.txt'}", tmp_path / "out.jsonl"
    assert "(--scale am=1, or score=1 where that is its name, says so)" in run(*arguments).stderr
    assert "acoustics alone" not in run(*arguments, "--scale", "score=1").stderr


def test_nbest_lists(run: Run, tmp_path: Path) -> None:
    hyps = [
        Hypothesis(("A.B.", "c"), {"am": -1.0}),
        Hypothesis(("ab-c",), {"am": -2.0}),
        Hypothesis(("d",), {"am": -3.0}),
    ]
    write_nbest(str(tmp_path / "in.jsonl"), [NbestList("u1", hyps), NbestList("u2", hyps[2:])])
    result = run(tmp_path / "in.jsonl", tmp_path / "o.jsonl", "--case", "lower", "--delete", ".", "--split-words", "-")
    assert found(tmp_path / "o.jsonl") == {
        "u1": [(("ab", "c"), {"am": -1.0}), (("d",), {"am": -3.0})],
        "u2": [(("d",), {"am": -3.0})],
    }
    assert "2 utterances, 3 hypotheses" in result.stderr
    assert "1 hypotheses left out because normalisation made them equal" in result.stderr
    result = run(tmp_path / "in.jsonl", tmp_path / "o.jsonl", "-n", 2)
    assert "1 hypotheses left out beyond the first 2" in result.stderr
    assert len(found(tmp_path / "o.jsonl")["u1"]) == 2


def test_lists_whose_words_stay_are_the_same(run: Run, tmp_path: Path) -> None:
    hyps = [Hypothesis(("a",), {"am": -1.0, "words": 3.0}), Hypothesis(("a",), {"am": -2.0, "words": 0.5})]
    write_nbest(str(tmp_path / "in.jsonl"), [NbestList("u", hyps)])
    result = run(tmp_path / "in.jsonl", tmp_path / "o.jsonl")
    assert found(tmp_path / "o.jsonl") == {"u": [(hyp.words, hyp.scores) for hyp in hyps]}
    assert "1 utterances, 2 hypotheses" in result.stderr and "left out" not in result.stderr


@pytest.mark.parametrize("option", [("--beam", 3), ("--ngram", "x.arpa"), ("--scale", "lm=0.0"), ("--jobs", 2)])
def test_lattice_options_with_nbest_lists(run: Run, tmp_path: Path, option: tuple[str, object]) -> None:
    write_nbest(str(tmp_path / "in.jsonl"), [NbestList("u1", [Hypothesis(("a",), {"am": -1.0})])])
    with pytest.raises(UsageError, match=r"are for lattices; .* holds N-best lists"):
        run(tmp_path / "in.jsonl", tmp_path / "out.jsonl", *option)


def test_beam_needs_ngram(run: Run, lattices: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--beam prunes the n-gram pass, so it needs --ngram FILE"):
        run(lattices, tmp_path / "out.jsonl", "--beam", 100)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bad_lattice_leaves_no_output(run: Run, lattices: Path, tmp_path: Path, jobs: int) -> None:
    data = (lattices / "utt3.slf.gz").read_bytes()
    (lattices / "utt3.slf.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(RescoreError, match=r"utt3\.slf\.gz: .*truncated"):
        run(lattices, tmp_path / "out.jsonl", "--jobs", jobs)
    assert not (tmp_path / "out.jsonl").exists()


def test_an_unknown_scale(run: Run, lattices: Path, tmp_path: Path) -> None:
    with pytest.raises(RescoreError, match="lattice 'utt0' has no score 'nn'; it has: am, lm, words"):
        run(lattices, tmp_path / "out.jsonl", "--scale", "nn=1")


def test_an_empty_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="no lattice in this folder"):
        run(f"slf:{tmp_path / 'empty'}", tmp_path / "out.jsonl")


def test_help_has_examples() -> None:
    text = CliRunner().invoke(cli, ["convert", "-h"]).output
    assert "Example: rescore convert lattices/" in text and "--ngram" in text


@pytest.mark.parametrize("words", [(), ("--case", "upper"), "prune"])
def test_what_is_left_out_of_lattices_is_said(run: Run, tmp_path: Path, words: tuple[str, ...] | str) -> None:
    (tmp_path / "lat").mkdir()
    (tmp_path / "lat" / "u1.slf").write_text(HTK_NODES.replace("a=-20.0", "a=-inf").replace("l=-0.5", "l=-0.5 y=3"))
    target = f"kaldi:{tmp_path / 'lat.ark'}"
    if words == "prune":
        said = CliRunner().invoke(cli, ["lattice", "prune", str(tmp_path / "lat"), target, "--beam", "0"]).stderr
    else:
        said = run(tmp_path / "lat", target, *words).stderr
    assert "2 arcs of lattices left out" in said and "1 links or nodes of HTK lattices with fields" in said
