"""The RNN-T losses against plain loops, against all alignments, and against torchaudio and k2 where these are."""

from __future__ import annotations

import itertools
import math
from types import ModuleType

import pytest
import torch
from torch import Tensor

from asr.model import rnnt_loss
from asr.model.rnnt_loss import full_loss, lattice_score, prune_ranges, pruned_loss, smoothed_logprobs, smoothed_loss

FRAMES = torch.tensor([7, 4, 5, 6, 7])
COUNTS = torch.tensor([4, 4, 0, 1, 2])
VOCAB = 6


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def import_k2() -> ModuleType:
    try:
        import k2
    except ImportError as error:
        pytest.skip(f"k2: {error}")
    return k2


def boundary() -> Tensor:
    return torch.stack([0 * COUNTS, 0 * COUNTS, COUNTS, FRAMES], dim=1)


def batch(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Logits of all nodes `(5, 7, 5, 6)` and tokens `(5, 4)`."""
    return 2 * torch.randn(5, 7, 5, VOCAB, dtype=dtype), torch.randint(1, VOCAB, (5, 4))


def slow_loss(logits: Tensor, tokens: list[int], kept: Tensor | None = None) -> float:
    """One utterance `(T, U + 1, V)`: Graves's forward sums, a node at a time, over the nodes that are kept."""
    logp = logits.log_softmax(2).tolist()
    frames, count = len(logp), len(tokens)
    alpha = {(0, 0): 0.0}
    for t in range(frames + 1):
        for u in range(count + 1):
            ways = []
            if t > 0 and (kept is None or u in kept[t - 1]):
                ways.append(alpha[t - 1, u] + logp[t - 1][u][0])
            if u > 0 and t < frames and (kept is None or u - 1 in kept[t]):
                ways.append(alpha[t, u - 1] + logp[t][u - 1][tokens[u - 1]])
            total = sum(math.exp(way) for way in ways)
            if (t, u) != (0, 0):
                alpha[t, u] = math.log(total) if total else -math.inf
    return -alpha[frames, count]


def enumerated_loss(logits: Tensor, tokens: list[int]) -> float:
    """All alignments: which of the T + U - 1 steps before the last blank are tokens."""
    logp = logits.log_softmax(2)
    frames, count = len(logp), len(tokens)
    total = 0.0
    for places in itertools.combinations(range(frames + count - 1), count):
        t = u = 0
        score = 0.0
        for step in range(frames + count):
            if step in places:
                score, u = score + logp[t, u, tokens[u]].item(), u + 1
            else:
                score, t = score + logp[t, u, 0].item(), t + 1
        total += math.exp(score)
    return -math.log(total)


def parts(logits: Tensor, tokens: Tensor) -> list[tuple[Tensor, list[int]]]:
    return [
        (logits[i, :frames, : count + 1], tokens[i, :count].tolist())
        for i, (frames, count) in enumerate(zip(FRAMES.tolist(), COUNTS.tolist(), strict=True))
    ]


def test_full_loss_is_the_sum_over_all_alignments() -> None:
    logits, tokens = batch(torch.float64)
    expected = [enumerated_loss(*part) for part in parts(logits, tokens)]
    assert [slow_loss(*part) for part in parts(logits, tokens)] == pytest.approx(expected, abs=1e-9)
    assert full_loss(logits, tokens, FRAMES, COUNTS).tolist() == pytest.approx(expected, abs=1e-9)


def test_gradients_are_those_of_finite_differences() -> None:
    logits, tokens = batch(torch.float64)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: full_loss(x, tokens, FRAMES, COUNTS), logits, fast_mode=True)
    am, lm = torch.randn(5, 7, VOCAB, dtype=torch.float64), torch.randn(5, 5, VOCAB, dtype=torch.float64)
    am.requires_grad_()
    lm.requires_grad_()
    smoothed = lambda a, b: smoothed_loss(a, b, tokens, FRAMES, COUNTS, 0.25, 0.1)[0]  # noqa: E731
    assert torch.autograd.gradcheck(smoothed, (am, lm), fast_mode=True)


def test_gradient_of_pruned_loss_is_that_of_finite_differences() -> None:
    logits, tokens = batch(torch.float64)
    ranges = some_ranges(tokens, 3)
    assert ranges[:, :, 0].max() > 0
    pruned = logits.gather(2, ranges.unsqueeze(3).expand(-1, -1, -1, VOCAB)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: pruned_loss(x, tokens, ranges, FRAMES, COUNTS), pruned, fast_mode=True)


