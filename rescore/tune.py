"""Scales that minimise the WER of a development set: exact line searches from many starting points (Och 2003)."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_zoo.identity import feed
from rescore import __version__
from rescore.combine import SCORES_FILE, WORDS_COLUMN, read_scores
from rescore.console import progress, remark
from rescore.errors import UsageError, WeightsError
from rescore.files import read_kaldi_text
from rescore.line_search import PaddedLists, Steps
from rescore.table import ScoreTable, build_table
from rescore.types import Weights

if TYPE_CHECKING:
    from rescore.lattice_line_search import LatticeTable
    from rescore.types import Lattice

    Table = ScoreTable | LatticeTable
    Searched = PaddedLists | LatticeTable

LIMIT = 50.0  # largest scale searched, where a column's spread within lists counts as the fixed columns' spread
GRID_LEVELS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 4.0)  # starting points of LM scales, in the same unit
GRID_SIGNED = (-1.0, -0.4, -0.1, 0.0, 0.1, 0.4, 1.0)  # of the word reward
SAMPLE = 200_000  # hypotheses that a first search of a large set looks at
FINALISTS = 2
GRID_POINTS = 4096
GRID_WORK = 400_000_000  # grid points times hypotheses times columns
SLACK = 0.001  # of the reference words: the wider flat region that is reported
FOLD_RESTARTS = 3


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
class Place:
    """A point of the search: scales `(columns,)`, totals as `Problem.lists` has them, and the errors of the 1-best."""

    scales: np.ndarray
    totals: Any
    errors: int


def tune_folder(
    scores: Path, ref: Path, fixed: Mapping[str, float], seed: int, restarts: int, folds: int, command: str
) -> Weights:
    """Finds scales for a scores folder and says in `info` everything needed to find them again.

    Raises:
      ReferenceError, ScoreError, FormatError: bad input (see `build_table`).
      UsageError, WeightsError: `fixed` or the numbers do not fit.
    """
    table = build_table(progress(read_scores(scores), "reading scores"), read_kaldi_text(ref))
    weights = tune_table(table, fixed, seed=seed, restarts=restarts, folds=folds)
    data = {
        "scores": file_identity(scores / SCORES_FILE),
        "ref": file_identity(ref),
        "utterances": len(table.utt_ids),
        "words": table.total_words,
    }
    weights.info = {"data": data, **weights.info, "command": command}
    return weights


def tune_lattices(
    lattices: Iterable[Lattice],
    ref: Path,
    fixed: Mapping[str, float],
    seed: int,
    restarts: int,
    folds: int,
    command: str,
) -> Weights:
    """As `tune_folder`, for lattices, which are all held in memory: exact line searches over all their paths.

    Raises:
      ReferenceError, ScoreError: bad input (see `rescore.lattice_line_search.lattice_table`).
      UsageError, WeightsError: `fixed` or the numbers do not fit.
    """
    from rescore.lattice_line_search import lattice_table

    table = lattice_table(lattices, read_kaldi_text(ref))
    weights = tune_table(table, fixed, seed=seed, restarts=restarts, folds=folds)
    data = {"lattices": len(table), "arcs": table.size, "ref": file_identity(ref), "words": table.total_words}
    weights.info = {"data": data, **weights.info, "command": command}
    return weights


def file_identity(path: Path) -> dict[str, str]:
    """Name without folders and sha256 of a file."""
    return {"file": path.name, "sha256": feed(hashlib.sha256(), path).hexdigest()}


def tune_table(
    table: Table, fixed: Mapping[str, float] | None = None, seed: int = 0, restarts: int = 10, folds: int = 5
) -> Weights:
    """Finds the scales that give the fewest errors on `table`.

    Scales other than that of `words` are kept at 0 or above.  Only ratios of scales matter, so one column is fixed:
    those of `fixed`, or `am` (the first column if there is none) at 1 where `fixed` names no scale other than 0.

    Args:
      fixed: scales that stay as they are.
      seed: of all random choices; the same seed gives the same scales.
      restarts: starting points besides the fixed scales alone.
      folds: of the cross-validation; 0 or 1 for none.

    Raises:
      UsageError: numbers out of range.  WeightsError: `fixed` names a score that is not there.
    """
    if restarts < 1 or folds < 0:
        raise UsageError(f"restarts must be at least 1 and folds at least 0, found {restarts} and {folds}")
    scales = choose_fixed(table.names, fixed or {})
    problem = make_problem(table, scales)
    found = search(problem, np.random.default_rng(seed), restarts, show=True)
    found = place_at(problem, rounded(problem.lists, found))
    found.errors = problem.lists.count(found.scales)  # as `rescore combine` counts them, to the last digit
    words = table.total_words
    constant = [name for k, name in enumerate(table.names) if name not in scales and k not in problem.free]
    if constant:
        remark(f"no list has different values of {', '.join(constant)}: scale 0")
    info: dict[str, Any] = {
        "columns": table.names,
        "fixed": scales,
        "wer": percent(found.errors, words),
        "errors": found.errors,
        "oracle_wer": percent(table.oracle_errors(), words),
        **cross_validation(table, scales, seed, min(restarts, FOLD_RESTARTS), folds),
        "flat_region": flat_regions(problem, found, table.names, words),
        "seed": seed,
        "restarts": restarts,
        "version": __version__,
    }
    return Weights({name: float(scale) for name, scale in zip(table.names, found.scales, strict=True)}, info)


def percent(errors: int, words: int) -> float:
    """Error rate in percent, to three digits."""
    return round(100.0 * errors / words, 3) if words else math.nan


def choose_fixed(names: list[str], fixed: Mapping[str, float]) -> dict[str, float]:
    """The scales that stay: those given, and a reference column at 1 if none of them is other than 0."""
    unknown = [name for name in fixed if name not in names]
    if unknown:
        raise WeightsError(f"--fix names '{unknown[0]}', but the scores are: {', '.join(names)}")
    if any(fixed.values()):
        return dict(fixed)
    free = [name for name in names if name not in fixed]
    if not free:
        raise UsageError("every scale is fixed at 0: nothing is left to tell hypotheses apart")
    return {**fixed, "am" if "am" in free else free[0]: 1.0}


def make_problem(table: Table, fixed: Mapping[str, float]) -> Problem:
    """Units and limits of the search.  Columns that are constant within every list do not move."""
    spread = table.spread()
    start = np.array([fixed.get(name, 0.0) for name in table.names])
    reference = math.sqrt(float(((start * spread) ** 2).sum())) or 1.0
    varies = table.varies()
    free = np.array([k for k, name in enumerate(table.names) if name not in fixed and varies[k]], dtype=np.int64)
    unit = np.zeros(len(start))
    unit[free] = reference / spread[free]
    signed = np.array([name == WORDS_COLUMN for name in table.names])
    return Problem(searched(table), free, start, unit, low=np.where(signed, -LIMIT * unit, 0.0), high=LIMIT * unit)


def searched(table: Table) -> Searched:
    """The table in the form that is searched."""
    return PaddedLists.from_table(table) if isinstance(table, ScoreTable) else table


def search(problem: Problem, rng: np.random.Generator, restarts: int, show: bool = False) -> Place:
    """Descends from every starting point; of the best results takes the one in the widest flat region.

    Large sets are searched on a random sample of their utterances first, lattices on lists of paths, and in full from
    the best places found.
    """
    if not len(problem.free):
        return place_at(problem, problem.start)
    if isinstance(problem.lists, PaddedLists):
        rough = sample(problem, rng)
        starts = starting_points(rough, rng, restarts)
        results = descend_all(problem, rough, starts, rng, show)
    else:
        results = search_lattices(problem, problem.lists, rng, restarts, show)
    fewest = min(result.errors for result in results)
    centred = [centre(problem, result, rng) for result in results if result.errors == fewest]
    return min(centred, key=lambda result: (result.errors, -flatness(problem, result)))


def descend_all(
    problem: Problem, rough: Problem, starts: list[np.ndarray], rng: np.random.Generator, show: bool
) -> list[Place]:
    """Descends from all starts, on `rough` first if that is another problem; the results, best first."""
    results = [descend(rough, start, rng) for start in (progress(starts, "tuning") if show else starts)]
    if rough is not problem:
        results.sort(key=lambda result: result.errors)
        results = [descend(problem, result.scales, rng) for result in results[:FINALISTS]]
    return sorted(results, key=lambda result: result.errors)


def search_lattices(
    problem: Problem, lattices: LatticeTable, rng: np.random.Generator, restarts: int, show: bool
) -> list[Place]:
    """Searches on lists of the paths met so far, then over the lattices, until paths met on the way bring no more."""
    starts = starting_points(problem, rng, restarts)
    results: list[Place] = []
    while True:
        rough = replace(problem, lists=lattices.met_lists())
        found = descend_all(problem, rough, starts, rng, show)
        if results and found[0].errors >= results[0].errors:
            return results
        results, starts = found, [*starts, *(place.scales for place in found)]


def sample(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with as many random utterances as hold `SAMPLE` hypotheses; the problem itself if it has no more."""
    utterances = len(problem.lists)
    count = max(1, SAMPLE * utterances // problem.lists.size)
    if count >= utterances:
        return problem
    picked = np.sort(rng.choice(utterances, size=count, replace=False))
    return replace(problem, lists=problem.lists.part(picked))


def place_at(problem: Problem, scales: np.ndarray) -> Place:
    """Counts the errors at some scales."""
    totals: Any = problem.lists.totals(scales)
    return Place(scales, totals, int(problem.lists.chosen_errors(totals).sum()))


def starting_points(problem: Problem, rng: np.random.Generator, restarts: int) -> list[np.ndarray]:
    """The fixed scales alone, the best half from a coarse grid, and random points."""
    free = len(problem.free)
    signed = problem.low[problem.free] < 0
    size = problem.lists.size * len(problem.start)
    limit = max(restarts, min(GRID_POINTS, GRID_WORK // size))
    levels = [GRID_SIGNED if negative else GRID_LEVELS for negative in signed]
    if math.prod(map(len, levels)) <= limit:
        grid = np.array(list(itertools.product(*levels)))
    else:
        grid = np.stack([rng.choice(level, size=limit) for level in levels], axis=1)
    errors = problem.lists.count_all(at_units(problem, grid))
    good = grid[np.argsort(errors, kind="stable")[: (restarts + 1) // 2]]
    loose = 10.0 ** rng.uniform(-2.0, 1.0, size=(restarts - len(good), free))
    loose *= np.where(signed, rng.choice([-1.0, 1.0], size=loose.shape), 1.0)
    return [problem.start, *at_units(problem, np.concatenate([good, loose]))]


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


def steps_along(problem: Problem, place: Place, along: np.ndarray, slope: Any = None) -> Steps:
    """Errors at `place.scales + t * along` for all `t` within the limits; `slope`: totals of `along`."""
    moves = along != 0
    ends = np.stack([problem.low - place.scales, problem.high - place.scales])[:, moves] / along[moves]
    low, high = min(0.0, float(ends.min(axis=0).max())), max(0.0, float(ends.max(axis=0).min()))
    if low == high:
        return Steps(np.array([low, high]), np.array([place.errors]))
    slope = problem.lists.totals(along) if slope is None else slope
    return problem.lists.steps(place.totals, slope, low, high)


def move(problem: Problem, place: Place, along: np.ndarray, slope: Any, step: float) -> Place:
    """The place a step away, or the same one if rounding or ties make the true count there worse.

    `slope` is used up: the new totals take its memory.
    """
    scales = np.clip(place.scales + step * along, problem.low, problem.high)
    totals = np.multiply(slope, step, out=slope)
    totals += place.totals
    errors = int(problem.lists.chosen_errors(totals).sum())
    return Place(np.where(along != 0, scales, place.scales), totals, errors) if errors <= place.errors else place


def descend(problem: Problem, start: np.ndarray, rng: np.random.Generator, most_rounds: int = 20) -> Place:
    """Line searches along all directions until two rounds bring nothing; moves to the middle of equal regions too."""
    place, idle = place_at(problem, start), 0
    for _ in range(most_rounds):
        before = place.errors
        for along in directions(problem, place.scales, rng):
            slope: Any = problem.lists.totals(along)
            fewest, begin, end = steps_along(problem, place, along, slope).best()
            if fewest <= place.errors:
                place = move(problem, place, along, slope, 0.5 * (begin + end))
        idle = idle + 1 if place.errors == before else 0
        if idle == 2:
            break
    return place_at(problem, place.scales)  # without the rounding of many steps


def centre(problem: Problem, place: Place, rng: np.random.Generator, rounds: int = 5) -> Place:
    """Moves to the middle of the flat region around a result, along one direction after another."""
    for _ in range(rounds):
        for along in directions(problem, place.scales, rng):
            slope: Any = problem.lists.totals(along)
            begin, end = steps_along(problem, place, along, slope).region(0.0, place.errors)
            place = move(problem, place, along, slope, 0.5 * (begin + end))
    return place_at(problem, place.scales)


def flatness(problem: Problem, place: Place) -> float:
    """Mean logarithm of the widths of the flat region along the free columns, in their units."""
    widths = []
    for k in problem.free:
        begin, end = steps_along(problem, place, axis(problem, k)).region(0.0, place.errors)
        widths.append(math.log(max(end - begin, 1e-12)))
    return float(np.mean(widths))


def rounded(lists: Searched, place: Place) -> np.ndarray:
    """The scales with as few digits (three at least) as leave the errors as they are."""
    for digits in (3, 4, 6, 9):
        short = np.array([float(f"{scale:.{digits}g}") for scale in place.scales])
        if lists.count(short) == place.errors:
            return short
    return place.scales


def flat_regions(problem: Problem, found: Place, names: list[str], words: int) -> dict[str, dict[str, list[float]]]:
    """For each free scale, the interval with the fewest errors and that within 0.1 % absolute, the others held."""
    regions = {}
    for k in problem.free:
        steps = steps_along(problem, found, axis(problem, k))
        intervals = {}
        for title, most in (("same", found.errors), ("within_0.1", found.errors + SLACK * words)):
            ends = (found.scales[k] + t * problem.unit[k] for t in steps.region(0.0, most))
            intervals[title] = [float(f"{value:.4g}") for value in ends]
        regions[names[k]] = intervals
    return regions


def cross_validation(table: Table, fixed: Mapping[str, float], seed: int, restarts: int, folds: int) -> dict[str, Any]:
    """WER where each utterance is combined with scales tuned on the other folds' utterances."""
    utterances = len(table.utt_ids)
    folds = min(folds, utterances)
    if folds < 2:
        return {"cv_wer": None, "cv_how": "no cross-validation"}
    parts = np.array_split(np.random.default_rng(seed).permutation(utterances), folds)
    errors = 0
    for fold, held_out in enumerate(progress(parts, "cross-validation")):
        others = np.sort(np.concatenate([part for i, part in enumerate(parts) if i != fold]))
        problem = make_problem(table.select(others), fixed)
        found = search(problem, np.random.default_rng([seed, fold]), restarts)
        errors += searched(table.select(held_out)).count(found.scales)
    how = (
        f"utterances shuffled with seed {seed} into {folds} folds; each fold combined with scales tuned on the other "
        f"{folds - 1} by the same search with {restarts} restarts; errors of all folds summed"
    )
    return {"cv_wer": percent(errors, table.total_words), "cv_how": how}


def summary(weights: Weights) -> list[str]:
    """What the command prints: the rates, then a line for each scale."""
    info = weights.info
    lines = [f"dev WER {info['wer']:.2f} % ({info['errors']} errors), oracle {info['oracle_wer']:.2f} %"]
    if info["cv_wer"] is not None:
        lines.append(f"cross-validated WER {info['cv_wer']:.2f} %")
    for name, scale in weights.scales.items():
        region = info["flat_region"].get(name)
        note = "fixed" if name in info["fixed"] else "the same in every list"
        if region:
            same, near = region["same"], region["within_0.1"]
            note = f"same WER from {same[0]:g} to {same[1]:g}; within 0.1 % from {near[0]:g} to {near[1]:g}"
        lines.append(f"{name} = {scale:g} ({note})")
    return lines
