"""The options that change words: `--case`, `--delete`, `--drop` and `--split-words`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click


def words_options(what: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options; the command gets them as `normalizer`, a `TextNormalizer`.

    Args:
      what: behind the help of each.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_normalizer(
            *args: Any, case: str | None, delete: str, drop: tuple[str, ...], split_at: str, **given: Any
        ) -> Any:
            from rescore.text import TextNormalizer, check_characters

            check_characters(delete, split_at)
            return command(*args, normalizer=TextNormalizer(case, delete, split_at, drop=drop), **given)

        decorated: Callable[..., Any] = with_normalizer
        for option in (
            click.option(
                "--split-words",
                "split_at",
                default="",
                metavar="CHARS",
                help=f"Split words at these characters, which may be no letters{what}.",
            ),
            click.option(
                "--drop",
                multiple=True,
                metavar="WORD",
                help=f"Leave out this word, such as '[noise]'{what}; repeat it.",
            ),
            click.option(
                "--delete",
                default="",
                metavar="CHARS",
                help=f"Delete these characters from all words{what}; they may be no letters: whole words go by --drop.",
            ),
            click.option("--case", type=click.Choice(["upper", "lower"]), help=f"Change the case of words{what}."),
        ):
            decorated = option(decorated)
        return decorated

    return decorate
