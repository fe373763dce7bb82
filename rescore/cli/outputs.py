"""Types of the options that name what a command writes; no other command can write it until this one has ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from lm_zoo.errors import WriteError
from rescore.cli.completion import formats

HELD = "rescore.outputs"  # of a command's context: the real names of what it writes


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
    A file that is there cannot be read by the command any more.

    Raises:
      WriteError: another command is writing it, or this one under another option.
    """
    from lm_zoo.files import is_in_place, locked
    from lm_zoo.reading import kept_from_reading
    from rescore.sharing.parts import Split, parts_beside, parts_inside

    if ctx is not None and not ctx.resilient_parsing and os.environ.get("RANK", "0") == "0":
        whole, split = ctx.find_root(), ctx.params.get("split")  # the locks go where another argument is wrong, too
        held, real = whole.meta.setdefault(HELD, set()), os.path.realpath(path)
        if real in held:
            raise WriteError(f"{path}: two outputs of this command have this name; choose another one")
        if path.is_dir() or not is_in_place(path):
            held.add(real)
        whole.with_resource(kept_from_reading(path))
        whole.with_resource(locked(path, shared=isinstance(split, Split)))
        if isinstance(split, Split):
            parts = parts_inside(path) if inside else parts_beside(path)
            whole.with_resource(locked(parts / f"split-{split.name}"))
