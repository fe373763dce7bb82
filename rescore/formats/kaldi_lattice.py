"""Kaldi's lattices as `Lattice` and back; archives are read and written in `rescore.formats.kaldi_archive`.

A `Lattice` made of a record has its costs negated as scores `graph` and `am`, and transition ids as `alignments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from rescore.console import remark
from rescore.errors import FormatError, RescoreError, ScoreError, UsageError, WeightsError
from rescore.formats.common import Piece, Place, formed, named_if_too_large
from rescore.formats.frames import (
    FRAME_SHIFT,
    frame_times,
    given_shift,
    say_lost_shift,
    shift_of,
    stated_shift,
    usual_shift,
)
from rescore.formats.kaldi_archive import archive_pieces, read_all, read_some, write_records
from rescore.formats.kaldi_fst import COMPACT, RawLattice
from rescore.formats.symbols import SymbolTable, table_for, table_to_copy, table_to_write
from rescore.lattices.build import EPSILON, build_lattice
from rescore.lattices.paths import total_scores
from rescore.skipping import OnError, fail
from rescore.types import Alignments, Lattice
from rescore.weights import OLD_NGRAM, load_weights

WORDS = "words"  # the number of words, a score of every lattice


def read_lattices(path: Path, options: Mapping[str, str], on_error: OnError = fail) -> Iterator[Lattice]:
    """Every record as a Lattice (see `to_lattice`).

    Options: `words` (words.txt, or "ids"; see `table_for`), `frame_shift` (seconds; else as `usual_shift`).
    """
    return _Reading(path, options)(read_all(path, on_error), on_error)


def pieces(path: Path, options: Mapping[str, str]) -> list[Piece]:
    """The archives, or the lines of an index."""
    return archive_pieces(path)


def reader(path: Path, options: Mapping[str, str]) -> Callable[[Sequence[Piece], OnError], Iterator[Lattice]]:
    """Gives the lattices of some of the `pieces`, as `read_lattices`; table and seconds are the same for all."""
    reading = _Reading(path, options)
    return lambda chosen, on_error: reading(read_some(path, chosen, on_error), on_error)


class _Reading:
    """Makes lattices of records; the table, and how long a frame is, are looked for when the first one is there."""

    def __init__(self, path: Path, options: Mapping[str, str]) -> None:
        self._path, self._words, self._given = path, options.get("words"), given_shift(options)

    @cached_property
    def _common(self) -> tuple[SymbolTable, float]:
        table = table_for(self._path, self._words)
        return table, self._given or usual_shift(self._path)

    def __call__(self, records: Iterable[tuple[Path, RawLattice]], on_error: OnError) -> Iterator[Lattice]:
        for file, raw in records:
            table, shift = self._common
            try:
                with named_if_too_large():
                    lattice = to_lattice(raw, table, shift)
            except RescoreError as error:
                on_error(FormatError(file, f"utterance '{raw.utt_id}': {error}"))
            else:
                yield lattice


def to_lattice(raw: RawLattice, table: SymbolTable, frame_shift: float = FRAME_SHIFT) -> Lattice:
    """The record as a Lattice: scores `graph` and `am` are the negated costs, transition ids are its `alignments`.

    Final weights stand on epsilon arcs to one final state.  Arcs of infinite cost, and states on no path from start to
    end, are left out and counted.  A frame for each transition id gives the `times` of states; they are None where two
    paths into a state differ in length.

    Raises:
      RescoreError: no start state, no path to the end, a cycle, a word id that is not in `table`.
    """
    if raw.start < 0:
        raise RescoreError("an empty lattice: no start state")
    strings, final_strings = _frames(raw)
    ends = np.flatnonzero(np.isfinite(raw.finals).all(axis=1))
    src = np.append(np.repeat(np.arange(raw.num_states), raw.counts), ends)
    dst = np.append(raw.next_states, np.full(len(ends), raw.num_states))
    costs = np.concatenate([raw.costs, raw.finals[ends]]).astype(np.float64)
    ended = final_strings.take(ends)
    alignments = Alignments.of_lengths(np.append(strings.ids, ended.ids), np.append(strings.lengths, ended.lengths))
    words = np.append(raw.olabels, np.zeros(len(ends), np.int32))
    scores = {"graph": 0.0 - costs[:, 0], "am": 0.0 - costs[:, 1]}
    final = raw.num_states
    lattice = build_lattice(
        raw.utt_id, final + 1, src, dst, words, scores, [], raw.start, final, alignments=alignments, possible=True
    )
    try:
        lattice.labels, lattice.symbols = table.compact(lattice.labels)
    except KeyError as error:
        raise RescoreError(error.args[0]) from None
    lattice.times = frame_times(lattice, frame_shift)
    return lattice


def _frames(raw: RawLattice) -> tuple[Alignments, Alignments]:
    """Transition ids of arcs and of final weights; in a plain lattice an arc has one or none."""
    if raw.arc_type == COMPACT:
        return raw.strings, raw.final_strings
    return Alignments.of_lengths(raw.ilabels[raw.ilabels != 0], raw.ilabels != 0), raw.final_strings


def from_lattice(lattice: Lattice, table: SymbolTable, graph: Mapping[str, float] | None = None) -> RawLattice:
    """The lattice as a compact one: acoustic cost from `am` (0 without it), graph cost from all other scores.

    Epsilon arcs into the final state become final weights again if that is all that leads there.

    Args:
      graph: the scores that make up the graph cost, with their factors; None for the default, that of `graph_names`.
    Raises:
      ScoreError: a score in `graph` that the lattice does not have, or a cost that is not finite.
      RescoreError: a word that `table` does not have.
    """
    graph = signed_factors(graph_names(lattice)) if graph is None else graph
    for name in graph:
        if name not in (*lattice.scores, WORDS):
            raise ScoreError(f"no score '{name}' for the graph cost; it has: {', '.join(lattice.scores) or 'none'}")
    total = total_scores(lattice, graph)
    none = np.zeros(lattice.num_arcs)
    with np.errstate(over="ignore"):
        costs = (0.0 - np.stack([total, lattice.scores.get("am", none)], axis=1)).astype(np.float32)
    if not np.isfinite(costs).all():
        raise ScoreError("a score that is not finite cannot be written as a cost; prune such arcs before")
    try:
        words = table.to_ids(lattice.labels, lattice.symbols)
    except KeyError as error:
        raise RescoreError(error.args[0]) from None
    strings = lattice.alignments
    if strings is None:
        strings = Alignments(np.empty(0, np.int32), np.zeros(lattice.num_arcs + 1, np.int64))
    states, arcs, ends = _split_final(lattice)
    final_row = np.full(states, -1)
    finals = np.full((states, 2), np.inf, dtype=np.float32)
    if len(ends):
        final_row[lattice.src[ends]] = ends
        finals[lattice.src[ends]] = costs[ends]
    else:
        finals[-1] = 0.0
    return RawLattice(
        lattice.utt_id,
        COMPACT,
        0,
        finals,
        strings.take(final_row),
        np.bincount(lattice.src[arcs], minlength=states).astype(np.int64),
        words[arcs],
        words[arcs],
        costs[arcs],
        strings.take(arcs),
        lattice.dst[arcs],
    )


def graph_names(lattice: Lattice) -> list[str]:
    """The scores that make up the graph cost by default, with `-` before what is taken out of it: the old LM's."""
    names = [name for name in lattice.scores if name not in ("am", "posterior")]
    return [f"-{name}" if name == OLD_NGRAM else name for name in names]


