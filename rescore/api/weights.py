"""Scales in memory and in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rescore.api.lists import path_of
from rescore.errors import UsageError
from rescore.shown import Shown, Table
from rescore.text import short
from rescore.types import Weights
from rescore.weights import checked_scales, load_weights, save_weights
from rescore.workflows.normalising import RATE, WER

AnyWeights = Weights | Mapping[str, float] | str | Path  # of `tune`, scales by column, or a file of `rescore tune`


@dataclass(repr=False)
class TunedWeights(Shown, Weights):
    """Scales by column; `info` says how they were found (WER on dev, seed, ...)."""

    def save(self, path: str | Path) -> None:
        """Writes them as `rescore tune` does."""
        save_weights(path_of(path), self)

    def _table(self) -> Table:
        same = {name: region.get("same") for name, region in self.info.get("flat_region", {}).items()}
        without_a_fold = self.info.get("fold_scales", {})
        rows = [
            [name, scale, *(same.get(name) or without_a_fold.get(name) or (None, None))]
            for name, scale in self.scales.items()
        ]
        return [
            "column",
            "scale",
            "without one fold from" if "fold_scales" in self.info else f"same {self.info.get(RATE, WER)} from",
            "to",
        ], rows

    def _caption(self) -> str:
        from rescore.workflows.tune import held_out_lines

        if "wer" not in self.info:
            return ""
        checked = "" if self.info.get("cv_wer") is None else f", cross-validated {self.info['cv_wer']:.2f} %"
        rates = (
            f"dev {self.info.get(RATE, WER)} {self.info['wer']:.2f} %{checked}, oracle {self.info['oracle_wer']:.2f} %"
        )
        return "\n".join([rates, *held_out_lines(self.info)])


def read_weights(path: str | Path) -> TunedWeights:
    """Reads a file of `rescore tune`; raises a RescoreError if it is none."""
    weights = load_weights(path_of(path))
    return TunedWeights(weights.scales, weights.info)


def weights_of(weights: AnyWeights) -> Weights:
    """Scales by column, checked to be numbers.  Raises a RescoreError as `read_weights`, or for none at all."""
    if isinstance(weights, (str, Path)):
        return load_weights(weights)
    if isinstance(weights, Weights):
        if not isinstance(weights.info, Mapping):
            raise UsageError(f"the info of weights is {short(weights.info)}, expected a mapping, or leave it out")
        return Weights(checked_scales(weights.scales, "weights"), weights.info)
    if not isinstance(weights, Mapping):
        raise UsageError(
            f"weights is {short(weights)}, expected scales by column, as in {{'am': 1.0, 'lm': 0.5}}, "
            "weights of rs.tune, or a file of rescore tune"
        )
    return Weights(checked_scales(dict(weights), "weights"))


def scales_of(weights: AnyWeights) -> dict[str, float]:
    """The scales of `weights_of`."""
    return weights_of(weights).scales
