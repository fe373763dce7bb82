"""Speed of work on lattices, in CPU time of one core: reading and writing, exact N-best, n-gram passes, peak memory.

python benchmarks/lattices.py io slf_pocketsphinx/lat [--archive lat.1.gz]     MB of unpacked data a second
python benchmarks/lattices.py grow slf_pocketsphinx/lat --ngram 4gram.arpa      by links and by N
python benchmarks/lattices.py search slf_pocketsphinx/lat --ngram 4gram.arpa    ms a lattice, against plain Python
"""

from __future__ import annotations

import argparse
import gzip
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lm_zoo.registry import load_ngram
from rescore.formats.kaldi_archive import read_records, write_records
from rescore.formats.kaldi_lattice import from_lattice, to_lattice
from rescore.formats.slf import read_lattice
from rescore.formats.symbols import SymbolTable
from rescore.lattices.build import normalize_words
from rescore.lattices.epsilons import remove_epsilons
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.ngram_lm import expand_ngram
from rescore.lattices.paths import best_path, total_scores
from rescore.text import TextNormalizer
from rescore.types import Lattice

NORMALIZER = TextNormalizer("upper", ".", "-")
OWN = {"am": 1.0, "words": -10.0}
SCALES = {**OWN, "ngram": 8.0}


def timed(action: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The least CPU time of some runs, in seconds, and the result."""
    least = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        result = action()
        least = min(least, time.process_time() - begin)
    return least, result


def memory() -> float:
    """The most memory that was used so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def numbered(lattices: list[Lattice]) -> tuple[list[Lattice], SymbolTable]:
    """The lattices as Kaldi has them, and a table of their words."""
    words = sorted({word for lattice in lattices for word in lattice.symbols} - {""})
    ids = {word: number for number, word in enumerate(words, start=1)}
    for lattice in lattices:
        lattice.scores = {"graph": 0 * lattice.scores["am"], "am": lattice.scores["am"]}
    return lattices, SymbolTable(Path("words.txt"), {number: word for word, number in ids.items()}, ids)


def measure_archive(name: str, originals: list[Any], table: SymbolTable, repeat: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder) / "lat.ark", Path(folder) / "lat.ark.gz"
        for path in (plain, packed):
            write_records(path, originals * repeat, {})
        size = plain.stat().st_size / 1e6
        print(f"{name}: {size:.1f} MB, {len(originals) * repeat} lattices")
        for stage, path in (("read", plain), ("read gz", packed)):
            spent, raws = timed(lambda path=path: list(read_records(path)))  # type: ignore[misc]
            print(f"  {stage:16} {size / spent:7.1f} MB/s")
        spent, lattices = timed(lambda: [to_lattice(raw, table) for raw in raws])
        print(f"  {'to lattices':16} {size / spent:7.1f} MB/s")
        spent, _ = timed(lambda: [from_lattice(lattice, table) for lattice in lattices])
        print(f"  {'from lattices':16} {size / spent:7.1f} MB/s")
        spent, _ = timed(lambda: write_records(plain, raws, {}))
        print(f"  {'write':16} {size / spent:7.1f} MB/s")


def io(args: argparse.Namespace) -> None:
    if args.archive:
        measure_archive("small lattices", list(read_records(args.archive)), SymbolTable(), 20)
    files = sorted(args.folder.glob("*.slf.gz"))[:: args.every]
    size = sum(len(gzip.decompress(file.read_bytes())) for file in files) / 1e6
    spent, lattices = timed(lambda: [read_lattice(file) for file in files])
    print(f"SLF (gz): {size:.1f} MB, {len(files)} lattices\n  {'read':16} {size / spent:7.1f} MB/s")
    lattices, table = numbered(lattices)
    measure_archive("PocketSphinx's lattices", [from_lattice(lattice, table) for lattice in lattices], table, 1)


def links_of(path: Path) -> int:
    with gzip.open(path, "rt") as stream:
        return next(int(line.split("L=")[1]) for line in stream if line.startswith("N="))


def grow(args: argparse.Namespace) -> None:
    sizes = {path: links_of(path) for path in sorted(args.folder.glob("*.slf.gz"))}
    lm = load_ngram(args.ngram)
    print(f"with the LM: {memory():.0f} MB")
    columns = ["links", "read", "no epsilons", "beam 60", "exact", "arcs of it", *(f"{n}-best" for n in args.best)]
    print(f"| {' | '.join([*columns, 'peak MB'])} |\n|{'---|' * (len(columns) + 1)}")
    for wanted in args.links:
        path = min(sizes, key=lambda p: abs(sizes[p] - wanted))
        read, lattice = timed(lambda path=path: normalize_words(read_lattice(path), NORMALIZER), args.repeat)
        silent, _ = timed(lambda lattice=lattice: remove_epsilons(lattice, OWN), args.repeat)
        near, _ = timed(lambda lattice=lattice: expand_ngram(lattice, lm, "ngram", SCALES, 60.0), args.repeat)
        exact, full = timed(lambda lattice=lattice: expand_ngram(lattice, lm, "ngram", SCALES), args.repeat)
        best = [timed(lambda full=full, n=n: exact_nbest(full, SCALES, n), 1)[0] for n in args.best]
        row = [f"{value:.3f}" for value in (read, silent, near, exact)]
        row += [f"{full.num_arcs}", *(f"{value:.3f}" for value in best), f"{memory():.0f}"]
        print(f"| {sizes[path]} | {' | '.join(row)} |", flush=True)


def plain_search(lattice: Lattice, lm: Any) -> float:
    """The best score with the LM, by the obvious exact search: of each state a dict of LM state -> best score."""
    totals = total_scores(lattice, OWN).tolist()
    final, scale = lattice.num_states - 1, SCALES["ngram"]
    best: list[dict[Any, float]] = [{} for _ in range(lattice.num_states)]
    best[0][lm.start()] = 0.0
    for source, target, label, own in zip(
        lattice.src.tolist(), lattice.dst.tolist(), lattice.labels.tolist(), totals, strict=True
    ):
        for state, score in best[source].items():
            score += own
            if label:
                logprob, state, _ = lm.extend(state, lattice.symbols[label])
                score += scale * logprob
            if target == final:
                score, state = score + scale * lm.end(state), None
            if score > best[target].get(state, float("-inf")):
                best[target][state] = score
    return best[final][None]


def search(args: argparse.Namespace) -> None:
    lm = load_ngram(args.ngram)
    rows = []
    for path in sorted(args.folder.glob("*.slf.gz"))[:: args.every]:
        lattice = normalize_words(read_lattice(path), NORMALIZER)
        spent, silent = timed(lambda lattice=lattice: remove_epsilons(lattice, OWN), args.repeat)
        near, found = timed(lambda silent=silent: expand_ngram(silent, lm, "ngram", SCALES, args.beam), args.repeat)
        exact, _ = timed(lambda silent=silent: expand_ngram(silent, lm, "ngram", SCALES), args.repeat)
        plain, best = timed(lambda silent=silent: plain_search(silent, lm), 1)
        scores = best_path(found, SCALES).scores
        lost = best - sum(scale * scores[name] for name, scale in SCALES.items())
        rows.append((spent, near, exact, plain, float(lost > 1e-6)))
    names = ["epsilons removed", f"search, beam {args.beam:g}", "all of it, exact", "plain Python, exact"]
    for name, column in zip(names, zip(*rows, strict=True), strict=False):
        print(
            f"{name:20} median {1000 * statistics.median(column):7.1f} ms, mean {1000 * statistics.mean(column):7.1f}"
        )
    print(f"{len(rows)} lattices; the beam lost the best path of {sum(row[-1] for row in rows):.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("io", "grow", "search"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--archive", type=Path, help="io: a Kaldi archive of small lattices")
    parser.add_argument("--ngram", default="ngram")
    parser.add_argument("--every", type=int, default=10, help="io, search: take every so-manieth file")
    parser.add_argument("--links", type=int, nargs="+", default=[3000, 9300, 20000, 41562])
    parser.add_argument("--best", type=int, nargs="+", default=[10, 100, 1000, 10000])
    parser.add_argument("--beam", type=float, default=60.0)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    {"io": io, "grow": grow, "search": search}[args.what](args)


if __name__ == "__main__":
    main()
