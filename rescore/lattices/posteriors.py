"""Posteriors of the arcs of a lattice, and the best paths through them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rescore.errors import ScoreError
from rescore.lattices.build import EPSILON
from rescore.lattices.paths import backward_scores, forward_scores, total_scores
from rescore.types import Lattice, Weights
from rescore.weights import MBR, decision_of

POSTERIOR_SCALE = 0.1


def posterior_scale_of(weights: Weights | None, where: object = "weights") -> float:
    """What totals are multiplied by before they are posteriors, where nothing else is asked for.

    The inverse temperature of weights that were tuned for minimum Bayes risk, or else POSTERIOR_SCALE.  Raises
    WeightsError as `decision_of`.
    """
    decision, inverse = ("", 0.0) if weights is None else decision_of(weights, where)
    return inverse if decision == MBR else POSTERIOR_SCALE


def checked_totals(lattice: Lattice, scales: Mapping[str, float]) -> np.ndarray:
    """The arcs' totals, float64 `(arcs,)`; -inf is a score (an impossible arc), as long as some path is possible.

    Raises:
      ScoreError: a scale without its score, a total that is NaN or +inf, or no path with a finite total.
    """
    totals = total_scores(lattice, scales)
    bad = np.flatnonzero(~(totals < np.inf))
    if len(bad):
        found = ", ".join(f"{name} = {column[bad[0]]}" for name, column in lattice.scores.items())
        raise ScoreError(
            f"lattice '{lattice.utt_id}': arc {bad[0]} has a total of {totals[bad[0]]} ({found}); "
            "scores must be numbers below infinity"
        )
    if backward_scores(lattice, totals)[0] == -np.inf:
        raise ScoreError(f"lattice '{lattice.utt_id}': every path has an arc with a score of -inf, so none is possible")
    return totals


def arc_posteriors(lattice: Lattice, scales: Mapping[str, float]) -> np.ndarray:
    """Probability that a path drawn from the lattice passes each arc, float64 `(arcs,)`.

    The probability of a path is proportional to the exponential of its total under `scales`; so their size matters,
    not only their ratios.  Raises as `checked_totals`.
    """
    totals = checked_totals(lattice, scales)
    backward = backward_scores(lattice, totals, np.logaddexp)
    forward = forward_scores(lattice, totals, np.logaddexp)
    posteriors: np.ndarray = np.exp(forward[lattice.src] + totals + backward[lattice.dst] - backward[0])
    return np.minimum(posteriors, 1.0)  # rounding


def posterior_lines(lattice: Lattice, scales: Mapping[str, float], threshold: float) -> list[str]:
    """Words with their times and posteriors, as Kaldi's lattice-arc-post: `utterance begin duration posterior word`.

    Posteriors of arcs with the same word and times are added; sums below `threshold` are left out, as are epsilons.
    Seconds, in the order of time; `-` if the lattice has no times (all arcs of a word are one then).
    """
    sums: dict[tuple[float, float, str], float] = {}
    times = lattice.times if lattice.times is not None else np.zeros(lattice.num_states)
    columns = times[lattice.src], times[lattice.dst], lattice.labels, arc_posteriors(lattice, scales)
    for begin, end, label, posterior in zip(*(column.tolist() for column in columns), strict=True):
        if label != EPSILON:
            key = begin, end, lattice.symbols[label]
            sums[key] = sums.get(key, 0.0) + posterior
    lines = []
    for (begin, end, word), posterior in sorted(sums.items()):
        if posterior >= threshold:
            place = "- -" if lattice.times is None else f"{begin:.3f} {end - begin:.3f}"
            lines.append(f"{lattice.utt_id} {place} {posterior:.5f} {word}")
    return lines


def through_scores(lattice: Lattice, totals: np.ndarray) -> np.ndarray:
    """The total of the best path through each arc, float64 `(arcs,)`."""
    through: np.ndarray = forward_scores(lattice, totals)[lattice.src] + totals
    return through + backward_scores(lattice, totals)[lattice.dst]
