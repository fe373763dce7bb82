"""Reads damaged inputs with every reader, as many as are wanted, and tells what was wrong.

    python -m tests.faults.fuzz --inputs 1000000 --minutes 60 --seed 0 [--format k2 ...] [--state FILE]
    python -m tests.faults.fuzz --reader k2 --seed 0 --again 4711     reads that one input, with its traceback

Each reader works in a process of its own, one at a time and two seconds at a turn, so that one that dies or hangs is a
finding too.  The readers of a format (`tests.faults.readers.FORMATS`: packed and not, each file of a folder) share
its inputs, by time.  Every input follows from the seed, the reader and its number.  With --state a run goes on where
the one before it ended.  The table at the end says how many inputs each format had, read, and what was found.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from lm_zoo.ngram import kenlm_check
from rescore.console import be_quiet
from tests.faults.damage import Target, Trial, limits, seed_of
from tests.faults.kenlm_forks import load_in_a_fork
from tests.faults.readers import FORMATS, TARGETS, format_of

TURN = 2.0  # seconds of the processor
HANGS = 120.0  # seconds by the clock for one input, after which its process is ended
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None


@dataclass
class Found:
    """What is known of a reader.

    Attributes:
      inputs, read: damaged inputs so far, and those among them that were not refused.
      seconds: of the processor.
      faults: what was wrong -> the numbers of its inputs, the first few.
      count: inputs with a fault.
    """

    inputs: int = 0
    read: int = 0
    seconds: float = 0.0
    count: int = 0
    faults: dict[str, list[int]] = field(default_factory=dict)

    def add(self, fault: str, number: int) -> bool:
        """Whether no fault like it was known."""
        self.count += 1
        kind = re.sub(r"0x[0-9a-f]+|\d+|/[^\s']+", "N", fault)
        known = self.faults.setdefault(kind, [])
        if len(known) < 5:
            known.append(number)
        return len(known) == 1


class Turn:
    """Two seconds of one reader in a process of its own, from the input `first` on."""

    def __init__(self, target: Target, seed: int, first: int, most: int) -> None:
        self.target, self.seed, self.first, self.most = target, seed, first, most
        self.shared = mmap.mmap(-1, 1 << 20)  # the number of the input at work, then what was found

    def run(self) -> dict[str, Any]:
        """`inputs`, `read`, `seconds`, `faults` [(number, fault)] of this turn."""
        pid = os.fork()
        if not pid:
            self._work()
        number, since = -1, time.monotonic()
        while True:
            ended, status, used = os.wait4(pid, os.WNOHANG)
            if ended:
                break
            if self._number() != number:
                number, since = self._number(), time.monotonic()
            elif time.monotonic() - since > HANGS:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        if os.waitstatus_to_exitcode(status) == 0:
            return dict(json.loads(self.shared[8 : self.shared.find(b"\0", 8)]))
        at = self._number()
        fault = f"its process ended with {os.waitstatus_to_exitcode(status)}"
        return {
            "inputs": at + 1 - self.first,
            "read": 0,
            "seconds": used.ru_utime + used.ru_stime,
            "faults": [(at, fault)],
        }

    def _number(self) -> int:
        return int.from_bytes(self.shared[:8], "little")

    def _work(self) -> None:
        code = 70
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):  # KenLM remarks on each file
                os.dup2(null, descriptor)
            with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
                tempfile.tempdir = folder
                self.shared[:8] = self.first.to_bytes(8, "little")
                trial = Trial(self.target, Path(folder) / "in")
                with limits():
                    found = json.dumps(self._turn(trial)).encode()
                self.shared[8 : 8 + len(found)] = found
            code = 0
        finally:
            os._exit(code)

    def _turn(self, trial: Trial) -> dict[str, Any]:
        begun, faults, number = time.process_time(), list[tuple[int, str]](), self.first
        while number < self.most and time.process_time() - begun < TURN and len(faults) < 1000:
            self.shared[:8] = number.to_bytes(8, "little")
            if fault := trial.fault(seed_of(self.target, self.seed, number)):
                faults.append((number, fault))
            number += 1
        seconds = time.process_time() - begun
        return {"inputs": number - self.first, "read": trial.read, "seconds": seconds, "faults": faults}


def read_again(target: Target, seed: int, number: int) -> None:
    """Reads one input, with its traceback."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        trial = Trial(target, Path(folder) / "in")
        data, _ = trial.damaged(seed_of(target, seed, number))
        print(f"{len(data)} bytes: {data[:1500]!r}")
        with limits():
            print(trial.fault(seed_of(target, seed, number)))
        trial.path.write_bytes(data)
        print(str(target.read(trial.path))[:3000])


