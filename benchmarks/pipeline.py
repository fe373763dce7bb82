"""`rescore nbest` as a whole: what its phases take, what their overlap gains, and its memory by the number of lists.

Example: python benchmarks/pipeline.py phases lists.jsonl.gz
Example: python benchmarks/pipeline.py phases lists.jsonl.gz --lm lstm --dtype bfloat16 --rounds 1
Example: python benchmarks/pipeline.py memory --lm lstm --lists 100 --lists 1000
Example: python benchmarks/pipeline.py at-once lists.jsonl.gz --nodes 1024 --nodes 16384
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click
from measure import added_memory, heading, row
from startup import lists as made_up_lists


class InLine:
    """As `rescore.workflows.threads.Behind`, after all else in the same thread: the plain way."""

    def __init__(self, consume: Callable[[Iterator[Any]], Any]) -> None:
        self.consume, self.items = consume, list[Any]()

    def __class_getitem__(cls, _: Any) -> type[InLine]:
        return cls

    def __enter__(self) -> InLine:
        return self

    def put(self, item: Any) -> None:
        self.items.append(item)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.result = self.consume(iter(self.items))


def plain(items: Iterable[Any]) -> Iterable[Any]:
    return items


@click.group(help=__doc__)
def main() -> None:
    from rescore.console import be_quiet

    be_quiet()


@main.command()
@click.argument("nbest")
@click.option("--lm", default="transfornn", show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--rounds", default=2, show_default=True)
def phases(nbest: str, lm: str, dtype: str, rounds: int) -> None:
    """CPU seconds of each phase by itself; wall and CPU seconds of all, one phase after the other and overlapping."""
    import torch

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {lm}, {dtype}\n")
    _phases(nbest, lm, dtype)
    print()
    heading("reading", "writing and combining", "wall s", "of one after the other", "CPU s")
    found = _ways(nbest, lm, dtype, rounds)
    first = found["before", "after"][0]
    for (before, after), (wall, cpu) in found.items():
        row(before, after, f"{wall:.2f}", f"{wall / first:.2f}", f"{cpu:.2f}")


def _phases(nbest: str, lm: str, dtype: str) -> None:
    from lm_zoo.inference import scoring
    from lm_zoo.inference.neural import NeuralLM
    from lm_zoo.inference.trie import encode_words, sum_to_words
    from lm_zoo.models.hf_causal import HFCausalLM
    from rescore.formats import read_nbest, write_nbest
    from rescore.types import Weights
    from rescore.workflows.columns import open_scorers
    from rescore.workflows.combine import write_combined

    steps: dict[str, float] = {}

    def timed(name: str, action: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = action()
        steps[name] = steps.get(name, 0.0) + time.process_time() - start
        return result

    (scorer,) = timed("loading the LM", lambda: open_scorers([lm], None, dtype))
    lists = timed("reading", lambda: list(read_nbest(nbest)))
    timed("counting unknown words", lambda: scorer._count(lists))
    sentences = [hyp.words for part in lists for hyp in part.hyps]
    begin, is_neural = 0, isinstance(scorer.lm, (NeuralLM, HFCausalLM))
    if is_neural:
        words = timed("tokens", lambda: encode_words(scorer.lm.vocab, sentences))
    else:
        timed("the LM", lambda: scorer.lm.score_hypotheses(sentences))
    while is_neural and begin < len(sentences):
        part, trie = timed("tries", lambda begin=begin: words.first(begin, scoring.NODES))
        scores = timed("the LM", lambda trie=trie: scoring.score(scorer.lm, trie))
        timed("sums to words", lambda part=part, trie=trie, scores=scores: sum_to_words(part, trie, *scores))
        begin += len(part.counts)
    with tempfile.TemporaryDirectory() as folder:
        timed("writing the scores", lambda: write_nbest(f"jsonl:{folder}/scores.jsonl.gz", lists))
        weights = Weights(dict.fromkeys(lists[0].hyps[0].scores, 1.0))
        timed("combining, writing the lists", lambda: write_combined(lists, weights, folder))
    heading("phase", "CPU s", "share")
    for name, seconds in steps.items():
        row(name, f"{seconds:.3f}", f"{seconds / sum(steps.values()):.1%}")


def _ways(nbest: str, lm: str, dtype: str, rounds: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Least wall and CPU seconds of the rounds, in turns."""
    from rescore.workflows import scoring
    from rescore.workflows.nbest import Request, rescore_nbest

    ways: dict[tuple[str, str], Any] = {
        ("before", "after"): (plain, InLine),
        ("meanwhile", "after"): (scoring.ahead, InLine),
        ("before", "meanwhile"): (plain, scoring.Behind),
        ("meanwhile", "meanwhile"): (scoring.ahead, scoring.Behind),
    }
    found = dict.fromkeys(ways, (float("inf"), float("inf")))
    for _ in range(rounds):
        for name, (scoring.ahead, scoring.Behind) in ways.items():  # type: ignore[misc]
            with tempfile.TemporaryDirectory() as folder:
                wall, cpu = time.perf_counter(), time.process_time()
                rescore_nbest(Request(nbest, [lm], Path(folder) / "out", dtype=dtype))
                spent = time.perf_counter() - wall, time.process_time() - cpu
            found[name] = min(found[name][0], spent[0]), min(found[name][1], spent[1])
    return found


