"""Folds of a cross-validation: whole speakers or recordings where the ids tell them, else utterances."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SEPARATORS = re.compile(r"[-_./]")


@dataclass(frozen=True)
class Folds:
    """Which utterances are held out together.

    Attributes:
      parts: the utterances of each fold, ascending indices; each utterance is in one of them.
      how: a sentence on how they were made.
    """

    parts: list[np.ndarray]
    how: str

    def __len__(self) -> int:
        return len(self.parts)

    def others(self, fold: int) -> np.ndarray:
        """The utterances that are not in a fold, ascending."""
        return np.sort(np.concatenate([part for i, part in enumerate(self.parts) if i != fold]))


def make_folds(utt_ids: Sequence[str], words: np.ndarray, folds: int, seed: int) -> Folds:
    """Shuffles groups of utterances with `seed`, and puts each into the fold that has the fewest words so far.

    Args:
      words: reference words of each utterance, `(utterances,)`.
      folds: how many; at least 1, and no more than there are utterances.
    """
    folds = max(1, min(folds, len(utt_ids)))
    groups, what = group_ids(utt_ids, folds)
    sizes = np.zeros(folds)
    weights = np.bincount(groups, words + 1e-3)  # utterances without a word are spread, too
    of_group = np.zeros(len(weights), dtype=np.int64)
    for group in np.random.default_rng(seed).permutation(len(weights)):
        fold = int(sizes.argmin())
        sizes[fold] += weights[group]
        of_group[group] = fold
    held = of_group[groups]
    parts = [np.flatnonzero(held == fold) for fold in range(folds)]
    return Folds(parts, f"{what} shuffled with seed {seed} into {folds} folds of about as many words")


def group_ids(utt_ids: Sequence[str], least: int) -> tuple[np.ndarray, str]:
    """Numbers of groups `(utterances,)`, and what they are.

    A group has the same beginning of its ids, cut at one of `-_./`: the shortest beginnings that tell at least `least`
    groups, none of them more than half of the utterances (LibriSpeech: speakers, or else chapters).  Where all such
    groups are single utterances, so are these.
    """
    parts = [_SEPARATORS.split(utt_id) for utt_id in utt_ids]
    for depth in range(1, max(map(len, parts), default=0)):
        names = [tuple(part[:depth]) for part in parts]
        distinct = {name: number for number, name in enumerate(dict.fromkeys(names))}
        groups = np.array([distinct[name] for name in names])
        if len(distinct) == len(utt_ids):
            break
        if len(distinct) >= least and 2 * np.bincount(groups).max() <= len(utt_ids):
            return groups, f"{len(distinct)} groups of utterances whose ids begin alike ({_example(utt_ids[0], depth)})"
    return np.arange(len(utt_ids)), f"{len(utt_ids)} utterances"


def _example(utt_id: str, depth: int) -> str:
    """The beginning of an id, with the separator that follows."""
    ends = [match.end() for match in _SEPARATORS.finditer(utt_id)]
    return f"{utt_id[: ends[depth - 1]]}..." if len(ends) >= depth else utt_id
