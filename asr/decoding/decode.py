"""The search of a trained recogniser over batches: words, N-best lists and lattices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from asr.decoding import k2_beam_search as k2_search
from asr.decoding.beam_search import modified_beam_search
from asr.decoding.ctc_search import WORDS_UNDER_WAY, ctc_lattices
from asr.decoding.greedy_search import greedy
from asr.decoding.label_sync_search import label_sync_search
from asr.decoding.lattice_path import with_path
from asr.decoding.lattice_search import AM, lattice_search, word_lattice
from asr.decoding.options import (
    BEAM_METHODS,
    CTC,
    FAST_NBEST,
    GREEDY,
    LABEL_SYNC,
    LATTICE_METHODS,
    METHODS,
    DecodeOptions,
)
from asr.decoding.prefixes import Pieces, SearchHypothesis
from asr.decoding.shallow_fusion import Fusion
from asr.decoding.word_graph import WordGraph, import_k2
from asr.errors import ConfigError
from rescore.console import remark
from rescore.lattices.nbest import exact_nbest
from rescore.types import Hypothesis, Lattice, NbestList, Words

if TYPE_CHECKING:
    from asr.model.transducer import Transducer


@dataclass
class Decoded:
    """One utterance; `nbest` is best first, `lattice` is of words, or None."""

    nbest: NbestList
    lattice: Lattice | None

    @property
    def words(self) -> Words:
        return self.nbest.hyps[0].words


class Decoder:
    """A recogniser with the settings of its search."""

    def __init__(
        self,
        model: Transducer,
        pieces: Pieces,
        options: DecodeOptions,
        fusion: Fusion | None = None,
        graph: WordGraph | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        """
        Args:
          graph: an LG, for the methods that run in k2.
        Raises:
          ConfigError: settings that do not go together.
          DataError: the tokens are not the model's.
        """
        pieces.check(model)
        if options.method not in METHODS:
            raise ConfigError(f"decoding method '{options.method}'; there are {', '.join(METHODS)}")
        if fusion is not None and options.method not in BEAM_METHODS:
            they = " and ".join(BEAM_METHODS)
            raise ConfigError(f"LMs take part in {they} only, found {options.method}; rescore its lattices instead")
        if options.lattices and options.method == LABEL_SYNC:
            raise ConfigError(
                f"{LABEL_SYNC} gives lists alone, as a frame of its alignments may have several tokens, and one of a "
                "lattice has one; leave out --lattices, or take another method"
            )
        self.in_k2 = options.method in LATTICE_METHODS and _k2_is_there(model, graph)
        if graph is not None and not self.in_k2:
            raise ConfigError(f"an LG is for {' and '.join(LATTICE_METHODS)} in k2")
        if options.method == CTC:
            remark(f"{CTC}: by the CTC head alone; it is of use if the model was trained with --ctc-scale")
        self.model, self.device = model.to(device).eval(), torch.device(device)
        self.pieces, self.options, self.fusion, self.graph = pieces, options, fusion, graph

    @torch.no_grad()
    def __call__(self, features: Tensor, lengths: Tensor, utt_ids: list[str]) -> list[Decoded]:
        """Features float `(batch, frames, 80)` at 100 Hz, lengths int64 `(batch,)`.

        Utterances for which the encoder gives NaN or infinite values are remarked on and left out.
        """
        encoded, sizes = self.model.encoder(features.to(self.device), lengths.to(self.device))
        sizes = sizes.cpu()
        bad = [row for row, size in enumerate(sizes.tolist()) if not bool(encoded[row, :size].isfinite().all())]
        if not bad:
            return self.search(encoded, sizes, utt_ids)
        for row in bad:
            remark(f"utterance {utt_ids[row]} not recognised: the encoder gives NaN or infinite values for it")
        good = [row for row in range(len(utt_ids)) if row not in bad]
        return self.search(encoded[good], sizes[good], [utt_ids[row] for row in good]) if good else []

    def search(self, encoded: Tensor, lengths: Tensor, utt_ids: list[str]) -> list[Decoded]:
        """Encoded frames float `(batch, frames, dim)` at 25 Hz, lengths int64 `(batch,)`."""
        options = self.options
        if options.method not in (*LATTICE_METHODS, CTC):
            hypotheses = self._hypotheses(encoded, lengths)
            lists = [nbest_list(utt_id, hyps, self.pieces) for utt_id, hyps in zip(utt_ids, hypotheses, strict=True)]
            if not options.lattices:
                return [Decoded(nbest, None) for nbest in lists]
            found = zip(lists, hypotheses, self._lattices(encoded, lengths, utt_ids), strict=True)
            return [Decoded(nbest, with_path(lattice, hyps[0], self.pieces)) for nbest, hyps, lattice in found]
        return [Decoded(self._nbest(lattice), lattice) for lattice in self._lattices(encoded, lengths, utt_ids)]

    def _hypotheses(self, encoded: Tensor, lengths: Tensor) -> list[list[SearchHypothesis]]:
        if self.options.method == GREEDY:
            return greedy(self.model, encoded, lengths)
        if self.options.method == LABEL_SYNC:
            return label_sync_search(self.model, encoded, lengths, self.options.beam_size, self.fusion)
        return modified_beam_search(
            self.model, encoded, lengths, self.options.beam_size, self.fusion, self.options.length_norm
        )

    def _lattices(self, encoded: Tensor, lengths: Tensor, utt_ids: list[str]) -> list[Lattice]:
        options = self.options
        if options.method == CTC:
            log_probs = self.model.ctc(encoded).float().log_softmax(2)
            found = ctc_lattices(log_probs, lengths, utt_ids, self.pieces, options.beam, options.max_contexts)
            return [word_lattice(each, self.pieces, options.lattice_beam, WORDS_UNDER_WAY) for each in found]
        if not self.in_k2:
            limits = (options.beam, options.max_contexts)
            found = lattice_search(self.model, encoded, lengths, utt_ids, self.pieces, *limits)
            return [word_lattice(lattice, self.pieces, options.lattice_beam) for lattice in found]
        limits_k2 = (options.beam, options.max_contexts, options.max_states)
        fsas = k2_search.fast_beam_search(self.model, encoded, lengths, *limits_k2, self.graph)
        return k2_search.word_lattices(fsas, utt_ids, self.pieces, self.graph, options.lattice_beam)

    def _nbest(self, lattice: Lattice) -> NbestList:
        options, scales = self.options, AM if self.graph is None else self.graph.scales
        if options.method == FAST_NBEST:
            nbest = k2_search.nbest_of_lattice(lattice, options.num_paths, options.nbest_scale, scales)
        else:
            nbest = exact_nbest(lattice, scales, options.num_paths)
        for hyp in nbest.hyps:
            hyp.scores["words"] = float(len(hyp.words))
        return nbest


def _k2_is_there(model: Transducer, graph: object) -> bool:
    """Whether the search runs in k2, which a remark says; where a graph asks for it, its absence is an error."""
    if graph is not None:
        import_k2()
        return True
    ours = "fast_beam_search: our own search with the same pruning"
    if model.config.decoder != "stateless":
        remark(f"{ours}, as k2's needs a stateless decoder")
        return False
    try:
        import_k2()
    except ConfigError as error:
        remark(f"{ours}; {error}")
        return False
    remark("fast_beam_search: in k2")
    return True


def nbest_list(utt_id: str, hyps: Sequence[SearchHypothesis], pieces: Pieces) -> NbestList:
    """Hypotheses of a search as words, best first; of those that spell the same words the first stays.

    Every score keeps its name; `words` is the number of words.
    """
    found: dict[Words, Hypothesis] = {}
    for hyp in hyps:
        words = pieces.words(hyp.tokens)
        found.setdefault(words, Hypothesis(words, {**hyp.scores, "words": float(len(words))}))
    return NbestList(utt_id, list(found.values()))
