"""An n-gram LM over a whole lattice: states are split by LM histories, arcs get the LM's score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rescore.errors import ScoreError
from rescore.expand_beam import Histories, NearArcs, WordLM, near_arcs
from rescore.lattice import EPSILON, add_counts, arc_ranges, build_lattice, remove_epsilons, total_scores
from rescore.log_zero import FiniteLM
from rescore.nbest import exact_nbest
from rescore.types import Lattice, NbestList

__all__ = ["WordLM", "expand_ngram", "ngram_nbest"]


def expand_ngram(
    lattice: Lattice, lm: WordLM, name: str, scales: Mapping[str, float], beam: float | None = None
) -> Lattice:
    """The lattice with its states split by LM histories, and the LM's natural-log score on its arcs as `name`.

    The sentence end is scored on the arcs into the final state, epsilons are not scored.  All other scores are kept.
    Epsilons inside are removed first, so of the paths with the same words the best under `scales` counts.  Words that
    the LM gives -inf get LOG_ZERO and are counted (`impossible_words`).

    Args:
      scales: scales of the lattice's scores, of `words`, and of `name`.
      beam: None for all of it (exact), else arcs are left out that are on no path at most this much below the best
        one under `scales`; while the search runs, what is still to come is taken from few histories for each state
        (see `rescore.expand_beam.near_arcs`), and exactly when it is done.  There always is a path.
        `pruned_arcs` in the `counts` of the result says how many arcs of what was looked at were left out.
    Raises:
      ScoreError: the lattice has a score `name` already, or `scales` has none for `name`, or one that is not there; the
        LM gave NaN.
    """
    if name in lattice.scores:
        raise ScoreError(f"lattice '{lattice.utt_id}' has a score '{name}' already; give the LM's another name")
    if name not in scales:
        raise ScoreError(f"no scale for '{name}', the score of the n-gram LM")
    own_scales = {key: scale for key, scale in scales.items() if key != name}
    finite = FiniteLM(lm, name, f"lattice '{lattice.utt_id}'")
    lattice = remove_epsilons(lattice, own_scales)
    histories = Histories(finite, lattice.symbols)
    pruned = 0
    if beam is None or not lattice.num_arcs:
        result = _assemble(lattice, _expand(lattice, histories), name)
    else:
        near = near_arcs(lattice, histories, total_scores(lattice, own_scales), scales[name], beam)
        result, pruned = _assemble_near(lattice, near, name), near.left
    result.counts = add_counts(
        lattice.counts,
        pruned_arcs=pruned,
        unknown_words=len(histories.unknown_words),
        impossible_words=finite.impossible,
    )
    return result


@dataclass
class _Expanded:
    """The arcs of the lattice between pairs (state, history); pairs are numbered state by state.

    Attributes:
      first_pair: int64 `(states + 1,)`, the pairs of state s are `first_pair[s]` to `first_pair[s + 1] - 1`.
      source, target: int32 `(arcs,)`, pairs; sorted by `source`.
      arc:        int32 `(arcs,)`, the lattice's arc.
      logprob:    float64 `(arcs,)`, score of the LM.
    """

    first_pair: np.ndarray
    source: np.ndarray
    target: np.ndarray
    arc: np.ndarray
    logprob: np.ndarray


def _expand(lattice: Lattice, histories: Histories) -> _Expanded:
    """Goes through the states in order, all arcs out of all pairs of a state at a time."""
    ranges, final = arc_ranges(lattice).tolist(), lattice.num_states - 1
    numbering = _Numbering()
    # Of each state: the histories that arcs bring, and where the numbers of their pairs are to be written.
    waiting: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(lattice.num_states)]
    waiting[0].append((np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)))
    first_pair, sources, targets, arcs, logprobs = [0], [], [], [], []
    for state in range(lattice.num_states):
        begin = first_pair[-1]
        present = numbering.number(waiting[state], begin, len(histories.states))
        waiting[state] = []
        first_pair.append(begin + len(present))
        leaving = range(ranges[state], ranges[state + 1])
        block = np.empty((len(present), len(leaving)), dtype=np.int32)
        columns = _extensions(lattice, histories, present, leaving)
        for place, arc in enumerate(leaving):
            target = int(lattice.dst[arc])
            longer = columns[place][1]
            # the sentence ends: histories do not matter any more
            waiting[target].append((np.zeros_like(longer) if target == final else longer, block[:, place]))
        if columns:
            targets.append(block)
            logprobs.append(np.stack([logprob for logprob, _ in columns], axis=1))
            sources.append(np.repeat(np.arange(begin, first_pair[-1], dtype=np.int32), len(leaving)))
            arcs.append(np.tile(np.arange(leaving.start, leaving.stop, dtype=np.int32), len(present)))
    none: list[np.ndarray] = [np.empty(0, dtype=np.int32)]
    source, onto, by = (np.concatenate([*(p.reshape(-1) for p in parts), *none]) for parts in (sources, targets, arcs))
    logprob = np.concatenate([*(part.reshape(-1) for part in logprobs), np.empty(0)])
    return _Expanded(np.array(first_pair), source, onto, by, logprob)


def _extensions(
    lattice: Lattice, histories: Histories, present: np.ndarray, leaving: range
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each arc out of a state the LM's scores after its histories `(pairs,)`, and numbers of the longer ones."""
    found: dict[tuple[int, bool], tuple[np.ndarray, np.ndarray]] = {}
    olds = present.tolist()
    result = []
    part = slice(leaving.start, leaving.stop)
    ends = lattice.dst[part] == lattice.num_states - 1
    for label, at_end in zip(lattice.labels[part].tolist(), ends.tolist(), strict=True):
        if (label, at_end) not in found:
            logprob, longer = np.zeros(len(olds)), present
            if label != EPSILON:
                rows = [histories.known[old].get(label) or histories.ask(old, label) for old in olds]
                logprob, longer = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], dtype=np.int32)
            if at_end:
                logprob = logprob + [histories.end(history) for history in longer.tolist()]
            found[label, at_end] = logprob, longer
        result.append(found[label, at_end])
    return result


