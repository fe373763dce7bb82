"""Best paths of lattices under Kaldi's two settings, LM weight and word insertion penalty, and their error rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rescore.errors import ScoreError
from rescore.lattices.paths import best_path
from rescore.types import Lattice, Words

ACOUSTIC = "am"
# What takes part in the search beside acoustics: Kaldi's graph cost, or the parts of it in other formats.
GRAPH = ("graph", "lm", "pron", "score")


def kaldi_scales(lattice: Lattice, lmwt: float, wip: float) -> dict[str, float]:
    """Scales such that the best path minimises graph + acoustic / lmwt + wip * words, in costs, as in Kaldi.

    Raises:
      ScoreError: the lattice has none of these scores.
    """
    scales = {name: 1.0 for name in GRAPH if name in lattice.scores}
    if ACOUSTIC in lattice.scores:
        scales[ACOUSTIC] = 1.0 / lmwt
    if not scales:
        known = ", ".join(lattice.scores) or "no score"
        raise ScoreError(f"lattice '{lattice.utt_id}' has {known}, expected {ACOUSTIC} or one of {', '.join(GRAPH)}")
    return {**scales, "words": -wip}


def best_words(lattices: Iterable[Lattice], lmwt: float, wip: float) -> dict[str, Words]:
    """The words of the best path of each lattice, by utterance."""
    return {lattice.utt_id: best_path(lattice, kaldi_scales(lattice, lmwt, wip)).words for lattice in lattices}


def weighted_words(lattices: Iterable[Lattice], scales: Mapping[str, float]) -> dict[str, Words]:
    """The words of the best path of each lattice under `scales`, by utterance."""
    return {lattice.utt_id: best_path(lattice, scales).words for lattice in lattices}
