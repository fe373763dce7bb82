"""A click group whose commands are modules, imported only when they are called."""

from __future__ import annotations

import importlib
import os
from typing import Any

import click

from lm_zoo.errors import nearest


def _go_offline(ctx: click.Context, param: click.Parameter, offline: bool) -> None:
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # as of huggingface_hub; the processes that this one starts inherit it


offline_option = click.option(
    "--offline",
    is_flag=True,
    expose_value=False,
    callback=_go_offline,
    help="Nothing is downloaded: models of Hugging Face (hf:NAME) come from folders and the cache alone.",
)


class LazyGroup(click.Group):
    """The command NAME is the object `command` of the module `package.NAME`, with `-` in names as `_`."""

    def __init__(self, *args: Any, package: str, table: dict[str, str], **kwargs: Any) -> None:
        """`table`: name -> one line of help, in the order of the help page."""
        super().__init__(*args, **kwargs)
        self.package, self.table = package, table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return None
        return importlib.import_module(f"{self.package}.{name.replace('-', '_')}").command

    def resolve_command(self, ctx: click.Context, args: list[str]):  # type: ignore[no-untyped-def]
        if args and args[0] not in self.table and not args[0].startswith("-"):
            like = nearest(args[0], self.table)
            raise click.UsageError(f"no command '{args[0]}'{like}; there are: {', '.join(self.table)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))
