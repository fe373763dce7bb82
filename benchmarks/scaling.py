"""Scoring N-best lists as lists, vocabularies and utterances grow, one at a time.

Example: python benchmarks/scaling.py
Example: python benchmarks/scaling.py --vary hypotheses --value 10 --value 100 --dtype float32
Example: OMP_NUM_THREADS=1 python benchmarks/scaling.py --cpu --rounds 1

Ways, lists and columns are those of benchmarks/rescoring.py; what does not vary are 100 hypotheses, 10,000 words of
vocabulary and 24 words an utterance.  There are as many lists as make --gflop for our way, one at least; the padded
batches see the first of them alone, as many as make twice that.  A padded batch whose logits take more than 4 GiB is
split: a plain program has to do that, too.
"""

from __future__ import annotations

import click
import torch
from hypotheses import (
    Lists,
    cells,
    count_words,
    flops_a_node,
    made_up,
    measure,
    names,
    prefixes,
    rate,
    ratios,
    untrained,
    zoo_ways,
)
from measure import heading, row

from lm_zoo.base import DTYPES

VALUES = {
    "hypotheses": (10, 30, 100, 300, 1000),
    "vocabulary": (10_000, 50_000, 200_000),
    "length": (5, 20, 50, 100, 200),
}


@click.command(help=__doc__)
@click.option("--vary", type=click.Choice([*VALUES, "all"]), default="all", show_default=True)
@click.option("--value", "values", multiple=True, type=int, help="Other values of what varies.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), default=DTYPES, show_default=True)
@click.option("--dim", default=512, show_default=True)
@click.option("--gflop", default=250.0, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option("--cpu", is_flag=True, help="CPU seconds in place of wall time (other work on the machine).")
@click.option("--seed", default=1, show_default=True)
def main(
    vary: str,
    values: tuple[int, ...],
    dtypes: tuple[str, ...],
    dim: int,
    gflop: float,
    rounds: int,
    cpu: bool,
    seed: int,
) -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {'CPU' if cpu else 'wall'} seconds\n")
    columns = ("way", "words/s", "of padded", "products, GFLOP/s", "of the limit", "peak MB", "error a sentence")
    heading("N-best", "vocabulary", "length", "lists", "tokens a prefix", *columns)
    done = set()
    for kind in VALUES if vary == "all" else (vary,):
        for value in values or VALUES[kind]:
            sizes = {"hypotheses": 100, "vocabulary": 10_000, "length": 24} | {kind: value}
            point = tuple(sizes.values())
            if point not in done:
                done.add(point)
                torch.manual_seed(seed)
                measured_point(*point, list(dtypes), dim, gflop * 1e9, rounds, cpu, seed)


def measured_point(
    most: int,
    vocab_size: int,
    length: int,
    dtypes: list[str],
    dim: int,
    flops: float,
    rounds: int,
    cpu: bool,
    seed: int,
) -> None:
    """The rows of one point."""
    lm = untrained(vocab_size, dim)
    ways = zoo_ways(lm, dtypes)
    lists = enough(lm, most, length, flops / flops_a_node(lm), seed)
    first = lists[: few(lists, 2 * flops / flops_a_node(lm))]
    own = dict.fromkeys((way.name for way in ways), lists) | {"padded": first}
    (tokens, nodes), words = prefixes(lm.vocab, lists), count_words(lists)
    rates = {dtype: rate(dtype, dim, cpu) for dtype in dtypes}
    found = measure(ways, own, rounds, cpu)
    for way in ways:
        part, mine = ratios(way, found, nodes, words, rates), found[way.name]
        share, error = cells(part)
        point = (most, f"{vocab_size:,}", length, len(own[way.name]), f"{tokens / nodes:.1f}")
        limit = f"{rates[way.dtype] / 1e9:.0f}" if way.flops else ""
        row(*point, way.name, f"{mine.speed:,.0f}", f"{part.to_plain:.2f}", limit, share, f"{mine.peak:,.0f}", error)


def enough(lm: torch.nn.Module, most: int, length: int, nodes: float, seed: int) -> Lists:
    """Lists of so many distinct prefixes together."""
    lists: Lists = []
    words = names(len(lm.vocab))
    while not lists or prefixes(lm.vocab, lists)[1] < nodes:
        lists += made_up(words, 1, most, length, seed + len(lists))
    return lists


def few(lists: Lists, tokens: float) -> int:
    """How many of the lists have so many tokens together, one at least."""
    count, total = 0, 0
    while count < len(lists) and (not count or total < tokens):
        total += sum(len(hyp) + 1 for hyp in lists[count])
        count += 1
    return count


if __name__ == "__main__":
    main()
