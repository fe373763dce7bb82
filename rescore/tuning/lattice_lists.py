"""N-best lists of lattices that grow while scales are looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rescore.lattices.nbest import exact_nbest
from rescore.tuning.decisions import CrossFit
from rescore.tuning.lattice_line_search import LatticeTable, random_scales
from rescore.tuning.risk_tune import RiskTuned, checked_by_folds, cross_validated, tune_risk
from rescore.tuning.score_table import ScoreTable, build_table
from rescore.types import Hypothesis, NbestList, Words
from rescore.weights import FIRST, MAP

N = 100  # best word sequences at the scales found
FEW = 10  # and at random ones
ROUNDS = 4
NEW = 0.01  # of the word sequences; fewer new ones change nothing


class LatticeLists:
    """The word sequences of each lattice that were among the best under some scales, in the order they were met."""

    def __init__(self, lattices: LatticeTable) -> None:
        self.lattices = lattices
        self.met: list[dict[Words, Hypothesis]] = [{} for _ in lattices.utterances]

    def __len__(self) -> int:
        return sum(map(len, self.met))

    def add_best(self, scales: np.ndarray, n: int = N) -> None:
        """Adds the n best of each lattice under scales `(columns,)`."""
        named = dict(zip(self.lattices.names, scales.tolist(), strict=True))
        for utterance, met in zip(self.lattices.utterances, self.met, strict=True):
            for hyp in exact_nbest(utterance.lattice, named, n).hyps:
                met.setdefault(hyp.words, hyp)

    def table(self, distances: bool = False) -> ScoreTable:
        """What was met so far; `distances` as of `build_table`."""
        utterances = self.lattices.utterances
        refs = {utterance.lattice.utt_id: utterance.ref for utterance in utterances}
        lists = [
            NbestList(u.lattice.utt_id, [replace(hyp, words=u.formed(hyp.words)) for hyp in met.values()])
            for u, met in zip(utterances, self.met, strict=True)
        ]
        return build_table(lists, refs, distances)


def tune_lattice_risk(
    lattices: LatticeTable, fixed: Mapping[str, float], decision: str, folds: int, seed: int, select: bool = False
) -> tuple[RiskTuned, CrossFit]:
    """As `tune_risk` and `cross_validated` over N-best lists, which grow by the best of the scales found.

    The first hypothesis of each list is the best one under the fixed scales alone, which are what is kept where nothing
    helps.
    """
    lists = LatticeLists(lattices)
    lists.add_best(np.array([fixed.get(name, 0.0) for name in lattices.names]), 1)
    for scales in random_scales(lattices.names):
        lists.add_best(scales, FEW)
    for _ in range(ROUNDS):
        table, before = lists.table(distances=True), len(lists)
        tuned = tune_risk(table, fixed, decision, folds, seed, select)
        lists.add_best(tuned.scales)
        if len(lists) - before <= NEW * before:
            break
    fits = cross_validated(table, fixed, decision, folds, seed, select)
    tuned = checked_by_folds(tuned, table, fixed, fits) if select else tuned
    return replace(tuned, decision=MAP) if tuned.decision == FIRST else tuned, fits
