"""The time of an utterance: who looks at it, and what happens when it is over."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lm_zoo import deadline
from lm_zoo.deadline import OutOfTime, check_time, in_time, limited_time, time_limit, timed
from lm_zoo.registry import load
from tests.lm_zoo import hugging_face, zoo

FEW = [("A",)]
MANY = list(product("ABCD", repeat=6))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock by which every look at it takes a second; the times so far."""
    times = [0.0]

    def look() -> float:
        times.append(times[-1] + 1.0)
        return times[-1]

    monkeypatch.setattr(deadline, "monotonic", look)
    return times


def test_the_time_of_a_block(looks: list[float]) -> None:
    with timed():
        assert list(in_time(range(9))) == [*range(9)] and looks == [0.0]  # no limit, no look
    with limited_time(3.0):
        assert time_limit() == 3.0
        assert list(in_time(range(9))) == [*range(9)]  # outside of any utterance
        for _ in range(2):  # each has its own time
            with timed():
                assert list(in_time(range(3))) == [0, 1, 2]
        with pytest.raises(OutOfTime, match=r"took more than 3 s \(--max-seconds\)"), timed():
            for _ in in_time(range(9)):
                pass
        check_time()
    assert time_limit() is None


def test_other_threads_have_their_own_time(looks: list[float]) -> None:
    done: list[int] = []
    with limited_time(1.0), timed():
        for _ in range(5):
            deadline.monotonic()
        thread = Thread(target=lambda: done.extend(in_time(range(9))))
        thread.start()
        thread.join()
        assert done == [*range(9)]
        with pytest.raises(OutOfTime):
            check_time()


@pytest.mark.parametrize("name", zoo.ALL)
def test_every_lm_looks_at_the_time(name: str, looks: list[float], tmp_path: Path) -> None:
    """The more often the more it has to do."""
    lm = zoo.make(name, tmp_path)
    looked_at(lm.score_hypotheses, looks)


@pytest.mark.parametrize("name", ["hf", "hf-mlm"])
def test_models_of_hugging_face(name: str, looks: list[float], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    folder = hugging_face.bert(tmp_path / "lm") if name == "hf-mlm" else hugging_face.words(tmp_path / "lm")
    lm: Any = load(f"{name}:{folder}?case=mixed&long=windows")
    looked_at(lm.score_hypotheses, looks)
    if name == "hf":
        looked_at(lm.score_words, looks)
        lm._takes_trees = False
        looked_at(lm.score_hypotheses, looks)


def looked_at(score: Callable[..., Any], looks: list[float]) -> None:
    score(FEW, None)  # what is done once
    with limited_time(1e6), timed():
        begin = looks[-1]
        score(FEW, None)
        few = looks[-1] - begin
    with limited_time(few + 1), timed():
        score(FEW, None)
    with pytest.raises(OutOfTime), limited_time(few + 1), timed():
        score(MANY, None)


def test_time_that_is_over_does_not_change_how_trees_are_scored(looks: list[float], tmp_path: Path) -> None:
    """Whether a model of Hugging Face takes trees is tried once, and its errors say that it does not."""
    pytest.importorskip("transformers")
    lm: Any = load(f"hf:{hugging_face.words(tmp_path / 'lm')}")
    with pytest.raises(OutOfTime), limited_time(0.5), timed():
        lm.takes_trees()
    assert lm._takes_trees is None and lm.takes_trees()
