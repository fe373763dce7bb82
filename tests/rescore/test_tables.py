"""Printed tables: at most 80 columns, no heading cut in a word."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from rescore.cli.main import cli
from rescore.tables import table_lines
from rescore.types import Hypothesis, NbestList, Words
from rescore.workflows.compare import System, cells, compare_systems, comparison_lines
from rescore.workflows.perplexity import row_lines

REFS: dict[str, Words] = {f"u{k}": ("A", "B", "C", "D") for k in range(3)}


def numbers(lines: list[str]) -> list[str]:
    return re.findall(r"(?<![\w.-])-?\d+(?:\.\d+)?", " ".join(lines))


def test_a_small_table_is_as_wide_as_it_needs() -> None:
    assert table_lines(["name", "WER %"], [["a", "1.00"], ["long", "12.50"]]) == [
        "name  WER %",
        "----  -----",
        "a      1.00",
        "long  12.50",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert table_lines(["name", "CER %"], [["语言模型 1", "1.00"], ["long", "12.50"], ["e\u0301te\u0301", "2.00"]]) == [
        "name        CER %",
        "----------  -----",
        "语言模型 1   1.00",
        "long        12.50",
        "e\u0301te\u0301          2.00",
    ]
    assert len(table_lines(["name"], [["语" * 30]])) == 2 + 2
    shown = repr(NbestList("u1", [Hypothesis(("对", "楼市"), {"am": -1.5}), Hypothesis(("dui",), {"am": -2.0})]))
    assert shown.splitlines()[1:3] == ["1     对 楼市  -1.5", "2     dui      -2"]


def test_headings_go_on_below_and_columns_too() -> None:
    heads = ["system", *(f"p against {name}" for name in "abcdefgh")]
    rows = [[f"s{k}", *(f"0.{k}{n}1" for n in range(8))] for k in range(2)]
    lines = table_lines(heads, rows, 50)
    assert max(map(len, lines)) <= 50 and "" in lines
    assert sorted(re.findall(r"0\.\d+", " ".join(lines))) == sorted(cell for row in rows for cell in row[1:])
    assert sum(line.startswith("s0") for line in lines) == lines.count("") + 1
    for line in lines:
        assert set(line.split()) <= {"system", "p", "against", *"abcdefgh", "s0", "s1"} or re.search(r"0\.|--", line)


def test_a_first_column_that_leaves_no_room_has_one_beside_it() -> None:
    lines = table_lines(["system", "WER", "SER"], [["x" * 30, "1.00", "2.00"]], 20)
    assert [line.split() for line in lines if line.startswith("x")] == [["x" * 30, "1.00"], ["x" * 30, "2.00"]]


def test_long_texts_go_on_in_the_next_line() -> None:
    lines = table_lines(["LM", "ppl"], [["0.250 one + 0.250 two + 0.250 three + 0.250 four", "7.00"]], 60)
    assert lines[2].endswith("7.00") and lines[3].strip() in "0.250 one + 0.250 two + 0.250 three + 0.250 four"


@pytest.mark.parametrize(
    "names", [("first", "second"), ("moonshine tiny, 32-best", "with transfornn and ngram", "x" * 45)]
)
def test_comparisons_fit(names: tuple[str, ...]) -> None:
    comparison = compare_systems(REFS, [System(name, REFS) for name in names], against=names, samples=10)
    lines = comparison_lines(comparison)
    assert max(map(len, lines)) <= 80
    heads, rows = cells(comparison)
    text = "\n".join(lines)
    assert all(part in text for head in heads for part in re.split(r"(?<=-)|\s", head) if len(part) <= 24)
    assert all(cell in text.split() for row in rows for cell in row[1:])


def test_perplexities_fit() -> None:
    counts = {"words": 1234567, "sentences": 98765, "unknown": 1234, "tokens": 2345678}
    rates = {"ppl_word": 1234.5, "ppl_word_known": 1000.25, "ppl_token": 99.5}
    tail = {"ppl_tail1": 9.5, "ppl_tail1_known": None, "tail1_words": 12, "tail1_unknown": 1}
    labels = ("transfornn", "0.123 transfornn + 0.456 transformer + 0.421 ngram")
    lines = row_lines([{"lm": label, **rates, **counts, **tail} for label in labels])
    assert max(map(len, lines)) <= 80 and numbers(lines).count("2345678") == 2 and "Tail-1" in " ".join(lines)


def test_the_lms_fit() -> None:
    lines = CliRunner().invoke(cli, ["lms"]).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("transfornn") and "10,203,564" in line for line in lines)
