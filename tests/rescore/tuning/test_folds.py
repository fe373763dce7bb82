"""Folds of whole speakers or recordings."""

from __future__ import annotations

import numpy as np
import pytest

from rescore.tuning.folds import group_ids, make_folds

LIBRISPEECH = [f"{speaker}-{chapter}-{n:04d}" for speaker in (61, 84, 121) for chapter in (1, 2) for n in range(4)]


@pytest.mark.parametrize(("least", "groups"), [(2, 3), (3, 3), (4, 6), (6, 6), (7, 24)])
def test_speakers_then_chapters_then_utterances(least: int, groups: int) -> None:
    numbers, how = group_ids(LIBRISPEECH, least)
    assert len(set(numbers.tolist())) == groups
    assert str(groups) in how and (how == "24 utterances") == (groups == 24)
    assert ("61-..." in how) == (groups == 3) and ("61-1-..." in how) == (groups == 6)


@pytest.mark.parametrize(
    "utt_ids",
    [
        ["a", "b", "c"],
        ["utt-1", "utt-2", "utt-3"],
        ["a-1", "b-1", "c-1"],
        ["a-1", *(f"b-{i}" for i in range(9))],  # nearly all in one
        ["one"],
    ],
)
def test_ids_that_tell_nothing(utt_ids: list[str]) -> None:
    assert group_ids(utt_ids, 2)[0].tolist() == list(range(len(utt_ids)))


def test_each_utterance_is_in_one_fold_with_its_speaker() -> None:
    words = np.arange(24)
    folds = make_folds(LIBRISPEECH, words, 3, seed=5)
    assert np.sort(np.concatenate(folds.parts)).tolist() == list(range(24))
    assert sorted(folds.parts[0].tolist() + folds.others(0).tolist()) == list(range(24))
    assert [len({LIBRISPEECH[u].split("-")[0] for u in part}) for part in folds.parts] == [1, 1, 1]
    assert "seed 5" in folds.how and "3 folds" in folds.how
    again = make_folds(LIBRISPEECH, words, 3, seed=5)
    assert [part.tolist() for part in again.parts] == [part.tolist() for part in folds.parts]


def test_utterances_without_a_word_are_spread_too() -> None:
    folds = make_folds(["a", "b", "c", "d", "e"], np.zeros(5, dtype=np.int64), 5, seed=0)
    assert [len(part) for part in folds.parts] == [1] * 5


def test_folds_have_about_as_many_words() -> None:
    words = np.random.default_rng(0).integers(0, 40, 100)
    folds = make_folds([f"u{i}" for i in range(100)], words, 5, seed=0)
    sizes = [words[part].sum() for part in folds.parts]
    assert max(sizes) - min(sizes) <= 40


def test_no_more_folds_than_utterances() -> None:
    assert len(make_folds(["a", "b"], np.array([0, 0]), 5, 0)) == 2
