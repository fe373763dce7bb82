"""The search for the scales with the fewest errors: exact line searches from many starting points (Och 2003)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rescore.console import progress
from rescore.tuning.line_search import PaddedLists, Steps

if TYPE_CHECKING:
    from rescore.tuning.lattice_line_search import LatticeTable

    Searched = PaddedLists | LatticeTable

LIMIT = 50.0  # largest scale searched, where a column's spread within lists counts as the fixed columns' spread
GRID_LEVELS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 4.0)  # starting points of LM scales, in the same unit
GRID_SIGNED = (-1.0, -0.4, -0.1, 0.0, 0.1, 0.4, 1.0)  # of the word reward
SAMPLE = 200_000  # hypotheses that a first search of a large set looks at
FINALISTS = 2
ROUNDS = 20  # of line searches from a starting point, at most
CENTRING = 5  # of those that move a result to the middle of its flat region
MORE = 30  # restarts at most, beyond those asked for
MORE_WORK = 300_000  # such restarts times hypotheses
INSIDE = 0.01  # units that the smallest scales of a stretch without end are away from its edge, at least
WIDE = 10.0  # units; flat regions that are wider are equally good
GRID_POINTS = 4096
GRID_WORK = 400_000_000  # grid points times hypotheses times columns


@dataclass
class Problem:
    """A search: lists or lattices, which columns move, their units and limits (all arrays `(columns,)`)."""

    lists: Searched
    free: np.ndarray  # indices of the columns that move
    start: np.ndarray  # the fixed scales; 0 for the others
    unit: np.ndarray  # scale of a column that makes its spread equal to that of the fixed columns
    low: np.ndarray
    high: np.ndarray


@dataclass
class Point:
    """A point of the search: scales `(columns,)`, totals as `Problem.lists` has them, and the errors of the 1-best."""

    scales: np.ndarray
    totals: Any
    errors: int


def search(problem: Problem, rng: np.random.Generator, restarts: int, show: bool = False) -> Point:
    """Descends from every starting point; of the best results takes the one in the widest flat region.

    Large sets are searched on a random sample of their utterances first, lattices on lists of paths, and in full from
    the best points found.
    """
    if not len(problem.free):
        return point_at(problem, problem.start)
    if isinstance(problem.lists, PaddedLists):
        rough = sample(problem, rng)
        starts = starting_points(rough, rng, restarts)
        results = descend_all(problem, rough, starts, rng, show)
    else:
        results = search_lattices(problem, problem.lists, rng, restarts, show)
    fewest = min(result.errors for result in results)
    centred = [centre(problem, result, rng) for result in results if result.errors == fewest]
    return min(centred, key=lambda result: (result.errors, -flatness(problem, result), _size(problem, result)))


def with_more(problem: Problem, restarts: int) -> int:
    """The restarts asked for, and more where they are cheap: in small sets of lists."""
    lists = problem.lists
    return restarts + (min(MORE, MORE_WORK // lists.size) if isinstance(lists, PaddedLists) else 0)


def descend_all(
    problem: Problem, rough: Problem, starts: list[np.ndarray], rng: np.random.Generator, show: bool
) -> list[Point]:
    """Descends from all starts, on `rough` first if that is another problem; the results, best first."""
    results = [descend(rough, start, rng) for start in (progress(starts, "tuning") if show else starts)]
    if rough is not problem:
        results.sort(key=lambda result: result.errors)
        results = [descend(problem, result.scales, rng) for result in results[:FINALISTS]]
    return sorted(results, key=lambda result: result.errors)


def search_lattices(
    problem: Problem, lattices: LatticeTable, rng: np.random.Generator, restarts: int, show: bool
) -> list[Point]:
    """Searches on lists of the paths met so far, then over the lattices, until paths met on the way bring no more."""
    starts = starting_points(problem, rng, restarts)
    results: list[Point] = []
    while True:
        rough = replace(problem, lists=lattices.met_lists())
        found = descend_all(problem, rough, starts, rng, show)
        if results and found[0].errors >= results[0].errors:
            return results
        results, starts = found, [*starts, *(point.scales for point in found)]


def sample(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with as many random utterances as hold `SAMPLE` hypotheses; the problem itself if it has no more."""
    utterances = len(problem.lists)
    count = max(1, SAMPLE * utterances // problem.lists.size)
    if count >= utterances:
        return problem
    picked = np.sort(rng.choice(utterances, size=count, replace=False))
    return replace(problem, lists=problem.lists.part(picked))


def point_at(problem: Problem, scales: np.ndarray) -> Point:
    """Counts the errors at some scales."""
    totals: Any = problem.lists.totals(scales)
    return Point(scales, totals, int(problem.lists.chosen_errors(totals).sum()))


def starting_points(problem: Problem, rng: np.random.Generator, restarts: int) -> list[np.ndarray]:
    """The fixed scales alone, and `restarts` others: the best half of a coarse grid and of random points, random ones.

    As many random points are looked at as there is time for, so that no grid of so many points is better.
    """
    signed = problem.low[problem.free] < 0
    limit = max(restarts, min(GRID_POINTS, GRID_WORK // (problem.lists.size * len(problem.start))))
    levels = [GRID_SIGNED if negative else GRID_LEVELS for negative in signed]
    if math.prod(map(len, levels)) <= limit:
        grid = np.array(list(itertools.product(*levels)))
    else:
        grid = np.stack([rng.choice(level, size=limit // 2) for level in levels], axis=1)
    points = np.concatenate([grid, _loose(signed, limit - len(grid), rng)])
    errors = problem.lists.count_all(at_units(problem, points))
    good = points[np.argsort(errors, kind="stable")[: (restarts + 1) // 2]]
    return [problem.start, *at_units(problem, np.concatenate([good, _loose(signed, restarts - len(good), rng)]))]


def _loose(signed: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random points, `(count, free)`, in units; `signed`: which columns may be below 0."""
    points: np.ndarray = 10.0 ** rng.uniform(-2.0, 1.0, size=(count, len(signed)))
    return points * np.where(signed, rng.choice([-1.0, 1.0], size=points.shape), 1.0)


def at_units(problem: Problem, points: np.ndarray) -> np.ndarray:
    """Scales `(..., columns)` from values `(..., free)` in units of the free columns."""
    scales = np.tile(problem.start, (*points.shape[:-1], 1))
    scales[..., problem.free] = points * problem.unit[problem.free]
    return scales


def axis(problem: Problem, column: int) -> np.ndarray:
    """The direction along one column, one unit long."""
    along = np.zeros(len(problem.start))
    along[column] = problem.unit[column]
    return along


def directions(problem: Problem, scales: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Every free column, all free columns together, and as many random directions; in random order."""
    result = [axis(problem, k) for k in problem.free]
    if len(problem.free) > 1:
        result.append(scales - problem.start)
        for _ in problem.free:
            result.append(at_units(problem, rng.standard_normal(len(problem.free))) - problem.start)
    return [result[i] for i in rng.permutation(len(result)) if result[i].any()]


def steps_along(problem: Problem, point: Point, along: np.ndarray, slope: Any = None) -> Steps:
    """Errors at `point.scales + t * along` for all `t` within the limits; `slope`: totals of `along`."""
    moves = along != 0
    ends = np.stack([problem.low - point.scales, problem.high - point.scales])[:, moves] / along[moves]
    low, high = min(0.0, float(ends.min(axis=0).max())), max(0.0, float(ends.max(axis=0).min()))
    if low == high:
        return Steps(np.array([low, high]), np.array([point.errors]))
    slope = problem.lists.totals(along) if slope is None else slope
    return problem.lists.steps(point.totals, slope, low, high)


def middle(problem: Problem, point: Point, along: np.ndarray, begin: float, end: float) -> float:
    """The step along a direction into the middle of a stretch of equal errors, from `begin` to `end`.

    A stretch that reaches as far as is searched has no middle: there the smallest scales count, half their size inside.
    """
    if not any(_is_far(problem, point.scales + t * along) for t in (begin, end)):
        return 0.5 * (begin + end)
    scales, slope = point.scales[problem.free], along[problem.free]
    scales, slope = scales / problem.unit[problem.free], slope / problem.unit[problem.free]
    nearest = float(-(scales @ slope) / (slope @ slope))
    if begin < nearest < end:
        return nearest
    edge = begin if nearest <= begin else end
    size = float(np.linalg.norm(scales + edge * slope) / np.linalg.norm(slope))
    inside = min(0.5 * (end - begin), max(0.5 * size, INSIDE))
    return edge + inside if edge == begin else edge - inside


def _is_far(problem: Problem, scales: np.ndarray) -> bool:
    """Whether a scale is as large as is searched; the 0 below that scores' scales do not go is a limit of its own."""
    free = problem.free
    return bool((np.abs(scales[free]) >= 0.999 * LIMIT * problem.unit[free]).any())


def move(problem: Problem, point: Point, along: np.ndarray, slope: Any, step: float) -> Point:
    """The point a step away, or the same one if rounding or ties make the true count there worse.

    `slope` is used up: the new totals take its memory.
    """
    scales = np.clip(point.scales + step * along, problem.low, problem.high)
    totals = np.multiply(slope, step, out=slope)
    totals += point.totals
    errors = int(problem.lists.chosen_errors(totals).sum())
    return Point(np.where(along != 0, scales, point.scales), totals, errors) if errors <= point.errors else point


def descend(problem: Problem, start: np.ndarray, rng: np.random.Generator) -> Point:
    """Line searches along all directions until two rounds bring nothing; moves to the middle of equal regions too."""
    point, idle = point_at(problem, start), 0
    for _ in range(ROUNDS):
        before = point.errors
        for along in directions(problem, point.scales, rng):
            slope: Any = problem.lists.totals(along)
            fewest, begin, end = steps_along(problem, point, along, slope).best()
            if fewest <= point.errors:
                point = move(problem, point, along, slope, middle(problem, point, along, begin, end))
        idle = idle + 1 if point.errors == before else 0
        if idle == 2:
            break
    return point_at(problem, point.scales)  # without the rounding of many steps


def centre(problem: Problem, point: Point, rng: np.random.Generator) -> Point:
    """Moves to the middle of the flat region around a result, along one direction after another."""
    for _ in range(CENTRING):
        for along in directions(problem, point.scales, rng):
            slope: Any = problem.lists.totals(along)
            begin, end = steps_along(problem, point, along, slope).region(0.0, point.errors)
            point = move(problem, point, along, slope, middle(problem, point, along, begin, end))
    return point_at(problem, point.scales)


def flatness(problem: Problem, point: Point) -> float:
    """Mean logarithm of the widths of the flat region along the free columns, in their units, up to `WIDE`."""
    widths = []
    for k in problem.free:
        begin, end = steps_along(problem, point, axis(problem, k)).region(0.0, point.errors)
        widths.append(math.log(min(max(end - begin, 1e-12), WIDE)))
    return float(np.mean(widths))


def _size(problem: Problem, point: Point) -> float:
    """Length of the free scales, in their units."""
    return float(np.linalg.norm(point.scales[problem.free] / problem.unit[problem.free]))


def rounded(problem: Problem, point: Point) -> np.ndarray:
    """The scales, those that moved with as few digits (three at least) as leave the errors as they are."""
    for digits in (3, 4, 6, 9):
        short = point.scales.copy()
        short[problem.free] = [float(f"{scale:.{digits}g}") for scale in point.scales[problem.free]]
        if problem.lists.count(short) == point.errors:
            return short
    return point.scales
