"""How soon the page of `rescore report` opens and answers, in headless Chromium, on made-up lists.

Example: python benchmarks/report.py --utterances 5000
Example: python benchmarks/report.py --utterances 5000 --hyps 100 --folder /tmp/report  # keeps the run for another time

Words are drawn as Zipf's law has them; a hypothesis is its reference with errors, which are words drawn evenly.  The
lists have the columns `am` and `ngram`, two LMs of this file are added by `rescore run`, and the page is opened from a
file in a browser whose caches are empty.  Times are the browser's own, in ms after the navigation began, or from an
event until what it changed has been painted, with the list in view; `seen from outside` is from the command to open the
page to the answer that its table is there.  CPU ms are those of the page's thread, which hardly depend on what else the
machine does.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import statistics
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import click
from measure import heading, row

from lm_zoo.base import LanguageModel
from rescore.formats import write_nbest
from rescore.types import Hypothesis, NbestList

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.browser import Page, find_browser

WORDS = 20_000
WEIGHTS = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))
DEV = 500
FIRST_PAINT = """new Promise((done) => new PerformanceObserver((list) => {
  const found = list.getEntriesByName("first-contentful-paint");
  if (found.length) done(found[0].startTime);
}).observe({type: "paint", buffered: true}))"""
INTERACTIVE = "performance.getEntriesByType('navigation')[0].domInteractive"
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"
# From an event until what it changed has been painted.
ANSWER = """new Promise((done) => {{
  const it = document.getElementById("{name}"), begin = performance.now(), list = document.getElementById("list");
  const seen = new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {{
    seen.disconnect();
    done(performance.now() - begin);
  }})));
  seen.observe(list, {{childList: true}});
  it.value = "{value}";
  it.dispatchEvent(new Event("{event}"));
}})"""
EVENTS = {
    "search of a word": ("search", "w17", "input"),
    "search of an id": ("search", "test-04", "input"),
    "search of nothing": ("search", "", "input"),
    "show all": ("kind", "all", "change"),
    "sort by length": ("sort", "longest", "change"),
    "sort by errors": ("sort", "after", "change"),
    "sort by id": ("sort", "id", "change"),
}
OPEN = """new Promise((done) => {
  const begin = performance.now(), it = document.querySelector("#list li"), seen = new MutationObserver(() => {
    if (it.querySelector(".hyps")) requestAnimationFrame(() => setTimeout(() => done(performance.now() - begin)));
  });
  seen.observe(it, {childList: true, subtree: true});
  it.querySelector(".open").click();
})"""


class Frequencies(LanguageModel):
    """Scores a word by its rank with noise of its own, which `seed` chooses: `report:Frequencies?seed=1`."""

    def __init__(self, seed: str) -> None:
        self.seed = seed

    def knows(self, word: str) -> bool:
        return True

    def score_words(self, sentences: Sequence[Sequence[str]], max_unknown: float | None = None) -> list[list[float]]:
        return [[*map(self._score, words), -3.0] for words in sentences]

    def _score(self, word: str) -> float:
        noise = hashlib.sha256(f"{self.seed} {word}".encode()).digest()[0] / 128 - 1
        return -math.log(int(word[1:]) + 1) - 2.0 + noise


def likely(draw: random.Random) -> str:
    return f"w{bisect(WEIGHTS, draw.random() * WEIGHTS[-1])}"


def wrong(ref: Sequence[str], rate: float, draw: random.Random) -> tuple[str, ...]:
    """The reference with errors at `rate` of its words."""
    words: list[str] = []
    for word in ref:
        kind = draw.random() / rate
        other = f"w{draw.randrange(WORDS)}"
        words += [word] if kind > 1 else [other] if kind < 0.7 else [] if kind < 0.85 else [word, other]
    return tuple(words)


def made_list(utt_id: str, hyps: int, draw: random.Random) -> NbestList:
    """A list of different hypotheses, best first under the recogniser's scores."""
    ref = tuple(likely(draw) for _ in range(draw.randint(5, 35)))
    rate = draw.betavariate(1.2, 8.0) + 0.01
    texts = dict.fromkeys(wrong(ref, rate, draw) for _ in range(20 * hyps))
    found = [Hypothesis(words, scores(words, ref, draw)) for words in list(texts)[:hyps]]
    return NbestList(utt_id, sorted(found, key=lambda hyp: -sum(hyp.scores.values())), ref)


