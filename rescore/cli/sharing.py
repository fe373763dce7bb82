"""Options of the commands whose work is shared out among processes and machines."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from rescore.cli.numbers import POSITIVE

if TYPE_CHECKING:
    from rescore.sharing.parts import Split


class _SplitType(click.ParamType):
    name = "K/N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Split:
        from rescore.sharing.parts import parse_split

        return parse_split(value)


class _SizeType(click.ParamType):
    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from lm_zoo.errors import LMError
        from lm_zoo.inference.limits import parse_size

        try:
            return parse_size(value)
        except LMError as error:
            self.fail(str(error), param, ctx)


def _bounded(ctx: click.Context, param: click.Parameter, size: int | None) -> int | None:
    from lm_zoo.inference.limits import limited_memory

    if size is not None and not ctx.resilient_parsing and ctx.params.get("executor") is None:
        ctx.with_resource(limited_memory(size))
    return size


def _timed(ctx: click.Context, seconds: float | None) -> None:
    from lm_zoo.deadline import limited_time

    if not ctx.resilient_parsing:
        ctx.with_resource(limited_time(seconds))


max_memory_option = click.option(
    "--max-memory",
    type=_SizeType(),
    callback=_bounded,
    help="Memory of each process, such as 2G: less is done at once where it does not suffice (not that of a GPU).",
)

max_seconds_option = click.option(
    "--max-seconds",
    type=POSITIVE,
    callback=lambda ctx, param, seconds: _timed(ctx, seconds),
    expose_value=False,
    help="Time of each utterance, which is done alone: what takes longer cannot be done (see --on-error).",
)


def sharing_options(command: Callable[..., Any], merge: str = "rescore merge") -> Callable[..., Any]:
    """The argument `sharing` (a `Sharing`), of --split, --executor, --shards, --workers and --ray-address.

    Args:
      merge: the command that puts shares together.
    """

    @wraps(command)
    def with_sharing(**arguments: Any) -> Any:
        from rescore.sharing.shares import Sharing

        names = ("executor", "shards", "workers", "address", "split")
        sharing = Sharing(**{name: arguments.pop(name) for name in names})
        return command(**arguments, sharing=sharing)

    options = (
        click.option(
            "--split",
            type=_SplitType(),
            is_eager=True,  # before --out, whose lock the shares have together
            help=f"Do share K of N alone, as a job of Slurm or queue.pl; {merge} puts them together.",
        ),
        click.option(
            "--executor",
            type=click.Choice(["local", "ray"]),
            is_eager=True,  # before --max-memory, which is then that of the workers
            help="Share the work out: processes, or a Ray cluster.",
        ),
        click.option("--shards", type=click.IntRange(1), help="Shares; default: 4 a worker."),
        click.option("--workers", type=click.IntRange(1), help="Processes at a time; default: one a core."),
        click.option(
            "--ray-address", "address", help="Of a running cluster (auto, HOST:PORT)  [RAY_ADDRESS, or a new one here]"
        ),
    )
    for option in reversed(options):
        with_sharing = option(with_sharing)
    return with_sharing
