"""Options of the commands on lattices beyond those of `source`: text normalisation and scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rescore.cli.lattice.source import source_options
from rescore.cli.numbers import POSITIVE
from rescore.cli.once import Once
from rescore.cli.words import words_options

if TYPE_CHECKING:
    from rescore.skipping import OnError
    from rescore.text import TextNormalizer
    from rescore.types import Lattice

R = TypeVar("R")


def text_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments of `each_normalized`, but for `do`."""
    return source_options(words_options()(command))


def scaled_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments of `each_scaled`, but for `do` and `factor`."""
    for option in (
        click.option(
            "--weights", "weights_file", cls=Once, type=click.Path(path_type=Path), help="Weights of rescore tune."
        ),
        click.option(
            "--scale",
            "scales",
            multiple=True,
            metavar="NAME=VALUE",
            help="Scale of a score; may be repeated. Default: 1 for am or score, 10 for lm or graph.",
        ),
    ):
        command = option(command)
    return text_options(command)


posterior_scale = click.option(
    "--posterior-scale",
    "factor",
    type=POSITIVE,
    help="The probability of a path is in proportion to the exponential of this times its total.  [default: what the "
    "weights were tuned with, or 0.1]",
)


def each_normalized(
    do: Callable[[Lattice], R],
    source: str,
    words: str | None,
    on_error: OnError,
    normalizer: TextNormalizer,
) -> Iterator[R]:
    """As `each_lattice`, of lattices with normalised words."""
    from rescore.cli.lattice.source import each_lattice
    from rescore.lattices.build import normalize_words

    def do_normalized(lattice: Lattice) -> R:
        return do(lattice if normalizer.is_identity else normalize_words(lattice, normalizer))

    return each_lattice(do_normalized, source, words, on_error)


def usual_factor(weights_file: Path | None) -> float:
    """As `posterior_scale_of`, of a file of weights."""
    from rescore.lattices.posteriors import posterior_scale_of
    from rescore.weights import load_weights

    return posterior_scale_of(load_weights(weights_file) if weights_file else None, weights_file)


def idle_remark() -> Callable[[Lattice, Mapping[str, float]], None]:
    """Remarks on the scores of the first lattice that have no scale: defaults know a recogniser's own scores alone."""
    from rescore.console import remark

    first = [True]

    def say(lattice: Lattice, scales: Mapping[str, float]) -> None:
        idle = [name for name in lattice.scores if name not in scales]
        if idle and first:
            first.clear()
            remark(f"scores of the lattices that have no scale and count nothing: {', '.join(idle)} (--weights FILE)")

    return say


def each_scaled(
    do: Callable[[Lattice, Mapping[str, float]], R],
    scales: tuple[str, ...],
    weights_file: Path | None,
    factor: float | None = 1.0,
    **source: Any,
) -> Iterator[R]:
    """As `each_normalized`, of a lattice with the scales of its scores times `factor`; None is the `usual_factor`."""
    from rescore.errors import UsageError
    from rescore.types import Weights
    from rescore.weights import default_scales, load_weights, parse_scales

    if weights_file and scales:
        raise UsageError("give either --weights FILE or --scale NAME=VALUE (one or more), not both")
    weights = load_weights(weights_file) if weights_file else Weights(parse_scales(scales))
    if factor is None:
        factor = usual_factor(weights_file)

    say_idle = idle_remark()

    def do_scaled(lattice: Lattice) -> R:
        used = weights.scales if weights_file else {**default_scales(lattice.scores), **weights.scales}
        if not weights_file:
            say_idle(lattice, used)
        return do(lattice, {name: factor * scale for name, scale in used.items()})

    return each_normalized(do_scaled, **source)
