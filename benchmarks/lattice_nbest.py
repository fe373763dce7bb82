"""Seconds from an SLF file to exact N-best lists, by the number of links: read, 100-best, and with an n-gram pass.

Example: python benchmarks/lattice_nbest.py slf_pocketsphinx/lat --links 9300 20000 41562 --ngram 4gram.arpa
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lm_zoo.registry import load_ngram
from rescore.expand import ngram_nbest
from rescore.formats.slf import read_lattice
from rescore.lattice import normalize_words
from rescore.nbest import exact_nbest
from rescore.text import TextNormalizer

NORMALIZER = TextNormalizer("upper", ".", "-")


def links_of(path: Path) -> int:
    with gzip.open(path, "rt") as stream:
        return next(int(line.split("L=")[1]) for line in stream if line.startswith("N="))


def timed(action: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The best of some runs, in CPU seconds, and the result."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        result = action()
        best = min(best, time.process_time() - start)
    return best, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--links", type=int, nargs="+", default=[9300, 20000, 41562])
    parser.add_argument("--ngram", default="ngram")
    parser.add_argument("-n", type=int, default=100)
    args = parser.parse_args()
    sizes = {path: links_of(path) for path in sorted(args.folder.glob("*.slf.gz"))}
    lm = load_ngram(args.ngram)
    scales = {"am": 1.0, "ngram": 8.0, "words": -10.0}
    print(f"| links | read, normalise s | exact {args.n}-best s | n-gram pass and exact {args.n}-best s |")
    print("|---|---|---|---|")
    for wanted in args.links:
        path = min(sizes, key=lambda p: abs(sizes[p] - wanted))
        read, lattice = timed(lambda path=path: normalize_words(read_lattice(path), NORMALIZER))
        plain, _ = timed(lambda lattice=lattice: exact_nbest(lattice, {"am": 1.0, "words": -10.0}, args.n))
        passed, _ = timed(lambda lattice=lattice: ngram_nbest(lattice, lm, "ngram", scales, args.n))
        print(f"| {sizes[path]} | {read:.2f} | {plain:.2f} | {passed:.2f} |")


if __name__ == "__main__":
    main()
