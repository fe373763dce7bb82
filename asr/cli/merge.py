"""`asr merge`."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath
from rescore.cli.results import is_alone, json_option


@click.command()
@click.argument("out", metavar="DIR", type=OutputPath(folder=True))
@json_option
def command(out: Path, json_file: Path | None) -> None:
    """Put the shares of asr decode --split K/N --out DIR together.

    Writes to DIR what asr decode writes without --split, the same bytes.  Loads no model.  --json has the errors by the
    name of the set, or by NAME-SUFFIX, as in the names of its files, where one set was decoded in several ways.

    \b
    Example: asr merge exp/test
    """
    from asr.decoding.shares import merge
    from rescore.cli.results import show
    from rescore.evaluation.wer import json_counts

    found = merge(out, (lambda line: None) if is_alone(json_file) else click.echo)
    show({name: counts and json_counts(counts) for name, counts in found.items()}, [], json_file)
