"""Exact line search over lattices: errors of the best path as a function of the way along a direction.

W. Macherey, F. J. Och, I. Thayer and J. Uszkoreit, "Lattice-based minimum error rate training for statistical machine
translation", EMNLP 2008: along `scales + t * direction` the total of each path is a straight line in `t`, and the best
path is the one on the upper envelope of the lines of all paths, however many there are.  Where they merge envelopes at
every state, here the envelope is found by best paths at chosen `t` (M. J. Eisner and D. G. Severance, "Mathematical
techniques for efficient record segmentation in large shared databases", Journal of the ACM 23, 1976): where two lines
of the envelope cross, either no path is better, and they are neighbours, or the best path there is a new line between
them.  That takes two best paths for each line, many at a time, and finds the same envelope.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rescore.combine import WORDS_COLUMN
from rescore.errors import ScoreError
from rescore.lattice import EPSILON, arc_ranges, backward_scores, path_hypothesis
from rescore.lattice_oracle import oracle
from rescore.line_search import Steps, merge_steps
from rescore.table import ScoreTable, build_table
from rescore.types import Lattice, NbestList, Words
from rescore.wer import check_same_case, check_same_utterances, edit_distance

BATCH = 1 << 20  # arcs times points of one search of best paths
ROUNDING = 1e-11  # relative; a path that is better by less is not
PATHS = 20  # of each lattice, best at random scales; they tell the units of the columns


@dataclass
class LatticeUtterance:
    """A lattice, its reference, and the errors of the word sequences that were met so far."""

    lattice: Lattice
    columns: np.ndarray  # float64 (columns, arcs)
    ref: Words
    known: dict[Words, int] = field(default_factory=dict)

    def errors(self, arcs: list[int]) -> int:
        labels = self.lattice.labels[arcs]
        words = tuple(self.lattice.symbols[label] for label in labels[labels != EPSILON])
        if words not in self.known:
            self.known[words] = edit_distance(self.ref, words)
        return self.known[words]


@dataclass
class LatticeTable:
    """What tuning works on, as `rescore.table.ScoreTable` and `rescore.line_search.PaddedLists`, for lattices.

    Attributes:
      names: score names, `words` the last.
      utterances: one a lattice.
      some: a few paths of each lattice, for the spread of the columns.
    """

    names: list[str]
    utterances: list[LatticeUtterance]
    some: ScoreTable

    @property
    def utt_ids(self) -> list[str]:
        return self.some.utt_ids

    @property
    def total_words(self) -> int:
        return self.some.total_words

    @property
    def size(self) -> int:
        """Arcs of all lattices."""
        return sum(utterance.lattice.num_arcs for utterance in self.utterances)

    def __len__(self) -> int:
        return len(self.utterances)

    def spread(self) -> np.ndarray:
        return self.some.spread()

    def varies(self) -> np.ndarray:
        return self.some.varies()

    def oracle_errors(self) -> int:
        """Errors if the best path of every lattice were chosen."""
        return sum(oracle(utterance.lattice, utterance.ref).counts.errors for utterance in self.utterances)

    def select(self, utterances: np.ndarray) -> LatticeTable:
        """The table of some utterances, given by their indices."""
        picked = [self.utterances[u] for u in utterances]
        return replace(self, utterances=picked, some=self.some.select(utterances))

    part = select

    def totals(self, scales: np.ndarray) -> list[np.ndarray]:
        """Totals `(arcs,)` of each lattice."""
        return [scales @ utterance.columns for utterance in self.utterances]

    def chosen_errors(self, totals: list[np.ndarray]) -> np.ndarray:
        """Errors of the best path of each lattice, int64 `(utterances,)`."""
        pairs = zip(self.utterances, totals, strict=True)
        return np.array([_errors_at(utterance, total[:, None])[0] for utterance, total in pairs], dtype=np.int64)

    def count(self, scales: np.ndarray) -> int:
        """Errors of all best paths."""
        return int(self.chosen_errors(self.totals(scales)).sum())

    def count_all(self, points: np.ndarray) -> np.ndarray:
        """As `count` for many scales `(points, columns)`; int64 `(points,)`."""
        result = np.zeros(len(points), dtype=np.int64)
        for utterance in self.utterances:
            parts = np.array_split(points, 1 + len(points) * utterance.lattice.num_arcs // BATCH)
            result += np.concatenate([_errors_at(utterance, utterance.columns.T @ part.T) for part in parts])
        return result

    def steps(self, base: list[np.ndarray], slope: list[np.ndarray], low: float, high: float) -> Steps:
        """Errors of the best paths for all `t` between `low` and `high`; `base`, `slope`: `(arcs,)` a lattice."""
        start, places, changes = 0, [np.empty(0)], [np.empty(0)]
        for utterance, total, change in zip(self.utterances, base, slope, strict=True):
            crossings, paths = envelope(utterance.lattice, total, change, low, high)
            errors = [utterance.errors(path) for path in paths]
            start += errors[0]
            places.append(np.array(crossings))
            changes.append(np.diff(errors))
        return merge_steps(start, np.concatenate(places), np.concatenate(changes), low, high)


def lattice_table(lattices: Iterable[Lattice], refs: Mapping[str, Words]) -> LatticeTable:
    """Collects lattices, all of them held in memory, with the columns that their scores and `words` are.

    Raises:
      ReferenceError: lattices and references do not cover the same utterances.
      ScoreError: an utterance that comes twice, scores that only some lattices have or that are not finite.
    """
    names: list[str] = []
    utterances: dict[str, LatticeUtterance] = {}
    lists: list[NbestList] = []
    for lattice in lattices:
        names = names or [*lattice.scores, WORDS_COLUMN]
        if lattice.utt_id in utterances:
            raise ScoreError(f"utterance {lattice.utt_id} occurs a second time among the lattices")
        utterance = LatticeUtterance(lattice, _columns(lattice, names), refs.get(lattice.utt_id, ()))
        utterances[lattice.utt_id] = utterance
        lists.append(_some_paths(utterance, names))
    check_same_utterances(refs, list(utterances), "lattices")
    check_same_case(refs.values(), [nbest.hyps[0].words for nbest in lists])
    return LatticeTable(names, list(utterances.values()), build_table(lists, refs))


def _columns(lattice: Lattice, names: list[str]) -> np.ndarray:
    if {*lattice.scores, WORDS_COLUMN} != set(names):
        raise ScoreError(
            f"lattice '{lattice.utt_id}' has the scores {', '.join(lattice.scores)}, where the first lattice has "
            f"{', '.join(names[:-1])}; all lattices need the same scores"
        )
    columns = [lattice.scores[name] for name in names[:-1]] + [(lattice.labels != EPSILON).astype(np.float64)]
    for name, column in zip(names, columns, strict=True):
        if not np.isfinite(column).all():
            raise ScoreError(
                f"lattice '{lattice.utt_id}': the score {name} of arc {np.isfinite(column).argmin()} is not finite; "
                "rescore lattice prune takes impossible arcs out"
            )
    return np.stack(columns)


def _some_paths(utterance: LatticeUtterance, names: list[str]) -> NbestList:
    """The best paths at random scales: 1 for `am` (or the first score), 0.1 to 100 for others, any for `words`."""
    rng = np.random.default_rng(0)
    points = 10.0 ** rng.uniform(-1.0, 2.0, size=(PATHS, len(names)))
    points[:, names.index("am") if "am" in names else 0] = 1.0
    points[:, names.index(WORDS_COLUMN)] = rng.uniform(-10.0, 10.0, size=PATHS)
    lattice = utterance.lattice
    paths = _paths(lattice, utterance.columns.T @ points.T, None, np.arange(PATHS))
    distinct = dict.fromkeys(map(tuple, paths))
    return NbestList(lattice.utt_id, [path_hypothesis(lattice, path) for path in distinct])


def envelope(
    lattice: Lattice, base: np.ndarray, slope: np.ndarray, low: float, high: float
) -> tuple[list[float], list[list[int]]]:
    """The best paths for all `t` between `low` and `high`, where the arcs' totals are `base + t * slope` `(arcs,)`.

    Returns:
      the places, ascending, where one path takes over from another, and the paths (one more), as lists of arcs.
    """
    ends = np.array([low, high])
    first, last = _paths(lattice, _line_totals(base, slope, ends), backward=None, wanted=np.arange(2))
    lines = {0: _Line.of(first, base, slope), 1: _Line.of(last, base, slope)}
    follower: dict[int, int] = {0: 1}
    crossings: dict[int, float] = {}  # of a line and its follower
    todo = [0]
    while todo:
        todo = [n for n in todo if lines[n].slope < lines[follower[n]].slope]
        places = np.array([lines[n].crossing(lines[follower[n]]) for n in todo])
        found: list[int] = []
        for part in np.array_split(np.arange(len(todo)), 1 + len(todo) * lattice.num_arcs // BATCH):
            totals = _line_totals(base, slope, places[part])
            backward = backward_scores(lattice, totals)
            reached = np.array([lines[todo[i]].at(places[i]) for i in part])
            higher = np.flatnonzero(backward[0] - reached > ROUNDING * (1.0 + np.abs(reached)))
            new = dict(zip(part[higher].tolist(), _paths(lattice, totals, backward, higher), strict=True))
            for i in part.tolist():
                n, m = todo[i], follower[todo[i]]
                line = _Line.of(new[i], base, slope) if i in new else None
                if line is not None and lines[n].slope < line.slope < lines[m].slope:
                    number = len(lines)
                    lines[number] = line
                    follower[n], follower[number] = number, m
                    found.extend((n, number))
                else:
                    crossings[n] = float(places[i])
        todo = found
    return _in_order(lines, follower, crossings)


@dataclass(frozen=True)
class _Line:
    """The total of a path along the direction."""

    path: list[int]
    base: float
    slope: float

    @classmethod
    def of(cls, path: list[int], base: np.ndarray, slope: np.ndarray) -> _Line:
        return cls(path, float(base[path].sum()), float(slope[path].sum()))

    def at(self, t: float) -> float:
        return self.base + t * self.slope

    def crossing(self, steeper: _Line) -> float:
        return (self.base - steeper.base) / (steeper.slope - self.slope)


def _in_order(
    lines: dict[int, _Line], follower: dict[int, int], crossings: dict[int, float]
) -> tuple[list[float], list[list[int]]]:
    places, paths, line = [], [lines[0].path], 0
    while line in follower:
        following = follower[line]
        if line in crossings:  # else both are the same line, or both ends have the same path
            places.append(crossings[line])
            paths.append(lines[following].path)
        line = following
    return places, paths


def _line_totals(base: np.ndarray, slope: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Totals at the places, float64 `(arcs, places)`."""
    totals: np.ndarray = base[:, None] + slope[:, None] * places
    return totals


