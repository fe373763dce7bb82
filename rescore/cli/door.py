"""What happens around every command: errors of the user and of the system become one line and exit code 2."""

from __future__ import annotations

import os
import sys

import click

from lm_zoo.errors import LMError
from lm_zoo.files import explain
from rescore.errors import RescoreError


def run(name: str, command: click.Command) -> None:
    """Runs the program `name`, whose arguments are those of this process."""
    try:
        command(standalone_mode=True)
    except (RescoreError, LMError) as error:
        message = str(error)
    except OSError as error:  # a full disk, a folder without permission
        message = explain(error)
    else:
        return
    click.echo(f"{name}: {message}", err=True)
    _drop_unwritten()
    sys.exit(2)


def _drop_unwritten() -> None:
    """Standard output that cannot be written would raise once more when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
