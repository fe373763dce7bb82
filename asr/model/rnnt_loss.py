"""The RNN-T loss, full and pruned (Kuang et al., 2022, "Pruned RNN-T for fast, memory-efficient ASR training").

A lattice of `T` frames and `U` tokens has nodes (t, u), t = 0..T and u = 0..U.  `px[t, u]` is the log-probability of
emitting token u at frame t, to node (t, u + 1); `py[t, u]` that of the blank, to node (t + 1, u).  The loss is minus
the log of the summed probability of all paths from (0, 0) to (T, U) (Graves, 2012, Section 2.4).

The sums run over the diagonals t + u of the lattice, the whole batch and both directions at once, in plain torch; the
gradient is the occupation of each arc, so no graph is kept over the loop.  `backend="k2"` has k2's kernel do the sums.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from asr.errors import ConfigError
from rescore.errors import K2_INSTALL

BLANK = 0
BACKENDS = ("torch", "k2")
_INF = float("inf")


def check_backend(backend: str, device: str = "cpu") -> None:
    """Raises ConfigError where the kernel of k2 is asked for and cannot run on the device (`cpu`, `cuda`, `cuda:1`)."""
    if backend != "k2":
        return
    try:
        import k2
    except ImportError as error:
        raise ConfigError(
            f"the loss backend k2 needs k2, which cannot be imported ({error}); use --loss-backend torch, or install "
            f"k2: {K2_INSTALL}"
        ) from None
    if device.startswith("cuda") and not k2.with_cuda:
        raise ConfigError(
            "the loss backend k2: this k2 was built without CUDA; install one with it, or use --loss-backend torch"
        )


def full_loss(logits: Tensor, tokens: Tensor, frames: Tensor, counts: Tensor, backend: str = "torch") -> Tensor:
    """The loss without pruning.

    Args:
      logits: joiner's output `(B, T, U + 1, V)`, unnormalised.
      tokens: int64 `(B, U)`, padded with anything below V.
      frames, counts: int64 `(B,)`, frames and tokens of each utterance.

    Returns:
      Minus the natural log of the transcript's probability, float32 (float64 if the logits are) `(B,)`.
    """
    position = torch.arange(logits.shape[2], device=logits.device)
    return pruned_loss(logits, tokens, position.expand(logits.shape[:3]), frames, counts, backend)


def pruned_loss(
    logits: Tensor, tokens: Tensor, ranges: Tensor, frames: Tensor, counts: Tensor, backend: str = "torch"
) -> Tensor:
    """The loss over the nodes in `ranges` alone (paths that leave them have no probability).

    Args:
      logits: `(B, T, R, V)`: the joiner's output at `ranges`.
      tokens, frames, counts: see `full_loss`.
      ranges: int64 `(B, T, R)`, the token positions that are kept at each frame, of `prune_ranges`.

    Returns:
      float32 or float64 `(B,)`; infinite where no path lies within the ranges.
    """
    batch, time, _, _ = logits.shape
    ended = torch.cat([tokens, tokens.new_full((batch, 1), BLANK)], dim=1)
    symbols = ended.unsqueeze(1).expand(-1, time, -1).gather(2, ranges)
    px, py = _Picked.apply(logits, symbols)
    outside = px.new_full((batch, time, ended.shape[1]), -_INF)
    px, py = outside.scatter(2, ranges, px)[:, :, :-1], outside.scatter(2, ranges, py)
    return -lattice_score(px, py, frames, counts, backend)[0]


def smoothed_loss(
    am: Tensor,
    lm: Tensor,
    tokens: Tensor,
    frames: Tensor,
    counts: Tensor,
    lm_scale: float = 0.25,
    am_scale: float = 0.0,
    backend: str = "torch",
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of the trivial joiner `am + lm`, smoothed (Kuang et al., 2022, Section 3.3; k2's `rnnt_loss_smoothed`).

    Args:
      am: `(B, T, V)`, unnormalised, from the encoder alone.
      lm: `(B, U + 1, V)`, unnormalised, from the decoder alone.
      tokens, frames, counts: see `full_loss`.
      lm_scale, am_scale: shares of the log-probabilities that the decoder, or the encoder with a unigram, gives alone.

    Returns:
      The loss `(B,)`, and the occupation of each arc without gradient: tokens `(B, T, U)`, blanks `(B, T, U + 1)`.
    """
    with torch.autocast(am.device.type, enabled=False):
        px, py = smoothed_logprobs(_exact(am), _exact(lm), tokens, lm_scale, am_scale)
        score, token_occupation, blank_occupation = lattice_score(px, py, frames, counts, backend)
    return -score, token_occupation, blank_occupation