class _Numbering:
    """Numbers the distinct histories that come to a state, without sorting all that come."""

    def __init__(self) -> None:
        self.place = np.empty(0, dtype=np.int32)  # of each history; means something only for those just written

    def number(self, arriving: list[tuple[np.ndarray, np.ndarray]], first: int, limit: int) -> np.ndarray:
        """The distinct histories in ascending order; writes `first` and up to where `arriving` says.

        Args:
          limit: histories are below this.
        """
        if len(self.place) < limit:
            self.place = np.empty(2 * limit, dtype=np.int32)
        every = np.concatenate([histories for histories, _ in arriving])
        rows = np.arange(len(every), dtype=np.int32)
        self.place[every] = rows
        present = np.sort(every[self.place[every] == rows])
        self.place[present] = np.arange(first, first + len(present), dtype=np.int32)
        for histories, numbers in arriving:
            numbers[:] = self.place[histories]
        return present


def _assemble(lattice: Lattice, expanded: _Expanded, name: str) -> Lattice:
    """The lattice over the pairs, all of which are on a path, as every state of the lattice is."""
    arc = expanded.arc
    times = lattice.times
    return Lattice(
        lattice.utt_id,
        int(expanded.first_pair[-1]),
        expanded.source,
        expanded.target,
        lattice.labels[arc],
        {**{key: column[arc] for key, column in lattice.scores.items()}, name: expanded.logprob},
        lattice.symbols,
        None if times is None else np.repeat(times, np.diff(expanded.first_pair)),
        None if lattice.alignments is None else lattice.alignments.take(arc),
    )


def _assemble_near(lattice: Lattice, near: NearArcs, name: str) -> Lattice:
    scores = {key: column[near.arc] for key, column in lattice.scores.items()}
    return build_lattice(
        lattice.utt_id,
        len(near.state),
        near.source,
        near.target,
        lattice.labels[near.arc],
        {**scores, name: near.logprob},
        lattice.symbols,
        start=1,
        final=0,
        times=None if lattice.times is None else lattice.times[near.state],
        alignments=None if lattice.alignments is None else lattice.alignments.take(near.arc),
    )


def ngram_nbest(
    lattice: Lattice, lm: WordLM, name: str, scales: Mapping[str, float], n: int, beam: float | None = None
) -> tuple[NbestList, dict[str, int]]:
    """The `n` best word sequences after an n-gram pass, and the counts of that pass (see `expand_ngram`).

    With a beam the pass is repeated with a wider one as long as it leaves fewer than `n` sequences; `widened` counts.
    """
    widened = 0
    while True:
        expanded = expand_ngram(lattice, lm, name, scales, beam)
        nbest = exact_nbest(expanded, scales, n)
        if len(nbest.hyps) >= n or beam is None or not expanded.counts["pruned_arcs"]:
            return nbest, add_counts(expanded.counts, widened=widened)
        beam = 2 * beam + 1.0
        widened += 1
