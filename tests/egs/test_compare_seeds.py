"""The table of encoders over seeds."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from tests.scripts import load_script


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("egs/shared/compare_seeds.py")


def finished(folder: Path, component: str, scheme: str, seed: int, wer: float, steps: int = 800) -> Path:
    """What local/encoders.sh leaves, as far as it is read."""
    (folder / "real" / "model").mkdir(parents=True)
    (folder / "decoded").mkdir()
    config = {"encoder": {"component": component, "s4_init": scheme}}
    info = {"config": config, "trained": {"seed": seed, "steps": steps - 100, "valid_loss": wer / 100}}
    (folder / "real" / "model" / "config.json").write_text(json.dumps(info))
    (folder / "real" / "log.jsonl").write_text("".join(f'{{"step": {step}}}\n' for step in (50, steps)))
    summary = f"settings\tWER\ngreedy_search\t{wer:.2f}\n"
    (folder / "decoded" / "wer-summary-test-small-greedy_search.txt").write_text(summary)
    return folder


def run(script: ModuleType, out: Path, *folders: Path) -> Result:
    return CliRunner().invoke(script.main, ["--out", str(out), *map(str, folders)])


def test_means_and_intervals_of_each_encoder(script: ModuleType, tmp_path: Path) -> None:
    folders = [finished(tmp_path / f"com{seed}", "com", "lin", seed, 50.0 + seed) for seed in (1, 2, 3)]
    folders += [finished(tmp_path / f"conv{seed}", "conv", "real", seed, 40.0) for seed in (1, 2)]
    folders += [finished(tmp_path / "dir", "dir", "real", 1, 45.5)]
    done = run(script, tmp_path / "table.md", *folders)
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[0] == "| encoder | S4 | seeds | test-small-greedy_search, WER % | validation loss |"
    assert lines[2] == "| `com` | S4D-Lin | 3 | 52.00 ± 2.48 | 0.5200 ± 0.0248 |"  # 4.3027 / sqrt(3)
    assert lines[3] == "| `conv` | - | 2 | 40.00 ± 0.00 | 0.4000 ± 0.0000 |"
    assert lines[4] == "| `dir` | S4D-Real | 1 | 45.50 | 0.4550 |"
    assert lines[6].startswith("800 batches")


def test_quantiles_are_students(script: ModuleType) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = [stats.t.ppf(0.975, freedom) for freedom in range(1, 10)]
    assert list(script.QUANTILES) == pytest.approx(expected, abs=1e-4)


def test_runs_that_cannot_be_compared_are_refused(script: ModuleType, tmp_path: Path) -> None:
    first, same = (finished(tmp_path / name, "com", "real", 1, 50.0) for name in ("first", "same"))
    longer = finished(tmp_path / "longer", "com", "real", 2, 50.0, steps=900)
    more = finished(tmp_path / "more", "com", "real", 3, 50.0)
    (more / "decoded" / "wer-summary-dev-small-greedy_search.txt").write_text("settings\tWER\ngreedy_search\t1.00\n")
    (tmp_path / "empty").mkdir()
    for other, message in [
        (same, "the encoder and the seed of"),
        (longer, "900 batches, but"),
        (more, "other results than in"),
        (tmp_path / "empty", "no finished run"),
    ]:
        done = run(script, tmp_path / "table.md", first, other)
        assert done.exit_code == 2 and message in done.output, done.output
        assert not (tmp_path / "table.md").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("real/log.jsonl", None, "log.jsonl: expected a line with its step"),
        ("real/log.jsonl", "", "log.jsonl: expected a line with its step"),
        ("real/model/config.json", "{", "config.json: expected component"),
        (
            "real/model/config.json",
            '{"config": {"encoder": {"component": "com", "s4_init": "lin"}}, "trained": {"valid_loss": 1}}',
            "of a recogniser that asr train made (no 'seed')",
        ),
        ("decoded/wer-summary-test-small-greedy_search.txt", "settings WER\n", "a setting and its WER, with a tab"),
    ],
)
def test_damaged_runs_are_one_error(
    script: ModuleType, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    folder = finished(tmp_path / "run", "com", "lin", 1, 50.0)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    done = run(script, tmp_path / "table.md", folder)
    assert done.exit_code == 2 and message in done.output, done.output
