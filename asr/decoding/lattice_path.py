"""One hypothesis as a path of a word lattice: its best score there, and a path of its own where there is no such one.

A lattice keeps what its own search has kept, which need not be what another search, with LMs or sums over alignments,
finds best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asr.decoding.prefixes import FRAME_SECONDS, Pieces, SearchHypothesis
from rescore.lattices.build import EPSILON, build_lattice
from rescore.lattices.paths import arc_ranges
from rescore.types import Lattice


def with_path(lattice: Lattice, hyp: SearchHypothesis, pieces: Pieces) -> Lattice:
    """The lattice with a path of these words whose `am` is the hypothesis's, up to rounding, or better.

    Args:
      lattice: of words, with the score `am` and times.
    """
    labels, frames, am = word_arcs(hyp, pieces)
    rounding = 1e-5 * max(1.0, abs(sum(am)))  # of the float32 in which both searches have computed
    if best_score(lattice, [label for label in labels if label]) >= sum(am) - rounding:
        return lattice
    symbols = [*lattice.symbols, *sorted(set(labels) - set(lattice.symbols))]
    number = {symbol: label for label, symbol in enumerate(symbols)}
    first, final = lattice.num_states, lattice.num_states - 1
    nodes = [0, *range(first, first + len(labels) - 1), final]
    scores = {
        name: np.append(column, am if name == "am" else np.zeros(len(am))) for name, column in lattice.scores.items()
    }
    times = None if lattice.times is None else np.append(lattice.times, np.array(frames) * FRAME_SECONDS)
    return build_lattice(
        lattice.utt_id,
        first + len(labels) - 1,
        np.append(lattice.src, nodes[:-1]),
        np.append(lattice.dst, nodes[1:]),
        np.append(lattice.labels, [number[label] for label in labels]),
        scores,
        symbols,
        0,
        final,
        times,
        lattice.counts,
    )


def word_arcs(hyp: SearchHypothesis, pieces: Pieces) -> tuple[list[str], list[int], list[float]]:
    """Words, frames of the states between them, and `am` of each word, as `lattice_search.word_lattice` has them.

    A word ends with the piece that begins the next one; blanks before the first word are its own.
    """
    parts: list[list[int]] = [[]]
    labels, frames, ends = [], [], []
    for token, frame, am in zip(hyp.tokens, hyp.frames, hyp.am_after, strict=False):
        if parts[-1] and pieces.begins(parts[-1][-1], token):
            frames.append(frame + 1)
            ends.append(am)
            parts.append([])
        parts[-1].append(token)
    labels = [" ".join(pieces.words(part)) for part in parts]
    return labels, frames, np.diff([0.0, *ends, hyp.am_after[-1]]).tolist()


def best_score(lattice: Lattice, labels: Sequence[str]) -> float:
    """The largest `am` of the paths with these labels, epsilons left out; -inf if there is none."""
    number = {symbol: label for label, symbol in enumerate(lattice.symbols)}
    wanted = [number.get(label, -1) for label in labels]
    ranges, am = arc_ranges(lattice), lattice.scores["am"].tolist()
    reached: list[dict[int, float]] = [{} for _ in range(lattice.num_states)]  # labels read -> the best score
    reached[0][0] = 0.0
    for state, found in enumerate(reached[:-1]):
        for arc in range(ranges[state], ranges[state + 1]) if found else ():
            label, target = lattice.labels[arc], reached[lattice.dst[arc]]
            for read, score in found.items():
                if label == EPSILON or (read < len(wanted) and wanted[read] == label):
                    after = read + (label != EPSILON)
                    target[after] = max(target.get(after, -np.inf), score + am[arc])
    return reached[-1].get(len(wanted), -np.inf)
