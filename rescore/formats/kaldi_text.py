"""The text form of Kaldi's lattices: lines `src dst word graph,acoustic,tid_tid_...` (compact) or
`src dst tid word graph,acoustic` (plain), final states as `state weight`; a weight of zero costs may be left out.
"""

from __future__ import annotations

import numpy as np

from lm_zoo.ngram.openfst import NO_STATE
from rescore.formats.kaldi_fst import COMPACT, PLAIN, RawLattice, RecordError, check
from rescore.formats.symbols import MAX_ID, is_id
from rescore.types import Alignments


def parse_text(utt_id: str, text: str) -> RawLattice:
    """The lattice in the lines `text`; the first line's state is the start, states keep their numbers.

    Raises:
      RecordError: a line is malformed (the message counts lines from 1, behind the key).
    """
    rows = [line.split() for line in text.splitlines()]
    arc_type = _arc_type(rows)
    full = 4 if arc_type == COMPACT else 5
    for number, row in enumerate(rows, start=1):
        if len(row) not in (1, 2, full - 1, full):
            raise RecordError(f"line {number}: {len(row)} fields, expected 1, 2, {full - 1} or {full} ({arc_type})")
    arcs = [row for row in rows if len(row) > 2]
    ends = [row for row in rows if len(row) <= 2]
    numbers = _integers([row[: full - 1] for row in arcs], full - 1)
    final_states = _integers([row[:1] for row in ends], 1)[:, 0]
    weights = [row[full - 1] if len(row) == full else "" for row in arcs]
    costs, strings = _parse_weights(weights, arc_type)
    final_costs, final_strings = _parse_weights([row[1] if len(row) == 2 else "" for row in ends], arc_type)
    states = int(max(numbers[:, :2].max(initial=-1), final_states.max(initial=-1))) + 1
    if states > 2 * len(rows) + 1_000_000:
        raise RecordError(f"state {states - 1} in a lattice of {len(rows)} lines")
    order = np.argsort(numbers[:, 0], kind="stable")
    finals = np.full((states, 2), np.inf, dtype=np.float32)
    finals[final_states] = final_costs
    row_of = np.full(states, -1)
    row_of[final_states] = np.arange(len(ends))
    raw = RawLattice(
        utt_id,
        arc_type,
        int(rows[0][0]) if rows else NO_STATE,
        finals,
        final_strings.take(row_of),
        np.bincount(numbers[:, 0], minlength=states).astype(np.int64),
        numbers[order, 2].astype(np.int32),
        numbers[order, full - 2].astype(np.int32),
        costs[order],
        strings.take(order),
        numbers[order, 1].astype(np.int32),
    )
    check(raw)
    return raw


def _arc_type(rows: list[list[str]]) -> str:
    """By the first line that can be of one type only: a compact weight has two commas, a plain one has one."""
    for number, row in enumerate(rows, start=1):
        if not row:
            raise RecordError(f"line {number} is empty")
        if len(row) == 5:
            return PLAIN
        if len(row) == 3:
            return COMPACT
        if len(row) in (2, 4):
            return COMPACT if row[-1].count(",") == 2 else PLAIN
    return COMPACT


def _integers(rows: list[list[str]], columns: int) -> np.ndarray:
    """int64 `(rows, columns)`."""
    bad = next((field for row in rows for field in row if not is_id(field)), None)
    if bad is not None:
        raise RecordError(f"found '{bad[:80]}', expected a number of a state or word (words: format openfst)")
    values = np.array([int(field) for row in rows for field in row], dtype=np.int64).reshape(-1, columns)
    if values.max(initial=0) > MAX_ID:
        raise RecordError(f"the number {values.max()} of a state or word is too large")
    return values


def _parse_weights(weights: list[str], arc_type: str) -> tuple[np.ndarray, Alignments]:
    """float32 `(weights, 2)` and the strings."""
    parts = [weight.split(",") if weight else ["0", "0", ""] for weight in weights]
    try:
        costs = np.array([(float(part[0]), float(part[1])) for part in parts], dtype=np.float64).reshape(-1, 2)
    except (ValueError, IndexError):
        bad = next((weight for weight in weights if weight and not _is_weight(weight)), "?")
        raise RecordError(f"weight '{bad}', expected graph,acoustic{',' * (arc_type == COMPACT)}...") from None
    expected = 3 if arc_type == COMPACT else 2
    strings = []
    for part, weight in zip(parts, weights, strict=True):
        if weight and len(part) != expected:
            raise RecordError(f"weight '{weight[:80]}' has {len(part)} parts, expected {expected} ({arc_type})")
        strings.append(part[2] if len(part) == 3 else "")
    lengths = np.array([string.count("_") + 1 if string else 0 for string in strings], dtype=np.int64)
    flat = "_".join(string for string in strings if string)
    try:
        ids = np.array(flat.split("_") if flat else [], dtype=np.int32)
    except (ValueError, OverflowError):
        raise RecordError("a string of transition ids has something that is no number in it") from None
    return costs.astype(np.float32), Alignments.of_lengths(ids, lengths)


def _is_weight(weight: str) -> bool:
    try:
        return len([float(part) for part in weight.split(",")[:2]]) == 2
    except ValueError:
        return False


def format_text(raw: RawLattice) -> str:
    """The lines of a lattice, the start state's first; costs are written so that they read back exactly."""
    weights = _format_weights(raw.costs, raw.strings, raw.arc_type)
    is_final = np.isfinite(raw.finals).all(axis=1)
    finals = _format_weights(raw.finals, raw.final_strings, raw.arc_type)
    labels = [raw.olabels.tolist()] if raw.arc_type == COMPACT else [raw.ilabels.tolist(), raw.olabels.tolist()]
    words = ["\t".join(map(str, label)) for label in zip(*labels, strict=True)]
    ends = np.append(0, np.cumsum(raw.counts)).tolist()
    targets = raw.next_states.tolist()
    order = [raw.start, *(state for state in range(raw.num_states) if state != raw.start)] if raw.num_states else []
    lines = []
    for state in order:
        for arc in range(ends[state], ends[state + 1]):
            lines.append(f"{state}\t{targets[arc]}\t{words[arc]}\t{weights[arc]}\n")
        if is_final[state]:
            lines.append(f"{state}\t{finals[state]}\n")
    return "".join(lines)


def _format_weights(costs: np.ndarray, strings: Alignments, arc_type: str) -> list[str]:
    """Shortest decimals that give the same float32 again."""
    numbers = costs.astype(str).tolist()
    if arc_type == PLAIN:
        return [f"{_number(graph)},{_number(acoustic)}" for graph, acoustic in numbers]
    ids = list(map(str, strings.ids.tolist()))
    bounds = strings.offsets.tolist()
    return [
        f"{_number(graph)},{_number(acoustic)},{'_'.join(ids[bounds[row] : bounds[row + 1]])}"
        for row, (graph, acoustic) in enumerate(numbers)
    ]


def _number(text: str) -> str:
    return "Infinity" if text == "inf" else text
