"""Rescores for a long time in one process, and counts its memory, open files and threads.

    python -m tests.faults.endurance --minutes 60 [--every 60]     prints a table in Markdown

In turn: N-best lists with a shipped neural LM and the n-gram, tuning and combining of what they gave, lattices with the
n-gram and with a neural LM, and their N best.  The inputs differ from round to round.  Exit status 1 if memory, files
or threads grew between the first tenth and the end by more than GROWTH.
"""

from __future__ import annotations

import gc
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np

from rescore.console import be_quiet
from rescore.formats import write_lattices, write_nbest
from rescore.types import Hypothesis, Lattice, NbestList
from tests.faults.commands import run

WORDS = ["THE", "CAT", "SAT", "ON", "A", "MAT", "HAT", "IS", "WAS", "HE", "SHE", "IN", "HOUSE", "AND", "OF", "MEN"]
GROWTH = {"MB": 64, "files": 2, "threads": 2}


LINES = [
    "nbest --nbest jsonl:F/lists.jsonl --lm lstm --lm ngram --out F/scores",
    "tune --scores F/scores --ref F/ref --folds 0 --out F/weights.json",
    "combine --scores F/scores --weights F/weights.json --out F/best",
    "train-ngram --text F/text --order 2 --discount-fallback --out F/a.arpa",
    "lattice rescore slf:F/lattices --ngram F/a.arpa --scale am=1 --scale ngram=5 slf:F/rescored",
    "lattice nbest slf:F/rescored -n 10 --jobs 1 F/nbest.jsonl",
    "lattice mbr slf:F/rescored --out F/mbr",
]


def nbest_list(dice: random.Random, utt_id: str) -> NbestList:
    hyps = [
        Hypothesis(tuple(dice.choices(WORDS, k=dice.randrange(0, 25))), {"am": -50 * dice.random()})
        for _ in range(dice.randrange(1, 30))
    ]
    return NbestList(utt_id, hyps, tuple(dice.choices(WORDS, k=8)))


def sausage(dice: random.Random, utt_id: str, length: int = 30) -> Lattice:
    """A few words between every two states."""
    src = np.sort(np.array([*range(length), *dice.choices(range(length), k=3 * length)], dtype=np.int32))
    labels = np.array([dice.randrange(1, len(WORDS) + 1) for _ in src], dtype=np.int32)
    scores = {"am": np.array([-10 * dice.random() for _ in src])}
    return Lattice(utt_id, length + 1, src, src + 1, labels, scores, ["", *WORDS], np.arange(length + 1) * 0.3)


def one_round(folder: Path, dice: random.Random) -> int:
    """Rescores new lists and lattices by the commands; returns the number of hypotheses."""
    made = [nbest_list(dice, f"u{number}") for number in range(20)]
    write_nbest(f"jsonl:{folder}/lists.jsonl", made)
    write_lattices(f"slf:{folder}/lattices", [sausage(dice, f"u{number}") for number in range(5)])
    (folder / "ref").write_text("".join(" ".join((each.utt_id, *(each.ref or ()))) + "\n" for each in made))
    (folder / "text").write_text("".join(" ".join(dice.choices(WORDS, k=10)) + "\n" for _ in range(40)))
    for line in LINES:
        code, said = run(line.replace("F/", f"{folder}/"))
        assert code == 0, f"{line}: {said}"
    return sum(len(each.hyps) for each in made)


def state() -> dict[str, int]:
    """What the process holds now."""
    gc.collect()
    resident = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert resident is not None
    counts = {name: len(os.listdir(f"/proc/self/{folder}")) for name, folder in (("files", "fd"), ("threads", "task"))}
    return {"MB": int(resident[1]) >> 10, **counts}


def grown(rows: list[dict[str, int]]) -> list[str]:
    """What grew from the first tenth to the end."""
    first = rows[len(rows) // 10]
    return [name for name, most in GROWTH.items() if rows[-1][name] - first[name] > most]


@click.command()
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--every", default=60.0, show_default=True, help="Seconds between two rows.")
@click.option("--seed", default=0, show_default=True)
def command(minutes: float, every: float, seed: int) -> None:
    """Prints a row now and then; exit status 1 if something grew."""
    be_quiet()
    dice, begun, rounds, hypotheses, rows = random.Random(seed), time.monotonic(), 0, 0, list[dict[str, int]]()
    print("| minutes | rounds | hypotheses | MB | open files | threads |\n|---:|---:|---:|---:|---:|---:|", flush=True)
    spent = 0.0
    while spent < 60 * minutes:
        with tempfile.TemporaryDirectory() as folder:
            hypotheses += one_round(Path(folder), dice)
        rounds, spent = rounds + 1, time.monotonic() - begun
        if spent >= every * len(rows) or spent >= 60 * minutes:
            rows.append({"minutes": round(spent / 60), "rounds": rounds, "hypotheses": hypotheses, **state()})
            print("| " + " | ".join(f"{value:,}" for value in rows[-1].values()) + " |", flush=True)
    if found := grown(rows):
        sys.exit(f"grew: {', '.join(found)}")


if __name__ == "__main__":
    command()