def signed_factors(names: Iterable[str]) -> dict[str, float]:
    """1 for each name, -1 for those with `-` before them."""
    return {name.removeprefix("-"): -1.0 if name.startswith("-") else 1.0 for name in names}


def graph_factors(options: Mapping[str, str]) -> dict[str, float] | None:
    """What options say of the graph cost: `graph=NAME,-NAME` or `weights=FILE`; None if nothing.

    By weights (`rescore tune`), it is the sum of all weighted scores but `am`, in units of the scale of `graph`, so
    that Kaldi's best path at the LM weight scale(graph) / scale(am) is the one that the weights choose.

    Raises:
      UsageError: both of them.
      WeightsError: weights whose scale of `graph` is 0 or not there.
    """
    if "weights" not in options:
        return signed_factors(options["graph"].split(",")) if "graph" in options else None
    if "graph" in options:
        raise UsageError("give either graph=NAME,-NAME or weights=FILE, not both")
    scales = load_weights(options["weights"]).scales
    if not scales.get("graph"):
        raise WeightsError(
            f"{options['weights']}: no scale for 'graph' (or 0), which Kaldi's graph cost is measured by"
        )
    return {name: scale / scales["graph"] for name, scale in scales.items() if name != "am" and scale}


def _split_final(lattice: Lattice) -> tuple[int, np.ndarray, np.ndarray]:
    """Number of states to write, the arcs that stay arcs, and those that become final weights."""
    last = lattice.num_states - 1
    into_end = lattice.dst == last
    sources = lattice.src[into_end]
    if last == 0 or (lattice.labels[into_end] != EPSILON).any() or len(np.unique(sources)) < len(sources):
        return lattice.num_states, np.arange(lattice.num_arcs), np.empty(0, np.int64)
    return last, np.flatnonzero(~into_end), np.flatnonzero(into_end)


def write_lattices(
    path: Path, lattices: Iterable[Lattice], options: Mapping[str, str], on_error: OnError = fail
) -> int:
    """Writes lattices as compact ones.

    Options: `words` or `numbers`, `graph` or `weights` (see `graph_factors`), `text=yes`.  `on_error` as for `formed`.
    Returns their number.

    A path without a suffix, or such as `decode_test.si`, is a folder, with `lat.1.gz` and `num_jobs`.  Without the
    option `words`, words that are no numbers are numbered as they come, but for those in the table `numbers`, and their
    table is written where `table_for` looks for it.
    """
    table = table_to_write(path, options)
    graph = graph_factors(options)

    def said() -> Iterator[Lattice]:
        for number, lattice in enumerate(lattices):
            if number == 0:
                say_lost_shift(path, shift_of(lattice))
            parts = graph_names(lattice)
            if graph is None and number == 0 and len(parts) > 1:
                remark(f"{path}: graph cost made of {', '.join(parts)} (else: PATH?graph=NAME,-NAME)")
            yield lattice

    def form(lattice: Lattice) -> RawLattice:
        try:
            return from_lattice(lattice, table, graph)
        except RescoreError as error:
            raise Place(path, utt_id=lattice.utt_id).format_error(str(error)) from None

    return write_records(path, formed(said(), form, path, on_error), options, table, on_error)


def copy_lattices(source: Path, target: Path, options: Mapping[str, str], on_error: OnError = fail) -> int:
    """Copies archives record by record: the same bytes, or another form (binary, text, one file, packed).

    Their own table goes with them; not if the option `words` says that they have another one.
    """
    table = table_to_copy(source, target, options.get("words"))
    shift, file = stated_shift((source if source.is_dir() else source.parent) / "..")
    say_lost_shift(target, shift if file else None)
    records = (raw for _, raw in read_all(source, on_error))
    return write_records(target, records, options, table, on_error)