def smoothed_logprobs(
    am: Tensor, lm: Tensor, tokens: Tensor, lm_scale: float, am_scale: float
) -> tuple[Tensor, Tensor]:
    """px `(B, T, U)` and py `(B, T, U + 1)` of `smoothed_loss`.

    The unigram is the decoder's mean distribution over the batch, its padding included, as in k2.
    """
    tiny = torch.finfo(am.dtype).tiny
    am_max, lm_max = am.amax(2, keepdim=True), lm.amax(2, keepdim=True)
    am_exp, lm_exp = (am - am_max).exp(), (lm - lm_max).exp()
    norm = (am_exp @ lm_exp.transpose(1, 2) + tiny).log() + am_max + lm_max.transpose(1, 2)
    am_tokens = am.gather(2, tokens.unsqueeze(1).expand(-1, am.shape[1], -1))
    lm_tokens = lm[:, :-1].gather(2, tokens.unsqueeze(2)).transpose(1, 2)
    am_blank, lm_blank = am[:, :, BLANK:1], lm[:, :, BLANK].unsqueeze(1)
    combined = 1.0 - lm_scale - am_scale
    px = combined * (am_tokens + lm_tokens - norm[:, :, :-1])
    py = combined * (am_blank + lm_blank - norm)
    if lm_scale:
        lm_norm = lm.logsumexp(2).unsqueeze(1)
        px = px + lm_scale * (lm_tokens - lm_norm[:, :, :-1])
        py = py + lm_scale * (lm_blank - lm_norm)
    if am_scale:
        unigram = lm.softmax(2).mean((0, 1)) + tiny
        am_norm = (am_exp @ unigram).log().unsqueeze(2) + am_max
        px = px + am_scale * (am_tokens + unigram.log()[tokens].unsqueeze(1) - am_norm)
        py = py + am_scale * (am_blank + unigram[BLANK].log() - am_norm)
    return px, py


def prune_ranges(
    token_occupation: Tensor, blank_occupation: Tensor, frames: Tensor, counts: Tensor, prune_range: int
) -> Tensor:
    """Which token positions to keep at each frame (Kuang et al., 2022, Section 3.2; k2's `get_rnnt_prune_ranges`).

    Each frame keeps the `prune_range` neighbouring positions that hold the most probability; then the first positions
    are made to start at 0, never to fall, never to leave a gap, and to reach the last token at the last frame.

    Args:
      token_occupation, blank_occupation: those of `smoothed_loss`.
      frames, counts: int64 `(B,)`, `counts <= frames`.
      prune_range: 2 or more; at most U + 1 positions are kept.

    Returns:
      int64 `(B, T, R)`, R = min(prune_range, U + 1), each row consecutive.
    """
    if prune_range < 2:
        raise ValueError(f"prune_range is {prune_range}; it must be 2 or more, or no path is left")
    time, nodes = blank_occupation.shape[1:]
    kept = min(prune_range, nodes)
    inside = blank_occupation.unfold(2, kept, 1).sum(3)
    entered = torch.nn.functional.pad(token_occupation, (1, 0))[:, :, : nodes - kept + 1]
    first = (inside - entered).argmax(2)
    frame = torch.arange(time, device=first.device)
    last = (counts - kept + 1).clamp(min=0).unsqueeze(1)
    first = torch.where(frame < frames.unsqueeze(1) - 1, first, last)
    first = _never_falling(first)
    slope = (kept - 1) * frame
    first = slope - _never_falling(slope - first).clamp(min=0)
    return first.unsqueeze(2) + torch.arange(kept, device=first.device)


def _never_falling(values: Tensor) -> Tensor:
    """The largest sequence `(B, T)` below the values that never falls."""
    return values.flip(1).cummin(1).values.flip(1)


