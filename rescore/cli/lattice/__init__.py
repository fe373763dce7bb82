"""`rescore lattice`: what can be done with lattices, one module a subcommand."""

from __future__ import annotations

import click

from rescore.cli.lazy import LazyGroup

COMMANDS: dict[str, str] = {}


@click.group(cls=LazyGroup, package="rescore.cli.lattice", table=COMMANDS)
def command() -> None:
    """Read, inspect, cut, rescore and write lattices (Kaldi, k2, HTK SLF, OpenFst text)."""