def _errors_at(utterance: LatticeUtterance, totals: np.ndarray) -> np.ndarray:
    """Errors of the best paths under `totals` `(arcs, points)`, int64 `(points,)`."""
    paths = _paths(utterance.lattice, totals, None, np.arange(totals.shape[1]))
    return np.array([utterance.errors(path) for path in paths], dtype=np.int64)


def _paths(lattice: Lattice, totals: np.ndarray, backward: np.ndarray | None, wanted: np.ndarray) -> list[list[int]]:
    """The best paths (the first of equals) at the points `wanted` of `totals` `(arcs, points)`, traced side by side."""
    backward = backward_scores(lattice, totals) if backward is None else backward
    ranges = arc_ranges(lattice)
    final = lattice.num_states - 1
    state = np.zeros(len(wanted), dtype=np.int64)
    taken: list[np.ndarray] = []
    while (state != final).any():
        low = ranges[state]
        counts = ranges[state + 1] - low  # 0 for paths that are at the end
        rows = np.repeat(np.arange(len(wanted)), counts)
        arcs = np.arange(len(rows)) + np.repeat(low - np.cumsum(counts) + counts, counts)
        through = totals[arcs, wanted[rows]] + backward[lattice.dst[arcs], wanted[rows]]
        order = np.lexsort((arcs, -through, rows))
        moving = np.flatnonzero(counts)
        chosen = np.full(len(wanted), -1, dtype=np.int64)
        chosen[moving] = arcs[order[(np.cumsum(counts) - counts)[moving]]]
        taken.append(chosen)
        state = np.where(chosen >= 0, lattice.dst[chosen], state)
    columns = np.array(taken, dtype=np.int64).reshape(len(taken), len(wanted)).T
    return [column[column >= 0].tolist() for column in columns]
