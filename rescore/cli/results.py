"""What commands print: lines for people, or with `--json` the same as data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from rescore.cli.outputs import OutputPath

F = TypeVar("F", bound=Callable[..., object])
STANDARD_OUTPUT = ("-", "/dev/stdout")


def json_option(command: F) -> F:
    """Adds `--json PATH|-`, the argument `json_file` (a Path, or None)."""
    return click.option(
        "--json",
        "json_file",
        type=OutputPath(),
        metavar="PATH|-",
        help="Write the result as JSON; - prints it, and nothing else.",
    )(command)


def is_alone(json_file: Path | None) -> bool:
    """Whether JSON is all that standard output is to have."""
    return str(json_file) in STANDARD_OUTPUT


def show(data: Any, lines: Iterable[str], json_file: Path | None) -> None:
    """Prints the lines, and writes `data` where `--json` says; numbers that are not finite become null."""
    from rescore.files import atomic_text

    if json_file is not None:
        with atomic_text(json_file) as stream:
            stream.write(json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    if not is_alone(json_file):
        for line in lines:
            click.echo(line)


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
