"""`asr decode --split` and `asr merge`: shares give what one process gives."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from asr.cli.main import cli
from asr.decoding import shares
from asr.errors import DataError
from asr.model.checkpoint import load_model
from rescore.errors import FormatError, UsageError
from tests.asr.cli.test_cli_decode import folder, run
from tests.asr.tiny import vocabulary

__all__ = ["folder"]


def test_shares_give_the_files_of_one_process(folder: Path, tmp_path: Path) -> None:
    """A batch is a part; one of its utterances cannot be loaded, and lists and lattices are as they were."""
    search = ("--decoding-method", "fast_beam_search", "--lattices", "slf", "--max-duration", 1)
    whole = run(folder, *search, "--out", tmp_path / "whole")
    for share in ("2/3", "3/3", "1/3"):
        assert run(folder, *search, "--out", tmp_path / "out", "--split", share).exit_code == 0
    with pytest.raises(UsageError, match="parts of a run with another search"):
        run(folder, *search, "--lattice-beam", 3, "--out", tmp_path / "out", "--split", "1/3")
    copy = shutil.copytree(tmp_path / "out", tmp_path / "copy")
    merged = CliRunner().invoke(cli, ["merge", str(tmp_path / "out")], catch_exceptions=False)
    assert merged.stdout == whole.stdout and "%WER" in merged.stdout
    alone = CliRunner().invoke(cli, ["merge", str(copy), "--json", "-"], catch_exceptions=False)
    (counts,) = json.loads(alone.stdout).values()
    assert f"%WER {counts['wer']:.2f} [ {counts['errors']} / {counts['words']}," in whole.stdout
    found = [{path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*") if path.is_file()}
             for name in ("whole", "out")]  # fmt: skip
    assert found[0] == found[1] and len(found[0]) > 5
    with pytest.raises(DataError, match="no shares of a decoding"):
        CliRunner().invoke(cli, ["merge", str(tmp_path / "out")], catch_exceptions=False)


def test_a_share_that_goes_on_knows_what_could_not_be_loaded_before(folder: Path, tmp_path: Path) -> None:
    search = ("--decoding-method", "greedy_search", "--max-duration", 1)
    whole = run(folder, *search, "--out", tmp_path / "whole")
    share = (*search, "--out", tmp_path / "out", "--split", "1/1")
    run(folder, *share)
    (parts,) = (tmp_path / "out").glob(".recogs*")
    before = (parts / "split-1-of-1.json").read_text()
    assert json.loads(before)["left out"] == {"c-3": "A MAT"}
    for suffix in (".json", None):  # as if killed at the end, and before the last part was written
        (parts / "split-1-of-1.json").unlink()
        if suffix is None:
            max(parts.glob("0*.decoded.gz")).unlink()
        run(folder, *share)
        assert (parts / "split-1-of-1.json").read_text() == before
    copy = shutil.copytree(tmp_path / "out", tmp_path / "copy")
    merged = CliRunner().invoke(cli, ["merge", str(tmp_path / "out")], catch_exceptions=False)
    assert merged.stdout == whole.stdout and " / 9, " in merged.stdout
    assert "1 of 4 utterances were not recognised" in merged.stderr
    (copy / parts.name / "plan.json").write_text("{")
    with pytest.raises(FormatError, match=r"plan.json: damaged or removed"):
        CliRunner().invoke(cli, ["merge", str(copy)], catch_exceptions=False)


def test_shares_of_another_text_view_or_other_pieces_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ("--decoding-method", "greedy_search", "--out", tmp_path)
    run(folder, *search, "--split", "1/2")
    with pytest.raises(UsageError, match="parts of a run with another settings"):
        run(folder, *search, "--text-view", "exact", "--split", "2/2")
    network, vocab = load_model(folder / "stateless")
    assert shares._digest(network, vocab.model) != shares._digest(network, vocabulary(20).model)


def test_a_share_that_cannot_begin_leaves_no_plan(folder: Path, tmp_path: Path) -> None:
    with gzip.open(folder / "my_cuts_test.jsonl.gz", "rt") as stream:
        first = stream.readline()
    path, words = (
        tmp_path / "cuts.jsonl",
        ("--model", str(folder / "stateless"), "--out", str(tmp_path), "--split", "1/1"),
    )
    for lines, problem in ((2 * first, "found 2 cuts with the id"), (first, "")):
        path.write_text(lines)
        made = CliRunner().invoke(cli, ["decode", *words, str(path)])
        assert problem in str(made.exception or "") and bool(problem) == bool(made.exit_code)


def test_one_set_decoded_in_two_ways_has_two_entries(folder: Path, tmp_path: Path) -> None:
    for size in (2, 3):
        run(folder, "--beam-size", size, "--out", tmp_path, "--split", "1/1")
    result = CliRunner().invoke(cli, ["merge", str(tmp_path), "--json", "-"], catch_exceptions=False)
    stem = "test-stateless-modified_beam_search-beam-size"
    assert sorted(json.loads(result.stdout)) == [f"{stem}-2", f"{stem}-3"]


def test_the_help_names_the_command_that_merges_its_shares() -> None:
    assert "asr merge puts them" in " ".join(CliRunner().invoke(cli, ["decode", "--help"]).stdout.split())