@main.command()
@click.option("--lm", "lms", multiple=True, default=("lstm", "ngram"), show_default=True)
@click.option("--lists", "counts", multiple=True, type=int, default=(100, 1000, 5000), show_default=True)
@click.option("--size", default=20, show_default=True, help="Hypotheses a list.")
@click.option("--seed", default=1, show_default=True)
def memory(lms: tuple[str, ...], counts: tuple[int, ...], size: int, seed: int) -> None:
    """Peak memory of the whole process by the number of lists (24 words a hypothesis)."""
    heading("LM", "lists", "words", "wall s", "peak MB", "of the first row's")
    for lm in lms:
        first = 0.0
        for count in counts:
            with tempfile.TemporaryDirectory() as folder:
                source = made_up_lists(Path(folder) / "lists.jsonl", count, size, seed)
                command = [sys.executable, "-m", "rescore.cli.main", "--quiet", "nbest", "--nbest", str(source)]
                start = time.perf_counter()
                process = subprocess.Popen([*command, "--lm", lm, "--out", f"{folder}/out"])
                _, status, usage = os.wait4(process.pid, 0)
                spent = time.perf_counter() - start
            if status:
                raise click.ClickException("rescore nbest failed")
            peak = usage.ru_maxrss / 1024
            first = first or peak
            row(lm, count, count * size * 24, f"{spent:.1f}", f"{peak:.0f}", f"{peak / first:.2f}")


@main.command()
@click.argument("nbest")
@click.option("--lm", default="transfornn", show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--lists", "count", default=20, show_default=True)
@click.option("--nodes", multiple=True, type=int, default=(512, 2048, 8192, 16384), show_default=True)
def at_once(nbest: str, lm: str, dtype: str, count: int, nodes: tuple[int, ...]) -> None:
    """Time and memory by the prefixes that are evaluated at once."""
    from lm_zoo.inference import scoring
    from rescore.formats import read_nbest
    from rescore.workflows.columns import open_scorers

    (scorer,) = open_scorers([lm], None, dtype)
    lists = islice(read_nbest(nbest), count)
    sentences = list(chain.from_iterable([hyp.words for hyp in part.hyps] for part in lists))
    words = sum(map(len, sentences))
    scoring.score_by_tree(scorer.lm, sentences[:100])
    heading("prefixes at once", "words/CPU s", "peak MB", "of them a prefix, KB")
    for most in nodes:
        start = time.process_time()
        scoring.score_by_tree(scorer.lm, sentences, most)
        spent = time.process_time() - start
        peak = added_memory(lambda most=most: scoring.score_by_tree(scorer.lm, sentences, most))
        row(most, f"{words / spent:.0f}", f"{peak:.0f}", f"{peak * 1024 / most:.0f}")


if __name__ == "__main__":
    main()
