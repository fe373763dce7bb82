"""`rescore nbest` from beginning to end over many lists: time, and memory in the course of it.

Example: python benchmarks/million.py --lm ngram --lists 1000 --lists 10000
Example: python benchmarks/million.py --lm lstm --lists 500 --lists 2000 --max-memory 700M

The lists are made up: 100 hypotheses of 5 to 30 words each, which differ in three words, all by a seed.  Memory is what
the process itself holds (RssAnon), looked at every half second.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
from measure import heading, row

from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList

PAUSE = 0.5  # seconds between two looks
HYPOTHESES = 100
TEXT = (
    "THE OF AND TO A IN THAT HE WAS IT HIS I WITH AS HAD HER FOR YOU NOT BE IS AT ON SHE BUT HIM BY ALL "
    "FROM THIS THEY SO WHICH HAVE WERE ONE SAID WHEN THERE MY AN OR NO WOULD WHAT THEIR ME IF WHO UP OUT "
    "WILL THEM LITTLE MAN THEN INTO COULD TIME NOW LIKE OTHER SOME VERY UPON MORE ANY GREAT SEE BEFORE "
    "TWO GOOD HOUSE WATER DAY LONG NIGHT CAME WENT HAND OLD LOOKED EYES FACE ROOM DOOR VOICE HEART YOUNG "
    "KING SEA SHIP ROAD HORSE FOREST GARDEN WINDOW LETTER MOTHER FATHER BROTHER MORNING "
)
WORDS = TEXT.split()


def made_lists(count: int, seed: int) -> Iterator[NbestList]:
    dice = random.Random(seed)
    for number in range(count):
        text = dice.choices(WORDS, k=dice.randrange(5, 31))
        hyps = []
        for rank in range(HYPOTHESES):
            other = list(text)
            for place in dice.sample(range(len(text)), 3):
                other[place] = dice.choice(WORDS)
            hyps.append(Hypothesis(tuple(other), {"am": -float(rank)}))
        yield NbestList(f"utt-{number:07d}", hyps)


def held(pid: int) -> float:
    """MB that a process holds by itself; 0 once it has ended."""
    try:
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def watched(arguments: list[str]) -> tuple[float, float, list[float]]:
    """Seconds by the clock and of the processor of `rescore ARGUMENTS`, and the MB it held every now and then."""
    begin, looks = time.perf_counter(), list[float]()
    process = subprocess.Popen([sys.executable, "-m", "rescore", "--quiet", *arguments])
    while True:
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        looks.append(held(process.pid))
        time.sleep(PAUSE)
    if status:
        sys.exit(f"rescore {' '.join(arguments)}: ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - begin, used.ru_utime + used.ru_stime, [look for look in looks if look]


@click.command()
@click.option("--lm", "lms", multiple=True, default=["ngram"], show_default=True)
@click.option("--lists", "counts", multiple=True, type=int, default=[1000, 10000], show_default=True)
@click.option("--max-memory", help="As of rescore nbest.")
@click.option("--seed", default=0, show_default=True)
def main(lms: tuple[str, ...], counts: tuple[int, ...], max_memory: str | None, seed: int) -> None:
    memory = "MB at a tenth", "at a half", "at the end", "peak"
    heading("LM", "hypotheses", "clock s", "CPU s", "hypotheses/CPU s", *memory)
    for lm in lms:
        for count in counts:
            with tempfile.TemporaryDirectory() as folder:
                write_nbest(f"jsonl:{folder}/lists.jsonl.gz", made_lists(count, seed))
                arguments = ["nbest", "--nbest", f"jsonl:{folder}/lists.jsonl.gz", "--lm", lm, "--out", f"{folder}/out"]
                more = ["--max-memory", max_memory] if max_memory else []
                clock, spent, looks = watched([*arguments, *more])
            places = [looks[len(looks) * tenths // 10] for tenths in (1, 5)]
            found = [f"{look:.0f}" for look in (*places, looks[-1], max(looks))]
            number = count * HYPOTHESES
            row(lm, f"{number:,}", f"{clock:,.0f}", f"{spent:,.0f}", f"{number / spent:,.0f}", *found)


if __name__ == "__main__":
    main()
