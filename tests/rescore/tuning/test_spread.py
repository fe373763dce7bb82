"""Units of scales: the standard deviation within lists, but for values far out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rescore.tuning.lattice_line_search import lattice_table
from rescore.tuning.minimum_risk import length_neutral
from rescore.tuning.score_table import ScoreTable, build_table
from rescore.tuning.settings import Settings, tune
from rescore.tuning.spread import deviation, far_out, say_far_out, spread
from rescore.types import Hypothesis, Lattice, NbestList, Words


def offsets_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)])


def make_set(lowest: float, utterances: int = 40) -> tuple[list[NbestList], dict[str, Words]]:
    """Both scores fall with the errors; the last hypothesis of utterance u7, with 4 of 8 errors, has lm = `lowest`."""
    rng = np.random.default_rng(5)
    lists, refs = [], {}
    for u in range(utterances):
        hyps = []
        for errors in rng.permutation([*rng.integers(0, 4, 9), 4]).tolist():
            scores = {"am": -errors + 3 * rng.standard_normal(), "lm": -20 - 2 * errors + 2 * rng.standard_normal()}
            hyps.append(Hypothesis(("X",) * errors + ("A",) * (8 - errors), scores))
        hyps.sort(key=lambda hyp: (hyp.words.count("X") == 4, -hyp.scores["am"]))
        lists.append(NbestList(f"u{u}", hyps))
        refs[f"u{u}"] = ("A",) * 8
    lists[7].hyps[-1].scores["lm"] = lowest
    return lists, refs


def make_table(lowest: float) -> ScoreTable:
    return build_table(*make_set(lowest), distances=True)


@pytest.mark.parametrize("objective", ["errors", "risk"])
@pytest.mark.parametrize("lowest", [-1e4, -1e10, -1e30])
def test_a_value_far_out_leaves_the_scales_as_they_are(
    objective: str, lowest: float, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings({}, objective, "map" if objective == "errors" else "mbr", folds=2)
    ordinary, _ = tune(make_table(-30.0), settings)
    assert "far out" not in capsys.readouterr().err
    weights, _ = tune(make_table(lowest), settings)
    assert weights.info["errors"] == ordinary.info["errors"]
    assert weights.scales["lm"] == pytest.approx(ordinary.scales["lm"], rel=0.05)
    said = capsys.readouterr().err
    assert said.count("lm: 1 of 400 values are so far out") == 1 and f"(utterance u7 has lm = {lowest:g})" in said


def test_a_list_of_which_all_values_are_far_out_does_not_count() -> None:
    usual = np.random.default_rng(0).standard_normal((30, 1))
    values, offsets = np.append(usual, [[-1e10], [1e10]], axis=0), offsets_of([10, 20, 2])
    assert far_out(values[:, 0], offsets).nonzero()[0].tolist() == [30, 31]
    assert spread(values, offsets) == pytest.approx(deviation(usual, offsets_of([10, 20])))


def test_the_spread_of_ordinary_values_is_their_deviation() -> None:
    rng = np.random.default_rng(0)
    offsets = offsets_of([1, 2, 30, 7, 2])
    values = np.stack([rng.standard_normal(42), 1e5 + rng.standard_t(3, 42), np.arange(42.0) % 3, np.ones(42)], axis=1)
    assert spread(values, offsets).tolist() == deviation(values, offsets).tolist()
    values[:, 3] = 0.0
    values[4, 3] = -7.0  # different in one list alone
    assert spread(values, offsets).tolist() == deviation(values, offsets).tolist()
    values[4, 3], values[5, 3] = 1e-9, -7.0  # rounding tells nothing of what is far
    assert spread(values, offsets).tolist() == deviation(values, offsets).tolist()


@pytest.mark.parametrize("lengths", [[2] * 20, [3] * 12 + [4], [40], [1, 39], [1, 2, 3, 4, 5, 6, 19]])
def test_the_spread_leaves_out_values_that_are_far_out(lengths: list[int]) -> None:
    rng = np.random.default_rng(1)
    values, offsets = rng.standard_normal((40, 2)), offsets_of(lengths)
    usual = deviation(values, offsets)
    for value in (-1e4, -1e10, 1e30):
        values[[12, 30], 1] = value
        found = spread(values, offsets)
        assert found[0] == usual[0] and 0.7 * usual[1] < found[1] < 1.3 * usual[1]
        assert set(np.flatnonzero(far_out(values[:, 1], offsets))) >= {12, 30}


def test_word_rewards_go_by_usual_values() -> None:
    """Of a recogniser of probabilities: an LM's scale comes with the reward of its mean a word."""
    rewards = []
    for lowest in (-30.0, -1e10):
        table = make_table(lowest)
        table.matrix[:, 0] = np.log(0.05)
        columns = [table.names.index("lm"), table.names.index("words")]
        rewards.append(length_neutral(table, table.matrix[:, [0, *columns]], columns))
    assert rewards[0].any() and rewards[1] == pytest.approx(rewards[0], rel=0.01)


def word_lattice(utt_id: str, lm: list[float]) -> Lattice:
    """One arc a word, side by side."""
    n = len(lm)
    scores = {"am": -np.arange(float(n)), "lm": np.array(lm)}
    arcs = np.zeros(n, dtype=np.int32)
    return Lattice(utt_id, 2, arcs, arcs + 1, np.arange(1, n + 1, dtype=np.int32), scores, ["", *"ABCDEFG"[:n]])


def test_lattices_with_a_value_far_out(capsys: pytest.CaptureFixture[str]) -> None:
    def lattices(lowest: float) -> Iterator[Lattice]:
        """B is right in all but one, and the LM knows."""
        yield word_lattice("low", [-5.0, lowest])
        for u in range(20):
            yield word_lattice(f"u{u}", [-4.0, -2.0 - 0.05 * u, -5.0])

    refs = {"low": ("A",), **{f"u{u}": ("B",) for u in range(20)}}
    tables = [lattice_table(lattices(lowest), refs) for lowest in (-6.0, -1e10)]
    for table in tables:  # no scale makes it the best path: it is met where it is looked at
        table.utterances[0].errors(np.array([1]))
    say_far_out(tables[0])
    assert capsys.readouterr().err == ""
    assert tables[1].spread() == pytest.approx(tables[0].spread(), rel=0.1)
    say_far_out(tables[1])
    assert "(utterance low has lm = -1e+10)" in capsys.readouterr().err