def table(found: dict[str, Found]) -> str:
    lines = ["| format | readers | inputs | of these read | faults |", "|---|---:|---:|---:|---:|"]
    rows = {name: [one for reader, one in found.items() if format_of(reader) == name] for name in FORMATS}
    for name, ones in [*rows.items(), ("all", list(found.values()))]:
        if ones:
            total = [sum(getattr(one, count) for one in ones) for count in ("inputs", "read", "count")]
            lines.append(f"| {name} | {len(ones)} | {total[0]:,} | {total[1]:,} | {total[2]:,} |")
    return "\n".join(lines)


def _next(targets: list[Target], found: dict[str, Found], inputs: int) -> Target | None:
    """The reader with the least time of the first format that has not had its inputs."""
    for name in dict.fromkeys(format_of(target.name) for target in targets):
        readers = [target for target in targets if format_of(target.name) == name]
        if sum(found[target.name].inputs for target in readers) < inputs:
            return min(readers, key=lambda target: found[target.name].seconds)
    return None


@click.command()
@click.option("--format", "formats", multiple=True, type=click.Choice(list(FORMATS)), help="May be repeated; else all.")
@click.option(
    "--reader", "readers", multiple=True, type=click.Choice([target.name for target in TARGETS]), help="Instead."
)
@click.option("--inputs", default=1_000_000, show_default=True, help="Of each format.")
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--state", type=click.Path(path_type=Path), help="Goes on with what is in this file, and keeps it.")
@click.option("--again", type=int, help="Reads the input of this number alone.")
def command(
    formats: tuple[str, ...],
    readers: tuple[str, ...],
    inputs: int,
    minutes: float,
    seed: int,
    state: Path | None,
    again: int | None,
) -> None:
    """Exit status 1 if anything was found."""
    be_quiet()
    kenlm_check.load_elsewhere = load_in_a_fork
    warnings.simplefilter("ignore")
    gc.collect()
    gc.freeze()  # what is loaded is no garbage: each reader's process need not look through it
    targets = [target for target in TARGETS if target.name in readers or format_of(target.name) in formats] or TARGETS
    if again is not None:
        read_again(targets[0], seed, again)
        return
    kept = json.loads(state.read_text()) if state and state.exists() else {}  # of other readers too
    found = {target.name: Found(**kept.get(target.name, {})) for target in targets}
    stopped = list[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopped.append(number))
    deadline = time.monotonic() + 60 * minutes
    while not stopped and time.monotonic() < deadline:
        target = _next(targets, found, inputs)
        if target is None:
            break
        one = found[target.name]
        turn = Turn(target, seed, one.inputs, one.inputs + inputs).run()
        one.inputs += turn["inputs"]
        one.read += turn["read"]
        one.seconds += turn["seconds"]
        for number, fault in turn["faults"]:
            if one.add(fault, number):
                print(f"{target.name}, --again {number}: {fault}", flush=True)
        if state:
            kept |= {name: asdict(each) for name, each in found.items()}
            state.write_text(json.dumps(kept, indent=1))
    print(table(found))
    sys.exit(any(one.count for one in found.values()))


if __name__ == "__main__":
    command()
