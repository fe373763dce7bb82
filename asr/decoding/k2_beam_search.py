"""Beam search in k2 over a graph, which gives k2's lattices: icefall's `fast_beam_search` and `fast_beam_search_nbest`.

Kang et al., "Fast and parallel decoding for transducer", ICASSP 2023.  The graph is the trivial one (any sequence of
tokens) or an LG.  k2 tells hypotheses apart by their last tokens, so the decoder must be stateless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from asr.decoding.lattice_search import AM, word_lattice
from asr.decoding.prefixes import ALIGNMENTS, BLANK, FRAME_SECONDS, Pieces, Predictor, check_encoded
from asr.decoding.word_graph import FINAL, WordGraph, import_k2
from asr.errors import ConfigError, DataError
from rescore.formats.k2 import to_lattices
from rescore.formats.symbols import SymbolTable
from rescore.lattices.build import EPSILON
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.paths import arc_ranges, total_scores
from rescore.types import Lattice, NbestList, Words

if TYPE_CHECKING:
    from asr.model.config import TransducerConfig
    from asr.model.transducer import Transducer

_IMPOSSIBLE = -1e10


@torch.no_grad()
def fast_beam_search(
    model: Transducer,
    encoded: Tensor,
    lengths: Tensor,
    beam: float = 20.0,
    max_contexts: int = 8,
    max_states: int = 64,
    graph: WordGraph | None = None,
) -> Any:
    """k2's lattices, an FsaVec with an Fsa for each utterance; labels are tokens, 0 the blank.

    Those of a graph have `lm_scores`, the graph's, that of the end of a sentence with them (which k2 leaves out); as
    everywhere, `am` is `scores - lm_scores`.

    Args:
      encoded: float `(batch, frames, dim)`; lengths: int64 `(batch,)`, at least 1.
      beam, max_contexts, max_states: k2's, a frame and utterance.
      graph: None for the trivial graph, whose aux_labels are tokens.
    Raises:
      ConfigError: k2 is not there, or the decoder has an unlimited context.
      DataError: an utterance without a frame, or as `check_encoded`.
    """
    k2 = import_k2()
    limits = check_encoded(encoded, lengths)
    if 0 in limits:
        raise DataError(f"utterance {limits.index(0) + 1} of the batch has no frame; leave it out")
    config = model.config
    _check_stateless(config)
    fsa = (
        k2.trivial_graph(config.vocab_size - 1, device=encoded.device)
        if graph is None
        else graph.fsa.to(encoded.device)
    )
    settings = k2.RnntDecodingConfig(
        vocab_size=config.vocab_size,
        decoder_history_len=config.context_size,
        beam=beam,
        max_contexts=max_contexts,
        max_states=max_states,
    )
    streams = k2.RnntDecodingStreams([k2.RnntDecodingStream(fsa) for _ in limits], settings)
    predictor = Predictor(model, encoded.device)
    projected = model.joiner.project_encoder(encoded)
    silence = projected.new_full((config.vocab_size,), _IMPOSSIBLE)
    silence[BLANK] = 0.0
    for frame in range(max(limits) + 1):
        shape, contexts = streams.get_contexts()
        predicted = predictor.start(len(contexts))
        for tokens in contexts.long().unbind(dim=1):  # zeros stand before the begin of the utterance
            predicted = predictor.advance(predicted, torch.arange(len(contexts)), tokens)
        own = shape.row_ids(1).long()
        log_probs = predictor.log_probs(projected[own, min(frame, encoded.shape[1] - 1)], predicted.output)
        ended = (lengths.to(own.device)[own] <= frame).unsqueeze(1)
        streams.advance(torch.where(ended, silence, log_probs))
    streams.terminate_and_flush_to_streams()
    # k2 makes the last frame the arcs into the final state, so that its scores would not count: one more, of silence.
    found = streams.format_output([limit + 1 for limit in limits], allow_partial=True)
    return found if graph is None else _with_whole_lm(found, graph)


def _check_stateless(config: TransducerConfig) -> None:
    if config.decoder != "stateless":
        raise ConfigError(
            f"fast_beam_search needs a stateless decoder, found {config.decoder}; use --decoding-method "
            "modified_beam_search, which writes lattices too"
        )


def _with_whole_lm(fsas: Any, graph: WordGraph) -> Any:
    """The lattices, their LM at scale 1; at arcs into the final state, where k2 has 0, its end of the sentence.

    What k2 says of these arcs differs by version (1.23.4 names the graph's, 1.24.4 none), so that the graph's state is
    followed along the lattice: of a state's arcs in, one of the graph tells it, and a blank stays where it was.
    """
    sources = fsas.arcs.shape().row_ids(2).long()  # states of all lattices, one count
    arcs = fsas.arcs.values().long()
    targets, last, moves = sources + arcs[:, 1] - arcs[:, 0], fsas.labels == FINAL, fsas.reached > 0
    states = fsas.arcs.shape().tot_size(1)
    origin = torch.arange(states, device=sources.device)
    stays = ~moves & ~last
    origin[targets[stays]] = sources[stays]
    reached = origin.new_zeros(states)  # where a lattice begins, the graph's first state
    origin[targets[moves]] = targets[moves]
    reached[targets[moves]] = fsas.reached[moves].long() - 1
    while bool((origin[origin] != origin).any()):
        origin = origin[origin]
    lm = torch.where(last, graph.ends.to(sources.device)[reached[origin[sources]]], fsas.lm_scores)
    fsas.scores = torch.where(last, lm, fsas.scores + (1.0 - graph.lm_scale) * lm)
    fsas.lm_scores = lm
    del fsas.reached
    return fsas


def token_lattices(fsas: Any, utt_ids: Sequence[str], pieces: Pieces) -> list[Lattice]:
    """k2's lattices of the trivial graph as lattices of tokens, with times in seconds."""
    names = dict(enumerate(pieces.names))
    table = SymbolTable(Path("tokens.txt"), names, {name: token for token, name in names.items()})
    entries = {name: value for name, value in fsas.as_dict().items() if name == "arcs"}
    return [_timed(lattice) for lattice in to_lattices(entries, utt_ids, table)]


def _timed(lattice: Lattice) -> Lattice:
    """Sets `times`: every arc but those into the final state is a frame."""
    frames = np.zeros(lattice.num_states)
    for src, dst in zip(lattice.src.tolist(), lattice.dst.tolist(), strict=True):
        frames[dst] = frames[src] + (dst != lattice.num_states - 1)
    lattice.times, lattice.alignments = frames * FRAME_SECONDS, None
    return lattice


def word_lattices(
    fsas: Any,
    utt_ids: Sequence[str],
    pieces: Pieces,
    graph: WordGraph | None = None,
    beam: float | None = 10.0,
) -> list[Lattice]:
    """k2's lattices as lattices of words.

    Args:
      graph: that they come of; None for the trivial graph, where pieces become words.
      beam: arcs on no path at most so much below the best are left out.
    """
    if graph is None:
        return [word_lattice(lattice, pieces, beam) for lattice in token_lattices(fsas, utt_ids, pieces)]
    from rescore.lattices.epsilons import remove_epsilons
    from rescore.lattices.prune import prune_beam

    scales = graph.scales

    def pruned(lattice: Lattice) -> Lattice:
        return lattice if beam is None else prune_beam(lattice, scales, beam)

    found = to_lattices(fsas, utt_ids, graph.words)
    return [pruned(remove_epsilons(pruned(_timed(lattice)), scales)) for lattice in found]


def nbest_of_lattice(lattice: Lattice, n: int, scale: float = 0.5, scales: Mapping[str, float] = AM) -> NbestList:
    """The N-best of icefall's `fast_beam_search_nbest`, without chance: the exact `n` best, ranked by summed paths.

    icefall samples `n` paths from the lattice with scores times `scale` and scores what is distinct.  Here the exact
    `n` best word sequences come first, ranked by `log(sum over its paths of exp(scale * total)) / scale`.  Scores are
    those of the best path, `alignments` is what the sum adds to their total.

    Args:
      scales: of the lattice's scores, whose sum is the total of a path.
    Raises:
      ValueError: `n` is below 1 or `scale` not positive.
    """
    if not scale > 0:
        raise ValueError(f"scale = {scale}, expected a positive number")
    best = exact_nbest(lattice, scales, n)
    sharp = {name: scale * value for name, value in scales.items()}
    sums = sum_over_paths(lattice, [hyp.words for hyp in best.hyps], sharp)
    totals = {hyp.words: sum(value * hyp.scores[name] for name, value in scales.items()) for hyp in best.hyps}
    for hyp in best.hyps:
        hyp.scores[ALIGNMENTS] = max(0.0, sums[hyp.words] / scale - totals[hyp.words])
    ranked = sorted(best.hyps, key=lambda hyp: -(totals[hyp.words] + hyp.scores[ALIGNMENTS]))
    return NbestList(lattice.utt_id, ranked)


def sum_over_paths(lattice: Lattice, sequences: Sequence[Words], scales: Mapping[str, float]) -> dict[Words, float]:
    """`log sum exp(total)` over all paths of each word sequence, scores by their scales; all at once, as a tree."""
    tree: dict[tuple[int, int], int] = {}
    number = {word: label for label, word in enumerate(lattice.symbols)}
    ends = {}
    for words in sequences:
        node = 0
        for word in words:
            node = tree.setdefault((node, number[word]), len(tree) + 1)
        ends[words] = node
    totals = total_scores(lattice, scales)
    ranges = arc_ranges(lattice)
    reached: list[dict[int, float]] = [{} for _ in range(lattice.num_states)]
    reached[0][0] = 0.0
    for state in range(lattice.num_states - 1):
        for arc in range(ranges[state], ranges[state + 1]):
            label, target = int(lattice.labels[arc]), reached[lattice.dst[arc]]
            for node, score in reached[state].items():
                after = node if label == EPSILON else tree.get((node, label))
                if after is not None:
                    target[after] = np.logaddexp(target.get(after, -np.inf), score + totals[arc])
        if state:
            reached[state] = {}
    return {words: float(reached[-1][node]) for words, node in ends.items()}
