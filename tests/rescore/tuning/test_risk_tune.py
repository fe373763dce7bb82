"""Scales that generalise: what is chosen, what is left out, and when nothing is to be rescored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rescore.errors import UsageError
from rescore.files import read_kaldi_text
from rescore.formats import read_nbest
from rescore.tuning.decisions import MIDDLE, SHARPNESS, CrossFit, Decider, decide_mbr, inverses, totals
from rescore.tuning.minimum_risk import RiskProblem
from rescore.tuning.risk_tune import HeldOut, RiskTuned, _sample, checked_by_folds, cross_validated, tune_risk
from rescore.tuning.score_table import ScoreTable, build_table
from rescore.tuning.selection import (
    STRENGTHS,
    STRONG,
    USUAL,
    WEAK,
    Candidate,
    best_sharpness,
    compared,
    smallest,
    usual,
)
from rescore.tuning.settings import Settings, tune
from rescore.types import Hypothesis, NbestList, Weights
from rescore.workflows.combine import combine_list, write_combined
from rescore.workflows.tune import summary
from tests.rescore.tuning.test_tune import make_set

AM = {"am": 1.0}


def best_first(utterances: int, seed: int, noise: float = 3.0) -> ScoreTable:
    """The lists of `make_set` in the order of `am`, with distances."""
    lists, refs = make_set(utterances, seed, noise)
    return build_table([combine_list(nbest, Weights(AM)) for nbest in lists], refs, distances=True)


def without(table: ScoreTable, *names: str) -> ScoreTable:
    """Other columns than these are noise."""
    matrix = table.matrix.copy()
    rng = np.random.default_rng(0)
    for k, name in enumerate(table.names):
        if name in names:
            matrix[:, k] = rng.standard_normal(len(matrix))
    return replace(table, matrix=matrix)


@pytest.mark.parametrize("decision", ["map", "mbr"])
def test_columns_that_help_are_used_and_noise_is_left_out(decision: str) -> None:
    table = best_first(200, 0)
    selected = tune_risk(table, AM, decision, folds=3, seed=0, select=True)
    chosen = [table.names[k] for k in selected.chosen]
    assert chosen and "noise" not in chosen and selected.scales[table.names.index("noise")] == 0.0
    tuned = tune_risk(table, AM, decision, folds=3, seed=0)
    assert tuned.decision == decision and tuned.held_out is not None and tuned.held_out.p_first < 0.01
    fresh = best_first(300, 1)
    assert tuned.errors(fresh).sum() < 0.95 * fresh.errors[fresh.offsets[:-1]].sum()


def test_selected_columns_are_judged_on_utterances_that_they_were_not_chosen_on() -> None:
    table = best_first(40, 0)
    weights, fits = tune(table, Settings({}, "risk", "map", folds=2, select=True))
    assert weights.info["held_out"]["rescored_wer"] == weights.info["cv_wer"]
    assert fits.utterance_errors(table).sum() == fits.errors(table)
    tuned = RiskTuned(np.array([1.0, 4.0, 0.0, 0.0, 0.0]), "map")
    worse = CrossFit("", [np.arange(40)], [Decider(np.array([1.0, 0.0, 0.0, 100.0, 0.0]), "map")])
    kept = checked_by_folds(tuned, table, AM, worse)
    assert kept.decision == "first" and kept.scales.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert kept.held_out is not None and kept.held_out.rescored == worse.errors(table)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"seed": -1}, "the seed is -1, expected 0 or more"),
        ({"select": True, "objective": "errors"}, "columns are selected with objective risk alone, found errors"),
        ({"select": True, "objective": "risk", "folds": 1}, "there must be two at least, found 1"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings({}, **given)


def test_fixed_scales_are_not_rounded() -> None:
    tuned = tune_risk(best_first(20, 2), {"am": 0.123456}, "map", folds=0, seed=0)
    assert tuned.scales[0] == 0.123456


@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_helps_the_first_pass_is_kept(seed: int) -> None:
    table = without(best_first(60, seed, noise=0.3), "lm1", "lm2", "words")
    tuned = tune_risk(table, AM, "map", folds=4, seed=0)
    assert tuned.decision == "first" and tuned.scales.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert tuned.errors(table).tolist() == table.errors[table.offsets[:-1]].tolist()


def test_the_same_seed_gives_the_same_scales() -> None:
    table = best_first(20, 2)
    first, second = (tune_risk(table, AM, "mbr", 2, seed=4) for _ in range(2))
    assert first.scales.tolist() == second.scales.tolist() and first.inverse == second.inverse


def test_each_fold_is_tuned_on_the_others_alone() -> None:
    """Other references of a fold change nothing of its scales."""
    table = best_first(20, 3, noise=1.5)
    fits = cross_validated(table, AM, "map", 2, seed=0)
    errors = table.errors.copy()
    for u in fits.parts[1]:
        errors[table.offsets[u] : table.offsets[u + 1]] = 7
    other = cross_validated(replace(table, errors=errors), AM, "map", 2, seed=0)
    assert fits.deciders[1].scales.tolist() == other.deciders[1].scales.tolist()
    assert str(fits.deciders[0]) != str(other.deciders[0])
    assert np.sort(np.concatenate(fits.parts)).tolist() == list(range(20))


def test_without_folds_every_column_is_used() -> None:
    table = best_first(30, 4)
    tuned = tune_risk(table, AM, "map", folds=0, seed=0)
    assert len(tuned.chosen) == 4 and tuned.held_out is None and tuned.in_folds is None
    assert cross_validated(table, AM, "map", 1, 0).parts == []


def test_a_scale_that_is_nearly_0_is_0() -> None:
    """Where the fixed scores alone make no error, the sharpest posteriors are the best, and noise comes to nothing."""
    rng = np.random.default_rng(1)
    lists = []
    for n in range(30):
        right = Hypothesis(("A",), {"am": 0.0, "noise": float(rng.normal())})
        wrong = Hypothesis(("B",), {"am": -float(rng.uniform(0.2, 3)), "noise": float(rng.normal())})
        lists.append(NbestList(f"u{n}", [right, wrong]))
    problem = RiskProblem.of(build_table(lists, dict.fromkeys((nbest.utt_id for nbest in lists), ("A",))), AM)
    for strength in STRENGTHS:
        (point,) = problem.fit(strength, problem.starts([np.random.default_rng(0)]))
        assert point[1:].tolist() == [0.0]


def test_an_internal_lm_may_be_taken_out() -> None:
    table = best_first(80, 5, noise=2.0)
    matrix = table.matrix.copy()
    matrix[:, table.names.index("noise")] = -2.0 * matrix[:, table.names.index("lm1")]
    table = replace(table, matrix=matrix, names=[name.replace("noise", "ilm") for name in table.names])
    tuned = tune_risk(table, {"am": 1.0, "lm1": 0.0}, "map", folds=2, seed=0)
    assert tuned.scales[table.names.index("ilm")] < 0


def test_decisions_are_those_of_combination() -> None:
    lists, refs = make_set(30, 6)
    table = build_table(lists, refs, distances=True)
    scales = np.array([1.0, 4.0, 0.5, 0.0, 2.0])
    named = dict(zip(table.names, scales.tolist(), strict=True))
    for decision in ("map", "mbr", "first"):
        info = {"decision": decision, "inverse_temperature": 0.03}
        rows = Decider(scales, decision, 0.03).rows(table)
        for nbest, row, begin in zip(lists, rows, table.offsets, strict=False):
            assert combine_list(nbest, Weights(named, info)).hyps[0] == nbest.hyps[row - begin]


def test_sharp_posteriors_choose_the_highest_total() -> None:
    table = best_first(30, 7)
    scales = np.array([1.0, 4.0, 0.5, 0.0, 2.0])
    rows = decide_mbr(table, totals(table, scales), np.array([1e6]))[0]
    assert rows.tolist() == Decider(scales, "map").rows(table).tolist()
    assert inverses(2.0 * totals(table, scales), table) == pytest.approx(0.5 * inverses(totals(table, scales), table))


def test_of_sharpnesses_that_are_hardly_worse_the_middle_one_is_taken() -> None:
    rng = np.random.default_rng(0)
    errors = np.tile(rng.integers(0, 9, 50), (len(SHARPNESS), 1))
    errors[2, :3] += [-1, -1, 1]
    assert best_sharpness(errors) == MIDDLE
    errors[: MIDDLE + 2] += 1
    assert best_sharpness(errors) == MIDDLE + 2


def candidate(errors: list[int]) -> Candidate:
    return Candidate((), 0.0, [], np.array(errors), np.tile(errors, (len(SHARPNESS), 1)))


def test_of_sets_that_are_hardly_worse_the_smallest_is_taken() -> None:
    """One error more, standard error `sqrt(4) * std`; and five more, all alike."""
    path = [candidate([3, 3, 3, 3]), candidate([2, 2, 2, 3]), candidate([2, 2, 1, 3])]
    assert compared(path[1].errors, path[2].errors) == (1.0, pytest.approx(1.0))
    assert smallest(path) is path[1]
    assert smallest([candidate([3, 3, 3, 3]), candidate([2, 2, 2, 2])]).total == 8


def test_a_strength_is_left_only_for_one_that_is_clearly_better() -> None:
    """Eight errors in three of 100 utterances are 1.7 standard errors, 24 in nine are more than two."""
    none, lucky = np.zeros(100, dtype=int), np.zeros(100, dtype=int)
    lucky[:3] = [-2, -3, -3]
    clear = np.where(np.arange(100) < 9, np.resize(lucky[:3], 100), 0)
    path = [candidate(none.tolist()) for _ in STRENGTHS]
    more, error = compared(path[STRONG].errors, lucky)
    assert error < more < 2 * error
    path[-1] = candidate(lucky.tolist())
    assert usual(path, alone=none) is path[STRONG]
    path[-1] = candidate(clear.tolist())
    assert usual(path, alone=none) is path[-1]


def test_scales_are_held_the_weaker_the_more_scores_are_of_use() -> None:
    """No error fewer; ten, far more than a standard error; one, less than that."""
    path = [candidate([3] * 20) for _ in STRENGTHS]
    assert usual(path, alone=np.array([4, 2] * 10)) is path[STRONG]
    assert usual(path, alone=np.array([4, 3] * 10)) is path[WEAK]
    assert usual(path, alone=np.array([4, 2] * 9 + [4, 3])) is path[USUAL]


def test_weights_say_how_they_were_found_and_combine_repeats_the_decision(tmp_path: Path) -> None:
    lists, refs = make_set(40, 8)
    table = build_table(lists, refs, distances=True)
    weights, fits = tune(table, Settings({}, "risk", "mbr", seed=3, folds=3))
    info = weights.info
    assert (info["objective"], info["decision"], info["seed"], info["folds"]) == ("risk", "mbr", 3, 3)
    assert info["inverse_temperature"] > 0 and set(info["chosen"]) | set(info["left_out"]) == {*table.names} - {"am"}
    assert set(info["fold_scales"]) == set(info["chosen"]) and "3 folds" in info["cv_how"]
    assert info["cv_wer"] == pytest.approx(100 * fits.errors(table) / table.total_words, abs=1e-3)
    lines = summary(weights)
    assert any("minimum Bayes risk" in line for line in lines) and any("first hypotheses" in line for line in lines)
    write_combined(iter(lists), weights, tmp_path)
    hyps = read_kaldi_text(tmp_path / "1best.txt")
    rows = Decider(np.array(list(weights.scales.values())), "mbr", info["inverse_temperature"]).rows(table)
    words = [hyp.words for nbest in lists for hyp in nbest.hyps]
    assert list(hyps.values()) == [words[row] for row in rows]
    assert [nbest.hyps[0].words for nbest in read_nbest(f"jsonl:{tmp_path / 'nbest.jsonl.gz'}")] == list(hyps.values())


@pytest.mark.parametrize(
    ("utterances", "how"),
    [
        (2, "tuned on the other 1, at the usual strength;"),
        (3, "with what was chosen by a cross-validation of 2 folds within these;"),
        (7, "with what was chosen by a cross-validation of up to 6 folds within these;"),
        (20, "with what was chosen by a cross-validation of 10 folds within these;"),
    ],
)
def test_folds_that_were_used_are_named_and_few_utterances(
    utterances: int, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seven utterances in five folds: five or six are left to choose strength and decision by."""
    lists, refs = make_set(utterances, 8)
    weights, _ = tune(build_table(lists, refs, distances=True), Settings({}, "risk", "mbr"))
    assert how in weights.info["cv_how"]
    few = f"utterances to tune on: {utterances}: of so few" in capsys.readouterr().err
    assert few == (utterances < 20)


