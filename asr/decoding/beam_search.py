"""Modified beam search of the transducer, batched: icefall's `modified_beam_search`.

Each frame extends every hypothesis by the blank or by one token; the best `beam` of all extensions stay, and those
with the same tokens become one whose probability is their sum.  So with a beam that holds everything, that is the sum
over all alignments with at most one symbol a frame.  Its log is `am + alignments`: the best one, and what others add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from asr.decoding.prefixes import ALIGNMENTS, BLANK, Predictor, Prefixes, SearchHypothesis, check_encoded
from asr.decoding.shallow_fusion import Fusion

if TYPE_CHECKING:
    from asr.model.transducer import Transducer

KEEP_EVERY = 16  # frames after which LMs may give back the states of what has been left out


@dataclass
class _Hyp:
    """A hypothesis in the beam.

    Attributes:
      node:   its tokens in `Prefixes`.
      am:     log of the summed probability of its alignments.
      row:    where the decoder's output for it stands.
      path:   log-probability of its best alignment; of its tokens, last one first, as nested triples: the frame, the
              log-probability with the token, the triple of the one before.
    """

    node: int
    am: float
    row: int
    path: tuple[float, Any]


@torch.no_grad()
def modified_beam_search(
    model: Transducer,
    encoded: Tensor,
    lengths: Tensor,
    beam: int = 4,
    fusion: Fusion | None = None,
    length_norm: bool = False,
) -> list[list[SearchHypothesis]]:
    """Up to `beam` hypotheses for each utterance, best first.

    Args:
      encoded: float `(batch, frames, dim)`; lengths: int64 `(batch,)`.
      fusion: LMs that take part in the search.  Their scores stay beside `am`; the total is
        `am + alignments + sum_k scale_k * score_k`, and the sentence end is scored when the utterance ends.
      length_norm: the best has the largest total for each of its tokens, as in icefall (see `BeamSearch`).
    Raises:
      DataError: as `check_encoded`.
      ValueError: `beam` is below 1.
    """
    if beam < 1:
        raise ValueError(f"beam = {beam}, expected at least 1")
    search = BeamSearch(model, len(encoded), encoded.device, beam, fusion, length_norm)
    search.advance(encoded, lengths)
    return [search.hypotheses(row) for row in range(len(encoded))]


class BeamSearch:
    """The beams of all utterances of a batch, which share one tree of prefixes.

    It goes on with every piece of encoded speech that it is given: for streams.
    """

    def __init__(
        self,
        model: Transducer,
        batch: int,
        device: torch.device,
        beam: int,
        fusion: Fusion | None = None,
        length_norm: bool = False,
    ) -> None:
        """
        Args:
          length_norm: hypotheses are ordered by their total divided by the number of tokens, to which icefall adds
            those that the decoder sees before the first one (`context_size`; one with an LSTM).
        """
        self.beam, self.fusion, self.length_norm = beam, fusion, length_norm
        self.before = model.config.context_size if model.config.decoder == "stateless" else 1
        self.predictor = Predictor(model, device)
        self.predicted = self.predictor.start()
        self.prefixes = Prefixes()
        if fusion is not None:
            fusion.start(self.prefixes, model)
        self.beams = [[_Hyp(0, 0.0, 0, (0.0, None))] for _ in range(batch)]
        self.seen = [0] * batch

    @torch.no_grad()
    def advance(self, encoded: Tensor, lengths: Tensor) -> None:
        """More frames of every utterance: float `(batch, frames, dim)`, int64 `(batch,)` of them count."""
        limits = check_encoded(encoded, lengths)
        self.projected = self.predictor.joiner.project_encoder(encoded)
        for frame in range(max(limits, default=0)):
            self.step(frame, [row for row, limit in enumerate(limits) if frame < limit])
        self.seen = [seen + limit for seen, limit in zip(self.seen, limits, strict=True)]

    def step(self, frame: int, active: list[int]) -> None:
        """One frame of the utterances `active`."""
        hyps = [hyp for row in active for hyp in self.beams[row]]
        counts = [len(self.beams[row]) for row in active]
        own = torch.repeat_interleave(torch.tensor(active), torch.tensor(counts)).to(self.projected.device)
        rows = torch.tensor([hyp.row for hyp in hyps], device=self.projected.device)
        predicted = self.predicted.output[rows]
        log_probs = self.predictor.log_probs(self.projected[own, frame], predicted)
        added, before = log_probs, [hyp.am for hyp in hyps]
        if self.fusion is not None:
            nodes = [hyp.node for hyp in hyps]
            added = log_probs + self.fusion.rows(nodes, predicted)
            before = [am + self.fusion.total(node) for am, node in zip(before, nodes, strict=True)]
        grown: list[list[_Hyp]] = []
        for (parents, symbols, scores), row in zip(self._best(added, log_probs, before, counts), active, strict=True):
            grown.append(
                self._merged(self.seen[row] + frame, [self.beams[row][parent] for parent in parents], symbols, scores)
            )
        for row, beam in zip(active, grown, strict=True):
            self.beams[row] = beam
        self._advance()
        if self.fusion is not None and frame % KEEP_EVERY == KEEP_EVERY - 1:
            self.fusion.keep([hyp.node for beam in self.beams for hyp in beam])

    def _best(
        self, added: Tensor, log_probs: Tensor, before: list[float], counts: list[int]
    ) -> list[tuple[list[int], list[int], list[float]]]:
        """For each utterance the best extensions: hypothesis in its beam, symbol, log-probability of the symbol."""
        vocab, most = log_probs.shape[1], max(counts)
        totals = added.double() + torch.tensor(before, dtype=torch.float64, device=added.device).unsqueeze(1)
        place = torch.cat([torch.arange(count) + most * row for row, count in enumerate(counts)]).to(added.device)
        padded = totals.new_full((len(counts) * most, vocab), -math.inf)
        padded[place] = totals
        first = torch.tensor([0, *counts]).cumsum(0).tolist()
        flat = padded.view(len(counts), most * vocab)
        values, chosen = flat.topk(min(self.beam, most * vocab), dim=1)
        finite = torch.isfinite(values).tolist()
        parents = torch.div(chosen, vocab, rounding_mode="floor")
        symbols = chosen % vocab
        source = (parents + torch.tensor(first[:-1], device=added.device).unsqueeze(1)).clamp(max=len(before) - 1)
        scores = log_probs[source, symbols].double().tolist()
        found = []
        for keep, *columns in zip(finite, parents.tolist(), symbols.tolist(), scores, strict=True):
            kept = [[value for value, good in zip(column, keep, strict=True) if good] for column in columns]
            found.append((kept[0], kept[1], kept[2]))
        return found  # type: ignore[return-value]

    def _merged(self, frame: int, parents: list[_Hyp], symbols: list[int], scores: list[float]) -> list[_Hyp]:
        """The extended hypotheses; `row` is still that of the parent where a token was added (see `_advance`)."""
        found: dict[int, _Hyp] = {}
        for parent, symbol, score in zip(parents, symbols, scores, strict=True):
            node = self.prefixes.child(parent.node, symbol)
            best, before = parent.path
            path = (best + score, before if symbol == BLANK else (frame, best + score, before))
            row = parent.row if symbol == BLANK else -1 - parent.row
            hyp = _Hyp(node, parent.am + score, row, path)
            other = found.setdefault(node, hyp)
            if other is not hyp:
                other.am = _log_add(other.am, hyp.am)
                other.path = max(other.path, hyp.path, key=lambda item: item[0])
                other.row = max(other.row, hyp.row)  # what has been computed need not be computed again
        return list(found.values())

    def _advance(self) -> None:
        """Runs the decoder on the new tokens; equal prefixes of several utterances once."""
        rows: list[int] = []
        tokens: list[int] = []
        places: dict[int, int] = {}
        for hyp in (hyp for beam in self.beams for hyp in beam):
            place = places.setdefault(hyp.node, len(rows))
            if place == len(rows):
                rows.append(hyp.row if hyp.row >= 0 else -1 - hyp.row)
                tokens.append(BLANK if hyp.row >= 0 else self.prefixes.token[hyp.node])
            hyp.row = place
        self.predicted = self.predictor.advance(self.predicted, torch.tensor(rows), torch.tensor(tokens))

    @torch.no_grad()
    def hypotheses(self, row: int) -> list[SearchHypothesis]:
        """The hypotheses of an utterance, best first, as if it ended here."""
        found = []
        for hyp in self.beams[row]:
            best, path = hyp.path
            frames, am_after = [], [best]
            while path is not None:
                frame, am, path = path
                frames.append(frame)
                am_after.append(am)
            scores = {"am": best, ALIGNMENTS: max(0.0, hyp.am - best)}
            total = hyp.am
            if self.fusion is not None:
                scores |= self.fusion.finish(hyp.node)
                total += self.fusion.weighted(scores)
            tokens = self.prefixes.tokens(hyp.node)
            rank = total / (len(tokens) + self.before) if self.length_norm else total
            found.append((rank, SearchHypothesis(tokens, tuple(frames[::-1]), scores, tuple(am_after[::-1]))))
        return [hyp for _, hyp in sorted(found, key=lambda item: -item[0])]


def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high + math.log1p(math.exp(low - high)) if low > -math.inf else high
