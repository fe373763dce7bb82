"""`rescore lattice draw`."""

from __future__ import annotations

from typing import Any

import click

from rescore.cli.lattice.options import scaled_options


@click.command()
@scaled_options
@click.option("--utt", metavar="ID", help="The utterance to draw; default: the first one.")
@click.option("--max-arcs", default=200, show_default=True, help="Refuse larger lattices.")
def command(utt: str | None, max_arcs: int, **given: Any) -> None:
    """Print one lattice as source for graphviz: words, scores, times, the best path in bold.

    \b
    Example: rescore lattice draw lattices/utt1.slf --scale am=1 --scale lm=12 | dot -Tsvg > utt1.svg
    """
    from rescore.cli.lattice.options import each_scaled
    from rescore.errors import UsageError
    from rescore.lattices.draw import lattice_dot

    for lattice, scales in each_scaled(lambda lattice, scales: (lattice, scales), **given):
        if utt is None or lattice.utt_id == utt:
            click.echo(lattice_dot(lattice, scales, max_arcs), nl=False)
            return
    raise UsageError(f"no lattice '{utt}' in {given['source']}" if utt else f"no lattice in {given['source']}")
