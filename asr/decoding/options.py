"""Methods of decoding and their settings."""

from __future__ import annotations

from dataclasses import dataclass

GREEDY, BEAM, FAST, FAST_NBEST = "greedy_search", "modified_beam_search", "fast_beam_search", "fast_beam_search_nbest"


METHODS = (GREEDY, BEAM, FAST, FAST_NBEST)


@dataclass(frozen=True)
class DecodeOptions:
    """icefall's names.

    Attributes:
      method:     one of METHODS.
      beam_size:  hypotheses of the modified beam search.
      length_norm: its best hypothesis has the largest total for each token.
      beam, max_contexts, max_states: pruning of the searches that make lattices (natural logs; a frame each).
      num_paths:  hypotheses taken from lattices.
      nbest_scale: see `fast_beam_search.nbest_of_lattice`.
      lattices:   whether lattices are made; the 1-best is always in them.  `am` of lists and lattices is that of the
        best alignment; `alignments` of lists is what a search that sums adds (see `asr.decoding.greedy_search`).
      lattice_beam: arcs on no path at most so much below the best are left out of lattices.
    """

    method: str = GREEDY
    beam_size: int = 4
    length_norm: bool = True
    beam: float = 20.0
    max_contexts: int = 8
    max_states: int = 64
    num_paths: int = 200
    nbest_scale: float = 0.5
    lattices: bool = False
    lattice_beam: float = 10.0

    @property
    def setting(self) -> str:
        """icefall's key of the results, for the summary."""
        if self.method == BEAM:
            return f"beam_size_{self.beam_size}"
        return self.method if self.method == GREEDY else f"beam_{self.beam}_{self._limits('_')}"

    @property
    def suffix(self) -> str:
        """icefall's end of the names of files."""
        if self.method == GREEDY:
            return self.method
        if self.method == BEAM:
            return f"{self.method}-beam-size-{self.beam_size}"
        return f"{self.method}-beam-{self.beam}-{self._limits('-')}"

    def _limits(self, by: str) -> str:
        text = f"max_contexts_{self.max_contexts}_max_states_{self.max_states}"
        if self.method == FAST_NBEST:
            text += f"_num_paths_{self.num_paths}_nbest_scale_{self.nbest_scale}"
        return text if by == "_" else text.replace("_", by)
