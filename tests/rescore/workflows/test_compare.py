"""The comparison of systems: its numbers, its sources and its three forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rescore.cli.results import show
from rescore.errors import ReferencesError, RescoreError, UsageError
from rescore.evaluation.significance import error_positions, mapsswe
from rescore.files import write_kaldi_text
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList, Words
from rescore.workflows.compare import (
    Comparison,
    System,
    cells,
    compare_systems,
    comparison_lines,
    p_text,
    parse_system,
    read_system,
    to_json,
    to_markdown,
)

REFS: dict[str, Words] = {"a": ("A", "B", "C", "D"), "b": ("E", "F"), "c": ("G", "H", "I", "J")}
FIRST: dict[str, Words] = {"a": ("A", "X", "C", "Y"), "b": ("E",), "c": ("G", "H", "Z", "I", "J")}
SECOND: dict[str, Words] = {"a": ("A", "B", "C", "Y"), "b": ("E", "F"), "c": ("G", "H", "I", "J")}


def example() -> Comparison:
    systems = [System("first", FIRST), System("second", SECOND), System("copy", FIRST)]
    return compare_systems(REFS, systems, against=("second",), samples=200)


def test_rows_hold_counts_changes_and_p_values() -> None:
    rows = example().rows
    assert [row.counts.errors for row in rows] == [4, 1, 4]
    assert (rows[0].counts.sub, rows[0].counts.dele, rows[0].counts.ins) == (2, 1, 1)
    assert [row.relative for row in rows] == [None, -75.0, 0.0]
    places = [[error_positions(ref, hyps[utt_id]) for utt_id, ref in REFS.items()] for hyps in (FIRST, SECOND)]
    p_value = mapsswe(*places).p_value
    assert rows[0].p_values == {"first": None, "second": pytest.approx(p_value)}
    assert rows[1].p_values == {"first": pytest.approx(p_value), "second": None}
    assert rows[2].p_values["first"] == 1.0
    assert all(row.interval[0] <= row.counts.wer <= row.interval[1] for row in rows)
    assert rows[0].interval == rows[2].interval


def test_json_has_the_fields_others_read(tmp_path: Path) -> None:
    show(to_json(example()), [], tmp_path / "out" / "table.json")
    content = json.loads((tmp_path / "out" / "table.json").read_text())
    assert content == to_json(example())
    first, second, _ = content["rows"]
    assert first["name"] == "first" and first["p_value"] is None and first["relative"] is None
    assert (first["wer"], first["errors"], first["words"]) == (40.0, 4, 10)
    assert (first["sub"], first["del"], first["ins"]) == (2, 1, 1)
    assert first["ser"] == 100.0 and second["ser"] == pytest.approx(33.3333)
    assert len(second["ci"]) == 2 and 0 < second["p_value"] < 1 and second["p_values"]["second"] is None
    assert second["oracle_wer"] is None
    assert "bootstrap" in content["how"]["interval"] and "MAPSSWE" in content["how"]["p_value"]


def test_markdown_is_a_table() -> None:
    lines = to_markdown(example()).splitlines()
    assert lines[0] == (
        "| system | WER % | 95 % interval | sub | del | ins | SER % | change % | p against first | p against second |"
    )
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    assert lines[2].startswith("| first | 40.00 | ") and lines[2].split(" | ")[7:9] == ["-", "-"]
    assert lines[3].startswith("| second | 10.00 | ") and " | -75.0 | " in lines[3]
    assert len({line.count("|") for line in lines[:5]}) == 1
    assert "3 utterances, 10 words" in lines[-1]


def test_terminal_table_is_not_cut() -> None:
    systems = [System("a rather long name of a system, number " + str(i), FIRST) for i in range(3)]
    lines = comparison_lines(compare_systems(REFS, [*systems, System("[bold]", SECOND)], samples=50))
    out = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "a rather long name of a system, number 2" in out and "[bold]" in out and "…" not in out
    assert "MAPSSWE" in out


def test_p_values_are_short() -> None:
    assert [p_text(p) for p in (None, 1.0, 0.0456, 0.001, 0.0009)] == ["-", "1.000", "0.046", "0.001", "<0.001"]


def test_oracle_has_a_column_where_lists_are_given(tmp_path: Path) -> None:
    lists = [NbestList(u, [Hypothesis(FIRST[u], {"am": 0.0}), Hypothesis(SECOND[u], {"am": -1.0})]) for u in REFS]
    write_nbest(f"jsonl:{tmp_path / 'scores.jsonl.gz'}", lists)
    for spec in (f"jsonl:{tmp_path / 'scores.jsonl.gz'}", str(tmp_path / "scores.jsonl.gz"), str(tmp_path)):
        system = read_system("first", spec, REFS)
        assert system.hyps == FIRST
        comparison = compare_systems(REFS, [system, System("second", SECOND)], samples=50)
        assert [row.oracle_wer for row in comparison.rows] == [10.0, None]
        heads, lines = cells(comparison)
        assert heads[-1] == "oracle %" and [line[-1] for line in lines] == ["10.00", "-"]
    write_nbest(f"jsonl:{tmp_path / 'nbest.jsonl.gz'}", [NbestList(n.utt_id, n.hyps[::-1]) for n in lists])
    assert read_system("combined", str(tmp_path), REFS).hyps == SECOND  # the combined order goes before


def test_systems_are_read_from_kaldi_text(tmp_path: Path) -> None:
    path = tmp_path / "a=b.txt"
    write_kaldi_text(path, SECOND)
    name, spec = parse_system(f"x={path}")
    assert (name, spec) == ("x", str(path))
    system = read_system(name, spec, REFS)
    assert system.hyps == SECOND and system.oracles is None


def test_bad_systems_say_what_is_wrong(tmp_path: Path) -> None:
    for bad in ("file.txt", "=file", "name="):
        with pytest.raises(UsageError, match="expected NAME=HYP"):
            parse_system(bad)
    with pytest.raises(RescoreError, match="no such file"):
        read_system("x", str(tmp_path / "none.txt"), REFS)
    write_kaldi_text(tmp_path / "short.txt", {"a": ("A",)})
    with pytest.raises(ReferencesError, match=r"2 of 3 references have no hypotheses of 'x' \(b, c\)"):
        compare_systems(REFS, [read_system("x", str(tmp_path / "short.txt"), REFS)])
    write_nbest(f"jsonl:{tmp_path / 'l.jsonl'}", [NbestList("z", [Hypothesis(("A",), {"am": 0.0})])])
    with pytest.raises(ReferencesError, match=r"1 of 1 hypotheses of 'x' have no reference \(z\)"):
        compare_systems(REFS, [read_system("x", str(tmp_path / "l.jsonl"), REFS)])
    with pytest.raises(UsageError, match="'x' is given to 2 systems"):
        compare_systems(REFS, [System("x", FIRST), System("x", SECOND)])
    with pytest.raises(UsageError, match="against 'y', which is none of the systems: x"):
        compare_systems(REFS, [System("x", FIRST)], against=("y",))
    with pytest.raises(UsageError, match="no system"):
        compare_systems(REFS, [])
    for numbers in ({"seed": -1}, {"samples": 0}):
        with pytest.raises(UsageError, match="seed must be at least 0 and samples at least 1"):
            compare_systems(REFS, [System("x", FIRST)], **numbers)


def test_a_first_system_without_errors_leaves_no_relative_change() -> None:
    rows = compare_systems(REFS, [System("x", REFS), System("y", FIRST)], samples=50).rows
    assert rows[0].counts.wer == 0.0 and rows[1].relative is None
