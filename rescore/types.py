"""The values that flow through the toolkit; plain numpy, no torch, no k2.

Scores are natural logs, unscaled, higher is better, and are kept by name (`am`, `lm`, `words`, `transfornn`, ...).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rescore.shown import Shown, Table

Words = tuple[str, ...]
LARGEST = 1e100  # score, of either sign: sums over an utterance, and squares of totals, are numbers still


@dataclass
class Hypothesis:
    """One word sequence with its scores by name.

    Attributes:
      extra: what else its source says of it (tokens, times, ...), kept for whoever reads what is written.
    """

    words: Words
    scores: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] | None = None


@dataclass(repr=False)
class NbestList(Shown):
    """The hypotheses of one utterance, in the order of their source (best first by convention).

    Shown and as a data frame, a hypothesis a row; `words` are the words themselves there, not their number.

    Attributes:
      recording: what the utterance is a part of, where the source says so.
      extra: as of a hypothesis.
    """

    utt_id: str
    hyps: list[Hypothesis]
    ref: Words | None = None
    recording: str | None = None
    extra: dict[str, Any] | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the scores."""
        return list(self.hyps[0].scores) if self.hyps else []

    def _table(self) -> Table:
        columns = [name for name in self.columns if name != "words"]
        rows = [
            [rank, " ".join(hyp.words), *(hyp.scores.get(name) for name in columns)]
            for rank, hyp in enumerate(self.hyps, start=1)
        ]
        return ["rank", "words", *columns], rows

    def _caption(self) -> str:
        ref = "" if self.ref is None else f"; reference: {' '.join(self.ref)}"
        return f"utterance {self.utt_id}, {len(self.hyps)} hypotheses{ref}"


@dataclass
class Alignments:
    """A string of integers for each arc of a lattice (transition ids of Kaldi, a frame each, or tokens of k2).

    Attributes:
      ids:     int32 `(total,)`, the strings one after the other.
      offsets: int64 `(arcs + 1,)`, that of arc a is `ids[offsets[a]:offsets[a + 1]]`.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @staticmethod
    def of_lengths(ids: np.ndarray, lengths: np.ndarray) -> Alignments:
        """From the strings one after the other and their lengths, `(arcs,)`."""
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return Alignments(np.asarray(ids, dtype=np.int32), offsets)

    @property
    def lengths(self) -> np.ndarray:
        """int64 `(arcs,)`."""
        return np.diff(self.offsets)

    def take(self, arcs: np.ndarray) -> Alignments:
        """The strings of `arcs` `(n,)`, in their order; -1 stands for an empty string."""
        lengths = np.append(self.lengths, 0)[arcs]
        result = Alignments.of_lengths(self.ids[:0], lengths)
        first = np.repeat(self.offsets[arcs] - result.offsets[:-1], lengths)
        result.ids = self.ids[first + np.arange(len(first))]
        return result

    def join(self, arcs: np.ndarray, bounds: np.ndarray) -> Alignments:
        """One string a group of arcs, the strings of `arcs[bounds[g]:bounds[g + 1]]` one after the other."""
        taken = self.take(arcs)
        return Alignments(taken.ids, taken.offsets[bounds])

    def string(self, arc: int) -> tuple[int, ...]:
        return tuple(self.ids[self.offsets[arc] : self.offsets[arc + 1]].tolist())


@dataclass
class WordEnds:
    """Where the word of each arc of a lattice ends, with silence behind it on the same arc.

    Attributes:
      times: float64 `(arcs,)` seconds.
      ids:   int64 `(arcs,)`, how many integers of the arc's string (`Alignments`) are the word's; 0 without strings.
    """

    times: np.ndarray
    ids: np.ndarray

    def take(self, arcs: np.ndarray) -> WordEnds:
        """Those of `arcs` `(n,)`."""
        return WordEnds(self.times[arcs], self.ids[arcs])


@dataclass
class Lattice:
    """A directed acyclic word graph with one start state and one final state.

    Arcs are parallel arrays.  `labels` index `symbols`; symbol 0 is always the epsilon `""`.  States are numbered in
    topological order (`src < dst` for every arc), state 0 is the start and `num_states - 1` the only final state; arcs
    are sorted by `src`, and every state lies on a path from start to end (see `rescore.lattices.build.build_lattice`).

    Attributes:
      src, dst: int32 `(arcs,)`, source and destination state.
      labels:   int32 `(arcs,)`, index into `symbols`.
      scores:   name -> float64 `(arcs,)`, natural logs.
      symbols:  label -> word; `symbols[0] == ""`.
      times:    float64 `(states,)` seconds, or None.
      alignments: strings of transition ids on the arcs, or None; they take part in no score.
      counts:   what was left out on the way here (`removed_states`, `removed_arcs`, `pruned_arcs`, ...).
      word_ends: where words end before their arcs do, as the silence behind them was joined to these; None: with them.
    """

    utt_id: str
    num_states: int
    src: np.ndarray
    dst: np.ndarray
    labels: np.ndarray
    scores: dict[str, np.ndarray]
    symbols: list[str]
    times: np.ndarray | None = None
    alignments: Alignments | None = None
    counts: dict[str, int] = field(default_factory=dict)
    word_ends: WordEnds | None = None

    @property
    def num_arcs(self) -> int:
        return len(self.src)


@dataclass
class Weights:
    """Scales by score name: `total = sum_k scales[k] * scores[k]`; the column `words` carries the word reward.

    `info` says how the scales were found (data, seed, WER, ...), so that they can be found again.
    """

    scales: dict[str, float]
    info: dict[str, Any] = field(default_factory=dict)
