"""Decoding of a set of cuts with a trained recogniser: words, N-best lists and lattices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asr.decoding import k2_beam_search as k2_search
from asr.decoding.beam_search import modified_beam_search
from asr.decoding.greedy_search import greedy
from asr.decoding.lattice_path import with_path
from asr.decoding.lattice_search import AM, lattice_search, word_lattice
from asr.decoding.options import BEAM, FAST, FAST_NBEST, GREEDY, METHODS, DecodeOptions
from asr.decoding.prefixes import Pieces, SearchHypothesis
from asr.decoding.results import Spool, empty_lattice, empty_nbest, nbest_list, save_lattices, save_nbest, write_icefall
from asr.decoding.shallow_fusion import Fusion
from asr.errors import ConfigError, DataError
from rescore.console import progress, remark
from rescore.evaluation.wer import ErrorCounts
from rescore.files import make_folder
from rescore.lattices.nbest import exact_nbest
from rescore.types import Lattice, NbestList, Words


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
        model: Any,
        pieces: Pieces,
        options: DecodeOptions,
        fusion: Fusion | None = None,
        graph: tuple[Any, Path] | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        """
        Args:
          graph: k2's LG and its words.txt, for the methods that run in k2.
        Raises:
          ConfigError: settings that do not go together.
          DataError: the tokens are not the model's.
        """
        pieces.check(model)
        if options.method not in METHODS:
            raise ConfigError(f"decoding method '{options.method}'; there are {', '.join(METHODS)}")
        if fusion is not None and options.method != BEAM:
            raise ConfigError(f"LMs take part in {BEAM} only, found {options.method}; rescore its lattices instead")
        self.in_k2 = options.method in (FAST, FAST_NBEST) and _k2_is_there(model, graph)
        if graph is not None and not self.in_k2:
            raise ConfigError(f"an LG is for {FAST} and {FAST_NBEST} in k2")
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
        if options.method in (GREEDY, BEAM):
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
        return modified_beam_search(
            self.model, encoded, lengths, self.options.beam_size, self.fusion, self.options.length_norm
        )

    def _lattices(self, encoded: Tensor, lengths: Tensor, utt_ids: list[str]) -> list[Lattice]:
        options = self.options
        if not self.in_k2:
            limits = (options.beam, options.max_contexts)
            found = lattice_search(self.model, encoded, lengths, utt_ids, self.pieces, *limits)
            return [word_lattice(lattice, self.pieces, options.lattice_beam) for lattice in found]
        graph, words = self.graph or (None, None)
        limits_k2 = (options.beam, options.max_contexts, options.max_states)
        fsas = k2_search.fast_beam_search(self.model, encoded, lengths, *limits_k2, graph)
        return k2_search.word_lattices(fsas, utt_ids, self.pieces, words, options.lattice_beam)

    def _nbest(self, lattice: Lattice) -> NbestList:
        options = self.options
        if options.method == FAST_NBEST:
            nbest = k2_search.nbest_of_lattice(lattice, options.num_paths, options.nbest_scale)
        else:
            nbest = exact_nbest(lattice, AM, options.num_paths)
        for hyp in nbest.hyps:
            hyp.scores["words"] = float(len(hyp.words))
        return nbest


def _k2_is_there(model: Any, graph: object) -> bool:
    """Whether the search runs in k2, which a remark says; where a graph asks for it, its absence is an error."""
    if graph is not None:
        k2_search.import_k2()
        return True
    ours = "fast_beam_search: our own search with the same pruning"
    if model.config.decoder != "stateless":
        remark(f"{ours}, as k2's needs a stateless decoder")
        return False
    try:
        k2_search.import_k2()
    except ConfigError as error:
        remark(f"{ours}; {error}")
        return False
    remark("fast_beam_search: in k2")
    return True


@dataclass(frozen=True)
class Outputs:
    """Where the results of a set go.

    Attributes:
      folder, name, suffix: of icefall's files `recogs-NAME-SUFFIX.txt` and so on.
      setting: what stands before the WER in the summary.
      lattices: format of the lattices, or None.
    """

    folder: Path
    name: str
    suffix: str
    setting: str
    lattices: str | None = None


def decode_set(
    decoder: Decoder,
    batches: Iterable[dict[str, Any]],
    left_out: Callable[[], dict[str, str]],
    total: int | None,
    outputs: Outputs,
) -> tuple[ErrorCounts | None, list[str]]:
    """Decodes the batches of `asr.dataset.loader` and writes what `Outputs` says.

    Cuts that could not be loaded count as recognised without a word.  N-best lists and lattices wait on disk: memory
    does not grow with the number of utterances, but for their words.

    Args:
      left_out: gives, after the last batch, the cuts that are in no batch, with their texts.
      total: how many utterances there are, for the progress bar; None where that is not known.
    Returns:
      the errors (None without any reference word), and what was written.
    Raises:
      DataError: not one utterance could be recognised, or two have the same id.
    """
    results = _Results(make_folder(outputs.folder))
    lost: dict[str, str] = {}
    for utt_id, text, decoded in progress(_utterances(decoder, batches), outputs.name, total):
        if decoded is None:
            lost[utt_id] = text
        else:
            results.add(decoded, text)
    lost |= left_out()
    if not results.hyps:
        raise DataError(f"{outputs.name}: none of {len(lost)} utterances could be recognised; see those left out")
    if lost:
        count = len(results.hyps) + len(lost)
        remark(f"{outputs.name}: {len(lost)} of {count} utterances were not recognised; they count as without a word")
    for utt_id, text in lost.items():
        results.add(Decoded(empty_nbest(utt_id, results.scores), empty_lattice(utt_id)), text)
    return results.write(outputs)


def _utterances(decoder: Decoder, batches: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, Decoded | None]]:
    """Id, transcript and what was recognised of each utterance; None for what the decoder gives up."""
    for batch in batches:
        ids = [str(utt_id) for utt_id in batch["ids"]]
        decoded = decoder(batch["features"], batch["lengths"], ids) if ids else []
        found = {one.nbest.utt_id: one for one in decoded}
        for utt_id, text in zip(ids, batch["texts"], strict=True):
            yield utt_id, text, found.get(utt_id)


class _Results:
    """What is known of the utterances so far; lists and lattices are on disk.

    Attributes:
      refs, hyps: the words of each utterance.
      scores: names of the scores in N-best lists.
    """

    def __init__(self, folder: Path) -> None:
        self.refs: dict[str, Words] = {}
        self.hyps: dict[str, Words] = {}
        self.scores: list[str] = []
        self._symbols: set[str] = set()
        self._lists, self._lattices = Spool(folder), Spool(folder)

    def add(self, decoded: Decoded, text: str) -> None:
        utt_id = decoded.nbest.utt_id
        self._lists.add(utt_id, decoded.nbest)
        if decoded.lattice is not None:
            self._lattices.add(utt_id, decoded.lattice)
            self._symbols.update(decoded.lattice.symbols)
        self.refs[utt_id], self.hyps[utt_id] = tuple(text.split()), decoded.words
        self.scores = self.scores or list(decoded.nbest.hyps[0].scores)

    def write(self, outputs: Outputs) -> tuple[ErrorCounts | None, list[str]]:
        """The files of `decode_set`; each appears when it is whole."""
        stem = f"{outputs.name}-{outputs.suffix}"
        with_refs = any(self.refs.values())
        nbest = outputs.folder / f"nbest-{stem}.jsonl.gz"
        save_nbest(nbest, (replace(one, ref=self.refs[one.utt_id] if with_refs else None) for one in self._lists))
        written = [str(nbest)]
        if outputs.lattices is not None:
            place = outputs.folder / f"lattices-{stem}"
            written.append(save_lattices(outputs.lattices, place, self._lattices, self._symbols - {""}))
        if not with_refs:
            return None, written
        counts = write_icefall(outputs.folder, outputs.name, outputs.suffix, outputs.setting, self.refs, self.hyps)
        texts = [str(outputs.folder / f"{kind}-{stem}.txt") for kind in ("recogs", "errs", "wer-summary")]
        return counts, texts + written
