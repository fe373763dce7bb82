"""How `rescore nbest` goes from 1 to 1,000 workers: a simulation with costs that are measured first.

Example: python benchmarks/scale.py --quick
Example: python benchmarks/scale.py --lm transfornn --utterances 1000000 --shards 1 --shards 4 --shards 16

Measured, in this process, on lists that are made up (their sizes are skewed: a few are ten times as long as most): how
long a worker takes to start and to load the LM, reading, scoring and writing a list, and the merge.  Simulated: a part
is a batch of the toolkit's own size, share k of N has the parts k, k + N, ...; a worker starts once, and takes the next
share when it has done one, some faster than others; every share reads all of the source; the merge begins when all are
done.  `--executor local` with 1 and 2 workers is measured beside that.
"""

from __future__ import annotations

import heapq
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from measure import heading, row

from rescore.formats import read_nbest, write_nbest
from rescore.formats.part_files import LISTS
from rescore.sharing.shares import SHARES_A_WORKER
from rescore.types import Hypothesis, NbestList
from rescore.weights import equal_weights
from rescore.workflows import scoring
from rescore.workflows.columns import open_scorers
from rescore.workflows.combine import write_combined

TEXT = "HE SAID THAT THE OLD MAN WAS NOT IN HOUSE AND THEY HAD SEEN IT BEFORE"
WORKERS = (1, 2, 4, 10, 30, 100, 300, 1000)


@dataclass(frozen=True)
class Costs:
    """Seconds: of a worker's start and load, and of a word (a hypothesis' words and its end) read, scored and so on."""

    start: float
    load: float
    read: float
    score: float
    write: float
    merge: float


@dataclass(frozen=True)
class Outcome:
    """Seconds of a simulated run, all of it, and what they went to on the average worker; `idle` waits for the last."""

    total: float
    begin: float
    read: float
    score: float
    idle: float
    merge: float

    @property
    def limit(self) -> str:
        """What takes most beside scoring."""
        found = {"start and load": self.begin, "reading": self.read, "skew": self.idle, "merge": self.merge}
        return max(found, key=lambda name: found[name])


def simulate(parts: Sequence[int], costs: Costs, workers: int, shares: int, spread: float, seed: int) -> Outcome:
    """A run whose parts have so many words each, in so many shares.

    Args:
      spread: standard deviation of the logarithm of the workers' speeds.
    """
    dice, words = random.Random(seed), sum(parts)
    slow = [math.exp(dice.gauss(0.0, spread)) for _ in range(workers)]
    read, work = (
        words * costs.read,
        [sum(parts[share::shares]) * (costs.score + costs.write) for share in range(shares)],
    )
    free = [((costs.start + costs.load) * slow[worker], worker) for worker in range(workers)]
    heapq.heapify(free)
    for seconds in work:
        at, worker = free[0]
        heapq.heapreplace(free, (at + slow[worker] * (read + seconds), worker))
    end, merge = max(free)[0], words * costs.merge
    idle = end - sum(at for at, _ in free) / workers
    return Outcome(end + merge, costs.start + costs.load, read * shares / workers, sum(work) / workers, idle, merge)


def made_lists(count: int, vocabulary: Sequence[str], seed: int) -> list[NbestList]:
    """Lists of 5 to 100 hypotheses of 3 to 200 words that differ in a word or two."""
    dice, lists = random.Random(seed), []
    for number in range(count):
        length = min(200, max(3, round(dice.lognormvariate(2.7, 0.8))))
        text = dice.choices(vocabulary, k=length)
        hyps = []
        for rank in range(min(100, max(5, round(dice.lognormvariate(3.0, 0.9))))):
            other = list(text)
            other[dice.randrange(length)] = dice.choice(vocabulary)
            hyps.append(Hypothesis(tuple(other), {"am": -float(rank)}))
        lists.append(NbestList(f"utt-{number:06d}", hyps))
    return lists


def words_of(nbest: NbestList) -> int:
    return sum(len(hyp.words) + 1 for hyp in nbest.hyps)


def cut(sizes: Sequence[int], total: int) -> list[int]:
    """Words of the parts of so many utterances, whose lists have these sizes over and over."""
    parts, words, most = [], 0, scoring.BATCH_WORDS // 16
    for number in range(total):
        words += sizes[number % len(sizes)]
        if words >= most:
            parts.append(words)
            words, most = 0, min(2 * most + 1, scoring.BATCH_WORDS)
    return [*parts, words] if words else parts


