#!/usr/bin/env python3
"""Information gain of lookup dictionaries (Feng et al. 2022, Section 4, Fig. 3), in nats.

    ../../shared/information_gain.py --text data/test.txt exp/further_lookup exp/further_lookup_positional

The entropy of the weights that the Transformer's output gives the M entries of a slot (Eqs. 5 and 6), a mean over the
text in windows; the gain is that of random entries (the seed's) less that of the LM's own.  It lies below ln M.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import torch
from torch import Tensor

from lm_zoo.errors import LMError
from lm_zoo.models.lookup import Lookup
from lm_zoo.models.transformer import Transformer
from lm_zoo.registry import load
from lm_zoo.text.batches import Batch, tokenize, window_batches
from lm_zoo.text.sentences import read_sentences
from rescore.cli.door import watched


@torch.no_grad()
def entropy(lm: Lookup, dictionary: Tensor, batches: Iterable[Batch]) -> float:
    """Mean entropy of the entries' weights, with `dictionary` `(slots, entries, dim)` in the place of the LM's."""
    total, count = 0.0, 0
    for inputs, targets in batches:
        inside = targets >= 0
        output = Transformer.hidden(lm, inputs)[inside]
        entries = dictionary[lm.slots(inputs)[inside]]
        scores = torch.einsum("nmd,nd->nm", entries, output) / math.sqrt(output.shape[-1])
        total -= float((scores.softmax(-1) * scores.log_softmax(-1)).double().sum())
        count += int(inside.sum())
    if not count:
        raise LMError("the text has no sentence; expected one a line")
    return total / count


def row(folder: str, text: Path, window: int, seed: int) -> str:
    lm = load(folder)
    if not isinstance(lm, Lookup):
        raise LMError(f"{folder}: expected a lookup LM; a {type(lm).__name__} has no dictionary")
    lm.eval()
    tokens = tokenize(lm.vocab, read_sentences(text))
    generator = torch.Generator().manual_seed(seed)
    scattered = torch.randn(lm.dictionary.shape, generator=generator) * lm.config.dim**-0.5
    before, after = (
        entropy(lm, dictionary, window_batches(tokens, lm.vocab, window, 64, None))
        for dictionary in (scattered, lm.dictionary)
    )
    c = lm.config
    return f"| {folder} | {c.slots} | {c.entries} | {c.order} | {before:.3f} | {after:.3f} | {before - after:.3f} |"


@click.command()
@click.argument("lms", nargs=-1, required=True)
@click.option("--text", required=True, type=click.Path(path_type=Path), help="A sentence a line.")
@click.option(
    "--window",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Tokens of a window over the running text.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the random entries.")
def main(lms: tuple[str, ...], text: Path, window: int, seed: int) -> None:
    """Prints a row for each folder of a lookup LM."""
    click.echo("| LM | U | M | N | entropy, random entries | own entries | information gain |")
    click.echo("|---|---:|---:|---:|---:|---:|---:|")
    for folder in lms:
        try:
            click.echo(row(folder, text, window, seed))
        except LMError as error:
            raise click.UsageError(str(error)) from None


if __name__ == "__main__":
    watched(Path(sys.argv[0]).name, main)
