"""Exact line search over N-best lists: errors of the 1-best as a function of the way along a direction.

F. J. Och, "Minimum error rate training in statistical machine translation", ACL 2003.  Along `scales + t * direction`
the total of each hypothesis is a straight line in `t`; the hypothesis chosen from a list is the one on the upper
envelope of its lines, so that the errors are piecewise constant and all their steps can be listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rescore.tuning.score_table import ScoreTable

CHUNK = 1 << 16  # lines of one block of lists; small enough for the processor's cache
FEW = 1 << 12  # lines of all lists; leaving out those that are never on top would take longer than walking along them
BATCH = 1 << 21  # totals of many scales held at a time
NARROW = 1e-9  # intervals narrower than this, relative to their place, are rounding


@dataclass
class PaddedLists:
    """The lists of a table as rectangles; short lists are filled with their first hypothesis.

    A copy of the first hypothesis never wins over the first one itself, so filling changes no result.

    Attributes:
      scores: float64 `(columns, utterances, hyps)`.
      errors: int64 `(utterances, hyps)`.
    """

    scores: np.ndarray
    errors: np.ndarray

    @classmethod
    def from_table(cls, table: ScoreTable) -> PaddedLists:
        lengths = np.diff(table.offsets)
        place = np.arange(lengths.max())
        rows = table.offsets[:-1, None] + np.where(place < lengths[:, None], place, 0)
        return cls(np.ascontiguousarray(table.matrix[rows].transpose(2, 0, 1)), table.errors[rows])

    def part(self, utterances: np.ndarray) -> PaddedLists:
        """The lists of some utterances, given by their indices."""
        return PaddedLists(np.ascontiguousarray(self.scores[:, utterances]), self.errors[utterances])

    def totals(self, scales: np.ndarray) -> np.ndarray:
        """Totals `(utterances, hyps)`, summed in an order that BLAS chooses: the last digits may differ."""
        moving = np.flatnonzero(scales)
        if len(moving) == 1:
            return np.asarray(scales[moving[0]] * self.scores[moving[0]])
        return np.asarray(scales @ self.scores.reshape(len(scales), -1)).reshape(self.errors.shape)

    def chosen_errors(self, totals: np.ndarray) -> np.ndarray:
        """Errors of the hypothesis with the highest total (the first of equals) of each utterance, `(utterances,)`."""
        best = totals.argmax(axis=1)
        return self.errors[np.arange(len(best)), best]

    @property
    def size(self) -> int:
        """Hypotheses of all lists, filled ones too."""
        return self.errors.size

    def __len__(self) -> int:
        return len(self.errors)

    def steps(self, base: np.ndarray, slope: np.ndarray, low: float, high: float) -> Steps:
        """Errors of the chosen hypotheses between `low` and `high`, by `error_steps`."""
        return error_steps(base, slope, self.errors, low, high)

    def count(self, scales: np.ndarray) -> int:
        """Errors of all chosen hypotheses; sums in the order of the columns, as `combine.total` does."""
        totals = np.zeros(self.errors.shape)
        for scale, column in zip(scales, self.scores, strict=True):
            if scale != 0.0:  # adding 0 changes nothing
                totals += scale * column
        return int(self.chosen_errors(totals).sum())

    def count_all(self, points: np.ndarray) -> np.ndarray:
        """As `count` for many scales `(points, columns)` at once, but ties may fall otherwise; int64 `(points,)`."""
        columns = self.scores.reshape(len(self.scores), -1)
        everyone = np.arange(len(self.errors))
        counts = []
        for part in np.array_split(points, 1 + len(points) * columns.shape[1] // BATCH):
            totals = (part @ columns).reshape(len(part), *self.errors.shape)
            counts.append(self.errors[everyone, totals.argmax(axis=2)].sum(axis=1))
        return np.concatenate(counts)


@dataclass
class Steps:
    """Errors along a line: `errors[i]` between `edges[i]` and `edges[i + 1]`.

    Attributes:
      edges: float64 `(pieces + 1,)`, ascending; the first and the last are the ends of the search.
      errors: int64 `(pieces,)`.
    """

    edges: np.ndarray
    errors: np.ndarray

    def best(self) -> tuple[int, float, float]:
        """Fewest errors and the ends of the widest piece that has them."""
        fewest = self.errors.min()
        widths = np.where(self.errors == fewest, np.diff(self.edges), -1.0)
        piece = int(widths.argmax())
        return int(fewest), float(self.edges[piece]), float(self.edges[piece + 1])

    def region(self, at: float, most: float) -> tuple[float, float]:
        """Ends of the stretch around `at` with no more than `most` errors; `(at, at)` if `at` itself has more."""
        piece = int(np.clip(np.searchsorted(self.edges, at, side="right") - 1, 0, len(self.errors) - 1))
        fine = self.errors <= most
        if not fine[piece]:
            return at, at
        begin = end = piece
        while begin > 0 and fine[begin - 1]:
            begin -= 1
        while end + 1 < len(fine) and fine[end + 1]:
            end += 1
        return float(self.edges[begin]), float(self.edges[end + 1])


def error_steps(base: np.ndarray, slope: np.ndarray, errors: np.ndarray, low: float, high: float) -> Steps:
    """Lists the errors of the 1-best for all `t` between `low` and `high`.

    Args:
      base: float64 `(utterances, hyps)`, totals at `t = 0`.
      slope: float64 `(utterances, hyps)`, change of the totals with `t`.
      errors: int64 `(utterances, hyps)`.
      low, high: finite ends of the search, `low < high`.
    """
    lists = [base, slope, errors]
    groups: Iterable[list[np.ndarray]] = [lists]
    if base.size > FEW:
        groups = ([part.ravel()[left] for part in lists] for left in upper_lines(base, slope, low, high))
    start, places, changes = 0, [np.empty(0)], [np.empty(0)]
    for some_base, some_slope, some_errors in groups:
        group_start, group_places, group_changes = walk_envelopes(some_base, some_slope, some_errors, low, high)
        start += group_start
        places.extend(group_places)
        changes.extend(group_changes)
    return merge_steps(start, np.concatenate(places), np.concatenate(changes), low, high)


def upper_lines(base: np.ndarray, slope: np.ndarray, low: float, high: float) -> Iterator[np.ndarray]:
    """Lists of about as many `contenders`, together, `(lists, most)`: their places in the flattened rectangle.

    Lines that are never on top go first, a block of lists at a time.
    """
    hyps = base.shape[1]
    step = max(1, CHUNK // hyps)
    blocks = [slice(begin, begin + step) for begin in range(0, len(base), step)]
    lines = [contenders(base[block], slope[block], low, high) + block.start * hyps for block in blocks]
    return rectangles(np.concatenate(lines), hyps, len(base))


def contenders(base: np.ndarray, slope: np.ndarray, low: float, high: float) -> np.ndarray:
    """Leaves out most of the lines that are nowhere highest between `low` and `high`; arguments as of `error_steps`.

    The lines that are highest at `low`, 0 and `high` are kept.  Between two of these points all others are below the
    two lines that are highest there, at one point each, and the higher of the two is lowest where they cross.  Lines
    are straight, so that one that is not above the crossing is nowhere above both.

    Returns:
      Places of the kept lines in the flattened rectangle, ascending.
    """
    everyone = np.arange(len(base))
    ends = [low, 0.0, high] if low < 0.0 < high else [low, high]
    totals = np.empty(base.shape)
    tops = [_at(end, base, slope, totals).argmax(axis=1) for end in ends]
    kept = np.zeros(base.shape, dtype=bool)
    for begin, end, first, second in zip(ends, ends[1:], tops, tops[1:], strict=False):
        kept[everyone, first] = kept[everyone, second] = True
        rise = slope[everyone, second] - slope[everyone, first]
        gap = base[everyone, first] - base[everyone, second]
        crossing = np.divide(gap, rise, out=np.full(len(base), begin), where=rise > 0)
        crossing = crossing.clip(begin, end)  # rounding
        height = base[everyone, first] + crossing * slope[everyone, first]
        kept |= _at(crossing[:, None], base, slope, totals) > height[:, None]
    return np.flatnonzero(kept)


def _at(t: float | np.ndarray, base: np.ndarray, slope: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The lines' totals at `t`, written to `out`."""
    np.multiply(slope, t, out=out)
    out += base
    return out


