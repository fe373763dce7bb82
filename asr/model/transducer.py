"""The recogniser: S4former encoder, prediction network and joiner, trained by the pruned RNN-T loss as in icefall."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor, nn

from asr.errors import ConfigError, DataError
from asr.model.config import TransducerConfig
from asr.model.decoder import make_decoder
from asr.model.joiner import Joiner
from asr.model.rnnt_loss import BACKENDS, BLANK, prune_ranges, pruned_loss, smoothed_loss


@dataclass(frozen=True)
class LossOptions:
    """Settings of the loss, with icefall's names and defaults.

    Attributes:
      prune_range: token positions that the joiner sees at each frame.
      lm_scale, am_scale: see `rnnt_loss.smoothed_loss`.
      simple_loss_scale: weight of the simple loss after the warm-up.
      ctc_scale: weight of the CTC loss; 0 leaves it, and its head, out.
      backend: `torch`, or `k2` for its kernel.
    """

    prune_range: int = 5
    lm_scale: float = 0.25
    am_scale: float = 0.0
    simple_loss_scale: float = 0.5
    ctc_scale: float = 0.0
    backend: str = "torch"

    def __post_init__(self) -> None:
        shares = min(self.lm_scale, self.am_scale, 1.0 - self.lm_scale - self.am_scale)
        checks = [
            (self.prune_range >= 2, f"prune_range {self.prune_range}; it must be 2 or more"),
            (shares >= 0, f"lm_scale {self.lm_scale} and am_scale {self.am_scale}; they and their sum lie in [0, 1]"),
            (self.simple_loss_scale >= 0, f"simple_loss_scale {self.simple_loss_scale}; it must be 0 or more"),
            (self.ctc_scale >= 0, f"ctc_scale {self.ctc_scale}; it must be 0 or more"),
            (self.backend in BACKENDS, f"backend '{self.backend}'; there are {', '.join(BACKENDS)}"),
        ]
        for good, problem in checks:
            if not good:
                raise ConfigError(f"loss: found {problem}")

    def weights(self, warm: float = 1.0) -> tuple[float, float]:
        """Weights of the simple and of the pruned loss (icefall's): from (1, 0.1) to (simple_loss_scale, 1).

        Args:
          warm: share of the warm-up that is over, `steps / warm_step`; 1 and more: all of it.
        """
        warm = min(1.0, max(0.0, warm))
        return 1.0 - warm * (1.0 - self.simple_loss_scale), 0.1 + 0.9 * warm


@dataclass
class TransducerLoss:
    """Losses of each utterance, float32 `(B,)`, zero where it is not valid.

    Attributes:
      simple, pruned: the smoothed loss of the trivial joiner, and the joiner's over the kept positions.
      ctc:      None if `ctc_scale` is 0.
      valid:    bool `(B,)`.
      problems: why an utterance is not valid, by its index in the batch.
    """

    simple: Tensor
    pruned: Tensor
    ctc: Tensor | None
    valid: Tensor
    problems: dict[int, str] = field(default_factory=dict)

    def total(self, options: LossOptions, warm: float = 1.0) -> Tensor:
        """The weighted sum of the losses, each utterance `(B,)`."""
        simple, pruned = options.weights(warm)
        total = simple * self.simple + pruned * self.pruned
        return total if self.ctc is None else total + options.ctc_scale * self.ctc


class Transducer(nn.Module):
    """An RNN-T with the two linear heads of the pruned loss and one of CTC."""

    def __init__(self, config: TransducerConfig, encoder: nn.Module | None = None) -> None:
        """`encoder`: another one with the interface of `S4former` and `config.encoder.dim` outputs."""
        super().__init__()
        if encoder is None:
            from asr.model.s4former import S4former

            encoder = S4former(config.encoder)
        self.config = config
        self.encoder = encoder
        self.decoder = make_decoder(config)
        dim, output = config.encoder.dim, self.decoder.output_dim
        self.joiner = Joiner(dim, output, config.joiner_dim, config.vocab_size)
        self.simple_am = nn.Linear(dim, config.vocab_size)
        self.simple_lm = nn.Linear(output, config.vocab_size)
        self.ctc = nn.Linear(dim, config.vocab_size)

    def loss(self, features: Tensor, lengths: Tensor, tokens: list[list[int]], options: LossOptions) -> TransducerLoss:
        """The training losses.  An utterance that cannot be used costs zero and is named in `problems`.

        Such are those with values that are not finite, with no frame, with fewer frames (25 Hz) than tokens (with CTC:
        than tokens and repeats), and those whose loss is not finite.

        Args:
          features: `(B, T, features)` float.
          lengths: int64 `(B,)`, frames.
          tokens: the transcripts, without blanks.

        Raises:
          DataError: lengths or tokens that do not belong to the batch or the vocabulary.
        """
        self._check(features, lengths, tokens)
        if not features.shape[1]:
            features = features.new_zeros(len(features), 1, features.shape[2])
        finite = features.isfinite().flatten(1).all(1)
        features = torch.where(finite.view(-1, 1, 1), features, torch.zeros_like(features))
        encoded, frames = self.encoder(features, lengths.clamp(min=1))
        problems = _unusable(lengths, frames, finite, tokens, options.ctc_scale > 0)
        # An unusable utterance stays in the batch as silence: under DDP each weight has a gradient in each step.
        used = [[] if i in problems else ids for i, ids in enumerate(tokens)]
        counts = torch.tensor([len(ids) for ids in used], device=encoded.device)
        padded = nn.utils.rnn.pad_sequence([torch.tensor(ids, dtype=torch.long) for ids in used], True, BLANK)
        simple, pruned = self._transducer_losses(encoded, frames, padded.to(encoded.device), counts, options)
        ctc = self._ctc_loss(encoded, frames, used) if options.ctc_scale else None
        return _masked(simple, pruned, ctc, problems)

    def _transducer_losses(
        self, encoded: Tensor, frames: Tensor, tokens: Tensor, counts: Tensor, options: LossOptions
    ) -> tuple[Tensor, Tensor]:
        """Simple and pruned loss `(B,)`; the joiner sees `(B, T', prune_range)` pairs only."""
        decoded = self.decoder(tokens)
        am, lm = self.simple_am(encoded), self.simple_lm(decoded)
        scales = options.lm_scale, options.am_scale
        simple, *occupations = smoothed_loss(am, lm, tokens, frames, counts, *scales, options.backend)
        ranges = prune_ranges(occupations[0], occupations[1], frames, counts, options.prune_range)
        kept = _at(self.joiner.project_decoder(decoded), ranges)
        logits = self.joiner(self.joiner.project_encoder(encoded).unsqueeze(2), kept)
        return simple, pruned_loss(logits, tokens, ranges, frames, counts, options.backend)

    def _ctc_loss(self, encoded: Tensor, frames: Tensor, tokens: list[list[int]]) -> Tensor:
        """CTC of each utterance `(B,)`, float32."""
        scores = self.ctc(encoded).float().log_softmax(2).transpose(0, 1)
        targets = torch.tensor([token for ids in tokens for token in ids], dtype=torch.long, device=scores.device)
        counts = torch.tensor([len(ids) for ids in tokens], device=frames.device)
        return nn.functional.ctc_loss(scores, targets, frames, counts, BLANK, reduction="none")

    def _check(self, features: Tensor, lengths: Tensor, tokens: list[list[int]]) -> None:
        if not len(features) == len(lengths) == len(tokens) > 0:
            found = f"{len(features)} features, {len(lengths)} lengths, {len(tokens)} transcripts"
            raise DataError(f"batch: found {found}; expected as many of each, and at least one")
        size = self.config.vocab_size
        for index, ids in enumerate(tokens):
            for token in ids:
                if not 0 < token < size:
                    raise DataError(
                        f"utterance {index} of the batch: found token {token}, but the model has 1 to {size - 1} and "
                        "the blank, 0; take the bpe.model that belongs to it"
                    )


def _unusable(lengths: Tensor, frames: Tensor, finite: Tensor, tokens: list[list[int]], ctc: bool) -> dict[int, str]:
    """What is wrong with an utterance, by index."""
    problems = {}
    rows = zip(lengths.tolist(), frames.tolist(), finite.tolist(), tokens, strict=True)
    for index, (length, count, good, ids) in enumerate(rows):
        repeats = sum(one == other for one, other in pairwise(ids)) if ctc else 0
        if not good:
            problems[index] = "features that are infinite or not a number"
        elif length < 1:
            problems[index] = "no frames"
        elif count < len(ids) + repeats:
            more = f" and {repeats} repeats" if repeats else ""
            problems[index] = f"too short: {count} frames of 40 ms for {len(ids)} tokens{more}"
    return problems


def _masked(simple: Tensor, pruned: Tensor, ctc: Tensor | None, problems: dict[int, str]) -> TransducerLoss:
    """The losses with zeros for the utterances in `problems` and for those that are not finite, which it adds."""
    parts = [simple, pruned] if ctc is None else [simple, pruned, ctc]
    finite = torch.stack([part.detach().isfinite() for part in parts]).all(0)
    for index in (~finite).nonzero().flatten().tolist():
        values = ", ".join(f"{part[index].item():g}" for part in parts)
        problems.setdefault(index, f"a loss that is not finite: {values}")
    valid = finite.clone()
    valid[list(problems)] = False
    simple, pruned, *rest = (torch.where(valid, part, torch.zeros_like(part)) for part in parts)
    return TransducerLoss(simple, pruned, rest[0] if rest else None, valid, problems)


def _at(decoded: Tensor, ranges: Tensor) -> Tensor:
    """`decoded` `(B, U + 1, D)` at the positions `ranges` `(B, T, R)` -> `(B, T, R, D)`."""
    start = torch.arange(len(decoded), device=decoded.device) * decoded.shape[1]
    return nn.functional.embedding(ranges + start.view(-1, 1, 1), decoded.flatten(0, 1))
