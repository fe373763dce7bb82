"""Methods of decoding, and all that is set for a decoding, with its defaults; the command line takes them from here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GREEDY, BEAM, FAST, FAST_NBEST = "greedy_search", "modified_beam_search", "fast_beam_search", "fast_beam_search_nbest"
LABEL_SYNC = "label_sync_beam_search"
CTC = "ctc-decoding"  # by the CTC head alone
PREFIX_METHODS = (GREEDY, BEAM)  # searches over prefixes: of sets, single files and streams
BEAM_METHODS = (BEAM, LABEL_SYNC)  # with a number of hypotheses, and with LMs
LATTICE_METHODS = (FAST, FAST_NBEST)  # searches that make lattices and take their lists from them
METHODS = (*PREFIX_METHODS, LABEL_SYNC, *LATTICE_METHODS, CTC)
LATTICE_FORMATS = ("slf", "k2", "kaldi-lat")
BEAM_SIZE = 4
LM_SCALE = 0.3  # of each LM where no scale is given


@dataclass(frozen=True)
class DecodeOptions:
    """icefall's names.

    Attributes:
      method:     one of METHODS.
      beam_size:  hypotheses of BEAM_METHODS.
      length_norm: the modified beam search's best hypothesis has the largest total for each token.
      beam, max_contexts, max_states: pruning of the searches that make lattices (natural logs; a frame each).
      num_paths:  hypotheses taken from lattices.
      nbest_scale: see `k2_beam_search.nbest_of_lattice`.
      ngram_lm_scale: of a graph's scores in the search, which lists and lattices have as `lm`, at scale 1.
      lattices:   whether lattices are made; the 1-best is always in them.  `am` of lists and lattices is that of the
        best alignment; `alignments` of lists is what a search that sums adds (see `asr.decoding.prefixes`).
      lattice_beam: arcs on no path at most so much below the best are left out of lattices.
    """

    method: str = BEAM
    beam_size: int = BEAM_SIZE
    length_norm: bool = True
    beam: float = 20.0
    max_contexts: int = 8
    max_states: int = 64
    num_paths: int = 200
    nbest_scale: float = 0.5
    ngram_lm_scale: float = 0.01
    lattices: bool = False
    lattice_beam: float = 10.0

    @property
    def used(self) -> frozenset[str]:
        """Names of the settings that this search reads."""
        names = {"method", "lattices"}
        if self.method in BEAM_METHODS:
            names |= {"beam_size"}
        if self.method == BEAM:
            names |= {"length_norm"}
        if self.lattices or self.method in (*LATTICE_METHODS, CTC):
            names |= {"beam", "max_contexts", "lattice_beam"}
        if self.method in (*LATTICE_METHODS, CTC):
            names |= {"num_paths"}
        if self.method in LATTICE_METHODS:
            names |= {"max_states", "ngram_lm_scale"}
        if self.method == FAST_NBEST:
            names |= {"nbest_scale"}
        return frozenset(names)

    @property
    def setting(self) -> str:
        """icefall's key of the results, for the summary."""
        if self.method in BEAM_METHODS:
            return f"beam_size_{self.beam_size}"
        return self.method if self.method in (GREEDY, CTC) else f"beam_{self.beam}_{self._limits('_')}"

    @property
    def suffix(self) -> str:
        """icefall's end of the names of files; `-by-total` where the best is not chosen as in icefall."""
        if self.method in (GREEDY, CTC):
            return self.method
        if self.method in BEAM_METHODS:
            by_total = "-by-total" if self.method == BEAM and not self.length_norm else ""
            return f"{self.method}-beam-size-{self.beam_size}{by_total}"
        return f"{self.method}-beam-{self.beam}-{self._limits('-')}"

    def _limits(self, by: str) -> str:
        text = f"max_contexts_{self.max_contexts}_max_states_{self.max_states}"
        if self.method == FAST_NBEST:
            text += f"_num_paths_{self.num_paths}_nbest_scale_{self.nbest_scale}"
        return text if by == "_" else text.replace("_", by)


@dataclass(frozen=True)
class DecodeRun:
    """What is decoded and with what, beside the settings of the search.

    Attributes:
      cuts:    manifests, each a set of its own.
      folder:  model folder; or `exp_dir` with `epoch` or `iteration`, `avg` and `use_averaged_model` (see `average`).
      out:     folder of the results; None: METHOD in `exp_dir` or `folder`.
      lms:     `[NAME=]LM`; lm_scales: one for each, or none.
      ilme_scale: of the internal LM, which is subtracted and scored (0: scored alone); None: neither.
      lodr:    `[NAME=]ARPA`, a token n-gram that is subtracted.
      lang_dir: folder with LG.pt and words.txt.
      max_duration, max_seconds: of a batch, of a cut.
      lattices: one of LATTICE_FORMATS, or None.
      allow_pipes: run the commands that the manifests name.
      text_view: what LMs see of words, `lm` (in the form of their own text) or `exact`.
      bpe_model: a sentencepiece model that must be the recogniser's own, or None.
      normalise: name of the normaliser of texts in icefall's files and in WERs; of an encoder-decoder also that by
        which its texts are compared.
    """

    cuts: tuple[Path, ...]
    folder: Path | None = None
    exp_dir: Path | None = None
    epoch: int | None = None
    iteration: int | None = None
    avg: int = 1
    use_averaged_model: bool = False
    out: Path | None = None
    lms: tuple[str, ...] = ()
    lm_scales: tuple[float, ...] = ()
    ilme_scale: float | None = None
    lodr: str | None = None
    lodr_scale: float = 0.1
    word_reward: float = 0.0
    lang_dir: Path | None = None
    max_duration: float = 200.0
    max_seconds: float = 120.0
    device: str = "cpu"
    lattices: str | None = None
    allow_pipes: bool = False
    normalise: str | None = None
    bpe_model: Path | None = None
    text_view: str = "lm"