def scores(words: Sequence[str], ref: Sequence[str], draw: random.Random) -> dict[str, float]:
    unlike = len(set(words) ^ set(ref))
    return {
        "am": round(-90.0 - 1.5 * unlike + draw.gauss(0, 4), 4),
        "ngram": round(-5.0 * len(words) - unlike + draw.gauss(0, 4), 4),
    }


def write_inputs(folder: Path, utterances: int, hyps: int, seed: int) -> None:
    """`dev.jsonl.gz`, `test.jsonl.gz` and `text`."""
    draw = random.Random(seed)
    with open(folder / "text", "w", encoding="utf-8") as stream:
        for part, count in (("dev", DEV), ("test", utterances)):
            lists = [made_list(f"{part}-{number:05d}", hyps, draw) for number in range(count)]
            write_nbest(f"jsonl:{folder / part}.jsonl.gz", lists)
            stream.writelines(f"{each.utt_id} {' '.join(each.ref or ())}\n" for each in lists)


def make_run(folder: Path, utterances: int, hyps: int, seed: int) -> None:
    """The inputs and `run/`, by `rescore run`; what is there already is not done again."""
    if not (folder / "text").exists():
        write_inputs(folder, utterances, hyps, seed)
    arguments = ["run", "--ref", str(folder / "text"), "--out", str(folder / "run")]
    for part in ("dev", "test"):
        arguments += [f"--{part}", str(folder / f"{part}.jsonl.gz")]
    for number in (1, 2):
        arguments += ["--lm", f"lm{number}=report:Frequencies?seed={number}"]
    rescore(arguments)


def rescore(arguments: list[str]) -> None:
    from rescore.cli.main import cli

    cli.main(arguments, prog_name="rescore", standalone_mode=False)


def opened(program: str, page: Path) -> dict[str, float]:
    """Milliseconds of one opening of the page by a browser of its own, and of what is done there; `CPU, ...` of CPU."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Page(program, Path(profile))
        try:
            browser.call("Performance.enable", timeDomain="threadTicks")
            found = timed(browser, "seen from outside", lambda: opening(browser, page))
            for name, expression in (("first paint", FIRST_PAINT), ("table there", INTERACTIVE), ("loaded", LOADED)):
                found[name] = float(browser.ask(expression))
            browser.ask("document.getElementById('utterances').scrollIntoView()")
            for what, (name, value, event) in EVENTS.items():
                change = ANSWER.format(name=name, value=value, event=event)
                found |= timed(browser, what, lambda change=change: browser.ask(change))  # type: ignore[misc]
            found |= timed(browser, "a list opens", lambda: browser.ask(OPEN))
            if browser.errors:
                raise click.ClickException(json.dumps(browser.errors))
            return found
        finally:
            browser.close()


def opening(browser: Page, page: Path) -> float:
    begin = time.perf_counter()
    browser.open(page.as_uri())
    return 1000 * (time.perf_counter() - begin)


def timed(browser: Page, what: str, action: Callable[[], Any]) -> dict[str, float]:
    """The ms that an action gives, and the CPU ms of the page's thread during it."""
    before = busy(browser)
    wall = float(action())
    return {what: wall, f"CPU, {what}": busy(browser) - before}


def busy(browser: Page) -> float:
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return next(1000 * float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


@click.command(help=__doc__)
@click.option("--utterances", default=5000, show_default=True)
@click.option("--hyps", default=50, show_default=True, help="Hypotheses a list.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the run is kept; by default nowhere.")
def main(utterances: int, hyps: int, rounds: int, seed: int, folder: Path | None) -> None:
    program = find_browser()
    if program is None:
        raise click.ClickException("no Chromium on this machine")
    with tempfile.TemporaryDirectory() as scratch:
        place = folder or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        make_run(place, utterances, hyps, seed)
        page = place / "report.html"
        begin = time.process_time()
        rescore(["report", str(place / "run"), "--out", str(page)])
        taken = time.process_time() - begin
        print(f"\n{utterances} utterances, {page.stat().st_size / 1e6:.1f} MB, written in {taken:.1f} CPU s\n")
        runs = [opened(program, page) for _ in range(rounds)]
    heading("ms", "best", "median", "worst", "CPU, median")
    for name in (name for name in runs[0] if not name.startswith("CPU")):
        values, cpu = ([run.get(key, math.nan) for run in runs] for key in (name, f"CPU, {name}"))
        middle = statistics.median(cpu)
        figures = (min(values), statistics.median(values), max(values))
        row(name, *(f"{value:.0f}" for value in figures), "" if math.isnan(middle) else f"{middle:.0f}")


if __name__ == "__main__":
    main()
