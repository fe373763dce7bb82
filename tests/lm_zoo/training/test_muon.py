"""Our Muon against the iteration written out in float64, and against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lm_zoo.layers.processor import adds_up_in_float32
from lm_zoo.training import muon
from lm_zoo.training.muon import Muon, orthogonal

GOLDEN = {
    (64, 64): [2.1398, 0.0478, -0.0149, 0.0304, 0.0409, -0.0018, -0.0373],
    (96, 64): [2.7082, 0.0225, -0.0064, 0.0334, 0.033, -0.0134, -0.0555],
    (97, 64): [2.7232, 0.0181, -0.007, 0.0341, 0.0363, -0.0147, -0.0574],
    (256, 64): [4.5125, 0.0474, 0.003, 0.0308, 0.0296, -0.0136, -0.0218],
    (64, 96): [2.2213, 0.0044, 0.004, 0.0226, -0.004, -0.0131, -0.0167],
    (48, 256): [1.9033, 0.012, 0.0095, 0.0008, 0.015, -0.0104, -0.0138],
}
SHAPES = list(GOLDEN)
STEPS = 12


def written_out(matrix: Tensor) -> Tensor:
    """Five iterations of Newton-Schulz as they are defined, exactly."""
    x = matrix.double() / matrix.double().norm()
    x = x.t() if len(x) > x.shape[1] else x
    for _ in range(5):
        gram = x @ x.t()
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.t() if len(matrix) > matrix.shape[1] else x


def spread(shape: tuple[int, int], decades: float) -> Tensor:
    """A matrix whose singular values go over so many powers of ten."""
    torch.manual_seed(1)
    left, right = (torch.linalg.qr(torch.randn(side, min(shape)))[0] for side in shape)
    return left * torch.logspace(0.0, -decades, min(shape)) @ right.t()


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


DTYPES = [
    torch.float32,
    pytest.param(
        torch.bfloat16,
        marks=pytest.mark.skipif(not adds_up_in_float32(), reason="torch adds up in bfloat16 on this processor"),
    ),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_iteration_up_to_the_digits_of_bfloat16(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for matrix, allowed in ((torch.randn(shape), 0.06), (1e-6 * spread(shape, 1), 0.05), (spread(shape, 3), 0.15)):
        kept = matrix.clone()
        found = orthogonal(matrix, dtype)
        assert found.dtype == torch.bfloat16 and distance(found, written_out(matrix)) < allowed
        assert torch.equal(matrix, kept)
    assert orthogonal(torch.zeros(shape), dtype).abs().max() == 0.0


def waves(shape: tuple[int, int], phase: float) -> Tensor:
    """Numbers that every torch makes alike."""
    count = shape[0] * shape[1]
    places = torch.arange(count, dtype=torch.float64)
    return ((0.7 * places + phase).sin() + places.pow(1.5).cos()).float().view(shape)


def run(make: type[torch.optim.Optimizer], shape: tuple[int, int], **options: float) -> Tensor:
    """Where a few steps from `waves` towards other waves lead, of which each number counts differently."""
    matrix, goal, weights = nn.Parameter(waves(shape, 0.0)), waves(shape, 1.0), waves(shape, 2.0).abs()
    optimizer = make([matrix], lr=0.1, **options)  # type: ignore[call-arg]
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        optimizer.zero_grad()
        (weights * (matrix - goal) ** 2).sum().backward()
        optimizer.step()
    return matrix.detach() - waves(shape, 0.0)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_moves_as_that_of_torch_did(shape: tuple[int, int], half: bool) -> None:
    """Length of the way and every 701st number of it, by `torch.optim.Muon` of torch 2.13."""
    length, *numbers = GOLDEN[shape]
    way = run(Muon, shape, half=half)
    assert float(way.norm()) == pytest.approx(length, rel=0.02)
    assert way.flatten()[::701][:6].tolist() == pytest.approx(numbers, abs=0.003)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
@pytest.mark.parametrize("weight_decay", [0.0, 0.7])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_moves_as_that_of_torch(shape: tuple[int, int], weight_decay: float) -> None:
    theirs = run(torch.optim.Muon, shape, momentum=0.95, weight_decay=weight_decay)
    assert distance(run(Muon, shape, weight_decay=weight_decay), theirs) < 0.04


def spied(monkeypatch: pytest.MonkeyPatch, sums_in_float32: bool, slow: bool = False, **options: bool) -> torch.dtype:
    """The dtype of a step's iterations on such a processor."""
    dtypes = []

    def spy(matrix: Tensor, dtype: torch.dtype) -> Tensor:
        dtypes.append(dtype)
        return matrix

    monkeypatch.setattr(muon, "adds_up_in_float32", lambda: sums_in_float32)
    monkeypatch.setattr(muon, "slow_in_bfloat16", lambda: slow)
    monkeypatch.setattr(muon, "orthogonal", spy)
    matrix = nn.Parameter(waves((6, 4), 0.0))
    matrix.grad = torch.ones_like(matrix)
    Muon([matrix], lr=0.1, **options).step()
    return dtypes[0]


