"""A lattice as a picture: source text for graphviz."""

from __future__ import annotations

from collections.abc import Mapping

from rescore.errors import UsageError
from rescore.lattices.build import EPSILON
from rescore.lattices.paths import best_arcs
from rescore.lattices.posteriors import checked_totals
from rescore.types import Lattice


def lattice_dot(lattice: Lattice, scales: Mapping[str, float], max_arcs: int) -> str:
    """The lattice in graphviz's language: words and scores on the arcs, times at the states, the best path in bold.

    Raises:
      UsageError: more than `max_arcs` arcs.
      ScoreError: as `rescore.lattices.posteriors.checked_totals`.
    """
    if lattice.num_arcs > max_arcs:
        raise UsageError(
            f"lattice '{lattice.utt_id}' has {lattice.num_arcs} arcs, more than {max_arcs}: too many to read; prune it "
            "first (rescore lattice prune --beam), or raise max_arcs (--max-arcs)"
        )
    best = set(best_arcs(lattice, checked_totals(lattice, scales)))
    lines = [f"digraph {_quoted(lattice.utt_id)} {{", "  rankdir=LR;", "  node [shape=circle];"]
    for state in range(lattice.num_states):
        label = f"{state}" if lattice.times is None else f"{state}\n{lattice.times[state]:.2f} s"
        shape = ", shape=doublecircle" if state == lattice.num_states - 1 else ""
        lines.append(f"  {state} [label={_quoted(label)}{shape}];")
    for arc in range(lattice.num_arcs):
        word = "-" if lattice.labels[arc] == EPSILON else lattice.symbols[lattice.labels[arc]]
        scores = "\n".join(f"{name} {column[arc]:.5g}" for name, column in lattice.scores.items())
        style = ", style=bold, color=blue" if arc in best else ""
        label = f"{word}\n{scores}" if scores else word
        lines.append(f"  {lattice.src[arc]} -> {lattice.dst[arc]} [label={_quoted(label)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """A graphviz string; newlines centre lines."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
