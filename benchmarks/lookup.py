"""What the lookup dictionary costs in scoring: time of the Lookup LM over that of its Transformer, in turns.

Example: python benchmarks/lookup.py --dim 512 --layers 6 --slots 5000 --entries 64
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch

from lm_zoo.registry import build
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary


def make_list(rng: np.random.Generator, words: list[str], hypotheses: int, length: int) -> list[tuple[str, ...]]:
    """Hypotheses that differ from a base in a few places, as N-best lists do."""
    base = rng.choice(words, length)
    rows = []
    for _ in range(hypotheses):
        row = base.copy()
        row[rng.integers(0, length, 3)] = rng.choice(words, 3)
        rows.append(tuple(row))
    return rows


def seconds(lm: Any, lists: list[list[tuple[str, ...]]]) -> float:
    start = time.perf_counter()
    for rows in lists:
        lm.score_hypotheses(rows)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocab", type=int, default=5000)
    parser.add_argument("--slots", type=int, default=5000)
    parser.add_argument("--entries", type=int, default=64)
    parser.add_argument("--lists", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    vocab = WordVocabulary([SOS_EOS, UNK, *(f"W{i}" for i in range(args.vocab - 2))])
    plain = {"dim": args.dim, "heads": 8, "feedforward": 4 * args.dim, "layers": args.layers, "activation": "gelu"}
    transformer = build("transformer", vocab, plain).eval()
    lookup = build("lookup", vocab, {**plain, "slots": args.slots, "entries": args.entries}).eval()
    lookup.dictionary.normal_()
    lists = [make_list(rng, vocab.words[2:], 100, 20) for _ in range(args.lists)]
    for lm in (transformer, lookup):
        seconds(lm, lists[:1])
    ratios = []
    for _ in range(args.rounds):
        base = seconds(transformer, lists)
        ratios.append(seconds(lookup, lists) / base)
    sizes = {name: sum(p.numel() for p in lm.parameters()) for name, lm in (("t", transformer), ("l", lookup))}
    memory = lookup.dictionary.numel()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.lists} lists of 100 hypotheses")
    print(f"parameters {sizes['t']:,}; dictionary {memory:,} numbers, {4 * memory / 1e6:.0f} MB in float32")
    print(f"time of lookup over Transformer: median {statistics.median(ratios):.3f}, from {min(ratios):.3f}")


if __name__ == "__main__":
    main()