def test_a_processor_iterates_in_bfloat16_where_asked_and_where_sums_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spied(monkeypatch, True, half=True) == torch.bfloat16
    assert spied(monkeypatch, False, half=True) == torch.float32
    assert spied(monkeypatch, True, slow=True, half=True) == torch.float32
    assert spied(monkeypatch, True) == torch.float32


def test_weight_decay_is_a_share_of_the_matrix_times_the_learning_rate() -> None:
    matrix = nn.Parameter(waves((6, 4), 0.0))
    matrix.grad = torch.zeros_like(matrix)
    Muon([matrix], lr=0.1, weight_decay=0.7).step()
    torch.testing.assert_close(matrix.detach(), 0.93 * waves((6, 4), 0.0))


def test_a_checkpoint_without_weight_decay_goes_on_without_it() -> None:
    matrix = nn.Parameter(waves((6, 4), 0.0))
    optimizer = Muon([matrix], lr=0.1, weight_decay=0.7)
    before = optimizer.state_dict()
    del before["param_groups"][0]["weight_decay"]
    optimizer.load_state_dict(before)
    matrix.grad = torch.zeros_like(matrix)
    optimizer.step()
    torch.testing.assert_close(matrix.detach(), waves((6, 4), 0.0))


@pytest.mark.parametrize("shape", SHAPES)
def test_matrices_side_by_side_are_made_orthogonal_as_each_alone(shape: tuple[int, int]) -> None:
    torch.manual_seed(2)
    stack = torch.randn(3, *shape) * torch.tensor([1.0, 1e-3, 1e3]).view(3, 1, 1)
    for found, matrix in zip(orthogonal(stack, torch.float32), stack, strict=True):
        assert distance(found, orthogonal(matrix, torch.float32)) < 0.02


def test_steps_side_by_side_are_those_of_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def stepped() -> list[Tensor]:
        torch.manual_seed(6)
        matrices = [nn.Parameter(torch.randn(shape)) for shape in [(8, 12), (12, 8), (8, 12), (8, 12)]]
        optimizer = Muon(matrices, lr=0.1)
        for _ in range(3):
            for matrix in matrices[:3]:
                matrix.grad = torch.randn_like(matrix)
            optimizer.step()
        return [matrix.detach() for matrix in matrices]

    alone = stepped()

    def by_shape(matrices: list[Tensor]) -> list[list[Tensor]]:
        return [[m for m in matrices if m.shape == shape] for shape in sorted({m.shape for m in matrices})]

    monkeypatch.setattr(muon, "_side_by_side", by_shape)
    for found, wanted in zip(stepped(), alone, strict=True):
        torch.testing.assert_close(found, wanted, atol=2e-3, rtol=0)
