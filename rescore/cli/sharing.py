"""Options of the commands whose work is shared out among processes and machines."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rescore.workflows.parts import Split


class _SplitType(click.ParamType):
    name = "K/N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Split:
        from rescore.workflows.parts import parse_split

        return parse_split(value)


def sharing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument `sharing` (a `Sharing`), of --split, --executor, --shards, --workers and --ray-address."""

    @wraps(command)
    def with_sharing(**arguments: Any) -> Any:
        from rescore.workflows.shares import Sharing

        names = ("executor", "shards", "workers", "address", "split")
        sharing = Sharing(**{name: arguments.pop(name) for name in names})
        return command(**arguments, sharing=sharing)

    options = (
        click.option(
            "--split",
            type=_SplitType(),
            is_eager=True,  # before --out, whose lock the shares have together
            help="Do share K of N alone, as a job of Slurm or queue.pl; rescore merge puts them together.",
        ),
        click.option(
            "--executor", type=click.Choice(["local", "ray"]), help="Share the work out: processes, or a Ray cluster."
        ),
        click.option("--shards", type=click.IntRange(1), help="Shares; default: 4 a worker."),
        click.option("--workers", type=click.IntRange(1), help="Processes at a time; default: one a core."),
        click.option(
            "--ray-address", "address", help="Of a running cluster (auto, HOST:PORT); default: start one here."
        ),
    )
    for option in reversed(options):
        with_sharing = option(with_sharing)
    return with_sharing
