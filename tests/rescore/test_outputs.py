"""What every command does with its output: two runs of one name, a full disk, devices, links."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lm_zoo.files import locked, write_text
from rescore.cli import lattice
from rescore.cli.main import COMMANDS
from rescore.cli.outputs import OutputPath, OutputSpec
from tests.faults.commands import LINES, TRAIN, make_inputs, run, target
from tests.full_disk import full_disk

NAMES = {"out", "target", "out_dir", "exp_dir", "save_mix", "details", "json_file", "ctm", "network"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    make_inputs(folder)
    return folder


@pytest.fixture
def here(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the inputs; whatever a test adds to it goes."""
    monkeypatch.chdir(inputs)
    before = set(inputs.iterdir())
    yield inputs
    for path in set(inputs.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.mark.parametrize("line", LINES)
def test_a_second_run_is_refused_and_a_full_disk_leaves_nothing(here: Path, line: str) -> None:
    before = sorted(here.rglob("*"))
    with locked(target(line)):
        code, said = run(line)
    assert code == 2 and "is writing it; wait until it has ended" in said
    assert sorted(here.rglob("*")) == before
    failures = 0
    for room in (0, 30, 100, 300, 1000, 4000, 9000)["--jobs 2" in line and 2 :]:  # processes need some themselves
        with full_disk(room):
            code, said = run(line)
        if code == 0:
            break
        failures += 1
        assert code == 2 and re.fullmatch(r"rescore: (.*: cannot be written \(File too large\)|File too large)", said)
        assert not [path for path in here.rglob(".*") if path.name.endswith((".tmp", ".lock"))]
    assert failures
    assert code == 0 or run(line)[0] == 0
    assert target(line).exists()


@pytest.mark.parametrize(
    "line, lost",
    [
        ("wer --ref ref --hyp ref --details ref", "ref"),
        ("wer --ref ref --hyp ref --json link", "ref"),
        ("count --text text --out text", "text"),
        ("tune --scores scores --ref ref --out ref", "ref"),
        ("convert lists.jsonl srilm:lists.jsonl", "lists.jsonl"),
        ("lattice best-path slf:one.slf --out one.slf", "one.slf"),
        ("lattice nbest slf:one.slf --jobs 2 jsonl:one.slf", "one.slf"),
    ],
)
def test_an_output_that_is_an_input_is_refused(here: Path, line: str, lost: str) -> None:
    shutil.copy(min((here / "lattices").iterdir()), "one.slf")
    (here / "link").symlink_to("ref")
    before = (here / lost).read_bytes()
    code, said = run(line)
    assert code == 2 and "is read by this command, which would write over it; choose another name" in said
    assert (here / lost).read_bytes() == before


def test_an_output_that_is_there_and_no_input_is_replaced(here: Path) -> None:
    shutil.copy("ref", "same")
    assert run("wer --ref ref --hyp ref --details same")[0] == 0
    assert (here / "same").read_bytes() != (here / "ref").read_bytes()
    assert run("wer --ref ref --hyp ref --json same")[0] == 0


def test_two_outputs_of_one_name_are_refused(here: Path) -> None:
    code, said = run("wer --ref ref --hyp ref --details new --json ./new")
    assert code == 2 and said == "rescore: new: two outputs of this command have this name; choose another one"
    assert not (here / "new").exists()
    assert run("wer --ref ref --hyp ref --details /dev/null --json /dev/null")[0] == 0


def test_a_vocabulary_that_an_older_version_left_half_written_is_made_again(here: Path) -> None:
    write_text("out/vocab/words.txt", "<sos/eos> 0\n")
    write_text("out/vocab/case", "")
    assert run(f"{TRAIN} --out out")[0] == 0
    assert (here / "out/vocab/case").read_text() == "upper\n"
    assert "CAT" in (here / "out/vocab/words.txt").read_text()


def test_a_wrong_argument_leaves_no_lock(here: Path) -> None:
    before = sorted(here.rglob("*"))
    for line in (
        "count --text text --out new/out --order 7",
        "convert lists.jsonl new/out.jsonl -n 0",
        "train-lm --out x",
    ):
        assert run(line)[0] == 2
    assert sorted(here.rglob("*")) == before


def test_every_output_is_held() -> None:
    """What a command that is tested above writes is named by parameters of the two types, and no other."""
    held = set()
    for package, names in (("rescore.cli", COMMANDS), ("rescore.cli.lattice", lattice.COMMANDS)):
        for name in names:
            command = importlib.import_module(f"{package}.{name.replace('-', '_')}").command
            written = [param for param in command.params if isinstance(param.type, (OutputPath, OutputSpec))]
            held |= {name} if written else set()
            assert all(param in written for param in command.params if param.name in NAMES), name
    assert held >= {line.split()[line.startswith("lattice ")] for line in LINES}


def test_jobs_of_one_folder_do_not_hold_each_other(here: Path) -> None:
    lattices = "lattice convert slf:lattices --words words.txt --case upper kaldi:lat.gz"
    archives = "kaldi archives lat.gz out --words words.txt --old-ngram text.arpa --job"
    assert run(lattices)[0] == 0
    with locked("out/archives.1"), locked("out/lat.1.gz"):
        for line in (f"{archives} 1", "kaldi lattices out --job 1 --costs x", "kaldi score out/archives.1 --lm small"):
            code, said = run(line)
            assert code == 2 and "is writing it" in said
        assert run(f"{archives} 2")[0] == 0
    assert run(f"{archives} 1")[0] == 0


def test_devices_and_links(here: Path) -> None:
    full = "/dev/full: cannot be written (No space left on device); make room on the disk and run the command again"
    assert run("count --text abc --out /dev/full") == (2, f"rescore: {full}")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    (here / "link").symlink_to("real.jsonl")
    assert run("convert lists.jsonl jsonl:link")[0] == 0
    assert (here / "link").is_symlink() and (here / "real.jsonl").read_text().count("\n") == 50


def test_results_that_standard_output_has_no_room_for(here: Path) -> None:
    code = "from rescore.cli.main import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "wer", "--ref", "ref", "--hyp", "ref"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    expected = "rescore: No space left on device; make room on the disk and run the command again\n"
    assert (done.returncode, done.stderr) == (2, expected)


@pytest.mark.slow
def test_standard_output_takes_what_is_written(here: Path) -> None:
    code = "from rescore.cli.main import main; main()"
    arguments = [sys.executable, "-c", code, "convert", "lists.jsonl", "jsonl:-"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") == 50
