"""Types of the options that name what a command writes; no other command can write it until this one has ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from lm_zoo.errors import WriteError
from rescore.cli.completion import formats


class OutputPath(click.Path):
    """A file, or with `folder` a folder (None: either), given as a Path."""

    def __init__(self, folder: bool | None = False) -> None:
        super().__init__(path_type=Path)
        self.folder = folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self.folder and path.is_file():
            raise WriteError(f"{path}: is a file, expected a folder to write")
        if self.folder is False and path.is_dir():
            raise WriteError(f"{path}: is a folder, expected the name of a file to write")
        hold(path, ctx, inside=bool(self.folder))
        return path


class OutputSpec(click.ParamType):
    """`[FORMAT:]PATH`, given as it is."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from rescore.formats import parse_spec

        hold(parse_spec(value)[1], ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return formats(ctx, param, incomplete)


def hold(path: Path, ctx: click.Context | None, inside: bool = False) -> None:
    """Locks a file or folder until the command ends; of torchrun's processes, the first alone does.

    With --split, the processes of the other shares have it as well; `inside`: their parts are in it, not beside it.

    Raises:
      WriteError: another command is writing it.
    """
    from lm_zoo.files import locked
    from rescore.sharing.parts import Split, parts_beside, parts_inside

    if ctx is not None and not ctx.resilient_parsing and os.environ.get("RANK", "0") == "0":
        whole, split = ctx.find_root(), ctx.params.get("split")  # the locks go where another argument is wrong, too
        whole.with_resource(locked(path, shared=isinstance(split, Split)))
        if isinstance(split, Split):
            parts = parts_inside(path) if inside else parts_beside(path)
            whole.with_resource(locked(parts / f"split-{split.name}"))
