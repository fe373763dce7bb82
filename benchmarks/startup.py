"""How long `rescore nbest` takes from its start to the first progress and to the first scored part.

Example: python benchmarks/startup.py
Example: python benchmarks/startup.py --python .venv/bin/python --python .venv311/bin/python --rounds 5

Each command runs as a process of its own, with a terminal for its progress, and is stopped when the first part is
there.  `import torch` alone is the floor of all that evaluates a neural LM.
"""

from __future__ import annotations

import json
import os
import pty
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
from measure import heading, row

WORDS = ("THE", "OF", "AND", "A", "TO", "IN", "HE", "HIS", "THAT", "WAS", "HAD", "IT", "NOT", "WITH", "FOR", "SAID")
ENVIRONMENT = {**os.environ, "TERM": "xterm"}


def lists(path: Path, count: int, size: int, seed: int) -> Path:
    """Writes lists of sentences of 24 words whose last ones differ."""
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as stream:
        for number in range(count):
            begin = " ".join(draw.choices(WORDS, k=12))
            ends = [" ".join(draw.choices(WORDS, k=12)) for _ in range(size)]
            hyps = [{"words": f"{begin} {end}", "scores": {"am": -float(rank)}} for rank, end in enumerate(ends)]
            stream.write(json.dumps({"utt_id": f"utt{number}", "hyps": hyps}) + "\n")
    return path


def whole(command: list[str]) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds of a command that ends by itself."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise click.ClickException(f"{' '.join(command)} failed")
    return {"": (time.perf_counter() - start, usage.ru_utime + usage.ru_stime)}


def beginning(command: list[str], out: Path) -> dict[str, tuple[float, float]]:
    """The same until the first progress, and until the first part in `out`, where the command is stopped."""
    ours, theirs = pty.openpty()
    start = time.perf_counter()
    process = subprocess.Popen([*command, "--out", str(out)], stderr=theirs, env=ENVIRONMENT)
    found: dict[str, tuple[float, float]] = {}
    while "first part" not in found:
        if process.poll() is not None:
            raise click.ClickException(f"it ended before its first part: {os.read(ours, 10_000).decode()}")
        if select.select([ours], [], [], 0.002)[0]:
            os.read(ours, 10_000)
            found.setdefault("first progress", (time.perf_counter() - start, _cpu(process.pid)))
        if any(out.glob(".parts/0*.gz")):
            found["first part"] = time.perf_counter() - start, _cpu(process.pid)
    process.kill()
    process.wait()
    os.close(ours)
    os.close(theirs)
    return found


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def best(action: Callable[[], dict[str, tuple[float, float]]], rounds: int) -> dict[str, tuple[float, float]]:
    """The least of each of some rounds, after one that fills the caches."""
    action()
    runs = [action() for _ in range(rounds)]
    return {key: tuple(min(run[key][place] for run in runs) for place in (0, 1)) for key in runs[0]}  # type: ignore[misc]


@click.command(help=__doc__)
@click.option("--python", "pythons", multiple=True, default=(sys.executable,), help="Interpreters; may be repeated.")
@click.option("--lm", default="transfornn", show_default=True)
@click.option("--lists", "count", default=50, show_default=True)
@click.option("--size", default=100, show_default=True, help="Hypotheses a list.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(pythons: tuple[str, ...], lm: str, count: int, size: int, rounds: int, seed: int) -> None:
    heading("torch", "what", "wall s", "CPU s", "wall of `import torch`")
    with tempfile.TemporaryDirectory() as folder:
        source = lists(Path(folder) / "lists.jsonl", count, size, seed)
        for python in pythons:
            version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True)
            rescore = [python, "-m", "rescore.cli.main"]
            results = {
                "import torch": best(lambda python=python: whole([python, "-c", "import torch"]), rounds),
                "rescore --help": best(lambda rescore=rescore: whole([*rescore, "--help"]), rounds),
                "rescore nbest": best(
                    lambda rescore=rescore: beginning(
                        [*rescore, "nbest", "--nbest", str(source), "--lm", lm], Path(tempfile.mkdtemp(dir=folder))
                    ),
                    rounds,
                ),
            }
            floor = results["import torch"][""][0]
            for what, moments in results.items():
                for moment, (wall, cpu) in moments.items():
                    name = f"{what}: {moment}" if moment else what
                    row(version.stdout.decode().strip(), name, f"{wall:.2f}", f"{cpu:.2f}", f"{wall / floor:.2f}")


if __name__ == "__main__":
    main()
