"""Label-synchronous beam search of the transducer: the hypotheses that compete have as many tokens.

The sum over alignments is that of the loss (Graves, 2012, Section 2.4): a frame gives any number of tokens, then a
blank.  For a prefix y let `entered(t)` be the log-probability that the transcript begins with y and the last token of
it is given at frame t, and `standing(t)` that y, and nothing more, has been given when the search is at frame t:

    standing(t) = log(exp entered(t) + exp(standing(t - 1) + blank(t - 1)))

The sum of `entered` over the frames is the probability that the transcript begins with y: by it the extensions of all
hypotheses are compared.  It never grows, so the search is over when all that go on are below the last of the list;
where LMs are subtracted or words rewarded a total may grow, and the search goes on to as many tokens as frames.
The hypotheses and the frames of an utterance are computed together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from asr.decoding.beam_search import KEEP_EVERY
from asr.decoding.prefixes import ALIGNMENTS, BLANK, Predicted, Predictor, Prefixes, SearchHypothesis, check_encoded
from asr.decoding.shallow_fusion import Fusion

if TYPE_CHECKING:
    from asr.model.transducer import Transducer


@dataclass
class _LabelSyncPrefix:
    """A prefix of a hypothesis.

    Attributes:
      node:    its tokens in `Prefixes`.
      parent:  the prefix without its last token; None of the empty one.
      total:   log-probability that the transcript begins so, and what the LMs add.
      entered: float64 `(frames,)`, as above; best: of the best alignment alone.
      came:    int64 `(frames,)`, where the last token was given on the best alignment that stands at each frame.
    """

    node: int
    parent: _LabelSyncPrefix | None
    total: float
    entered: Tensor
    best: Tensor
    came: Tensor | None = None


@torch.no_grad()
def label_sync_search(
    model: Transducer, encoded: Tensor, lengths: Tensor, beam: int = 8, fusion: Fusion | None = None
) -> list[list[SearchHypothesis]]:
    """Up to `beam` hypotheses for each utterance, best first; none has more tokens than the utterance has frames.

    Args:
      encoded: float `(batch, frames, dim)`; lengths: int64 `(batch,)`.
      fusion: LMs that take part in the search.  Their scores stay beside `am`; the total is
        `am + alignments + sum_k scale_k * score_k`.
    Raises:
      DataError: as `check_encoded`.
      ValueError: `beam` is below 1.
    """
    if beam < 1:
        raise ValueError(f"beam = {beam}, expected at least 1")
    limits = check_encoded(encoded, lengths)
    return [_LabelSyncSearch(model, encoded[row, :limit], beam, fusion).run() for row, limit in enumerate(limits)]


class _LabelSyncSearch:
    """The search of one utterance, encoded float `(frames, dim)`."""

    def __init__(self, model: Transducer, encoded: Tensor, beam: int, fusion: Fusion | None) -> None:
        self.beam, self.fusion = beam, fusion
        self.may_grow = fusion is not None and fusion.may_add
        self.predictor = Predictor(model, encoded.device)
        self.projected = self.predictor.joiner.project_encoder(encoded)
        self.prefixes = Prefixes()
        if fusion is not None:
            fusion.start(self.prefixes, model)
        self.ended: list[tuple[float, SearchHypothesis]] = []

    def run(self) -> list[SearchHypothesis]:
        frames = len(self.projected)
        if not frames:
            self._end(_LabelSyncPrefix(0, None, 0.0, *self.projected.new_zeros(2, 0)), 0.0, 0.0)
        else:
            entered = torch.full((frames,), -torch.inf, dtype=torch.float64, device=self.projected.device)
            entered[0] = 0.0
            active, predicted = [_LabelSyncPrefix(0, None, 0.0, entered, entered)], self.predictor.start()
            for count in range(frames + 1):
                active, predicted = self._step(active, predicted, last=count == frames)
                if not active or self._is_below(active[0].total):
                    break
                if self.fusion is not None and count % KEEP_EVERY == KEEP_EVERY - 1:
                    self.fusion.keep([prefix.node for prefix in active])
        return [hyp for _, hyp in self.ended]

    def _is_below(self, total: float) -> bool:
        """Whether nothing that goes on from a prefix of this total can be among the best."""
        return not self.may_grow and len(self.ended) == self.beam and total <= self.ended[-1][0]

    def _step(
        self, active: list[_LabelSyncPrefix], predicted: Predicted, last: bool
    ) -> tuple[list[_LabelSyncPrefix], Predicted]:
        """Ends all hypotheses and, unless these are the last, gives the best that have a token more, best first."""
        log_probs = self.predictor.log_probs(self.projected.unsqueeze(0), predicted.output.unsqueeze(1)).double()
        blanks = log_probs[..., BLANK]
        before = blanks.cumsum(1) - blanks  # of the blanks of all earlier frames
        standing = before + (torch.stack([prefix.entered for prefix in active]) - before).logcumsumexp(1)
        best, came = (torch.stack([prefix.best for prefix in active]) - before).cummax(1)
        best = best + before
        added = self.fusion.rows([prefix.node for prefix in active], predicted.output) if self.fusion else None
        whole = torch.stack([standing[:, -1], best[:, -1]], dim=1) + blanks[:, -1:]
        for prefix, frames, (total, alignment) in zip(active, came.cpu(), whole.tolist(), strict=True):
            prefix.came = frames
            self._end(prefix, total, alignment)
        if last:
            return [], predicted
        totals = (standing.unsqueeze(2) + log_probs).logsumexp(1)
        if self.fusion is not None and added is not None:
            totals += added + totals.new_tensor([self.fusion.total(prefix.node) for prefix in active]).unsqueeze(1)
        values, rows, tokens = self._best(totals)
        emitted = log_probs[rows, :, tokens]
        entered, most = standing[rows] + emitted, best[rows] + emitted
        grown = []
        for place, (row, token) in enumerate(zip(rows.tolist(), tokens.tolist(), strict=True)):
            node = self.prefixes.child(active[row].node, token)
            grown.append(_LabelSyncPrefix(node, active[row], values[place], entered[place], most[place]))
        return grown, self.predictor.advance(predicted, rows, tokens)

    def _best(self, totals: Tensor) -> tuple[list[float], Tensor, Tensor]:
        """The best of totals float64 `(prefixes, vocab)` that end in a token: values, prefixes and tokens."""
        totals[:, BLANK] = -torch.inf
        values, chosen = totals.flatten().topk(min(self.beam, totals.numel()))
        chosen, vocab = chosen[values.isfinite()], totals.shape[1]
        return values[: len(chosen)].tolist(), torch.div(chosen, vocab, rounding_mode="floor"), chosen % vocab

    def _end(self, prefix: _LabelSyncPrefix, total: float, alignment: float) -> None:
        """Takes the prefix up into the list, as a whole hypothesis, if it is one of the best.

        Args:
          total, alignment: log-probability of all its alignments, and of the best.
        """
        if self._is_below(total + (self.fusion.total(prefix.node) if self.fusion is not None else 0.0)):
            return  # an LM's score of the end is at most 0
        scores = {"am": alignment, ALIGNMENTS: max(0.0, total - alignment)}
        if self.fusion is not None:
            scores |= self.fusion.finish(prefix.node)
            total += self.fusion.weighted(scores)
        if len(self.ended) == self.beam and total <= self.ended[-1][0]:
            return
        tokens = self.prefixes.tokens(prefix.node)
        frames, am_after = _best_alignment(prefix, len(self.projected), alignment)
        self.ended.append((total, SearchHypothesis(tokens, frames, scores, am_after)))
        self.ended.sort(key=lambda item: -item[0])
        del self.ended[self.beam :]


def _best_alignment(prefix: _LabelSyncPrefix, frames: int, am: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The frame of each token, and `am` after each, and of all."""
    frame, places, am_after = frames - 1, list[int](), [am]
    while prefix.parent is not None and prefix.came is not None:
        frame = int(prefix.came[frame])
        places.append(frame)
        am_after.append(float(prefix.best[frame]))
        prefix = prefix.parent
    return tuple(reversed(places)), tuple(reversed(am_after))
