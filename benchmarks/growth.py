"""How cost grows where it once grew with the square: each way at some sizes, each twice the one before.

`wide`: a trigram over a lattice of so many paths of 50 words side by side.  `long`: minimum Bayes risk of a lattice of
so many words, one or three at each place.  `skipped`: of so many places of three words, which may all be skipped.
`folds`: of so many utterances whose ids name no speakers.  `distances`: errors between 250 hypotheses of so many words,
against kaldialign pair by pair.  `deep`: 100-best lists and the oracle of so many arcs, in a few seconds with many
epsilons, or two at each place.  `thin`: 100-best lists of so many places of three words.  `ties`: of so many places of
two words that are all equally good.  All made up, by a seed.

Example: OMP_NUM_THREADS=1 python benchmarks/growth.py
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import click
import numpy as np
from measure import heading, measured, row

from rescore.evaluation.distances import pairwise_distances
from rescore.evaluation.wer import edit_distance
from rescore.lattices.build import EPSILON, build_lattice
from rescore.lattices.mbr import mbr_decode
from rescore.lattices.nbest import exact_nbest
from rescore.lattices.ngram_lm import expand_ngram
from rescore.lattices.oracle import oracle
from rescore.tuning.folds import make_folds
from rescore.types import Lattice, Words

WORDS = 5000
HYPOTHESES = 250


class Trigram:
    """Scores by a hash; a state is the last two words."""

    def start(self) -> tuple[str, ...]:
        return ("<s>",)

    def extend(self, state: tuple[str, ...], word: str) -> tuple[float, tuple[str, ...], bool]:
        score = -2.0 - zlib.crc32(" ".join((*state, word)).encode()) % 7 / 7
        return score, (*state[-1:], word), True

    def end(self, state: tuple[str, ...]) -> float:
        return -1.0


def lattice(src: np.ndarray, dst: np.ndarray, states: int, rng: np.random.Generator) -> Lattice:
    """With words and scores by chance."""
    symbols = ["", *(f"w{number}" for number in range(1, WORDS))]
    scores = {"am": rng.normal(-5.0, 1.0, len(src))}
    return build_lattice("u", states, src, dst, rng.integers(1, WORDS, len(src)), scores, symbols, 0, states - 1)


def side_by_side(paths: int, words: int, rng: np.random.Generator) -> Lattice:
    """So many paths of so many words, numbered depth by depth."""
    inner = 1 + np.arange(paths * (words - 1)).reshape(words - 1, paths).T
    last = paths * (words - 1) + 1
    src = np.concatenate([np.zeros((paths, 1), int), inner], axis=1).ravel()
    dst = np.concatenate([inner, np.full((paths, 1), last)], axis=1).ravel()
    return lattice(src, dst, last + 1, rng)


def chain(words: int, choices: int, rng: np.random.Generator) -> Lattice:
    """So many places of a word, with so many words at each."""
    src = np.repeat(np.arange(words), choices)
    return lattice(src, src + 1, words + 1, rng)


def list_of(words: int, rng: np.random.Generator) -> list[Words]:
    """Hypotheses that differ in their first and last words and in five more."""
    base = rng.integers(0, 2000, words)
    found = []
    for number in range(HYPOTHESES):
        hyp = base.copy()
        hyp[rng.integers(0, words, 5)] = rng.integers(0, 2000, 5)
        hyp[0], hyp[-1] = 2000 + number, 3000 + number
        found.append(tuple(map(str, hyp.tolist())))
    return found


def pair_by_pair(hyps: Sequence[Words]) -> np.ndarray:
    return np.array([[edit_distance(one, other) for other in hyps] for one in hyps])


def wide(paths: int, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    made = side_by_side(paths, 50, rng)
    return {"trigram": lambda: expand_ngram(made, Trigram(), "ngram", {"am": 1.0, "ngram": 1.0})}


def long(words: int, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    made = {choices: chain(words, choices, rng) for choices in (1, 3)}
    return {f"{choices} at a place": lambda each=each: mbr_decode(each, {"am": 1.0}) for choices, each in made.items()}


def skipped(places: int, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    made = chain(places, 4, rng)
    made.labels[::4] = EPSILON
    return {"3 and none at a place": lambda: mbr_decode(made, {"am": 1.0})}


def dense(arcs: int, rng: np.random.Generator) -> Lattice:
    """Some thirty arcs from every state to the next ones, some of them with the same word, a tenth epsilons."""
    states = max(50, arcs // 30)
    src = np.append(np.arange(states - 1), rng.integers(0, states - 1, arcs))
    dst = np.minimum(src + np.where(np.arange(len(src)) < states - 1, 1, rng.integers(1, 20, len(src))), states - 1)
    labels = rng.integers(1, 301, len(src))
    twins, others = rng.integers(0, len(src), (2, arcs // 4))
    src[twins], dst[twins], labels[twins] = src[others], dst[others], labels[others]
    return timed_arcs(src, dst, labels, states, rng)


def overlapping(arcs: int, rng: np.random.Generator) -> Lattice:
    """Of 500 frames; every word begins and ends at any of some frames, and between two frames there may be silence."""
    bounds = np.linspace(0, 500, 21).astype(int)
    place = rng.integers(0, 20, arcs)
    src = np.maximum(bounds[place] + rng.integers(-6, 7, arcs), 0)
    dst = np.minimum(bounds[place + 1] + rng.integers(-6, 7, arcs), 500)
    labels = 1 + 10 * place + np.minimum(rng.geometric(0.3, arcs), 10)
    frames = np.arange(500)
    src, dst = np.append(src, frames), np.append(dst, frames + 1)
    return timed_arcs(src, dst, np.append(labels, 0 * frames), 501, rng)


def timed_arcs(src: np.ndarray, dst: np.ndarray, labels: np.ndarray, states: int, rng: np.random.Generator) -> Lattice:
    """With scores by how long an arc is and by chance, and a tenth epsilons more."""
    labels = np.where(rng.random(len(src)) < 0.1, 0, labels)
    scores = {"am": -20.0 * rng.random(len(src)) * (dst - src), "graph": -5.0 * rng.random(len(src))}
    symbols = ["", *(f"w{number}" for number in range(1, 301))]
    return build_lattice("u", states, src, dst, labels, scores, symbols, 0, states - 1)


def hundred_best(made: Lattice) -> Callable[[], Any]:
    return lambda: exact_nbest(made, {"am": 1.0}, 100)


def deep(arcs: int, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    lattices = {"dense": dense(arcs, rng), "overlapping": overlapping(arcs, rng), "long": chain(arcs // 2, 2, rng)}
    ways: dict[str, Callable[[], Any]] = {}
    for name, made in lattices.items():
        ref = exact_nbest(made, {"am": 1.0}, 1).hyps[0].words
        ways[f"{name}, 100-best"] = hundred_best(made)
        ways[f"{name}, oracle"] = lambda made=made, ref=ref: oracle(made, ref)
    return ways


def thin(words: int, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    return {"100-best": hundred_best(chain(words, 3, rng))}


def ties(words: int, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    made = chain(words, 2, rng)
    made.scores["am"][:] = 0.0
    return {"100-best": hundred_best(made)}


def folds(utterances: int, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    ids, words = [f"utt{number:07d}" for number in range(utterances)], rng.integers(1, 30, utterances)
    return {"10 folds": lambda: make_folds(ids, words, 10, 0)}


def distances(words: int, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    hyps = list_of(words, rng)
    return {"by bits": lambda: pairwise_distances(hyps), "pair by pair": lambda: pair_by_pair(hyps)}


WAYS: dict[str, tuple[Callable[..., dict[str, Callable[[], Any]]], tuple[int, ...]]] = {
    "wide": (wide, (500, 1000, 2000, 4000)),
    "long": (long, (500, 1000, 2000)),
    "skipped": (skipped, (250, 500, 1000)),
    "deep": (deep, (1000, 3000, 10_000)),
    "thin": (thin, (20, 40)),
    "ties": (ties, (10, 14, 1000)),
    "folds": (folds, (40_000, 80_000, 160_000)),
    "distances": (distances, (32, 64, 65, 130)),
}


@click.command(help=__doc__)
@click.argument("ways", nargs=-1, type=click.Choice(list(WAYS)))
@click.option("--seed", default=1, show_default=True)
def main(ways: tuple[str, ...], seed: int) -> None:
    heading("what", "size", "way", "CPU s", "MB")
    for name in ways or WAYS:
        make, sizes = WAYS[name]
        for size in sizes:
            for way, action in make(size, np.random.default_rng(seed)).items():
                _, spent, megabytes = measured(action)
                row(name, f"{size:,}", way, f"{spent:.2f}", f"{megabytes:,.0f}")


if __name__ == "__main__":
    main()