def test_what_counts_as_help() -> None:
    """Two errors fewer of 100 utterances, standard error sqrt(2): z = 1.4; or two more than the first hypotheses."""
    none, fewer = np.ones(100, dtype=np.int64), np.ones(100, dtype=np.int64)
    fewer[:2] = 0
    assert HeldOut.of(none, none, fewer, 500).helps
    assert HeldOut.of(none, none, fewer, 500).p_first == pytest.approx(0.0772, abs=1e-3)
    assert not HeldOut.of(none, none, none, 500).helps
    assert not HeldOut.of(none, fewer, none, 500).helps
    assert not HeldOut.of(np.zeros(100, dtype=np.int64), none, fewer, 500).helps
    assert HeldOut.of(fewer, 2 * none, fewer, 500).helps


def test_a_gain_that_is_the_same_everywhere_is_no_certainty() -> None:
    """Two utterances, each better by one: z = sqrt(2), as of the matched pairs of `rescore compare`."""
    held_out = HeldOut.of(np.array([2, 3]), np.array([1, 2]), np.array([1, 2]), 10)
    assert held_out.p_first == pytest.approx(0.0786, abs=1e-4) and held_out.p_alone == 0.5


@pytest.mark.parametrize(("utterances", "helps"), [(25, True), (100, True), (400, False)])
def test_a_few_utterances_rule_nothing_out(utterances: int, helps: bool) -> None:
    """Two errors more and two fewer: their standard error, 2, is 4 % of 50 errors, 1 % of 200, 0.25 % of 800."""
    alone = np.full(utterances, 2)
    rescored = alone + np.resize([1, -1, 1, -1, *[0] * (utterances - 4)], utterances)
    held_out = HeldOut.of(alone, alone, rescored, 20 * utterances)
    assert held_out.p_alone == 0.5 and held_out.at_most == pytest.approx(2.0, abs=0.05)
    assert held_out.helps is helps


