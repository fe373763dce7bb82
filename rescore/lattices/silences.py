"""Silence behind words as arcs of its own.

Passes of LMs join arcs without a word to the word before them, and keep where that word ends (`Lattice.word_ends`); in
their results the silence is an arc again, so that words have the times that they had.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rescore.lattices.build import EPSILON, build_lattice
from rescore.types import Alignments, Lattice


def with_silences(lattice: Lattice) -> Lattice:
    """The lattice with every arc that goes on behind its word as two: the word, with all scores, and the silence.

    Paths keep their words, scores and strings of transition ids.  Words that end at the same time before the same state
    share the silence; where there are strings, each has its own.
    """
    ends, times, strings = lattice.word_ends, lattice.times, lattice.alignments
    if ends is None or times is None:
        return lattice
    begin, end = times[lattice.src], times[lattice.dst]
    longer = np.flatnonzero((begin <= ends.times) & (ends.times < end))
    if not len(longer):
        return replace(lattice, word_ends=None)
    shared = longer if strings is not None else np.zeros(len(longer))
    keys = np.stack([lattice.dst[longer], ends.times[longer], shared], axis=1)
    silences, of_arc = np.unique(keys, axis=0, return_inverse=True)
    added = len(silences)
    new = lattice.num_states + np.arange(added)
    dst = lattice.dst.copy()
    dst[longer] = new[of_arc.reshape(-1)]
    return build_lattice(
        lattice.utt_id,
        lattice.num_states + added,
        np.append(lattice.src, new),
        np.append(dst, silences[:, 0].astype(np.int64)),
        np.append(lattice.labels, np.full(added, EPSILON)),
        {name: np.append(column, np.zeros(added)) for name, column in lattice.scores.items()},
        lattice.symbols,
        start=0,
        final=lattice.num_states - 1,
        times=np.append(times, silences[:, 1]),
        counts=lattice.counts,
        alignments=None if strings is None else _divided(strings, ends.ids, longer),
    )


def _divided(strings: Alignments, own: np.ndarray, longer: np.ndarray) -> Alignments:
    """The strings, but on the arcs `longer` only their `own` first ids, and then what is left of those, an arc each."""
    lengths = strings.lengths
    first = lengths.copy()
    first[longer] = own[longer]
    parts = np.stack([first, lengths - first], axis=1).reshape(-1)  # each arc's word and silence in turn
    halves = Alignments.of_lengths(strings.ids[strings.offsets[0] :], parts)
    return halves.take(np.append(2 * np.arange(len(lengths)), 2 * longer + 1))
