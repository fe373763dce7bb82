"""A step of Muon: ours in float32 and in bfloat16 against `torch.optim.Muon`, where torch has it.

The matrices are those of TransfoRNN's layers (two Transformer layers, two LSTM layers); each kind steps in turn, the
best of some rounds counts.  Then whole training steps of TransfoRNN in bfloat16, 64 windows of 64 of 10,000 words, and
the share of the processor's rate (2048 x d by d x 2048 products in bfloat16) at which a step computes its products:
those of the model alone (forward and backward), and with Muon's.

Example: OMP_NUM_THREADS=2 python benchmarks/muon.py --dim 512
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import click
import torch
from hypotheses import rate
from measure import heading, row, seconds
from torch import nn

from lm_zoo.layers.processor import adds_up_in_float32
from lm_zoo.registry import build
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from lm_zoo.training.config import TrainConfig
from lm_zoo.training.muon import AFTER, BEFORE, LONG, Muon
from lm_zoo.training.optimizers import make_optimizers
from lm_zoo.training.runtime import autocast

WINDOWS = (64, 64)
WORDS = 10_000


def matrices(dim: int) -> list[nn.Parameter]:
    """Of two Transformer layers (attention, feed-forward of twice the width) and of two LSTM layers, with gradients."""
    layer = [(3 * dim, dim), (dim, dim), (2 * dim, dim), (dim, 2 * dim)]
    made = [nn.Parameter(torch.randn(shape)) for shape in 2 * layer + 4 * [(4 * dim, dim)]]
    for matrix in made:
        matrix.grad = torch.randn_like(matrix)
    return made


def model_products(dim: int) -> float:
    """FLOPs of a step's products but Muon's: two a weight and word forward, four backward; attention's beside them."""
    weights = sum(matrix.numel() for matrix in matrices(dim)) + WORDS * dim
    attention = 2 * 2 * WINDOWS[1] * dim  # q k^T and its product with v, in two layers
    return 6.0 * math.prod(WINDOWS) * (weights + attention)


def muon_products(dim: int) -> float:
    """FLOPs of Muon's products (`orthogonal`): few with a long matrix, the others of its Gram matrix."""
    total = 0.0
    for matrix in matrices(dim):
        short, long = sorted(matrix.shape)
        grams, longs = (4 * (BEFORE + AFTER) - 6, 4) if long > LONG * short else (BEFORE + AFTER, 2 * (BEFORE + AFTER))
        total += 2.0 * short * short * (grams * short + longs * long)
    return total


def training_step(dim: int, half: bool) -> Callable[[], None]:
    """A step of training, Muon's iterations in bfloat16 or not."""
    vocab = WordVocabulary([SOS_EOS, UNK, *map(str, range(WORDS - 2))])
    lm = build("transfornn", vocab, {"dim": dim, "dropout": 0.35}).train()
    optimizers = make_optimizers(lm, TrainConfig(optimizer="muon", dtype="bfloat16"))
    for optimizer in optimizers:
        if isinstance(optimizer, Muon):
            optimizer.half = half
    inputs, targets = (torch.randint(2, len(vocab), WINDOWS) for _ in range(2))

    def step() -> None:
        with autocast("bfloat16", lm.device):
            loss = lm(inputs, targets) / targets.numel()
        loss.backward()
        nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


@click.command()
@click.option("--dim", default=512, show_default=True, help="Width.")
@click.option("--rounds", default=5, show_default=True)
def main(dim: int, rounds: int) -> None:
    torch.manual_seed(1)
    kinds = {"ours, float32": Muon(matrices(dim), 0.01), "ours, bfloat16": Muon(matrices(dim), 0.01, half=True)}
    if hasattr(torch.optim, "Muon"):
        kinds["torch.optim.Muon"] = torch.optim.Muon(matrices(dim), 0.01)
    click.echo(f"torch {torch.__version__}, {torch.get_num_threads()} threads; sums in float32: {adds_up_in_float32()}")
    heading("d", "Muon", "s a step", "of ours in float32")
    times = {name: seconds(partial(optimizer.step), rounds) for name, optimizer in kinds.items()}
    for name, time in times.items():
        row(str(dim), name, f"{time:.3f}", f"{time / times['ours, float32']:.2f}")
    fastest, steps = 0.0, {"float32": training_step(dim, half=False), "bfloat16": training_step(dim, half=True)}
    times = dict.fromkeys(steps, math.inf)
    for _, (name, step) in itertools.product(range(rounds), steps.items()):
        times[name] = min(times[name], seconds(step, rounds=1))
        fastest = max(fastest, rate("bfloat16", dim, cpu=False))
    click.echo(f"products: bfloat16 {fastest / 1e9:.0f} GFLOP/s")
    heading("d", "training, Muon in", "tokens a second", "of the rate", "with Muon's")
    model = model_products(dim)
    for name, time in times.items():
        speeds = (products / time / fastest for products in (model, model + muon_products(dim)))
        row(str(dim), name, f"{math.prod(WINDOWS) / time:,.0f}", *(f"{share:.0%}" for share in speeds))


if __name__ == "__main__":
    main()
