"""Neural LMs over whole lattices: each new history once behind those seen, against every history from its beginning.

Example: python benchmarks/histories.py slf_pocketsphinx/lat --every 8 --lm transfornn --lm lstm

Lattices of PocketSphinx after a pass of the shipped n-gram with a beam.  `plain`: the histories that were asked for,
in padded batches of like lengths, with plain torch modules and the whole softmax after each; CPU seconds, no cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import torch
from lattices import NORMALIZER, timed
from measure import heading, row

from lm_zoo.inference.history_cache import Histories
from lm_zoo.inference.precision import ready
from lm_zoo.registry import load, load_ngram
from rescore.formats.slf import read_lattice
from rescore.lattices import neural_lm as lattice_lm
from rescore.types import Lattice
from rescore.workflows.lattice_rescore import LatticeRescoring

OWN = {"am": 1.0, "posterior": 0.0, "words": -5.0}
BATCH = 64


class Recorded(Histories):
    """Histories that can be asked for afterwards."""

    made: list[Histories] = []  # noqa: RUF012

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.made.append(self)


def evaluated(histories: Histories) -> list[list[int]]:
    """The tokens of all prefixes that the LM was run on, the begin of sentence first; shortest first."""
    prefixes: dict[int, list[int]] = {}
    for node in range(len(histories.parent)):
        parent = histories.parent[node]
        prefixes[node] = [*(prefixes[parent] if parent >= 0 else []), histories.token[node]]
    return sorted((prefixes[node] for node, slot in enumerate(histories.slot) if slot >= 0), key=len)


@torch.no_grad()
def plain(lm: Any, prefixes: list[list[int]]) -> None:
    for start in range(0, len(prefixes), BATCH):
        batch = prefixes[start : start + BATCH]
        inputs = torch.full((len(batch), len(batch[-1])), lm.vocab.eos)
        for line, prefix in enumerate(batch):
            inputs[line, : len(prefix)] = torch.tensor(prefix)
        last = torch.tensor([len(prefix) - 1 for prefix in batch])
        lm.output(lm.hidden(inputs)[torch.arange(len(batch)), last])


def lattices(folder: Path, every: int, beam: float) -> list[Lattice]:
    files = sorted(folder.glob("*.slf.gz"))[::every]
    first_pass = LatticeRescoring(
        {**OWN, "ngram": 6.0}, {}, load_ngram("ngram"), None, 3, beam, beam, normalizer=NORMALIZER
    )
    return list(first_pass(read_lattice(path) for path in files))


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--every", default=8, show_default=True, help="Take every so-manieth file.")
@click.option("--lm", "names", multiple=True, default=("transfornn", "transformer", "bayesian", "lookup", "lstm"))
@click.option("--beam", default=60.0, show_default=True, help="Of the n-gram's pass; two thirds of it of the LM's.")
@click.option("--rounds", default=2, show_default=True)
def main(folder: Path, every: int, names: tuple[str, ...], beam: float, rounds: int) -> None:
    torch.manual_seed(1)
    lattice_lm.Histories = Recorded  # type: ignore[misc]
    given = lattices(folder, every, beam)
    arcs = sum(lattice.num_arcs for lattice in given)
    print(f"{len(given)} lattices, {arcs} arcs; torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    heading("LM", "histories", "arcs after it", "plain s", "ours s", "ratio", "histories/s", "MB held")
    for name in names:
        lm = load(name)
        made = ready(lm)
        scales = {**OWN, "ngram": 3.0, name: 4.0}

        def run(name: str = name, made: Any = made, scales: dict[str, float] = scales) -> list[Lattice]:
            Recorded.made.clear()
            plan = lattice_lm.LatticeLM({name: made}, scales, context=3, beam=beam * 2 / 3, proxies=("ngram",))
            parts = [given[start : start + 16] for start in range(0, len(given), 16)]
            return [lattice for part in parts for lattice in plan(part)]

        ours, found = timed(run, rounds)
        seen, held = [], 0.0
        for histories in Recorded.made:
            seen.append(evaluated(histories))
            held = max(held, histories.held / 1e6)
        slow, _ = timed(lambda lm=lm, seen=seen: [plain(lm, part) for part in seen], 1)
        count = sum(map(len, seen))
        after = sum(lattice.num_arcs for lattice in found)
        ratio = f"{slow / ours:.1f}"
        row(name, count, after, f"{slow:.2f}", f"{ours:.2f}", ratio, f"{count / ours:.0f}", f"{held:.0f}")


if __name__ == "__main__":
    main()
