"""--max-seconds: an utterance that takes longer is named, counted and left out; the others are as if it had not been.

By the clock of these tests every look at it takes a second.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from lm_zoo import deadline
from lm_zoo.deadline import time_limit
from lm_zoo.registry import save_folder
from rescore.cli.main import main
from rescore.formats import read_nbest, write_lattices
from rescore.workflows.reuse import SCORED_FILE
from tests.commands import run_line
from tests.lm_zoo import zoo
from tests.rescore.workflows.test_skipping import sausage

SKIPPED = (3, "1 left out because of errors; all else is done (exit status 3)")
SHORT = {"a": 2, "monster": 60, "z": 3}  # utterance -> words of its lattice, hypotheses of its list


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lattices, lists and LMs in the working directory, once with the monster and once without."""
    monkeypatch.chdir(tmp_path)
    now = [0.0]

    def look() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(deadline, "monotonic", look)
    dice, lines = np.random.default_rng(0), []
    made = [sausage(dice, utt_id, size, ["A", "B"]) for utt_id, size in SHORT.items()]
    for utt_id, size in SHORT.items():
        hyps = [{"words": " ".join(dice.choice(list("AB"), size)), "scores": {"am": -float(n)}} for n in range(size)]
        lines.append(json.dumps({"utt_id": utt_id, "hyps": hyps}) + "\n")
    for name, left in (("all", slice(0, 3)), ("rest", slice(0, 3, 2))):
        write_lattices(f"slf:{name}", made[left])
        Path(f"{name}.jsonl").write_text("".join(lines[left]))
    Path("text").write_text("A B\nB A\nA A B\n" * 3)
    assert run_line("rescore", main, "train-ngram --text text --order 2 --discount-fallback --out a.arpa")[0] == 0
    save_folder(Path("lstm"), zoo.neural("lstm"), "lstm", {})


SCALES = " --scale am=1 --scale ngram=1 --scale nn=1"
COMMANDS = {
    f"nbest --nbest {{}}.jsonl --ngram a.arpa --lm nn=lstm{SCALES} --out {{}}-out": 100,
    "lattice nbest slf:{} -n 40 --jobs 1 {}-out.jsonl": 60,
    "lattice nbest slf:{} -n 40 --jobs 2 {}-out.jsonl": 60,
    "lattice rescore slf:{} --ngram a.arpa --scale am=1 --scale ngram=1 slf:{}-out": 40,
    "lattice rescore slf:{} --lm nn=lstm --scale am=1 --scale nn=1 --exact slf:{}-out": 50,
    "lattice rescore slf:{} --ngram a.arpa --scale am=1 --scale ngram=1 -n 20 {}-out.jsonl": 100,
    "lattice mbr slf:{} --network {}-out.jsonl": 60,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_takes_longer_is_left_out(command: str) -> None:
    limit = f" --max-seconds {COMMANDS[command]}"
    code, said = run_line("rescore", main, command.format("all", "all") + limit)
    assert code == 2 and f"took more than {COMMANDS[command]} s (--max-seconds)" in said and "monster" in said
    assert not list(Path().glob("all-out*")) or "--out" in command
    assert run_line("rescore", main, command.format("all", "all") + limit + " --on-error skip") == SKIPPED
    assert run_line("rescore", main, command.format("rest", "rest") + limit)[0] == 0
    (one,), (other,) = Path().glob("all-out*"), Path().glob("rest-out*")
    assert contents(one) == contents(other)
    assert time_limit() is None


def contents(path: Path) -> dict[str, bytes]:
    """Of the file, or of those in the folder; `scored.json` says what they were made of, which differs."""
    files = [path] if path.is_file() else [file for file in path.iterdir() if file.name != SCORED_FILE]
    return {file.name if file is not path else "": file.read_bytes() for file in files}


@pytest.mark.parametrize("command", [command for command in COMMANDS if not {"--jobs", "mbr"} & set(command.split())])
def test_shares_leave_out_the_same(command: str) -> None:
    """And a share of another limit is refused."""
    limit = f"--on-error skip --max-seconds {COMMANDS[command]}"
    assert run_line("rescore", main, f"{command.format('all', 'all')} {limit}") == SKIPPED
    scales = SCALES if "--out" in command else ""  # of N-best lists the merge combines
    shared = command.replace(scales, "").format("all", "parts")
    codes = [run_line("rescore", main, f"{shared} {limit} --split {share}/2")[0] for share in (1, 2)]
    assert sorted(codes) in ([0, 3], [3, 3])
    assert "another --max-seconds" in run_line("rescore", main, f"{shared} {limit}9 --split 1/2")[1]
    target = shared.split()[-1].removeprefix("slf:")
    assert run_line("rescore", main, f"merge {target}{scales}") == SKIPPED
    assert contents(Path(target)) == contents(Path(target.replace("parts", "all")))


def test_a_run_that_was_stopped_goes_on() -> None:
    """What it has left out stays out, is named and counted again; with another limit all is done anew."""
    command = next(iter(COMMANDS)).format("all", "all") + " --on-error skip --max-seconds"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rescore.workflows.scoring.join_parts", stopped)
        assert run_line("rescore", main, f"{command} 100") == (1, "Aborted!")
    shutil.copytree("all-out", "again-out")
    assert run_line("rescore", main, f"{command} 100") == SKIPPED
    assert run_line("rescore", main, f"{command} 10000".replace("all-out", "again-out"))[0] == 0
    assert [len(list(read_nbest(f"jsonl:{name}-out/scores.jsonl.gz"))) for name in ("all", "again")] == [2, 3]


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_worker_processes_have_the_limit() -> None:
    line = "lattice nbest slf:rest --max-seconds 0.000000001 --executor local --workers 1 --shards 1 out.jsonl"
    code, said = run_line("rescore", main, line)
    assert code == 2 and "utterance a: took more than 1e-09 s (--max-seconds)" in said


def test_wrong_limits() -> None:
    command = next(iter(COMMANDS)).format("all", "all")
    for seconds, problem in (("0", "0.0 is not in the range"), ("nan", "found 'nan', expected a finite number")):
        code, said = run_line("rescore", main, f"{command} --max-seconds {seconds}")
        assert code == 2 and problem in said
    code, said = run_line("rescore", main, f"{command} --max-seconds 9 --context 20 --recording-of (.)")
    assert code == 2 and said.endswith("leave it or --context out")
