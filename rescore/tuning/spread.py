"""How far scores lie apart within lists: the unit in which scales are looked for.

A recogniser's log-zero, as of -1e10, would be all of a standard deviation, and no scale of such units fits the other
scores.  So values that are far out are left out of it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rescore.console import remark

FAR = 100.0  # times as far from the median of its list as half of the values are that are not there themselves
ROUNDING = 1e-6  # relative to a value, and of values below 1; what is nearer to the median is there
MOST = 0.9  # of the variance; values far out that make up more are named

LARGEST_SCALE = 1e50  # that stays: its squares, times those of the `LARGEST` score, are numbers still


class Listed(Protocol):
    """Lists of scores; of lattices, the paths met so far."""

    names: list[str]

    @property
    def utt_ids(self) -> list[str]: ...

    def listed(self) -> tuple[np.ndarray, np.ndarray]:
        """The scores `(hyps, columns)`, list after list, and where each begins and the last ends `(lists + 1,)`."""
        ...


def deviation(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Standard deviation of each column within the lists, float64 `(columns,)`; arguments as of `spread`."""
    lengths = np.diff(offsets)
    means = np.add.reduceat(values, offsets[:-1], axis=0) / lengths[:, None]
    result: np.ndarray = np.sqrt(((values - np.repeat(means, lengths, axis=0)) ** 2).mean(axis=0))
    return result


def spread(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """As `deviation`, without the values that are far out; not 0 where `deviation` is not.

    Args:
      values: `(hyps, columns)`, list after list.
      offsets: `(lists + 1,)`, where each list begins, and the last one ends; no list is empty.
    """
    result = deviation(values, offsets)
    for k in np.flatnonzero(result):
        far = far_out(values[:, k], offsets)
        if far.any():
            lengths = np.add.reduceat(~far, offsets[:-1], dtype=np.int64)
            kept = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
            result[k] = deviation(values[~far, k : k + 1], kept)[0]
    return result


def far_out(column: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Which values `(hyps,)` are more than `FAR` times as far from the median of their list as is usual; bool."""
    lengths = np.diff(offsets)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    rising = column[np.lexsort((column, rows))]
    medians = 0.5 * (rising[offsets[:-1] + (lengths - 1) // 2] + rising[offsets[:-1] + lengths // 2])
    apart = np.abs(column - medians[rows])
    others = apart > ROUNDING * np.maximum(1.0, np.abs(column))
    result: np.ndarray = apart > FAR * np.median(apart[others]) if others.any() else others
    return result


def say_far_out(lists: Listed) -> None:
    """A remark on each column of which a few values make up nearly all of the variance."""
    values, offsets = lists.listed()
    whole, usual = deviation(values, offsets), spread(values, offsets)
    for k, name in enumerate(lists.names):
        far = far_out(values[:, k], offsets)
        if not far.any() or (~far).sum() * usual[k] ** 2 > (1.0 - MOST) * len(far) * whole[k] ** 2:
            continue
        worst = int(np.where(far, np.abs(values[:, k]), -1.0).argmax())
        utt_id = lists.utt_ids[int(np.searchsorted(offsets, worst, side="right")) - 1]
        remark(
            f"{name}: {far.sum()} of {len(far)} values are so far out that they make up nearly all of its variance "
            f"(utterance {utt_id} has {name} = {values[worst, k]:g}); its scale is looked for by the others"
        )
