"""Pruning of lattices: by beam, by posterior, by density."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rescore.errors import ScoreError
from rescore.lattices.build import EPSILON, add_counts, build_lattice
from rescore.lattices.paths import best_arcs, rounding, total_scores
from rescore.lattices.posteriors import arc_posteriors, checked_totals, through_scores
from rescore.types import Lattice

ROUNDING = 1e-9  # of numbers of arcs, relative: 10 a second of 0.7 - 0.4 s are three


def prune_beam(lattice: Lattice, scales: Mapping[str, float], beam: float) -> Lattice:
    """The lattice without arcs whose best path is worse than the best of all by more than `beam`."""
    totals = checked_totals(lattice, scales)
    through = through_scores(lattice, totals)
    best = through.max(initial=-np.inf)
    return _keep(lattice, totals, through >= best - beam - rounding(best))


def prune_posterior(lattice: Lattice, scales: Mapping[str, float], threshold: float) -> Lattice:
    """The lattice without arcs whose posterior is below `threshold`; the best path stays whatever its posteriors."""
    kept = arc_posteriors(lattice, scales) >= threshold
    return _keep(lattice, total_scores(lattice, scales), kept)


def prune_density(lattice: Lattice, scales: Mapping[str, float], density: float, unit: str) -> Lattice:
    """The arcs with the best paths through them, at most `density` a second or a word of the best path.

    Arcs whose best path is equally good stay or go together; the best path stays even if it alone is denser.

    Args:
      unit: "second" or "word".
    Raises:
      ScoreError: as `checked_totals`, or the lattice has no times to count seconds by.
    """
    totals = checked_totals(lattice, scales)
    through = through_scores(lattice, totals)
    most = density * _extent(lattice, totals, unit) * (1 + ROUNDING)
    if most >= lattice.num_arcs:
        return lattice
    next_best = -np.partition(-through, int(most))[int(most)]
    return _keep(lattice, totals, through > next_best + rounding(next_best))


@dataclass(frozen=True)
class Limits:
    """How far lattices are pruned, one after the other; None for no limit.

    Attributes:
      beam: as for `prune_beam`.
      posterior: threshold of `prune_posterior`, where the scales count times `posterior_scale`.
      per_second, per_word: densities, as for `prune_density`.
    """

    beam: float | None = None
    posterior: float | None = None
    posterior_scale: float = 1.0
    per_second: float | None = None
    per_word: float | None = None

    def apply(self, lattice: Lattice, scales: Mapping[str, float]) -> Lattice:
        """The pruned lattice; raises what the functions named raise."""
        if self.beam is not None:
            lattice = prune_beam(lattice, scales, self.beam)
        if self.posterior is not None:
            sharpened = {name: self.posterior_scale * scale for name, scale in scales.items()}
            lattice = prune_posterior(lattice, sharpened, self.posterior)
        for density, unit in ((self.per_second, "second"), (self.per_word, "word")):
            if density is not None:
                lattice = prune_density(lattice, scales, density, unit)
        return lattice


def _extent(lattice: Lattice, totals: np.ndarray, unit: str) -> float:
    """How long the lattice is, in seconds or in words of its best path (one at least)."""
    if unit == "word":
        return max(1, int((lattice.labels[best_arcs(lattice, totals)] != EPSILON).sum()))
    if lattice.times is None:
        raise ScoreError(f"lattice '{lattice.utt_id}' has no times; give the density a word instead of a second")
    return float(lattice.times.max() - lattice.times.min())


def _keep(lattice: Lattice, totals: np.ndarray, kept: np.ndarray) -> Lattice:
    """The lattice of the arcs `kept`, bool `(arcs,)`, and of the best path; the rest is counted as pruned."""
    kept = kept & (totals > -np.inf)
    kept[best_arcs(lattice, totals)] = True
    if kept.all():
        return lattice
    result = build_lattice(
        lattice.utt_id,
        lattice.num_states,
        lattice.src[kept],
        lattice.dst[kept],
        lattice.labels[kept],
        {name: column[kept] for name, column in lattice.scores.items()},
        lattice.symbols,
        start=0,
        final=lattice.num_states - 1,
        times=lattice.times,
        alignments=None if lattice.alignments is None else lattice.alignments.take(np.flatnonzero(kept)),
    )
    result.counts = add_counts(
        lattice.counts,
        pruned_states=lattice.num_states - result.num_states,
        pruned_arcs=lattice.num_arcs - result.num_arcs,
    )
    return result
