"""`asr merge`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath


@click.command()
@click.argument("out", metavar="DIR", type=OutputPath(folder=True))
def command(out: Path) -> None:
    """Put the shares of asr decode --split K/N --out DIR together.

    Writes to DIR what asr decode writes without --split, the same bytes.  Loads no model.

    \b
    Example: asr merge exp/test
    """
    from asr.decoding.shares import merge

    merge(out, click.echo)
