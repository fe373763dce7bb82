"""`egs/shared/tuning_curves.py`: draws, a run that goes on, and the table."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from rescore.files import write_kaldi_text
from rescore.formats import write_nbest
from tests.rescore.tuning.test_tune import make_set
from tests.scripts import load_script


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
    result = CliRunner().invoke(script.main, [*args, "--sizes", "8,99"], catch_exceptions=False)
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
