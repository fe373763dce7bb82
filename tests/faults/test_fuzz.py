"""Some damaged inputs for every reader; `python -m tests.faults.fuzz` makes as many as are wanted."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from lm_zoo.ngram import kenlm_check
from tests.faults.damage import Target, Trial, limits, seed_of
from tests.faults.kenlm_forks import load_in_a_fork
from tests.faults.readers import FORMATS, TARGETS, format_of

COUNT = 15
KENLM = [  # a file and how the process ends that loads it; None: not within seconds
    ("KenLM probing", 0, 0),
    ("KenLM probing", 29, None),
    ("KenLM trie", 0, 0),
    ("KenLM trie", 213, -11),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_inputs(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kenlm_check, "load_elsewhere", load_in_a_fork)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trial = Trial(target, tmp_path / "in")
        seeds = [seed_of(target, 0, number) for number in range(max(1, round(COUNT * target.share)))]
        with limits():
            faults = {seed: trial.fault(seed) for seed in seeds}
    assert not any(faults.values()), {seed: fault for seed, fault in faults.items() if fault}


def test_each_format_has_readers() -> None:
    assert {format_of(target.name) for target in TARGETS} == set(FORMATS)


@pytest.mark.parametrize(("name", "number", "end"), KENLM)
def test_forks_find_what_processes_of_their_own_find(name: str, number: int, end: int | None, tmp_path: Path) -> None:
    target = next(target for target in TARGETS if target.name == name)
    trial = Trial(target, tmp_path / "in")
    trial.path.write_bytes(trial.damaged(seed_of(target, 0, number))[0])
    assert kenlm_check.load_elsewhere(trial.path, "a\0b", 5.0 if end is None else 60.0) == end
    assert load_in_a_fork(trial.path, "a\0b") == end
