"""Options of the commands that look for the scales of the first pass before they work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rescore.cli.normalise import cer_option
from rescore.cli.once import Once
from rescore.cli.outputs import hold
from rescore.cli.utterances import utterances_option

if TYPE_CHECKING:
    from rescore.sharing.shares import Sharing
    from rescore.skipping import OnError
    from rescore.types import Weights
    from rescore.workflows.first_pass import ScaleSearch


def first_pass_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments `ref`, `cer` and `common`."""
    option = click.option(
        "--ref",
        cls=Once,
        type=click.Path(path_type=Path),
        help="References of a development set (Kaldi text, recogs, lists): find LM weight and penalty first.",
    )
    return option(cer_option(utterances_option(command)))


def find_scales(
    source: str, target: str, kind: str, search: ScaleSearch, on_error: OnError, sharing: Sharing
) -> Weights:
    """The scales of the first pass of `source`; the file for them beside `target` is locked until the command ends.

    Args:
      kind: what `target` is to hold, "nbest" or "lattice".
    Raises:
      UsageError: a source that is read but once, or a share of the work alone.
      RescoreError: `target` cannot be written (see `check_target`).
    """
    from rescore.errors import UsageError
    from rescore.formats import check_target, is_pipe
    from rescore.skipping import again
    from rescore.workflows.first_pass import find_first_pass, weights_beside

    if is_pipe(source):
        raise UsageError(f"{source} is a pipe, which is read but once; --ref needs it twice: write it to a file first")
    if sharing.split is not None:
        raise UsageError(
            "--ref finds scales on all lattices, not on a share; find them first, and share with --weights"
        )
    check_target(target, kind)
    place = weights_beside(target)
    if place is not None:
        hold(place, click.get_current_context())
    return find_first_pass(source, search, again(on_error))


def keep_scales(found: Weights | None, target: str) -> None:
    """Writes what `find_scales` found, if it was asked, beside `target`."""
    from rescore.workflows.first_pass import save_found, weights_beside

    if found is not None:
        save_found(found, weights_beside(target))