def calibrate(lm: str, lists: list[NbestList], folder: Path) -> Costs:
    """The costs, by doing all of it once with some lists."""
    words, source = sum(map(words_of, lists)), f"jsonl:{folder / 'lists.jsonl'}"
    write_nbest(source, lists)
    times = [time.perf_counter()]

    def lap() -> float:
        times.append(time.perf_counter())
        return times[-1] - times[-2]

    subprocess.run([sys.executable, "-c", "import rescore.workflows.nbest, rescore.workflows.scoring"], check=True)
    start = lap()
    scorers = open_scorers([lm], None)
    load = lap()
    found = list(read_nbest(source))
    read = lap()
    scored = scoring.score_batch(found, scorers)
    score = lap()
    LISTS.write(folder / "part.jsonl.gz", scored)
    write = lap()
    again = list(LISTS.read(folder / "part.jsonl.gz"))
    write_combined(again, equal_weights(scored[0].hyps[0].scores), folder / "out")
    return Costs(start, load, *(seconds / words for seconds in (read, score, write, lap())))


def measured(lm: str, folder: Path, workers: int) -> float:
    """Seconds of `rescore nbest --executor local` with so many workers."""
    begun = time.perf_counter()
    arguments = ["nbest", "--nbest", str(folder / "lists.jsonl"), "--lm", lm, "--scale", "am=1"]
    sharing = ["--executor", "local", "--workers", str(workers), "--out", str(folder / f"out-{workers}")]
    subprocess.run([sys.executable, "-m", "rescore", "--quiet", *arguments, *sharing], check=True)
    return time.perf_counter() - begun


@click.command(help=__doc__)
@click.option("--lm", default="transfornn", show_default=True)
@click.option("--lists", "count", default=1000, show_default=True, help="Lists of the calibration.")
@click.option("--utterances", multiple=True, type=int, default=(10_000, 1_000_000), show_default=True)
@click.option(
    "--shards", multiple=True, type=int, default=(1, SHARES_A_WORKER, 16), show_default=True, help="A worker."
)
@click.option("--spread", default=0.2, show_default=True, help="Of the workers' speeds (of their logarithm).")
@click.option("--quick", is_flag=True, help="60 lists.")
@click.option("--seed", default=1, show_default=True)
def main(
    lm: str, count: int, utterances: tuple[int, ...], shards: tuple[int, ...], spread: float, quick: bool, seed: int
) -> None:
    text = TEXT.split()
    lists = made_lists(60 if quick else count, text, seed)
    sizes = [words_of(nbest) for nbest in made_lists(20_000, text, seed + 1)]
    with tempfile.TemporaryDirectory() as name:
        costs = calibrate(lm, lists, Path(name))
        real = [measured(lm, Path(name), workers) for workers in (1, 2)]
    click.echo(
        f"{lm}: start {costs.start:.1f} s, load {costs.load:.1f} s; a million words: read {1e6 * costs.read:.1f} s, "
        f"score {1e6 * costs.score:.0f} s, write {1e6 * costs.write:.1f} s, merge {1e6 * costs.merge:.1f} s"
    )
    words = sum(map(words_of, lists))
    click.echo(f"measured, {words:,} words: 1 worker {real[0]:.1f} s, 2 workers {real[1]:.1f} s\n")
    heading("utterances", "workers", "shares a worker", "total s", "of scoring alone", "start, load", "reading", "skew",
            "merge", "what limits")  # fmt: skip
    for total in utterances:
        parts = cut(sizes, total)
        for workers in WORKERS:
            tried = {each: simulate(parts, costs, workers, each * workers, spread, seed) for each in shards}
            best = min(tried, key=lambda each: tried[each].total)
            found = tried[best]
            shares = (found.begin, found.read, found.idle, found.merge)
            row(f"{total:,}", workers, best, f"{found.total:,.0f}", f"{100 * found.score / found.total:.0f} %",
                *(f"{100 * seconds / found.total:.0f} %" for seconds in shares), found.limit)  # fmt: skip


if __name__ == "__main__":
    main()