def test_large_sets_choose_on_a_sample_and_tune_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    table = best_first(200, 9, noise=2.0)
    monkeypatch.setattr("rescore.tuning.risk_tune.LARGE", len(table.matrix) // 2)
    tuned = tune_risk(table, AM, "mbr", folds=3, seed=0)
    assert tuned.held_out is not None and tuned.held_out.words < table.total_words
    assert tuned.errors(table).sum() < table.errors[table.offsets[:-1]].sum()


@pytest.mark.parametrize("select", [False, True])
def test_a_column_that_is_constant_in_the_sample_of_a_large_set_exchanges_no_scales(
    select: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first score, which the sample does not see, the others' scales would have gone one place back."""
    table = best_first(200, 9, noise=2.0)
    limit = len(table.matrix) // 2
    monkeypatch.setattr("rescore.tuning.risk_tune.LARGE", limit)
    sampled = set(_sample(table, RiskProblem.of(table, AM), np.random.default_rng(0))[0].utt_ids)
    rows = np.repeat([utt_id not in sampled for utt_id in table.utt_ids], np.diff(table.offsets))
    rare = np.where(rows, 1e-3 * np.random.default_rng(1).standard_normal(len(rows)), 0.0)
    more = replace(table, names=["rare", *table.names], matrix=np.column_stack([rare, table.matrix]))
    without_it = tune_risk(table, AM, "map", folds=3, seed=0, select=select)
    tuned = tune_risk(more, AM, "map", folds=3, seed=0, select=select)
    assert tuned.strength == without_it.strength
    assert tuned.in_folds is not None and without_it.in_folds is not None and not tuned.in_folds[:, 0].any()
    same = np.isclose(tuned.in_folds[:, 1:], without_it.in_folds, rtol=0.01).all(axis=1)
    assert same.sum() >= len(same) - 1  # one more column is other random starts, and with these another local minimum
    assert tuned.scales[1:] == pytest.approx(without_it.scales, rel=0.3)
    if select:
        assert tuned.scales.tolist() == [0.0, *without_it.scales]


def test_a_sample_of_a_large_set_has_utterances_for_two_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescore.tuning.risk_tune.LARGE", 1)
    tuned = tune_risk(best_first(20, 9), AM, "map", folds=2, seed=0)
    assert tuned.held_out is not None and tuned.held_out.words > 0
