"""Errors and perplexity on tail words and bigrams: hand calculations, properties, and the three commands."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.registry import save_folder
from rescore.cli.main import cli
from rescore.errors import FormatError, UsageError
from rescore.evaluation.counts import count_ngrams
from rescore.evaluation.tail import Tail, load_tail, tail_errors, tail_lines, tail_threshold
from rescore.evaluation.wer import ErrorCounts, count_errors
from rescore.workflows.perplexity import measure
from tests.lm_zoo.zoo import neural

# Words: E and D make up 5 of 100, so the threshold is 3.  Bigrams: D B and A D make up 5 of 100: 3 as well.
COUNTS = "50 A\n30 B\n15 C\n3 D\n2 E\n60 <s> A\n35 A B\n3 A D\n2 D B\n"
SENTENCES = st.lists(st.lists(st.sampled_from("ABCDEFGH"), max_size=10), min_size=1, max_size=20)


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    (tmp_path / "counts.txt").write_text(COUNTS)
    return tmp_path / "counts.txt"


def invoke(*args: object) -> Any:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


def run(*args: object) -> str:
    return invoke(*args).stdout


@pytest.mark.parametrize(
    ("counts", "threshold"),
    [
        ([50, 30, 15, 3, 2], 3),  # 2 + 3 are just 5 %
        ([50, 30, 14, 3, 2, 2], 2),  # with 3 it would be 7 %
        ([50, 30, 12, 3, 3, 2], 2),  # words of equal count stay together, in the head
        ([50, 30, 14, 3, 3], 3),  # 6 %, but the rarest there are
        ([50, 30, 14, 3, 2, 1], 2),
        ([1, 1, 1], 0),
        ([7], 0),
        ([1] * 5 + [95], 1),
        ([1] * 6 + [94], 1),
    ],
)
def test_threshold(counts: list[int], threshold: int) -> None:
    assert tail_threshold(np.array(counts)) == threshold


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=60))
def test_the_tail_is_the_largest_that_fits(counts: list[int]) -> None:
    threshold = tail_threshold(np.array(counts))
    share = {count: 100 * sum(c for c in counts if c <= count) / sum(counts) for count in counts}
    assert threshold < max(counts)
    assert threshold in (0, min(counts)) or share[threshold] <= 5
    assert all(share[count] > 5 for count in counts if count > threshold)


@settings(max_examples=50, deadline=None)
@given(SENTENCES.filter(any))
def test_head_and_tail_part_the_training_text(sentences: list[list[str]]) -> None:
    tail = Tail(count_ngrams(sentences, 2))
    marks = [tail.marks(words) for words in sentences]
    pairs = [list(pairwise(["<s>", *words])) for words in sentences]
    tail_counts = [Counter(chain(*sentences)), Counter(chain(*pairs))]
    for n in range(2):
        marked = np.concatenate([orders[n] for orders in marks])
        assert len(marked) == sum(map(len, sentences)) and not marked.all()
        rarest = min(tail_counts[n].values())
        fits = 100 * marked.sum() <= 5 * len(marked)
        assert fits or tail.thresholds[n] == rarest
    assert all(orders.all() for orders in tail.marks(["never", "seen", "words"]))


def test_marks(counts: Path) -> None:
    tail = load_tail(counts)
    words, bigrams = tail.marks([*"ABDBE", "NEW", "A"])
    assert words.tolist() == [False, False, True, False, True, True, False]
    assert bigrams.tolist() == [False, False, True, True, True, True, True]  # A alone is tail after NEW
    assert [orders.tolist() for orders in tail.marks([])] == [[], []]
    assert "tail-1: words that the training text has 3 times or less" in tail.describe()


@pytest.mark.parametrize(
    ("ref", "hyp", "tail1", "tail2"),
    [  # (insertions, deletions, substitutions, tail words of the reference)
        ("A D B", "A D B", (0, 0, 0, 1), (0, 0, 0, 2)),
        ("A D B", "A C B", (0, 0, 1, 1), (0, 0, 1, 2)),  # B is right, whatever stands before it in the hypothesis
        ("A B", "A D", (0, 0, 0, 0), (0, 0, 0, 0)),  # B was not in the tail: no matter what came instead
        ("A B E", "A B", (0, 1, 0, 1), (0, 1, 0, 1)),
        ("A B", "A D B", (1, 0, 0, 0), (1, 0, 0, 0)),
        ("A", "A B", (0, 0, 0, 0), (0, 0, 0, 0)),  # inserted B, and A B, are in the head
        ("A", "A C", (0, 0, 0, 0), (1, 0, 0, 0)),  # C is in the head, A C was never seen
        ("", "D", (1, 0, 0, 0), (1, 0, 0, 0)),
        ("", "", (0, 0, 0, 0), (0, 0, 0, 0)),
    ],
)
def test_errors_by_hand(
    counts: Path, ref: str, hyp: str, tail1: tuple[int, int, int, int], tail2: tuple[int, int, int, int]
) -> None:
    assert tail_errors(ref.split(), hyp.split(), load_tail(counts)) == [ErrorCounts(*tail1), ErrorCounts(*tail2)]


@settings(max_examples=50, deadline=None)
@given(SENTENCES.filter(any), st.lists(st.sampled_from("ABCDEFGHX")), st.lists(st.sampled_from("ABCDEFGHX")))
def test_tail_errors_are_among_all_errors(sentences: list[list[str]], ref: list[str], hyp: list[str]) -> None:
    everything = count_errors(ref, hyp)
    for counts in tail_errors(ref, hyp, Tail(count_ngrams(sentences, 2))):
        assert counts.errors <= everything.errors and counts.ref_words <= everything.ref_words
        assert counts.dele + counts.sub <= counts.ref_words
    for counts in tail_errors(ref, hyp, Tail(count_ngrams([["elsewhere"]], 2))):
        assert (counts.errors, counts.ref_words) == (everything.errors, everything.ref_words)


def test_lines() -> None:
    assert tail_lines([ErrorCounts(2, 3, 5, 81), ErrorCounts(1, 0, 0, 0)]) == [
        "%WER tail-1 12.35 [ 10 / 81, 2 ins, 3 del, 5 sub ]",
        "%WER tail-2 - [ 1 / 0, 1 ins, 0 del, 0 sub ] (nothing of the references is in this tail)",
    ]


def test_wer(counts: Path, tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("a A D B E\nb A B\n")
    (tmp_path / "hyp").write_text("a A D B\nb A D B\n")
    files = ("wer", "--ref", tmp_path / "ref", "--hyp", tmp_path / "hyp")
    plain = run(*files)
    result = invoke(*files, "--tail", counts)
    assert result.stdout == plain + (
        "%WER tail-1 100.00 [ 2 / 2, 1 ins, 1 del, 0 sub ]\n%WER tail-2 66.67 [ 2 / 3, 1 ins, 1 del, 0 sub ]\n"
    )
    assert "tail-1: words that the training text has 3 times or less, tail-2: bigrams" in result.stderr
    result = invoke(*files, "--tail", counts, "--cer")
    assert result.stdout.splitlines()[2].startswith("%CER tail-1 100.00 [ 2 / 2,")
    assert "tail-1: characters that the training text has 3 times or less, tail-2: bigrams" in result.stderr
    compared = invoke("compare", "--ref", files[2], f"one={files[4]}", "--tail", counts, "--cer")
    assert "Tail-1: characters that" in " ".join(compared.output.split())
    counts.write_text("95 A\n5 B\n")
    assert len(run(*files, "--tail", counts).splitlines()) == 3  # no bigrams, no tail-2


def test_wer_with_counts_that_do_not_fit(counts: Path, tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("a A B\n")
    files = ("wer", "--ref", tmp_path / "ref", "--hyp", tmp_path / "ref", "--tail")
    counts.write_text("3 a\n2 b\n")
    with pytest.raises(UsageError, match=r"counts of lower-case words, but the text is upper case.*convert one"):
        run(*files, counts)
    counts.write_text("3 A\n2 WORD\n")
    with pytest.raises(UsageError, match="found the word 'WORD', but --cer needs counts of characters"):
        run(*files, counts, "--cer")
    with pytest.raises(FormatError, match="no such file"):
        run(*files, tmp_path / "none")


@pytest.mark.parametrize("command", ["wer --hyp {ref}", "compare one={ref}"])
def test_counts_of_characters_are_none_of_words(counts: Path, tmp_path: Path, command: str) -> None:
    ref = tmp_path / "ref"
    tailed = (*command.format(ref=ref).split(), "--ref", ref, "--tail", counts)
    ref.write_text("a WE SEE A\nb A\n")
    assert invoke(*tailed).exit_code == 0  # half of the words are letters
    ref.write_text("a WE SEE A\n")
    with pytest.raises(UsageError, match=r"counts of characters, but the text has words such as 'WE'.*--cer"):
        invoke(*tailed)
    assert invoke(*tailed, "--cer").exit_code == 0


def test_compare(counts: Path, tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("a A D B E\nb A B\n")
    (tmp_path / "hyp").write_text("a A D B\nb A D B\n")
    command = ("compare", "--ref", tmp_path / "ref", f"one={tmp_path / 'hyp'}", f"two={tmp_path / 'ref'}", "--markdown")
    plain = run(*command, "--json", tmp_path / "plain.json")
    assert "Tail" not in plain and "tail" not in (tmp_path / "plain.json").read_text()
    lines = run(*command, "--tail", counts, "--json", tmp_path / "table.json").splitlines()
    assert lines[0].endswith("| Tail-1 % | Tail-2 % |")
    assert lines[2].endswith("| 100.00 | 66.67 |") and lines[3].endswith("| 0.00 | 0.00 |")
    assert any("Tail-1: words that the training text has 3 times or less, tail-2" in line for line in lines[4:])
    content = json.loads((tmp_path / "table.json").read_text())
    assert content["rows"][0]["tail1"] == {"wer": 100.0, "errors": 2, "words": 2, "sub": 0, "del": 1, "ins": 1}
    assert content["rows"][1]["tail2"]["words"] == 3 and content["how"]["tail"].startswith("tail-1: words")
    assert content["how"]["tail_counts"]["file"] == "counts.txt"


def test_compare_without_a_tail_word(counts: Path, tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("a A B\n")
    command = ("compare", "--ref", tmp_path / "ref", f"one={tmp_path / 'ref'}", "--markdown", "--tail", counts)
    assert run(*command, "--json", tmp_path / "table.json").splitlines()[2].endswith("| - | - |")
    assert json.loads((tmp_path / "table.json").read_text())["rows"][0]["tail1"]["wer"] is None


@pytest.fixture
def two_lms(tmp_path: Path) -> list[Path]:
    for kind in ("transformer", "lstm"):
        save_folder(tmp_path / kind, neural(kind), kind, {})
    return [tmp_path / "transformer", tmp_path / "lstm"]


def test_ppl(counts: Path, tmp_path: Path, two_lms: list[Path]) -> None:
    (tmp_path / "text").write_text("A D B E\nA ZZZ\n")
    (tmp_path / "mix.json").write_text(json.dumps({"scales": {"transformer": 0.25, "lstm": 0.75}}))
    rows = measure(
        [*map(str, two_lms)],
        None,
        str(tmp_path / "text"),
        None,
        tmp_path / "mix.json",
        None,
        (None, "all"),
        counts,
    )
    scores = [neural(kind).score_words([list("ADBE"), ["A", "ZZZ"]]) for kind in ("transformer", "lstm")]
    tail1 = [[first[1], first[3], second[1]] for first, second in scores]
    tail2 = [[first[1], first[2], first[3], second[1]] for first, second in scores]
    mixed = np.log(0.25 * np.exp(tail1[0]) + 0.75 * np.exp(tail1[1])).tolist()
    for row, words in zip(rows, [*tail1, mixed], strict=True):
        assert (row["tail1_words"], row["tail1_unknown"], row["tail2_words"]) == (3, 1, 4)
        assert row["ppl_tail1"] == pytest.approx(math.exp(-sum(words) / 3), rel=1e-4)
        assert row["ppl_tail1_known"] == pytest.approx(math.exp(-sum(words[:2]) / 2), rel=1e-4)
    for row, words in zip(rows, tail2, strict=False):
        assert row["ppl_tail2"] == pytest.approx(math.exp(-sum(words) / 4), rel=1e-4)


def test_ppl_prints(counts: Path, tmp_path: Path, two_lms: list[Path]) -> None:
    (tmp_path / "text").write_text("A B\nA\n")
    command = ("ppl", "--lm", two_lms[0], "--text", tmp_path / "text")
    assert "Tail" not in run(*command) and "tail" not in run(*command, "--json", "-")
    row = json.loads(run(*command, "--tail", counts, "--json", "-"))[0]
    assert (row["ppl_tail1"], row["ppl_tail1_known"], row["tail1_words"], row["tail2_words"]) == (None, None, 0, 0)
    counts.write_text("99 A\n1 C\n")
    out = run(*command, "--tail", counts)
    assert "Tail-1 ppl/word" in out and "Tail-2" not in out
    row = json.loads(run(*command, "--tail", counts, "--json", "-"))[0]
    assert row["tail1_words"] == 1 and row["ppl_tail1"] > 1 and "tail2_words" not in row


def test_ppl_needs_sentences_and_the_same_case(counts: Path, tmp_path: Path, two_lms: list[Path]) -> None:
    (tmp_path / "text").write_text("A B\n")
    command = ("ppl", "--lm", two_lms[0], "--text", tmp_path / "text", "--tail", counts)
    with pytest.raises(UsageError, match="--tail needs sentences scored one by one: leave --window out"):
        run(*command, "--window", 3)
    with pytest.raises(UsageError, match="--tune-mix and --mix need sentences scored one by one: leave --window out"):
        run(*command[:-2], "--window", 3, "--tune-mix", tmp_path / "text", "--save-mix", tmp_path / "mix.json")
    counts.write_text("3 a\n")
    with pytest.raises(UsageError, match="counts of lower-case words, but the text is upper case"):
        run(*command)