def rectangles(lines: np.ndarray, hyps: int, utterances: int) -> Iterator[np.ndarray]:
    """Puts lists of nearly as many lines together: `(lists, most)`, filled with the first line of each list.

    Args:
      lines: places as from `contenders`, at least one of each list.
    """
    counts = np.bincount(lines // hyps, minlength=utterances)
    starts = np.cumsum(counts) - counts
    for group in np.array_split(np.argsort(counts, kind="stable"), 1 + 16 * len(lines) // CHUNK):
        if len(group):
            place = np.arange(counts[group[-1]])
            yield lines[starts[group, None] + np.where(place < counts[group, None], place, 0)]


def walk_envelopes(
    base: np.ndarray, slope: np.ndarray, errors: np.ndarray, low: float, high: float
) -> tuple[int, list[np.ndarray], list[np.ndarray]]:
    """Walks along the upper envelopes of all lists at once, from crossing to crossing.

    From the line that is highest now, the next piece of the envelope is the steeper line that crosses it first.

    Returns:
      The errors at `low`, then for each round the places of the crossings and the changes of the errors there.
    """
    # At `low` the highest line of each list, (lists,), is the first piece of its envelope.
    everyone = np.arange(len(base))
    now = (base + low * slope).argmax(axis=1)
    now_base, now_slope, now_errors = base[everyone, now], slope[everyone, now], errors[everyone, now]
    start, places, changes = int(now_errors.sum()), [], []
    while len(base):
        # Where each line, (lists, most), crosses the one that is highest now; only steeper ones rise above it.
        rise = slope - now_slope[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = (now_base[:, None] - base) / rise
        crossing[rise <= 0] = np.inf
        # The first crossing is a corner of the envelope; lists without one before `high` are done.
        following = crossing.argmin(axis=1)
        rows = np.arange(len(base))
        place = crossing[rows, following]
        alive = place < high
        if not alive.any():
            break
        rows, following = rows[alive], following[alive]
        # The others go on along the line that crossed, and their errors change there.
        next_errors = errors[rows, following]
        places.append(place[alive])
        changes.append(next_errors - now_errors[alive])
        now_base, now_slope, now_errors = base[rows, following], slope[rows, following], next_errors
        if len(rows) < len(base):
            base, slope, errors = base[rows], slope[rows], errors[rows]
    return start, places, changes


def merge_steps(start: int, places: np.ndarray, changes: np.ndarray, low: float, high: float) -> Steps:
    """Sorts the steps of all lists into one sequence; drops pieces of no width and joins those of equal errors."""
    order = np.argsort(places, kind="stable")
    edges = np.concatenate([[low], np.clip(places[order], low, high), [high]])
    errors = start + np.concatenate([[0], np.cumsum(changes[order].astype(np.int64))])
    wide = np.diff(edges) > NARROW * np.maximum(1.0, np.abs(edges[:-1]))
    if not wide.any():
        return Steps(np.array([low, high]), errors[:1])
    begins, errors = edges[:-1][wide], errors[wide]
    new = np.concatenate([[True], errors[1:] != errors[:-1]])
    return Steps(np.concatenate([[low], begins[new][1:], [high]]), errors[new])