def lattice_score(
    px: Tensor, py: Tensor, frames: Tensor, counts: Tensor, backend: str = "torch"
) -> tuple[Tensor, Tensor, Tensor]:
    """The log of the summed probability of all paths, and how often each arc is on a path.

    Args:
      px: `(B, T, U)`, py: `(B, T, U + 1)`, see the head of the file; what is beyond `frames` or `counts` is ignored.
      frames, counts: int64 `(B,)`, within 0..T and 0..U.

    Returns:
      score `(B,)`, differentiable (once) by px and py, and their occupations `(B, T, U)` and `(B, T, U + 1)`: the
      gradients of the score, themselves without gradient; zero for an utterance whose score is not finite.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend is '{backend}'; there are {', '.join(BACKENDS)}")
    if backend == "k2" and px.shape[2]:  # k2 wants at least one token
        return _K2Lattice.apply(px, py, frames, counts)
    batch, time, count = px.shape
    t = torch.arange(time + 1, device=px.device).view(1, -1, 1)
    u = torch.arange(count + 1, device=px.device).view(1, 1, -1)
    ends, last = frames.view(-1, 1, 1), counts.view(-1, 1, 1)
    # One path of probability 1 leads from the end of each utterance to the far corner of the batch.
    free_x = torch.where((t == time) & (u[:, :, :-1] >= last), 0.0, -_INF).to(px.dtype)
    free_y = torch.where((t[:, :-1] >= ends) & (u == last), 0.0, -_INF).to(px.dtype)
    real_x, real_y = (t < ends) & (u[:, :, :-1] < last), (t[:, :-1] < ends) & (u <= last)
    px = torch.where(real_x, torch.cat([px, px.new_zeros(batch, 1, count)], dim=1), free_x)
    score, token_occupation, blank_occupation = _Lattice.apply(px, torch.where(real_y, py, free_y))
    return score, (token_occupation * real_x)[:, :-1], blank_occupation * real_y


class _Lattice(torch.autograd.Function):
    """px `(B, T + 1, U)`, py `(B, T, U + 1)` -> score from corner to corner `(B,)`, and both occupations."""

    @staticmethod
    def forward(ctx: Any, px: Tensor, py: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        score, *occupations = forward_backward(px, py)
        ctx.save_for_backward(*occupations)
        ctx.mark_non_differentiable(*occupations)
        return score, occupations[0], occupations[1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _x: Tensor, _y: Tensor) -> tuple[Tensor, Tensor]:
        token_occupation, blank_occupation = ctx.saved_tensors
        grad = grad.view(-1, 1, 1)
        return token_occupation * grad, blank_occupation * grad


class _K2Lattice(torch.autograd.Function):
    """`lattice_score` by k2: gradients of its own, so that both backends give the same outputs."""

    @staticmethod
    def forward(ctx: Any, px: Tensor, py: Tensor, frames: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        import k2

        px = torch.nn.functional.pad(px.transpose(1, 2), (0, 1), value=-_INF)
        px.scatter_(2, frames.view(-1, 1, 1).expand(-1, px.shape[1], 1), -_INF)
        zero = torch.zeros_like(frames)
        boundary = torch.stack([zero, zero, counts, frames], dim=1)
        score, (grad_x, grad_y) = k2.mutual_information_recursion(px, py.transpose(1, 2), boundary, return_grad=True)
        finite = score.isfinite().view(-1, 1, 1)
        occupations = [grad_x[:, :, :-1].transpose(1, 2), grad_y.transpose(1, 2)]
        occupations = [torch.where(finite, part, torch.zeros_like(part)) for part in occupations]
        ctx.save_for_backward(*occupations)
        ctx.mark_non_differentiable(*occupations)
        return score, occupations[0], occupations[1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _x: Tensor, _y: Tensor) -> tuple[Tensor, Tensor, None, None]:
        return (*_Lattice.backward(ctx, grad, _x, _y), None, None)


def forward_backward(px: Tensor, py: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Forward and backward sums of the rectangle: score `(B,)` and occupations of the shapes of px and py."""
    batch, time, nodes = py.shape
    count = nodes - 1
    # Row n holds the arcs that leave diagonal n, by the token position where they arrive; the batch is there twice,
    # as it is and turned by 180 degrees.
    to_x, to_y = (px.new_full((time + count, nodes, 2 * batch), -_INF) for _ in range(2))
    _cells(to_x, time + 1, count, 1).copy_(torch.cat([px, px.flip(1, 2)]))
    _cells(to_y, time, nodes, 0).copy_(torch.cat([py, py.flip(1, 2)]))
    alpha = _diagonal_sums(to_x, to_y)
    score = alpha[-1, -1, :batch].clone()
    finite = score.isfinite()
    beta = alpha[:, 1:, batch:].flip(0, 1)[1:] - torch.where(finite, score, torch.full_like(score, _INF))
    from_x = (alpha[:-1, :-1, :batch] + to_x[:, :, :batch] + beta).exp_()
    from_y = (alpha[:-1, 1:, :batch] + to_y[:, :, :batch] + beta).exp_()
    occupations = _cells(from_x, time + 1, count, 1), _cells(from_y, time, nodes, 0)
    token, blank = (torch.where(finite.view(-1, 1, 1), part, torch.zeros_like(part)) for part in occupations)
    return score, token, blank


