"""`egs/shared/tuning_curves.py`: draws, a run that goes on, and the table."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from rescore.files import write_kaldi_text
from rescore.formats import write_nbest
from tests.rescore.tuning.test_tune import make_set
from tests.scripts import ROOT, load_script


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("egs/shared/tuning_curves.py")


def test_a_table_and_a_picture_of_all_systems(script: ModuleType, tmp_path: Path) -> None:
    for name, seed in (("dev", 0), ("test", 1)):
        lists, refs = make_set(24, seed)
        write_nbest(f"jsonl:{tmp_path / name / 'scores.jsonl.gz'}", lists)
        write_kaldi_text(tmp_path / f"{name}.txt", refs)
    sets = [str(tmp_path / name) for name in ("dev", "dev.txt", "test", "test.txt")]
    args = [
        "--dev",
        *sets[:2],
        "--test",
        *sets[2:],
        "--draws",
        "2",
        "--folds",
        "2",
        "--validated",
        "1",
        "--out",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(script.main, [*args, "--sizes", "99,8,8"], catch_exceptions=False)
    assert "dev has 24 utterances: sizes left out, 99\n" in result.stderr
    rows = [line.split(" | ") for line in result.stdout.splitlines()[2:]]
    assert [row[1] for row in rows] == ["errors, MAP", "errors, MBR", "risk, MAP", "risk, MBR"]
    assert all(row[0] == "| 8" and row[2] == "2" for row in rows)
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    log = (tmp_path / "out" / "curves.jsonl").read_text()
    again = CliRunner().invoke(script.main, [*args, "--sizes", "8"], catch_exceptions=False)
    assert again.stdout == result.stdout and (tmp_path / "out" / "curves.jsonl").read_text() == log


def test_without_a_test_set_all_that_is_not_drawn_is_tested(script: ModuleType) -> None:
    from tests.rescore.tuning.test_tune import make_table

    table = make_table(20, 0)
    drawn, rest = script.Experiment(table, None, {}, 0, 0).draw(5, 3)
    assert len(drawn.utt_ids) == 5 and sorted(drawn.utt_ids + rest.utt_ids) == sorted(table.utt_ids)
    assert script.Experiment(table, None, {}, 0, 0).draw(5, 3)[0].utt_ids == drawn.utt_ids


def test_a_run_that_was_killed_goes_on_and_one_of_other_settings_begins_anew(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists, refs = make_set(8, 0)
    write_nbest(f"jsonl:{tmp_path / 'dev' / 'scores.jsonl.gz'}", lists)
    write_kaldi_text(tmp_path / "dev.txt", refs)
    line = ["--dev", str(tmp_path / "dev"), str(tmp_path / "dev.txt"), "--out", str(tmp_path / "out"), "--sizes", "6"]
    log, made = tmp_path / "out" / "curves.jsonl", list[int]()

    def run(experiment: object, size: int, number: int) -> list[dict[str, object]]:
        made.append(number)
        row = {"size": size, "draw": number, "dev": 1.0, "cv": None, "test": 2.0 + number, "first": 3.0}
        return [{**row, "system": system, "above_first": 0.0, "kept_first": False} for system in ("one", "other")]

    def table(*more: str) -> str:
        made.clear()
        return CliRunner().invoke(script.main, [*line, *more], catch_exceptions=False).stdout

    monkeypatch.setattr(script.Experiment, "run", run)
    monkeypatch.setattr(script, "draw_png", lambda rows, out: None)
    whole = table("--draws", "3")
    assert made == [0, 1, 2] and whole.count("| 3 |") == 2
    log.write_text(log.read_text()[:-40])  # killed while it wrote
    assert table("--draws", "3") == whole and made == [2]
    assert table("--draws", "1").count("| 1 |") == 2 and not made
    assert table("--draws", "1", "--fix", "words=0") and made == [0]


def test_lists_that_are_not_there_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", ["tuning_curves.py", "--dev", "none", "none.txt", "--out", "out"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "egs/shared/tuning_curves.py"), run_name="__main__")
    assert ended.value.code == 2 and capsys.readouterr().err == "tuning_curves.py: none.txt: no such file\n"


@pytest.mark.parametrize("sizes", ["25,x", "25,", "0", "-5"])
def test_sizes_that_are_none_are_one_line(script: ModuleType, sizes: str) -> None:
    done = CliRunner().invoke(script.main, ["--dev", "none", "none.txt", "--out", "out", "--sizes", sizes])
    assert done.exit_code == 2 and "expected numbers of utterances" in done.output


def test_sizes_that_no_set_has_are_refused(script: ModuleType, tmp_path: Path) -> None:
    lists, refs = make_set(8, 0)
    write_nbest(f"jsonl:{tmp_path / 'dev' / 'scores.jsonl.gz'}", lists)
    write_kaldi_text(tmp_path / "dev.txt", refs)
    words = ["--dev", str(tmp_path / "dev"), str(tmp_path / "dev.txt"), "--out", str(tmp_path / "out"), "--sizes", "8"]
    done = CliRunner().invoke(script.main, words)
    assert done.exit_code == 2 and "dev has 8 utterances, fewer than any of --sizes 8" in done.output
