"""Lattices of the CTC head: icefall's `ctc-decoding`, whose graph is CTC's topology over all tokens.

A. Graves et al., "Connectionist temporal classification", ICML 2006: an alignment has a token or the blank at each
frame; tokens that repeat without a blank between them count once.  A state here is a frame and its token or blank; what
an arc adds does not depend on where it comes from, so the best path takes the best token of each frame.

The result is a lattice of tokens (blanks and repeats are epsilons), as of `asr.decoding.lattice_search`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from asr.decoding.prefixes import BLANK, FRAME_SECONDS, Pieces, check_encoded
from rescore.lattices.build import build_lattice
from rescore.lattices.prune import prune_density
from rescore.types import Lattice

AM = {"am": 1.0}
DENSITY = 200.0  # a model that is not sure has all tokens everywhere, and words of these without end
WORDS_UNDER_WAY = 8  # see `word_lattice`


@torch.no_grad()
def ctc_lattices(
    log_probs: Tensor,
    lengths: Tensor,
    utt_ids: Sequence[str],
    pieces: Pieces,
    beam: float = 20.0,
    most: int = 8,
    density: float | None = DENSITY,
) -> list[Lattice]:
    """A lattice of tokens for each utterance; symbols are pieces, the score is `am`, times are in seconds.

    Args:
      log_probs: float `(batch, frames, vocab)`, natural logs; lengths: int64 `(batch,)`.
      beam: tokens that are so much worse than the best one at their frame are left out.
      most: at most so many tokens a frame; the best one stays.
      density: arcs a second, at most; the best path stays.  None for any number.
    Raises:
      DataError: as `check_encoded`.
    """
    limits = check_encoded(log_probs, lengths)
    scores = log_probs.double().cpu().numpy()
    rows = zip(scores, limits, utt_ids, strict=True)
    found = [_lattice(frames[:limit], utt_id, pieces, beam, most) for frames, limit, utt_id in rows]
    return found if density is None else [prune_density(lattice, AM, density, "second") for lattice in found]


def _lattice(scores: np.ndarray, utt_id: str, pieces: Pieces, beam: float, most: int) -> Lattice:
    """The lattice of one utterance; `scores` float64 `(frames, vocab)`."""
    before, arcs, times, states = [(0, BLANK)], list[tuple[int, int, int, float]](), [0.0], 1
    for number, frame in enumerate(scores, start=1):
        ranked = np.argsort(-frame, kind="stable")[:most]
        kept = [int(token) for token in ranked if frame[token] >= frame[ranked[0]] - beam]
        now = [(states + place, token) for place, token in enumerate(kept)]
        for state, token in now:
            for source, last in before:
                label = BLANK if token == last else token
                arcs.append((source, state, label, float(frame[token])))
        times += [number * FRAME_SECONDS] * len(now)
        before, states = now, states + len(now)
    arcs += [(source, states, BLANK, 0.0) for source, _ in before]
    src, dst, labels, am = (np.array(column) for column in zip(*arcs, strict=True))
    ends = np.array([*times, times[-1]])
    return build_lattice(utt_id, states + 1, src, dst, labels, {"am": am}, pieces.names, 0, states, ends)
