"""Counts that several tests compare lattices by."""

from __future__ import annotations

from rescore.types import Lattice


def count_paths(lattice: Lattice) -> int:
    """Number of paths from start to end (not of distinct word sequences), exact however large."""
    paths = [0] * lattice.num_states
    paths[0] = 1
    for source, target in zip(lattice.src.tolist(), lattice.dst.tolist(), strict=True):
        paths[target] += paths[source]  # arcs are sorted by source and states topologically: paths[source] is complete
    return paths[-1]
