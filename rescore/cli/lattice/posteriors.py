"""`rescore lattice posteriors`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rescore.cli.lattice.options import posterior_scale, scaled_options
from rescore.cli.numbers import Number
from rescore.cli.outputs import OutputPath

if TYPE_CHECKING:
    from rescore.types import Lattice


@click.command()
@scaled_options
@posterior_scale
@click.option("--threshold", type=Number(0, 1), default=0.01, show_default=True, help="Leave out less probable words.")
@click.option("--out", type=OutputPath(), help="Write here instead of printing.")
def command(threshold: float, out: Path | None, **given: Any) -> None:
    """Words with their times and posteriors: `utterance begin duration posterior word`, as Kaldi's lattice-arc-post.

    Seconds.  Posteriors of arcs with the same word, begin and end are added.  Kaldi's lattices have the times of words
    only behind Kaldi's lattice-align-words.

    \b
    Example: rescore lattice posteriors lattices/ --scale am=1 --scale lm=12 --posterior-scale 0.08
    """
    from rescore.cli.lattice.options import each_scaled
    from rescore.files import atomic_text
    from rescore.lattices.posteriors import posterior_lines

    def lines(lattice: Lattice, scales: Mapping[str, float]) -> list[str]:
        return posterior_lines(lattice, scales, threshold)

    found = chain.from_iterable(each_scaled(lines, **given))
    if out:
        with atomic_text(out) as stream:
            stream.writelines(line + "\n" for line in found)
    else:
        for line in found:
            click.echo(line)