@pytest.mark.parametrize("backend", rnnt_loss.BACKENDS)
def test_full_loss_equals_torchaudio(backend: str) -> None:
    functional = pytest.importorskip("torchaudio.functional")
    if backend == "k2":
        import_k2()
    logits, tokens = batch()
    weights = torch.rand(5)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = full_loss(ours, tokens, FRAMES, COUNTS, backend)
    (loss * weights).sum().backward()
    arguments = [part.int() for part in (tokens, FRAMES, COUNTS)]
    expected = functional.rnnt_loss(theirs, *arguments, blank=0, reduction="none")
    (expected * weights).sum().backward()
    assert torch.allclose(loss, expected, atol=1e-4)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)
    assert ours.grad.abs().max() > 0.1


def some_ranges(tokens: Tensor, kept: int) -> Tensor:
    am, lm = 3 * torch.randn(5, 7, VOCAB), 3 * torch.randn(5, 5, VOCAB)
    _, token_occupation, blank_occupation = smoothed_loss(am, lm, tokens, FRAMES, COUNTS)
    return prune_ranges(token_occupation, blank_occupation, FRAMES, COUNTS, kept)


@pytest.mark.parametrize("kept", [2, 3, 5])
def test_pruned_loss_is_that_of_plain_loops_over_the_kept_nodes(kept: int) -> None:
    logits, tokens = batch()
    ranges = some_ranges(tokens, kept)
    pruned = logits.gather(2, ranges.unsqueeze(3).expand(-1, -1, -1, VOCAB))
    found = pruned_loss(pruned, tokens, ranges, FRAMES, COUNTS)
    expected = [slow_loss(*part, ranges[i]) for i, part in enumerate(parts(logits, tokens))]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)
    whole = full_loss(logits, tokens, FRAMES, COUNTS)
    assert bool((whole <= found + 1e-5).all())
    assert torch.allclose(whole, found) == (kept == 5)


@pytest.mark.parametrize("kept", [2, 3, 4, 9])
def test_ranges_lead_from_the_first_token_to_the_last(kept: int) -> None:
    frames, counts = torch.randint(9, 20, (30,)), torch.randint(0, 10, (30,))
    frames[0], counts[0] = 19, 9
    occupations = torch.rand(30, 19, 9), torch.rand(30, 19, 10)
    ranges = prune_ranges(*occupations, frames, counts, kept)
    first = ranges[:, :, 0]
    assert ranges.shape == (30, 19, kept)
    assert bool((ranges == first.unsqueeze(2) + torch.arange(kept)).all())
    assert bool((first[:, 0] == 0).all()) and bool((ranges <= 9).all())
    rise = first.diff(dim=1)
    assert rise.min() == 0 and rise.max() <= kept - 1
    for i in range(30):
        assert first[i, frames[i] - 1] == max(0, int(counts[i]) - kept + 1)


def test_occupation_counts_every_frame_and_token_once() -> None:
    px, py = torch.randn(5, 7, 4), torch.randn(5, 7, 5)
    _, token_occupation, blank_occupation = lattice_score(px, py, FRAMES, COUNTS)
    inside = torch.arange(7) < FRAMES.unsqueeze(1)
    assert torch.allclose(blank_occupation.sum(2), inside.float(), atol=1e-5)
    inside = torch.arange(4) < COUNTS.unsqueeze(1)
    assert torch.allclose(token_occupation.sum(1), inside.float(), atol=1e-5)


@pytest.mark.parametrize(("lm_scale", "am_scale"), [(0.0, 0.0), (0.25, 0.0), (0.2, 0.3)])
def test_smoothed_loss_equals_k2(lm_scale: float, am_scale: float) -> None:
    k2 = import_k2()
    tokens = torch.randint(1, VOCAB, (5, 4))
    am, lm = 3 * torch.randn(5, 7, VOCAB), 3 * torch.randn(5, 5, VOCAB)
    inputs = [am.clone().requires_grad_(), lm.clone().requires_grad_()]
    loss, *occupations = smoothed_loss(*inputs, tokens, FRAMES, COUNTS, lm_scale, am_scale)
    loss.sum().backward()
    theirs = [am.clone().requires_grad_(), lm.clone().requires_grad_()]
    expected, grads = k2.rnnt_loss_smoothed(
        theirs[1], theirs[0], tokens, 0, lm_scale, am_scale, boundary(), reduction="none", return_grad=True
    )
    expected.sum().backward()
    assert torch.allclose(loss, expected, atol=1e-4)
    for found, wanted in zip(inputs, theirs, strict=True):
        assert torch.allclose(found.grad, wanted.grad, atol=1e-4)
    inside = (torch.arange(7) < FRAMES.unsqueeze(1)).unsqueeze(2)
    for found, wanted in zip(occupations, grads, strict=True):
        assert torch.allclose(found, wanted.transpose(1, 2)[:, :7] * inside, atol=1e-4)


