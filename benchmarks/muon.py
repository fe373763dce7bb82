"""A step of Muon: ours in float32 and in bfloat16 against `torch.optim.Muon`, where torch has it.

The matrices are those of TransfoRNN's layers (two Transformer layers, two LSTM layers); each kind steps in turn, the
best of some rounds counts.

Example: OMP_NUM_THREADS=1 python benchmarks/muon.py --dim 512
"""

from __future__ import annotations

from functools import partial

import click
import torch
from measure import heading, row, seconds
from torch import nn

from lm_zoo.training.muon import Muon, adds_up_in_float32


def matrices(dim: int) -> list[nn.Parameter]:
    """Of two Transformer layers (attention, feed-forward of twice the width) and of two LSTM layers, with gradients."""
    layer = [(3 * dim, dim), (dim, dim), (2 * dim, dim), (dim, 2 * dim)]
    made = [nn.Parameter(torch.randn(shape)) for shape in 2 * layer + 4 * [(4 * dim, dim)]]
    for matrix in made:
        matrix.grad = torch.randn_like(matrix)
    return made


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


if __name__ == "__main__":
    main()
