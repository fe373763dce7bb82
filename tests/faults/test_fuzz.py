"""Some damaged inputs for every reader; `python -m tests.faults.fuzz` makes as many as are wanted."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from lm_zoo.ngram import kenlm_check
from tests.faults.damage import Target, Trial, limits, seed_of
from tests.faults.readers import FORMATS, TARGETS, format_of

COUNT = 15


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_inputs(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kenlm_check, "SECONDS", 5)  # that a table without an end may be searched
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trial = Trial(target, tmp_path / "in")
        seeds = [seed_of(target, 0, number) for number in range(max(1, round(COUNT * target.share)))]
        with limits():
            faults = {seed: trial.fault(seed) for seed in seeds}
    assert not any(faults.values()), {seed: fault for seed, fault in faults.items() if fault}


def test_each_format_has_readers() -> None:
    assert {format_of(target.name) for target in TARGETS} == set(FORMATS)
