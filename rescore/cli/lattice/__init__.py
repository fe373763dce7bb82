"""`rescore lattice`: what can be done with lattices, one module a subcommand."""

from __future__ import annotations

import click

from rescore.cli.lazy import LazyGroup

COMMANDS: dict[str, str] = {
    "info": "sizes, densities and durations; oracle word error rate",
    "best-path": "the best path under Kaldi's LM weight and word penalty, and its error rate",
    "nbest": "the exact N best word sequences",
    "rescore": "put LMs over whole lattices, every score by name",
    "convert": "from one format to another",
    "prune": "smaller lattices: by beam, posterior or density",
    "oracle": "the paths with the fewest errors, and their error rate",
    "posteriors": "posteriors of words with their times",
    "mbr": "minimum Bayes risk: words with confidences (CTM), confusion networks",
    "draw": "one small lattice as source for graphviz",
}


@click.group(cls=LazyGroup, package="rescore.cli.lattice", table=COMMANDS)
def command() -> None:
    """Read, inspect, cut, rescore and write lattices (Kaldi, k2, HTK SLF, OpenFst text).

    Example: rescore lattice info kaldi:exp/tri1/decode --words data/lang/words.txt
    """
