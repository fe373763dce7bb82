"""`rescore lattice prune`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from rescore.cli.lattice.options import posterior_scale, scaled_options
from rescore.cli.lattice.source import words_for
from rescore.cli.numbers import Number
from rescore.cli.outputs import OutputSpec

if TYPE_CHECKING:
    from rescore.types import Lattice


@click.command()
@scaled_options
@click.argument("target", metavar="DST", type=OutputSpec())
@click.option("--beam", type=Number(min=0), help="Cut arcs whose best path is this much below the best one.")
@click.option("--posterior", type=Number(0, 1), help="Cut arcs less probable than this.")
@posterior_scale
@click.option("--arcs-per-second", type=Number(min=0), help="Keep the best arcs, at most so many a second.")
@click.option("--arcs-per-word", type=Number(min=0), help="The same, for each word of the best path.")
def command(
    target: str,
    beam: float | None,
    posterior: float | None,
    factor: float | None,
    arcs_per_second: float | None,
    arcs_per_word: float | None,
    **given: Any,
) -> None:
    """Write smaller lattices: without arcs that are unlikely by their best path or by their posterior.

    Of several limits one after the other is applied.  The best path always stays.  --words serves SRC and DST.

    \b
    Example: rescore lattice prune kaldi:exp/tri1/decode kaldi:small/lat.1.gz --words words.txt --beam 80
    Example: rescore lattice prune kaldi:exp/tri1/decode kaldi:small --scale graph=12 --arcs-per-second 300
    """
    from rescore.cli.lattice.options import each_scaled, usual_factor
    from rescore.console import remark
    from rescore.errors import UsageError
    from rescore.formats import write_lattices
    from rescore.lattices.prune import Limits
    from rescore.workflows.convert import counted_left_out, say_left_out

    if beam is posterior is arcs_per_second is arcs_per_word is None:
        raise UsageError("give a limit: --beam, --posterior, --arcs-per-second or --arcs-per-word")
    if factor is not None and posterior is None:
        raise UsageError("--posterior-scale is for posteriors, of which there are none without --posterior")
    factor = usual_factor(given["weights_file"]) if factor is None else factor
    limits = Limits(beam, posterior, factor, arcs_per_second, arcs_per_word)
    given["source"], target = words_for(given.pop("words"), given["source"], target)
    kept = pruned = 0
    left_out = Counter[str]()

    def apply(lattice: Lattice, scales: Mapping[str, float]) -> tuple[int, Lattice]:
        return lattice.num_arcs, limits.apply(lattice, scales)

    def small() -> Iterator[Lattice]:
        nonlocal kept, pruned
        for arcs, result in each_scaled(apply, words=None, **given):
            kept, pruned = kept + result.num_arcs, pruned + arcs - result.num_arcs
            yield result

    count = write_lattices(target, counted_left_out(small(), left_out), given["on_error"])
    remark(f"{count} lattices written to {target}: {kept} arcs kept, {pruned} pruned")
    say_left_out(left_out)
