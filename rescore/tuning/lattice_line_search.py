"""Exact line search over lattices: errors of the best path as a function of the way along a direction.

W. Macherey, F. J. Och, I. Thayer and J. Uszkoreit, "Lattice-based minimum error rate training for statistical machine
translation", EMNLP 2008: along `scales + t * direction` the total of each path is a straight line in `t`, and the best
path is the one on the upper envelope of the lines of all paths, however many there are.  Where they merge envelopes at
every state, here the envelope is found by best paths at chosen `t` (M. J. Eisner and D. G. Severance, "Mathematical
techniques for efficient record segmentation in large shared databases", Journal of the ACM 23, 1976): where two lines
of the envelope cross, either no path is better, and they are neighbours, or the best path there is a new line between
them.  That takes two best paths for each line, those of all lattices at a time, and finds the same envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain

import numpy as np

from rescore.errors import ScoreError
from rescore.evaluation.wer import check_same_form, check_same_utterances, edit_distance
from rescore.lattices.batched_paths import BATCH, Forest
from rescore.lattices.build import EPSILON, normalize_words
from rescore.lattices.oracle import oracle
from rescore.tuning.line_search import PaddedLists, Steps, merge_steps
from rescore.tuning.spread import deviation, spread
from rescore.types import LARGEST, Lattice, Words
from rescore.weights import SIGNED, WORDS_COLUMN, check_same_scores

ROUNDING = 1e-11  # relative; a path that is better by less is not
PATHS = 20  # of each lattice, best at random scales; they tell the units of the columns

Form = Callable[[str], Words]  # what a word becomes before errors are counted: its characters, normalised words


@dataclass
class Met:
    """A path that was the best one somewhere: its scores `(columns,)` and its errors."""

    scores: np.ndarray
    errors: int


@dataclass
class LatticeUtterance:
    """A lattice, its reference, and the word sequences that were the best ones somewhere so far.

    The reference is in the `form` in which errors are counted; the lattice keeps its words, by which it is searched.
    """

    lattice: Lattice
    columns: np.ndarray  # float64 (columns, arcs)
    ref: Words
    form: Form | None = None
    met: dict[tuple[int, ...], Met] = field(default_factory=dict)

    def errors(self, arcs: np.ndarray) -> int:
        """Errors of a path, given by its arcs `(n,)`."""
        labels = self.lattice.labels[arcs]
        key = tuple(labels[labels != EPSILON].tolist())
        if key not in self.met:
            words = tuple(self.lattice.symbols[label] for label in key)
            self.met[key] = Met(self.columns[:, arcs].sum(axis=1), self.errors_of(words))
        return self.met[key].errors

    def errors_of(self, words: Words) -> int:
        return edit_distance(self.ref, self.formed(words))

    def formed(self, words: Words) -> Words:
        """What errors of these words are counted of."""
        return words if self.form is None else tuple(chain.from_iterable(map(self.form, words)))

    def oracle_errors(self) -> int:
        """Errors of the best path."""
        lattice = self.lattice if self.form is None else normalize_words(self.lattice, self.form)
        return oracle(lattice, self.ref).counts.errors


@dataclass
class LatticeTable:
    """What tuning works on, as `ScoreTable` and `PaddedLists` of this room, for lattices.

    Attributes:
      names: score names, `words` the last.
      utterances: one a lattice.
    """

    names: list[str]
    utterances: list[LatticeUtterance]

    def __post_init__(self) -> None:
        self.forest = Forest([utterance.lattice for utterance in self.utterances])
        self.columns = np.concatenate([utterance.columns for utterance in self.utterances], axis=1)  # (columns, arcs)

    @property
    def utt_ids(self) -> list[str]:
        return [utterance.lattice.utt_id for utterance in self.utterances]

    @property
    def is_formed(self) -> bool:
        """Whether errors are counted of something else than the words as they are written."""
        return any(utterance.form is not None for utterance in self.utterances)

    @property
    def ref_words(self) -> np.ndarray:
        return np.array([len(utterance.ref) for utterance in self.utterances], dtype=np.int64)

    @property
    def total_words(self) -> int:
        return int(self.ref_words.sum())

    @property
    def size(self) -> int:
        """Arcs of all lattices."""
        return self.columns.shape[1]

    def __len__(self) -> int:
        return len(self.utterances)

    def spread(self) -> np.ndarray:
        """Standard deviation of each column among the paths met so far of a lattice, but for values far out."""
        return spread(*self.listed())

    def listed(self) -> tuple[np.ndarray, np.ndarray]:
        """The scores of the paths met so far `(paths, columns)`, and where those of each lattice begin and end."""
        met = [path.scores for utterance in self.utterances for path in utterance.met.values()]
        ends = np.cumsum([len(utterance.met) for utterance in self.utterances])
        return np.stack(met), np.concatenate([[0], ends])

    def varies(self) -> np.ndarray:
        """Whether a column has different values within some lattice, bool `(columns,)`."""
        met, offsets = self.listed()
        different: np.ndarray = deviation(met, offsets) > 1e-12 * np.maximum(1.0, np.abs(met).max(axis=0))
        return different

    def oracle_errors(self) -> int:
        """Errors if the best path of every lattice were chosen."""
        return sum(utterance.oracle_errors() for utterance in self.utterances)

    def select(self, utterances: np.ndarray) -> LatticeTable:
        """The table of some utterances, given by their indices."""
        return replace(self, utterances=[self.utterances[u] for u in utterances])

    part = select

    def met_lists(self) -> PaddedLists:
        """The paths met so far as lists: what a first, rough search may look at."""
        rows = [list(utterance.met.values()) for utterance in self.utterances]
        width = max(map(len, rows))
        filled = [row + row[:1] * (width - len(row)) for row in rows]
        scores = np.array([[path.scores for path in row] for row in filled])
        errors = np.array([[path.errors for path in row] for row in filled], dtype=np.int64)
        return PaddedLists(np.ascontiguousarray(scores.transpose(2, 0, 1)), errors)

    def totals(self, scales: np.ndarray) -> np.ndarray:
        """Totals of all arcs, `(arcs,)`."""
        result: np.ndarray = scales @ self.columns
        return result

    def chosen_errors(self, totals: np.ndarray) -> np.ndarray:
        """Errors of the best path of each lattice, int64 `(utterances,)`."""
        return self._errors_at(totals[:, None])[0]

    def count(self, scales: np.ndarray) -> int:
        """Errors of all best paths."""
        return int(self.chosen_errors(self.totals(scales)).sum())

    def count_all(self, points: np.ndarray) -> np.ndarray:
        """As `count` for many scales `(points, columns)`; int64 `(points,)`."""
        parts = np.array_split(points, 1 + len(points) * self.size // BATCH)
        return np.concatenate([self._errors_at(self.columns.T @ part.T).sum(axis=1) for part in parts])

    def _errors_at(self, totals: np.ndarray) -> np.ndarray:
        """Errors of the best paths under `totals` `(arcs, points)`, int64 `(points, utterances)`."""
        paths = self.forest.paths(totals)
        return np.array([self._errors(point) for point in paths], dtype=np.int64).reshape(-1, len(self))

    def _errors(self, paths: Sequence[np.ndarray]) -> list[int]:
        """Errors of a path of each lattice."""
        starts = self.forest.bounds
        return [u.errors(path - start) for u, path, start in zip(self.utterances, paths, starts, strict=False)]

    def steps(self, base: np.ndarray, slope: np.ndarray, low: float, high: float) -> Steps:
        """Errors of the best paths for all `t` between `low` and `high`; `base`, `slope`: `(arcs,)`."""
        start, places, changes = 0, [np.empty(0)], [np.empty(0)]
        found = envelopes(self.forest, base, slope, low, high)
        for utterance, first, (crossings, paths) in zip(self.utterances, self.forest.bounds, found, strict=False):
            errors = [utterance.errors(path - first) for path in paths]
            start += errors[0]
            places.append(np.array(crossings))
            changes.append(np.diff(errors))
        return merge_steps(start, np.concatenate(places), np.concatenate(changes), low, high)


def lattice_table(lattices: Iterable[Lattice], refs: Mapping[str, Words], form: Form | None = None) -> LatticeTable:
    """Collects lattices, all of them held in memory, with the columns that their scores and `words` are.

    Args:
      refs: references, in that form.
      form: in which errors are counted; None: words as they are.
    Raises:
      ReferencesError: lattices and references do not cover the same utterances.
      ScoreError: no lattice, an utterance that comes twice, scores that only some have, not finite or too large.
    """
    names: list[str] = []
    utterances: dict[str, LatticeUtterance] = {}
    form = form and cache(form)
    for lattice in lattices:
        names = names or [*lattice.scores, WORDS_COLUMN]
        if lattice.utt_id in utterances:
            raise ScoreError(f"utterance {lattice.utt_id} occurs a second time among the lattices")
        columns = _columns(lattice, names, next(iter(utterances), lattice.utt_id))
        utterances[lattice.utt_id] = LatticeUtterance(lattice, columns, refs.get(lattice.utt_id, ()), form)
    check_same_utterances(refs, list(utterances), "lattices")
    check_same_form(refs.values(), [each.formed(_words_of(each.lattice)) for each in utterances.values()])
    if not utterances:
        raise ScoreError("there is no lattice to tune on; the source is empty")
    table = LatticeTable(names, list(utterances.values()))
    table.count_all(random_scales(names))
    return table


def _columns(lattice: Lattice, names: list[str], first: str) -> np.ndarray:
    """The scores of the arcs, in the order of `names`, those of the lattice `first`; `words` the last."""
    check_same_scores(f"lattice '{lattice.utt_id}'", [*lattice.scores], f"lattice '{first}'", names[:-1], True)
    columns = [lattice.scores[name] for name in names[:-1]] + [(lattice.labels != EPSILON).astype(np.float64)]
    for name, column in zip(names, columns, strict=True):
        if not np.isfinite(column).all():
            raise ScoreError(
                f"lattice '{lattice.utt_id}': the score {name} of arc {np.isfinite(column).argmin()} is not finite; "
                "rescore lattice prune takes impossible arcs out"
            )
        if len(column) and abs(column[largest := int(np.abs(column).argmax())]) > LARGEST:
            raise ScoreError(
                f"lattice '{lattice.utt_id}': the score {name} of arc {largest} is {column[largest]:g}; to tune, "
                f"scores must be from -{LARGEST:g} to {LARGEST:g}"
            )
    return np.stack(columns)


def _words_of(lattice: Lattice) -> Words:
    """The words that the lattice holds."""
    return tuple(lattice.symbols[label] for label in np.unique(lattice.labels) if label != EPSILON)


def random_scales(names: list[str]) -> np.ndarray:
    """1 for `am` (or the first score), 0.1 to 100 for others, -10 to 10 for those of SIGNED; `(PATHS, columns)`."""
    rng = np.random.default_rng(0)
    points = 10.0 ** rng.uniform(-1.0, 2.0, size=(PATHS, len(names)))
    points[:, names.index("am") if "am" in names else 0] = 1.0
    for name in SIGNED:
        if name in names:
            points[:, names.index(name)] = rng.uniform(-10.0, 10.0, size=PATHS)
    return points


Envelope = tuple[list[float], list[np.ndarray]]  # where one path takes over from another, and the paths (one more)


def envelopes(forest: Forest, base: np.ndarray, slope: np.ndarray, low: float, high: float) -> list[Envelope]:
    """The best paths of each lattice for all `t` between `low` and `high`.

    Args:
      base, slope: the arcs' totals are `base + t * slope`, `(arcs,)`.

    Returns:
      for each lattice the places, ascending, where one path takes over from another, and the paths as arrays of arcs.
    """
    everyone = np.arange(len(forest))
    ends = forest.paths_at(base, slope, np.repeat(everyone, 2), np.tile([low, high], len(forest)))
    lines = [_Line.of(path, base, slope) for path in ends if path is not None]
    growing = [_Growing([first, last]) for first, last in zip(lines[::2], lines[1::2], strict=True)]
    while any(one.todo for one in growing):
        asked = [(u, one.todo.pop(), one) for u, one in enumerate(growing) for _ in range(len(one.todo))]
        pairs = [(one.lines[n], one.lines[one.follower[n]]) for _, n, one in asked]
        places = np.array([line.crossing(steeper) for line, steeper in pairs])
        reached = np.array([line.at(place) for (line, _), place in zip(pairs, places, strict=True)])
        above = reached + ROUNDING * (1.0 + np.abs(reached))
        found = forest.paths_at(base, slope, np.array([u for u, _, _ in asked]), places, above)
        for (_, n, one), place, path in zip(asked, places.tolist(), found, strict=True):
            one.add(n, place, None if path is None else _Line.of(path, base, slope))
    return [one.in_order() for one in growing]


@dataclass(frozen=True)
class _Line:
    """The total of a path along the direction."""

    path: np.ndarray
    base: float
    slope: float

    @classmethod
    def of(cls, path: np.ndarray, base: np.ndarray, slope: np.ndarray) -> _Line:
        return cls(path, float(base[path].sum()), float(slope[path].sum()))

    def at(self, t: float) -> float:
        return self.base + t * self.slope

    def crossing(self, steeper: _Line) -> float:
        return (self.base - steeper.base) / (steeper.slope - self.slope)


class _Growing:
    """The lines of an envelope found so far, each with its follower; those in `todo` may have others between them."""

    def __init__(self, ends: list[_Line]) -> None:
        self.lines = ends
        self.follower = {0: 1}
        self.crossings: dict[int, float] = {}  # of a line and its follower, where they are neighbours
        self.todo = [0] if ends[0].slope < ends[1].slope else []

    def add(self, n: int, place: float, line: _Line | None) -> None:
        """What the best path at the crossing of line `n` and its follower is: another line, or none."""
        m = self.follower[n]
        if line is None or not self.lines[n].slope < line.slope < self.lines[m].slope:
            self.crossings[n] = place
            return
        number = len(self.lines)
        self.lines.append(line)
        self.follower[n], self.follower[number] = number, m
        self.todo += [n, number]

    def in_order(self) -> Envelope:
        places, paths, line = [], [self.lines[0].path], 0
        while line in self.follower:
            following = self.follower[line]
            if line in self.crossings:  # else both are the same line, or both ends have the same path
                places.append(self.crossings[line])
                paths.append(self.lines[following].path)
            line = following
        return places, paths
