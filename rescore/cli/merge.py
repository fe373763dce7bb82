"""`rescore merge`: the shares of a command become its output."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option


class Target(OutputPath):
    """What the shares were told to write: a path, or `FORMAT:PATH`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from rescore.formats import parse_spec
        from rescore.formats.table import all_formats

        named = str(value).partition(":")[0] in all_formats()
        return super().convert(parse_spec(value)[1] if named else value, param, ctx)


@click.command()
@click.argument("out", metavar="OUT", type=Target(folder=None))
@click.option(
    "--weights", "weights_file", cls=Once, type=click.Path(path_type=Path), help="Of nbest: weights of rescore tune."
)
@click.option("--scale", "scales", multiple=True, metavar="NAME=VALUE", help="Of nbest: scale of one score; repeat it.")
@json_option
def command(out: Path, weights_file: Path | None, scales: tuple[str, ...], json_file: Path | None) -> None:
    """Put the shares of a command that was run with --split K/N together.

    Writes to OUT, the folder or file ([FORMAT:]PATH) of rescore nbest, lattice rescore, lattice nbest, convert or ppl,
    what the command writes without --split, the same bytes.  Loads no LM.

    \b
    Example: rescore merge exp/test --weights exp/weights.json

    \b
    Before it, a job for each share, here by Kaldi's queue.pl:
      queue.pl JOB=1:8 exp/log/JOB.log rescore nbest --nbest test.jsonl.gz --lm transfornn --split JOB/8 --out exp/test
    """
    from rescore.cli.results import show
    from rescore.console import remark
    from rescore.errors import UsageError
    from rescore.sharing.parts import parts_beside, parts_inside, read_plan, were_merged
    from rescore.weights import given_weights
    from rescore.workflows.merge import check_not_merged, merge
    from rescore.workflows.streams import merge_stream

    weights = given_weights(weights_file, scales)
    if were_merged(parts_inside(out)) or were_merged(parts_beside(out)):
        remark(f"{out}: its shares were together already")
    elif not parts_beside(out).is_dir():
        check_not_merged(out)
        show(asdict(merge(out, weights)), [], json_file)
    elif weights is not None:
        raise UsageError("--weights and --scale are for the shares of rescore nbest; leave them out")
    elif read_plan(parts_beside(out)).get("command") == "ppl":
        from rescore.cli.ppl import show_merged

        show_merged(parts_beside(out), json_file)
    else:
        show(merge_stream(parts_beside(out)), [], json_file)
