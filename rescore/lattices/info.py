"""How large, dense and long lattices are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rescore.console import some_names
from rescore.evaluation.wer import (
    ErrorCounts,
    check_same_form,
    json_counts,
    none_in_common,
    say_nearly_all_wrong,
    split_characters,
)
from rescore.lattices.build import EPSILON
from rescore.lattices.oracle import Oracle, as_characters, oracle
from rescore.types import Lattice, Words


@dataclass
class LatticeInfo:
    """Sums over lattices, and the sizes of each for their medians and maxima.

    Attributes:
      refs: references by utterance, for oracle errors; None: none are asked for.
      cer: whether oracle errors are those of characters.
      seconds: summed durations, None as soon as one lattice has no times.
      crossing: over all frames, the number of arcs that cross each (Kaldi's lattice-depth), None as `seconds`.
      words: of the symbols, those that are on arcs of some lattice.
      oracle: errors of the best paths, None without references.
      nearest: words of these paths.
      ref_arcs: arcs of the lattices that have a reference.
      ref_words: words of their references.
      no_ref: lattices without a reference, where others have one.
      counts: what was left out on the way, summed.
    """

    refs: Mapping[str, Words] | None = None
    cer: bool = False
    states: list[int] = field(default_factory=list)
    arcs: list[int] = field(default_factory=list)
    epsilons: int = 0
    seconds: float | None = 0.0
    crossing: float | None = 0.0
    words: set[str] = field(default_factory=set)
    scores: dict[str, int] = field(default_factory=dict)
    oracle: ErrorCounts | None = None
    nearest: list[Words] = field(default_factory=list)
    ref_arcs: int = 0
    ref_words: int = 0
    no_ref: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, lattice: Lattice) -> None:
        """Counts a lattice; nothing of it where memory does not suffice."""
        ref = None if self.refs is None else self.refs.get(lattice.utt_id)
        best = None if ref is None else self._nearest(lattice, ref)
        words = {lattice.symbols[label] for label in np.unique(lattice.labels) if label != EPSILON}
        epsilons, times = int((lattice.labels == EPSILON).sum()), _times(lattice)
        self.states.append(lattice.num_states)
        self.arcs.append(lattice.num_arcs)
        self.epsilons += epsilons
        self.words |= words
        for name in lattice.scores:
            self.scores[name] = self.scores.get(name, 0) + 1
        for name, count in lattice.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        if times is None or self.seconds is None or self.crossing is None:
            self.seconds = self.crossing = None
        else:
            self.seconds, self.crossing = self.seconds + times[0], self.crossing + times[1]
        if best is not None:
            self.oracle = (self.oracle or ErrorCounts()) + best.counts
            self.nearest.append(best.hyp.words)
            self.ref_arcs, self.ref_words = self.ref_arcs + lattice.num_arcs, self.ref_words + len(ref or ())
        elif self.refs is not None:
            self.no_ref.append(lattice.utt_id)

    def _nearest(self, lattice: Lattice, ref: Words) -> Oracle:
        return oracle(as_characters(lattice), split_characters(ref)) if self.cer else oracle(lattice, ref)

    def check(self) -> None:
        """Raises ReferencesError if there are references, but none of any lattice, or all in another letter case."""
        if self.refs is not None and self.oracle is None:
            raise none_in_common({"references": self.refs, "lattices": self.no_ref})
        if self.refs is not None and self.oracle is not None:
            refs = map(split_characters, self.refs.values()) if self.cer else self.refs.values()
            check_same_form(refs, self.nearest)
            say_nearly_all_wrong(self.oracle.sub + self.oracle.dele, self.oracle.ref_words)

    def data(self) -> dict[str, Any]:
        """The same as data; None or NaN for what is not known."""
        sizes = {
            name: {"all": sum(values), "median": float(np.median(values)), "largest": max(values)}
            for name, values in (("states", self.states), ("arcs", self.arcs))
        }
        seconds = self.seconds or np.nan
        return {
            "lattices": len(self.arcs),
            **sizes,
            "epsilons": self.epsilons,
            "different_words": len(self.words),
            "scores": self.scores,
            "seconds": self.seconds,
            "arcs_per_second": sum(self.arcs) / seconds,
            "depth": None if self.crossing is None else self.crossing / seconds,
            "oracle": None if self.oracle is None else {"name": self._rate(), **json_counts(self.oracle)},
            "no_reference": len(self.no_ref),
            "counts": self.counts,
        }

    def lines(self) -> list[str]:
        """What a user reads."""
        arcs = sum(self.arcs)
        lines = [f"lattices         {len(self.arcs)}"]
        for name, sizes in (("states", self.states), ("arcs", self.arcs)):
            lines.append(f"{name:16} {sum(sizes)} (median {np.median(sizes):.0f}, largest {max(sizes)})")
        lines.append(f"epsilon arcs     {self.epsilons}")
        lines.append(f"different words  {len(self.words)}")
        lines.append(f"scores           {', '.join(self._scores()) or 'none'}")
        if self.seconds is None or self.crossing is None:
            lines.append("seconds          unknown: not all lattices have consistent times")
        else:
            lines.append(f"seconds          {self.seconds:.2f}")
            if self.seconds > 0:
                lines.append(f"arcs a second    {arcs / self.seconds:.2f}")
                lines.append(f"depth            {self.crossing / self.seconds:.2f} arcs cross a frame")
        if self.oracle is not None:
            if self.ref_words:
                lines.append(f"arcs a ref. word {self.ref_arcs / self.ref_words:.2f}")
            lines.append(
                f"oracle {self._rate()}       {self.oracle.wer:.2f} [ {self.oracle.errors} / {self.oracle.ref_words}, "
                f"{self.oracle.ins} ins, {self.oracle.dele} del, {self.oracle.sub} sub ]"
            )
        if self.no_ref:
            lines.append(f"no reference     {len(self.no_ref)} lattices: {some_names(self.no_ref)}")
        lines.extend(f"{name.replace('_', ' '):16} {count}" for name, count in self.counts.items() if count)
        return lines

    def _rate(self) -> str:
        return "CER" if self.cer else "WER"

    def _scores(self) -> list[str]:
        """Names of scores, with their number of lattices where not all have them."""
        every = len(self.arcs)
        return [name if count == every else f"{name} (in {count})" for name, count in self.scores.items()]


def _times(lattice: Lattice) -> tuple[float, float] | None:
    """Seconds of a lattice and of all of its arcs together; None if it has no times."""
    if lattice.times is None:
        return None
    arcs = lattice.times[lattice.dst] - lattice.times[lattice.src]
    return float(lattice.times.max() - lattice.times.min()), float(arcs.sum())
