"""Scoring N-best lists: distinct prefixes once, against padded batches of every hypothesis, in one run.

Example: python benchmarks/rescoring.py
Example: python benchmarks/rescoring.py --quick --json
Example: python benchmarks/rescoring.py --dim 768 --vocab 50257 --gpt2-layers 12 --size 100 --lists 1
Example: python benchmarks/rescoring.py --nbest dev.jsonl.gz --lists 10 --model transfornn

`padded` is the plain way with the same weights: the hypotheses of a list as one padded batch, plain torch modules in
float32, the softmax over the whole vocabulary at every position (icefall, ESPnet and the scripts of Kaldi do that).
Lists are made up to share prefixes as those of recognisers do, or read with --nbest.  Words/s are words of hypotheses
over seconds.  `of its padded` is to the padded batch of the same model, `of padded` to that of the first LM.
"""

from __future__ import annotations

import json

import click
import torch
from hypotheses import (
    Lists,
    Ratios,
    Way,
    cells,
    count_words,
    made_up,
    measure,
    names,
    prefixes,
    rate,
    ratios,
    read,
    untrained,
    zoo_ways,
)
from measure import heading, row
from rivals import millions, rivals

from lm_zoo.base import DTYPES
from lm_zoo.registry import load


@click.command(help=__doc__)
@click.option("--nbest", help="N-best lists to score instead of made-up ones.")
@click.option("--lists", "count", default=8, show_default=True)
@click.option("--size", "sizes", multiple=True, type=int, default=(10, 100, 500), show_default=True)
@click.option("--length", default=24, show_default=True, help="Words of a made-up utterance, about.")
@click.option("--model", help="An LM of the zoo, or a folder; default: an untrained TransfoRNN.")
@click.option("--dim", default=512, show_default=True)
@click.option("--vocab", "vocab_size", default=10_000, show_default=True)
@click.option("--gpt2-layers", type=int, help="Default: as many parameters as the LM has.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--quick", is_flag=True, help="100-best alone, two rounds, no rivals.")
@click.option("--json", "as_json", is_flag=True, help="The ratios of 100-best lists, as JSON, on the last line.")
@click.option("--cpu", is_flag=True, help="CPU seconds in place of wall time (other work on the machine).")
@click.option("--seed", default=1, show_default=True)
def main(
    nbest: str | None,
    count: int,
    sizes: tuple[int, ...],
    length: int,
    model: str | None,
    dim: int,
    vocab_size: int,
    gpt2_layers: int | None,
    rounds: int,
    quick: bool,
    as_json: bool,
    cpu: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    lm = load(model) if model else untrained(vocab_size, dim)
    if quick:
        sizes, rounds = (100,), 2
    print(f"{type(lm).__name__}, d = {lm.config.dim}, {len(lm.vocab)} tokens, {millions(lm)} M parameters; ", end="")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {'CPU' if cpu else 'wall'} seconds\n")
    ways = [*zoo_ways(lm, DTYPES), *(() if quick else rivals(lm, gpt2_layers))]
    rates = {dtype: rate(dtype, lm.config.dim, cpu) for dtype in DTYPES}
    print("products: " + ", ".join(f"{dtype} {value / 1e9:.0f} GFLOP/s" for dtype, value in rates.items()) + "\n")
    columns = ("words/s", "of padded", "of its padded", "of the GEMM limit", "peak MB", "error a sentence")
    heading("N-best", "tokens a prefix", "way", *columns)
    result = {}
    for size in sizes:
        lists = read(nbest, count, size) if nbest else made_up(names(vocab_size), count, size, length, seed)
        result = table(lm, lists, size, ways, rates, rounds, cpu)
    if as_json:
        print(json.dumps(summary(result)))


def table(
    lm: torch.nn.Module, lists: Lists, size: int, ways: list[Way], rates: dict[str, float], rounds: int, cpu: bool
) -> dict[str, Ratios]:
    """Rows of one size of lists."""
    (tokens, nodes), words = prefixes(lm.vocab, lists), count_words(lists)
    found = measure(ways, dict.fromkeys((way.name for way in ways), lists), rounds, cpu)
    result = {}
    for way in ways:
        part = result[way.name] = ratios(way, found, nodes, words, rates)
        mine = found[way.name]
        share, error = cells(part)
        to_first = f"{mine.speed / found['padded'].speed:.2f}"
        speeds = (f"{mine.speed:.0f}", to_first, f"{part.to_plain:.2f}")
        row(size, f"{tokens / nodes:.1f}", way.name, *speeds, share, f"{mine.peak:.0f}", error)
    return result


def summary(result: dict[str, Ratios]) -> dict[str, float]:
    """What `--json` gives."""
    values = {}
    for dtype in DTYPES:
        part = result[f"ours, {dtype}"]
        values |= {f"ratio_{dtype}": round(part.to_plain, 2), f"share_{dtype}": round(part.share or 0.0, 3)}
    return values | {"share_of_gemm_limit": min(values["share_float32"], values["share_bfloat16"])}


if __name__ == "__main__":
    main()