def _cells(diagonals: Tensor, time: int, count: int, column: int) -> Tensor:
    """A view `(batch, time, count)` of `(steps, nodes, batch)`: cell (t, u) is in row t + u, column u + `column`."""
    row, node, item = (diagonals.stride(dim) for dim in range(3))
    start = diagonals.storage_offset() + column * node
    return diagonals.as_strided((diagonals.shape[2], time, count), (item, row, row + node), start)


def _diagonal_sums(to_x: Tensor, to_y: Tensor) -> Tensor:
    """Sums of all paths from (0, 0) to each node: `(steps, nodes, batch)` twice -> `(steps + 1, 1 + nodes, batch)`.

    Column u + 1 of row n is node (n - u, u); column 0 stays at -inf.
    """
    steps, nodes, batch = to_x.shape
    alpha = to_x.new_full((steps + 1, nodes + 1, batch), -_INF)
    alpha[0, 1] = 0
    by_x, by_y = torch.empty_like(to_x[0]), torch.empty_like(to_x[0])
    left, here = alpha[:, :-1].unbind(0), alpha[:, 1:].unbind(0)
    for n, (x, y) in enumerate(zip(to_x.unbind(0), to_y.unbind(0), strict=True)):
        torch.add(left[n], x, out=by_x)
        torch.add(here[n], y, out=by_y)
        torch.logaddexp(by_x, by_y, out=here[n + 1])
    return alpha


class _Picked(torch.autograd.Function):
    """Logits `(..., V)`, symbols `(...)` -> log-probabilities of the symbol and of the blank, each `(...)`.

    In float32 (float64 for float64) a few rows at a time; what is kept for the gradient is the logits as they are.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, symbols: Tensor) -> tuple[Tensor, Tensor]:
        flat, index = logits.reshape(-1, logits.shape[-1]), symbols.reshape(-1, 1)
        ctx.save_for_backward(flat, index)
        ctx.shape = logits.shape
        columns = torch.cat([index, torch.full_like(index, BLANK)], dim=1)
        parts = zip(flat.split(_ROWS), columns.split(_ROWS), strict=True)
        picked = torch.cat([_exact(part).log_softmax(1).gather(1, wanted) for part, wanted in parts])
        return picked[:, 0].view(symbols.shape), picked[:, 1].view(symbols.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_x: Tensor, grad_y: Tensor) -> tuple[Tensor, None]:
        flat, index = ctx.saved_tensors
        grad_x, grad_y = grad_x.reshape(-1, 1), grad_y.reshape(-1, 1)
        result = torch.empty_like(flat)
        for start in range(0, len(flat), _ROWS):
            rows = slice(start, start + _ROWS)
            part = _exact(flat[rows]).softmax(1).mul_(-(grad_x[rows] + grad_y[rows]))
            part.scatter_add_(1, index[rows], grad_x[rows])
            part[:, BLANK : BLANK + 1] += grad_y[rows]
            result[rows] = part
        return result.view(ctx.shape), None


_ROWS = 4096


def _exact(values: Tensor) -> Tensor:
    """float64 as it is, anything else as float32."""
    return values if values.dtype == torch.float64 else values.float()
