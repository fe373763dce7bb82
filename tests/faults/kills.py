"""Kills every command that writes at random moments, runs it again, and compares what it wrote with an undisturbed run.

    python -m tests.faults.kills --kills 20 --seed 1 [--only "rescore nbest"] [--workers]     prints a table in Markdown

Each run is forked from this process, which has imported the heavy packages already: so the kills fall into the work of
the command, not into the seconds before it.  A run is killed with its workers left alone, as the system does it; with
--workers one of its workers is killed, and the run has to go on and to end well.
"""

from __future__ import annotations

import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import click

from asr.cli.main import main as asr
from lm_zoo.safe_unpickle import read_torch_file
from rescore.cli.main import main as rescore
from tests.asr import commands as recogniser
from tests.faults.commands import LINES, LONG_LINES, make_inputs, make_long_inputs

PROGRAMS = {"rescore": rescore, "asr": asr}
ALL = [
    *(f"rescore {line}" for line in (*LINES, *LONG_LINES)),
    *(f"asr {line}" for line in (*(line for line, _ in recogniser.LINES), *recogniser.LONG_LINES)),
]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
HEAVY = (
    "torch",
    "torch._dynamo",
    "torch.utils.tensorboard",
    "lm_zoo.training.run",
    "rescore.tuning.tune",
    "rescore.workflows.compare",
    "rescore.workflows.lattice_rescore",
    "rescore.sharing.shares",
    "matplotlib.pyplot",
    "lhotse",
    "kaldi_native_fbank",
    "onnxruntime",
    "sentencepiece",
    "asr.training.run",
    "asr.dataset.noisy_set",
    "asr.decoding.run_written",
)
TIMES = ("log.jsonl", "events.out", "run.json", "checkpoint")  # what says when it was written
PATIENCE = 60.0  # seconds until the workers of a dead process must have ended


def start(line: str) -> int:
    """Runs a line, which begins with `rescore` or `asr`, in a process of its own; its id, which is its group's too."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    sys.argv = line.split()
    code = 70
    try:
        PROGRAMS[sys.argv[0]]()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        os._exit(code)


def finish(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill(pid: int, number: signal.Signals) -> bool:
    """Sends the signal, and waits until all processes of the group have ended; False if one goes on."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    finish(pid)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    return False


def contents(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, without what holds times; of the checkpoints of a training the weights."""
    return {
        str(path.relative_to(folder)): _weights(path) if path.suffix == ".pt" else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(name in str(path.relative_to(folder)) for name in TIMES)
    }


def _weights(path: Path) -> bytes:
    """Of a checkpoint, which tells how long it took beside them."""
    tensors = read_torch_file(path)["model"]
    return b"".join(f"{name} {tensor.tolist()}".encode() for name, tensor in tensors.items())


def is_final(name: str) -> bool:
    """Whether a file has its final name: no part of it begins with a point, and it is no journal."""
    return not any(part.startswith(".") for part in Path(name).parts) and ".part." not in name


def kill_worker(pid: int, dice: random.Random) -> bool:
    """Kills one of the processes that work for `pid`; False if there is none."""
    workers = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            group = int((folder / "stat").read_text().rpartition(")")[2].split()[2])
            if group == pid and b"spawn_main" in (folder / "cmdline").read_bytes():
                workers.append(int(folder.name))
    with suppress(ProcessLookupError):
        if workers:
            os.kill(dice.choice(sorted(workers)), signal.SIGKILL)
            return True
    return False


def torture(line: str, inputs: Path, kills: int, dice: random.Random, of_workers: bool = False) -> Counter[str]:
    """Kills a command, or one of its workers, so many times, always from a clean start, and counts what was found."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        trial = Path(scratch) / "trial"  # of the undisturbed run too, as manifests name it
        shutil.copytree(inputs, trial)
        begun = time.monotonic()
        os.chdir(trial)
        assert finish(start(line)) == 0, line
        lasts = time.monotonic() - begun
        expected = contents(trial)
        os.chdir(scratch)
        shutil.rmtree(trial)
        for _ in range(kills):
            shutil.copytree(inputs, trial)
            os.chdir(trial)
            pid = start(line)
            time.sleep(dice.uniform(0, lasts))
            found["kills"] += 1
            if of_workers:
                found["in the middle"] += kill_worker(pid, dice)
                found["refused"] += finish(pid) != 0
            else:
                found += _killed_and_again(line, pid, trial, contents(inputs), expected, dice.choice(SIGNALS))
            after = contents(trial)
            found["other bytes"] += any(after.get(name) != data for name, data in expected.items())
            found["left over"] += any(name not in expected for name in after)
            os.chdir(scratch)
            shutil.rmtree(trial)
    return found


def _killed_and_again(
    line: str, pid: int, trial: Path, before: dict[str, bytes], expected: dict[str, bytes], number: signal.Signals
) -> Counter[str]:
    """Kills a run and runs its command again."""
    found = Counter({"orphaned workers": int(not kill(pid, number))})
    after = contents(trial)
    found["in the middle"] = int(after != before and after != expected)
    found["half-written"] = int(any(expected.get(name) != data for name, data in after.items() if is_final(name)))
    complete = all(after.get(name) == data for name, data in expected.items())
    again = finish(start(line))
    found["refused"] = int(again != 0 and not complete)  # a whole folder is not written over
    return found


def make(folder: Path, lines: list[str]) -> None:
    """Writes what these lines read, into a folder for each program."""
    long = any(line.partition(" ")[2] in (*LONG_LINES, *recogniser.LONG_LINES) for line in lines)
    for program in {line.split()[0] for line in lines}:
        (folder / program).mkdir()
        if program == "asr":
            recogniser.make_inputs(folder / program)
            if long:
                recogniser.make_long_inputs(folder / program)
        elif long:
            make_long_inputs(folder / program, any(line.startswith("rescore report") for line in lines))
        else:
            make_inputs(folder / program)


def make_elsewhere(folder: Path, lines: list[str]) -> None:
    """The same in a process of its own: one that has computed has threads, which those forked from it would lack."""
    pid = os.fork()
    if not pid:
        code = 70
        try:
            make(folder, lines)
            code = 0
        finally:
            os._exit(code)
    assert finish(pid) == 0, "the inputs could not be written"


COLUMNS = ("kills", "in the middle", "half-written", "orphaned workers", "refused", "other bytes", "left over")


@click.command()
@click.option("--kills", default=20, show_default=True, help="Of each command.")
@click.option("--seed", default=1, show_default=True)
@click.option("--only", default="", help="Commands that begin so.")
@click.option("--workers", is_flag=True, help="Kill workers, of the commands that have some.")
def command(kills: int, seed: int, only: str, workers: bool) -> None:
    """Prints the table; exit status 1 if anything was lost or left."""
    for name in HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)
    here = Path.cwd()
    faults = 0
    print(f"| command | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}")
    with tempfile.TemporaryDirectory() as folder:
        lines = [line for line in ALL if line.startswith(only) and ("--executor" in line or not workers)]
        make_elsewhere(Path(folder), lines)
        for line in lines:
            found = torture(line, Path(folder) / line.split()[0], kills, random.Random(f"{seed} {line}"), workers)
            faults += sum(found[name] for name in COLUMNS[2:])
            print(f"| `{line}` | {' | '.join(str(found[name]) for name in COLUMNS)} |", flush=True)
    os.chdir(here)
    sys.exit(faults > 0)


if __name__ == "__main__":
    command()
