"""What a shell completes beside files: names of LMs, kinds of LMs, formats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    import click


def lm_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """LMs that ship or that other packages bring, and folders."""
    from lm_zoo.plugins import installed
    from lm_zoo.registry import pretrained

    names = [*pretrained(), *installed()]
    return [*_starting(names, incomplete), CompletionItem(incomplete, type="dir")]


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kinds of LMs."""
    from lm_zoo.registry import KINDS

    return _starting(KINDS, incomplete)


def formats(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`FORMAT:`, and files."""
    from rescore.formats.table import all_formats

    return [
        *_starting((f"{name}:" for name in all_formats()), incomplete),
        CompletionItem(incomplete.rpartition(":")[2], type="file"),
    ]


def _starting(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