@pytest.mark.parametrize("kept", [2, 3, 5, 8])
def test_ranges_and_pruned_loss_equal_k2(kept: int) -> None:
    k2 = import_k2()
    tokens = torch.randint(1, VOCAB, (5, 4))
    px, py = smoothed_logprobs(3 * torch.randn(5, 7, VOCAB), 3 * torch.randn(5, 5, VOCAB), tokens, 0.25, 0.0)
    _, token_occupation, blank_occupation = lattice_score(px, py, FRAMES, COUNTS)
    ranges = prune_ranges(token_occupation, blank_occupation, FRAMES, COUNTS, kept)
    padded = torch.nn.functional.pad(token_occupation.transpose(1, 2), (0, 1))
    blank = blank_occupation.transpose(1, 2).contiguous()
    assert torch.equal(ranges, k2.get_rnnt_prune_ranges(padded, blank, boundary(), kept))
    encoded, decoded = torch.randn(5, 7, VOCAB), torch.randn(5, 5, VOCAB)
    logits = sum(k2.do_rnnt_pruning(encoded, decoded, ranges))
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = pruned_loss(ours, tokens, ranges, FRAMES, COUNTS)
    expected = k2.rnnt_loss_pruned(theirs, tokens, ranges, 0, boundary(), reduction="none")
    loss.sum().backward()
    expected.sum().backward()
    assert torch.allclose(loss, expected, atol=1e-4)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)


def test_backends_give_the_same() -> None:
    import_k2()
    px, py = torch.randn(5, 7, 4), torch.randn(5, 7, 5)
    px[4] = -math.inf
    results = []
    for backend in rnnt_loss.BACKENDS:
        inputs = px.clone().requires_grad_(), py.clone().requires_grad_()
        outputs = lattice_score(*inputs, FRAMES, COUNTS, backend)
        outputs[0][:4].sum().backward()
        results.append([*outputs, inputs[0].grad, inputs[1].grad])
    assert results[0][0][4] == -math.inf
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_utterance_harms_no_other(bad: float) -> None:
    logits, tokens = batch()
    broken = logits.clone()
    broken[1, 2, 1, 0] = bad
    gradients = []
    for values in (logits, broken):
        values = values.requires_grad_()
        loss = full_loss(values, tokens, FRAMES, COUNTS)
        torch.where(loss.isfinite(), loss, torch.zeros_like(loss)).sum().backward()
        gradients.append(values.grad)
    assert not loss[1].isfinite() and bool(loss[[0, 2, 3, 4]].isfinite().all())
    others = [0, 2, 3, 4]
    assert torch.equal(gradients[0][others], gradients[1][others])


def test_no_tokens_at_all() -> None:
    logits = torch.randn(2, 3, 1, VOCAB)
    loss = full_loss(
        logits, torch.zeros(2, 0, dtype=torch.long), torch.tensor([3, 2]), torch.zeros(2, dtype=torch.long)
    )
    blank = -logits.log_softmax(3)[:, :, 0, 0]
    assert torch.allclose(loss, torch.stack([blank[0].sum(), blank[1, :2].sum()]))


def test_bfloat16_logits_are_summed_in_float32() -> None:
    logits, tokens = batch()
    half = logits.bfloat16().requires_grad_()
    loss = full_loss(half, tokens, FRAMES, COUNTS)
    loss.sum().backward()
    assert loss.dtype == torch.float32 and half.grad.dtype == torch.bfloat16
    assert torch.allclose(loss, full_loss(half.detach().float(), tokens, FRAMES, COUNTS))
    am, lm = torch.randn(5, 7, VOCAB), torch.randn(5, 5, VOCAB)
    expected = smoothed_loss(am, lm, tokens, FRAMES, COUNTS)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(smoothed_loss(am, lm, tokens, FRAMES, COUNTS)[0], expected)


def test_a_long_utterance_stays_exact_in_float32() -> None:
    px, py = 2 * torch.randn(1, 400, 80) - 6, torch.randn(1, 400, 81) - 1
    size = torch.tensor([400]), torch.tensor([80])
    score, *occupations = lattice_score(px, py, *size)
    exact, *expected = lattice_score(px.double(), py.double(), *size)
    assert score.item() == pytest.approx(exact.item(), rel=1e-5)
    for found, wanted in zip(occupations, expected, strict=True):
        assert torch.allclose(found.double(), wanted, atol=2e-3)


def test_wrong_arguments() -> None:
    px, py = torch.randn(5, 7, 4), torch.randn(5, 7, 5)
    with pytest.raises(ValueError, match="backend is 'cuda'; there are torch, k2"):
        lattice_score(px, py, FRAMES, COUNTS, "cuda")
    with pytest.raises(ValueError, match="prune_range is 1"):
        prune_ranges(px, py, FRAMES, COUNTS, 1)
