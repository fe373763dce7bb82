"""A lattice for which memory does not suffice is named and left out by every command on lattices."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rescore.cli.main import main
from rescore.formats import read_lattices, write_lattices
from tests.commands import run_line
from tests.rescore.workflows.test_skipping import sausage
from tests.rescore.workflows.test_too_large import is_monster, made, starve

COMMANDS = {  # command -> what finds no memory, the file that it writes
    "info slf:in --ref ref --json out": ("lattices.info.oracle", ""),
    "info slf:in --json out": ("lattices.info._times", ""),
    "best-path slf:in --out out": ("lattices.best_path.best_path", "out"),
    "prune slf:in --scale am=1 --beam 9 slf:out": ("lattices.prune.prune_beam", "out"),
    "prune slf:in --scale am=1 --beam 8 slf:out": ("formats.slf_write.format_lattice", "out"),
    "oracle slf:in --ref ref --out out": ("lattices.oracle.oracle", "out"),
    "posteriors slf:in --scale am=1 --out out": ("lattices.posteriors.arc_posteriors", "out"),
    "mbr slf:in --scale am=1 --ctm ctm --out out": ("lattices.mbr.mbr_decode", "out"),
    "mbr slf:in --scale am=1 --network out": ("lattices.mbr.network_json", "out"),
    "posteriors slf:in --scale am=1 --case lower --out out": ("lattices.build.normalize_words", "out"),
}
SAID = "1 left out because of errors; all else is done (exit status 3)"


@pytest.fixture
def _sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_lattices("slf:in", made("a", "monster", "z"))
    Path("ref").write_text("a A B\nmonster A B\nz A B\n")


@pytest.mark.usefixtures("_sources")
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_too_large_is_left_out(command: str) -> None:
    """The rest is written as if it had been alone."""
    starved, out = COMMANDS[command]
    with pytest.MonkeyPatch.context() as patch:
        starve(patch, starved, is_monster)
        code, said = run_line("rescore", main, f"lattice {command}")
        assert (code, "monster: memory does not suffice" in said.replace("'", "")) == (2, True), said
        assert not Path("out").exists() and not Path("ctm").exists()
        assert run_line("rescore", main, f"lattice {command} --on-error skip") == (3, SAID)
    assert utterances(out) == ["a", "z"] if out else '"lattices": 2' in Path("out").read_text()
    found = taken()
    Path("in", "monster.slf.gz").unlink()
    assert run_line("rescore", main, f"lattice {command}")[0] == 0
    assert taken() == found


def taken() -> dict[str, bytes]:
    """The files that a command has written, which are there no more."""
    files = [path for name in ("out", "ctm") for path in (Path(name), *sorted(Path(name).glob("*"))) if path.is_file()]
    found = {str(path): gzip.decompress(path.read_bytes()) if path.suffix else path.read_bytes() for path in files}
    for path in files:
        path.unlink()
    shutil.rmtree("out", ignore_errors=True)
    return found


def utterances(out: str) -> list[str]:
    """Those in what was written, each once, in its order."""
    if Path(out).is_dir():
        return [lattice.utt_id for lattice in read_lattices(f"slf:{out}")]
    lines = Path(out).read_text().replace('{"utt_id": "', "").replace('"', " ").splitlines()
    return list(dict.fromkeys(line.split()[0] for line in lines))


@pytest.mark.usefixtures("_sources")
def test_all_of_them_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    starve(monkeypatch, "lattices.best_path.best_path", lambda *_: True)
    code, said = run_line("rescore", main, "lattice best-path slf:in --on-error skip --out out")
    assert (code, said.endswith("no lattice in it that can be read and done")) == (2, True), said


@pytest.mark.usefixtures("_sources")
@pytest.mark.parametrize("command", ["nbest slf:in --jobs 1", "rescore slf:in --ngram a.arpa"])
def test_what_is_read_twice_is_counted_once(command: str) -> None:
    """As scales are found on the lattices first."""
    Path("text").write_text("A B\nB A\nA A B\n" * 3)
    assert run_line("rescore", main, "train-ngram --text text --order 2 --discount-fallback --out a.arpa")[0] == 0
    Path("in", "monster.slf.gz").unlink()
    Path("in", "monster.slf").write_text("VERSION=1.0\n")
    line = f"lattice {command} --ref ref --utterances common --on-error skip jsonl:out.jsonl -n 2"
    assert run_line("rescore", main, line) == (3, SAID)


BOUNDED = """
from lm_zoo.inference.limits import limit_memory, taken
from rescore.formats import kaldi_lattice
from rescore.lattices import mbr
limit_memory(int(taken()) + (120 << 20))
from rescore.cli.main import main
main()
"""


@pytest.mark.slow
def test_a_monstrous_lattice_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60,000 arcs, 3,000 words long: what the recursion keeps of it grows by the square of its length."""
    monkeypatch.chdir(tmp_path)
    dice, words = np.random.default_rng(0), [f"W{number}" for number in range(20)]
    sizes = (("a", 2), ("monster", 3000), ("z", 2))
    write_lattices("kaldi-lat:in.ark", (sausage(dice, utt_id, length, words) for utt_id, length in sizes))
    line = "lattice mbr kaldi-lat:in.ark --scale am=1 --on-error skip --out out"
    done = subprocess.run([sys.executable, "-c", BOUNDED, *line.split()], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "utterance monster: memory does not suffice for it" in done.stderr
    assert utterances("out") == ["a", "z"]
