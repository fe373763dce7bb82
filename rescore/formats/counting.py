"""How many utterances a source has, where that can be known at once, and reading that shows the time left."""

from __future__ import annotations

from collections.abc import Iterator

from rescore.console import progress
from rescore.files import count_lines
from rescore.formats import format_of, is_pipe, lattice_pieces, parse_spec, read_lattices, read_nbest
from rescore.skipping import OnError, fail
from rescore.types import Lattice, NbestList


def count_nbest(spec: str) -> int | None:
    """The number of lists, if each is a line (see `rescore.files.count_lines`); None if it is not known."""
    return count_lines(parse_spec(spec)[1]) if format_of(spec, "nbest").by_line else None


def count_lattices(spec: str) -> int | None:
    """The number of lattices, if each is a file or a line of an index; None if it is not known."""
    pieces = None if is_pipe(spec) else lattice_pieces(spec)
    return None if pieces is None or any(piece.many for piece in pieces) else len(pieces)


def count(spec: str) -> int | None:
    """The same of lists or lattices."""
    return count_lattices(spec) if format_of(spec).kind == "lattice" else count_nbest(spec)


def nbest_with_progress(spec: str, label: str, on_error: OnError = fail) -> Iterator[NbestList]:
    """As `rescore.formats.read_nbest`."""
    return progress(read_nbest(spec, on_error), label, count_nbest(spec))


def lattices_with_progress(spec: str, label: str, on_error: OnError = fail) -> Iterator[Lattice]:
    """As `rescore.formats.read_lattices`."""
    return progress(read_lattices(spec, on_error), label, count_lattices(spec))
