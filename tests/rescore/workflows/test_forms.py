"""Words in other forms than an LM's own: mixtures of LMs of two cases, and pieces in place of words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rescore.types import Hypothesis, NbestList
from rescore.workflows.combine import read_scores
from tests.rescore.workflows.test_scoring import folder, run, write_lists

__all__ = ["folder"]
TEXT = "A B C\nC B A\nD E\n" * 3


@pytest.fixture
def lms(tmp_path: Path, folder: Path) -> list[object]:
    """An LM of upper-case text, and an n-gram of lower-case text."""
    pytest.importorskip("kenlm")
    text, arpa = tmp_path / "lower.txt", tmp_path / "low.arpa"
    text.write_text(TEXT.lower())
    assert run("train-ngram", "--text", text, "--order", 2, "--out", arpa, "--discount-fallback").exit_code == 0
    return ["--lm", folder, "--lm", f"low={arpa}"]


@pytest.mark.parametrize("sharing", [(), ("--executor", "local", "--shards", 2, "--workers", 1)])
def test_perplexity_of_lms_whose_words_differ_in_case_alone(
    tmp_path: Path, lms: list[object], sharing: tuple[object, ...]
) -> None:
    mix, found = tmp_path / "mix.json", []
    mix.write_text('{"scales": {"small": 0.5, "low": 0.5}}')
    for number, text in enumerate((TEXT, TEXT.lower())):
        source = tmp_path / f"text{number}.txt"
        source.write_text(text)
        out = tmp_path / f"ppl{number}.json"
        result = run("ppl", *lms, "--text", source, "--mix", mix, "--json", out, *sharing)
        assert result.exit_code == 0, result.output
        found.append([row["ppl_word"] for row in json.loads(out.read_text())])
    assert len(found[0]) == 3 and found[0] == pytest.approx(found[1]) and found[0][2] < max(found[0][:2])


def test_mixtures_of_lms_whose_words_differ_in_case_alone(tmp_path: Path, lms: list[object]) -> None:
    mix, mixed = tmp_path / "mix.json", []
    mix.write_text('{"scales": {"small": 0.5, "low": 0.5}}')
    for number, words in enumerate((("A", "B", "C"), ("a", "b", "c"))):
        source = write_lists(tmp_path / f"{number}.jsonl", [NbestList("utt0", [Hypothesis(words, {"am": -1.0})])])
        out = tmp_path / f"out{number}"
        assert run("nbest", "--nbest", source, *lms, "--mix", mix, "--out", out).exit_code == 0
        mixed.append(next(iter(read_scores(out))).hyps[0].scores)
    assert mixed[0] == pytest.approx(mixed[1])
    assert min(mixed[0]["small"], mixed[0]["low"]) < mixed[0]["mix"]


def test_pieces_are_not_scored_as_words(tmp_path: Path, folder: Path) -> None:
    hyps = [Hypothesis(("\u2581A", "\u2581B"), {"am": -1.0})]
    source = write_lists(tmp_path / "pieces.jsonl", [NbestList("utt0", hyps)])
    refused = run("nbest", "--nbest", source, "--lm", folder, "--out", tmp_path / "out")
    assert "LM 'small', utterance utt0: found '\u2581A', a piece of sentencepiece" in str(refused.exception)
    joined = tmp_path / "words.jsonl"
    assert run("convert", source, joined, "--pieces").exit_code == 0
    assert run("nbest", "--nbest", joined, "--lm", folder, "--out", tmp_path / "out").exit_code == 0
