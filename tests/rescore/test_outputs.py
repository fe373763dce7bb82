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
from lm_zoo.registry import build, save_folder
from lm_zoo.text.tokenizer import build_pieces
from rescore.cli import lattice
from rescore.cli.main import COMMANDS, main
from rescore.cli.outputs import Output, OutputSpec
from tests.commands import run_line
from tests.full_disk import full_disk
from tests.lm_zoo.zoo import neural
from tests.rescore.formats.test_slf import HTK_NODES

SENTENCES = ["THE CAT SAT ON THE MAT", "A CAT", "THE HAT WAS ON THE CAT", "A MAT SAT"]
TRAIN = "train-lm lstm --text text --valid text --tokens word --set dim=8 --train steps=2 --train save_every=1"
NAMES = {"out", "target", "out_dir", "exp_dir", "save_mix", "details", "json_file", "ctm", "network"}
LINES = [  # each writes `out`, `out.jsonl` or the like, the last argument
    "nbest --nbest lists.jsonl --lm small --out out",
    "tune --scores scores --ref ref --folds 0 --out out",
    "combine --scores scores --scale am=1 --out out",
    "wer --ref ref --hyp ref --details out",
    "compare --ref ref one=ref --json out",
    "ppl --lm small --ngram abc.arpa --text abc --tune-mix abc --save-mix out",
    "count --text text --out out",
    "transcripts stm stm --out out",
    "convert lists.jsonl out.jsonl.gz",
    "convert slf:lattices --jobs 2 jsonl:out",
    "convert lists.jsonl kaldi:out",
    "lattice convert slf:lattices slf:out",
    "lattice convert slf:lattices --words words.txt kaldi:out.gz",
    "lattice nbest slf:lattices --jobs 1 out.jsonl",
    "lattice prune slf:lattices --beam 10 slf:out",
    "lattice rescore slf:lattices --ngram text.arpa --case upper --scale ngram=1 slf:out",
    "lattice best-path slf:lattices --out out",
    "lattice oracle slf:lattices --ref ref --case upper --out out",
    "lattice posteriors slf:lattices --out out",
    "lattice mbr slf:lattices --out out",
    "lattice mbr slf:lattices --ctm out",
    "lattice mbr slf:lattices --network out",
    f"{TRAIN} --out out",
    "convert-lm bayesian plain --out out",
    "export-lm pieces --out out",
    "train-ngram --text text --order 2 --discount-fallback --out out.arpa",
    "train-ngram --text text --order 2 --discount-fallback --out out.arpa.gz",
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    hyps = '"hyps": [{"words": "A B", "scores": {"am": -1.0}}, {"words": "A C", "scores": {"am": -2.0}}]'
    lists = "".join(f'{{"utt_id": "u{number}", {hyps}}}\n' for number in range(50))
    write_text(folder / "lists.jsonl", lists)
    write_text(folder / "scores/scores.jsonl.gz", lists)
    (folder / "ref").write_text("".join(f"u{number} A CAT\n" for number in range(50)))
    (folder / "text").write_text("\n".join(SENTENCES * 20) + "\n")
    (folder / "words.txt").write_text("<eps> 0\nthe 1\na 2\ncat 3\nTHE 4\nA 5\nCAT 6\n")
    (folder / "abc").write_text("A B C\nB A\n" * 5)
    (folder / "stm").write_text("".join(f"a 1 s {number} {number + 1} <o> A CAT SAT\n" for number in range(50)))
    (folder / "lattices").mkdir()
    for number in range(4):
        (folder / f"lattices/u{number}.slf").write_text(HTK_NODES)
    save_folder(folder / "small", neural("transfornn"), "transfornn", {})
    save_folder(folder / "plain", neural("transformer"), "transformer", {})
    vocab = build_pieces({word: 9 for line in SENTENCES for word in line.split()}, 20, "bpe")
    save_folder(folder / "pieces", build("lstm", vocab, {"dim": 8}), "lstm", {})
    for text in ("text", "abc"):
        run(f"train-ngram --text {folder / text} --order 2 --discount-fallback --out {folder / text}.arpa")
    return folder


@pytest.fixture
def here(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the inputs; whatever a test adds to it goes."""
    monkeypatch.chdir(inputs)
    before = set(inputs.iterdir())
    yield inputs
    for path in set(inputs.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def run(line: str) -> tuple[int, str]:
    return run_line("rescore", main, line)


def target(line: str) -> Path:
    return Path(line.split()[-1].rpartition(":")[2])


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
            written = [param for param in command.params if isinstance(param.type, (Output, OutputSpec))]
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


def test_standard_output_takes_what_is_written(here: Path) -> None:
    code = "from rescore.cli.main import main; main()"
    arguments = [sys.executable, "-c", code, "convert", "lists.jsonl", "jsonl:-"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") == 50
