"""Curves of training runs: the points are those of the logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lm_zoo.training.train import train
from rescore.cli.main import cli
from rescore.errors import FormatError, UsageError
from rescore.workflows.curves import AXES, draw, named_runs, read_run
from tests.lm_zoo.training.test_train import VOCAB, config, text


def test_runs_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    plan = config(text="windows", passes=3, valid_every=0)
    for name, goes_on in (("one", 2), ("one", 3), ("two", 3)):
        train("lstm", {"dim": 8}, VOCAB, text(0), text(1), tmp_path / name, config(**{**vars(plan), "passes": goes_on}))
    runs = {name: read_run(folder) for name, folder in named_runs([f"{tmp_path}/one", f"B={tmp_path}/two"]).items()}
    figure = draw(runs, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    by_axis = {picture.get_xlabel(): picture.lines for picture in figure.axes}
    assert [*by_axis] == [*AXES] and [line.get_label() for line in figure.axes[0].lines] == ["one", "B"]
    passes, tokens, hours = (lines[0].get_xdata() for lines in by_axis.values())
    assert list(passes) == pytest.approx([1, 2, 3])
    assert list(tokens) == pytest.approx([record["tokens"] / 1e6 for record in runs["one"]])
    assert list(hours) == pytest.approx([record["cpu_seconds"] / 3600 for record in runs["one"]])
    assert list(hours) == sorted(hours), "the processor time goes on over continuations"
    done = CliRunner().invoke(cli, ["curves", f"{tmp_path}/one", "--out", f"{tmp_path}/again.png"])
    assert done.exit_code == 0 and (tmp_path / "again.png").exists(), done.output


def test_perplexities_that_cannot_be_compared_are_told(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    log = json.dumps({"step": 1, "epoch": 0, "tokens": 60, "passes": 1.0, "valid_ppl": 9.0, "cpu_seconds": 1.0})
    for name, plan in (
        ("a", {"text": "windows", "window": 64}),
        ("b", {"text": "sentences"}),
        ("c", {"text": "sentences"}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text(log + "\n")
        run = {"recipe": {"valid": "valid.txt (blake2b 0a)"}, "train": plan}
        (tmp_path / name / "run.json").write_text(json.dumps(run))
    for names, told in (("abc", True), ("bc", False)):
        folders = [str(tmp_path / name) for name in names]
        done = CliRunner().invoke(cli, ["curves", *folders, "--out", str(tmp_path / "curves.png")])
        assert done.exit_code == 0, done.output
        assert (f"{folders[0]} and {folders[1]} have another way to read the text" in done.stderr) == told


def test_where_runs_end_is_what_is_seen(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    runs = {
        name: [{"valid_ppl": ppl, "passes": i, "tokens": i, "cpu_seconds": i} for i, ppl in enumerate(ppls, start=1)]
        for name, ppls in {"_a": (900.0, 200.0, 91.0, 90.0), "b$": (99.0, 400.0), "c$": (100.0,)}.items()
    }
    figure = draw(runs, tmp_path / "curves.png")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["_a", "b$", "c$"]
    low, high = figure.axes[0].get_ylim()
    assert 80 < low < 90 and 100 < high < 200, "all runs' best, not how they began or what came after"


def test_passes_of_older_logs(tmp_path: Path) -> None:
    records = [
        {"step": 1, "epoch": 0, "tokens": 60, "valid_ppl": 9.0, "cpu_seconds": 1.0},
        {"step": 2, "epoch": 1, "tokens": 101, "loss": 1.0},
        {"step": 3, "epoch": 1, "tokens": 150, "valid_ppl": 8.0, "cpu_seconds": 2.0},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert [record["passes"] for record in read_run(tmp_path)] == pytest.approx([0.6, 1.5], abs=0.02)


def test_what_is_no_run(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with pytest.raises(UsageError, match=r"no log.jsonl; expected the folder of a run"):
        read_run(tmp_path)
    log.write_text('{"step": 1, "valid_loss": 2.0}\n')
    with pytest.raises(UsageError, match="no validation with valid_ppl and cpu_seconds yet"):
        read_run(tmp_path)
    for line in ("nonsense", "[1]", '{"valid_ppl": 2, "cpu_seconds": 1}'):
        log.write_text(f"{{}}\n{line}\n")
        with pytest.raises(UsageError, match=r"log.jsonl:2: expected a record of rescore train-lm"):
            read_run(tmp_path)
    for ppl in ("NaN", "Infinity", "0", "-2"):
        log.write_text(f'{{}}\n{{"valid_ppl": {ppl}, "tokens": 1, "cpu_seconds": 1}}\n')
        with pytest.raises(UsageError, match=r"log.jsonl:2: "):
            read_run(tmp_path)
    log.write_bytes(b"{}\n\xff\n")
    with pytest.raises(FormatError, match=r"log.jsonl.*UTF-8"):
        read_run(tmp_path)
    with pytest.raises(UsageError, match="two runs are called 'a'; name one of them: NEWNAME=DIR"):
        named_runs(["x/a", "a"])
    assert list(named_runs(["exp/lr=0.1", "b=exp/lr=0.2"])) == ["lr=0.1", "b"], "a folder may have a '='"
