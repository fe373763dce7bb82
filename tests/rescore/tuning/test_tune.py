"""Tuning against grids and planted scales, and what it reports."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from rescore.errors import ReferencesError, ScoreError, UsageError, WeightsError
from rescore.evaluation.wer import corpus_errors, count_errors
from rescore.files import write_kaldi_text
from rescore.formats import write_nbest
from rescore.tuning.descent import point_at, rounded, search
from rescore.tuning.line_search import PaddedLists
from rescore.tuning.score_table import ScoreTable, build_table
from rescore.tuning.settings import Settings, tune
from rescore.tuning.tune import choose_fixed, cross_fit, make_problem, percent, tune_errors
from rescore.types import Hypothesis, NbestList, Weights, Words
from rescore.weights import load_weights, save_weights
from rescore.workflows.combine import combine_list
from rescore.workflows.tune import summary, tune_folder

VOCABULARY = [f"W{i}" for i in range(30)]


def make_set(utterances: int, seed: int, noise: float = 3.0) -> tuple[list[NbestList], dict[str, Words]]:
    """Lists whose scores `am`, `lm1`, `lm2` fall with the errors, each with its own noise, plus a column of noise."""
    rng = np.random.default_rng(seed)
    lists, refs = [], {}
    for u in range(utterances):
        ref = tuple(rng.choice(VOCABULARY, rng.integers(3, 12)))
        hyps = []
        for _ in range(rng.integers(1, 13)):
            words = [word if rng.random() > 0.25 else str(rng.choice(VOCABULARY)) for word in ref]
            words = [word for word in words if rng.random() > 0.05] + ["W0"] * int(rng.random() < 0.2)
            errors = count_errors(ref, words).errors
            scores = {
                "am": 20 * (-errors + noise * rng.standard_normal()),
                "lm1": 2 * (-errors + noise * rng.standard_normal()) - 0.5 * len(words),
                "lm2": 5 * (-errors + 2 * noise * rng.standard_normal()),
                "noise": rng.standard_normal(),
            }
            hyps.append(Hypothesis(tuple(words), {name: float(score) for name, score in scores.items()}))
        lists.append(NbestList(f"u{u}", hyps))
        refs[f"u{u}"] = ref
    return lists, refs


def make_table(utterances: int = 40, seed: int = 0, noise: float = 3.0) -> ScoreTable:
    return build_table(*make_set(utterances, seed, noise))


def tuned(*arguments: Any, **settings: Any) -> Weights:
    """The scales alone."""
    return tune_errors(*arguments, **settings)[0]


def slow_errors(table: ScoreTable, scales: np.ndarray) -> int:
    """Errors of the first best hypothesis of each list, one list after another."""
    errors = 0
    for begin, end in itertools.pairwise(table.offsets):
        totals = [sum(s * x for s, x in zip(scales, row, strict=True)) for row in table.matrix[begin:end].tolist()]
        errors += int(table.errors[begin + totals.index(max(totals))])
    return errors


@pytest.mark.parametrize(
    ("objective", "name"),
    [("errors", "ilm"), ("risk", "ilm"), ("risk", "old-ngram"), ("errors", "b-uncertainty"), ("risk", "b-uncertainty")],
)
def test_an_lm_to_be_taken_out_gets_a_negative_scale(objective: str, name: str, tmp_path: Path) -> None:
    """`am` holds an LM that says nothing of the errors: taken out, the rest tells."""
    lists, refs = make_set(60, 3)
    rng = np.random.default_rng(1)
    for nbest in lists:
        for hyp in nbest.hyps:
            internal = 60.0 * float(rng.standard_normal())
            errors = count_errors(refs[nbest.utt_id], hyp.words).errors
            hyp.scores = {"am": -20.0 * errors + internal, name: internal}
    write_nbest(f"jsonl:{tmp_path / 'scores.jsonl.gz'}", lists)
    write_kaldi_text(tmp_path / "ref", refs)
    settings = Settings({}, objective, "map", 0, 5, 0 if objective == "errors" else 3)
    weights, *_ = tune_folder(tmp_path, tmp_path / "ref", settings, "tune")
    assert weights.scales[name] < -0.5 * weights.scales["am"] < 0
    best = {nbest.utt_id: combine_list(nbest, weights).hyps[0].words for nbest in lists}
    fewest = {
        n.utt_id: min(n.hyps, key=lambda hyp: count_errors(refs[n.utt_id], hyp.words).errors).words for n in lists
    }
    assert corpus_errors(refs, best).errors <= 1.05 * corpus_errors(refs, fewest).errors


def test_table_holds_scores_words_and_errors() -> None:
    lists, refs = make_set(5, 0)
    table = build_table(iter(lists), refs)
    assert table.names == ["am", "lm1", "lm2", "noise", "words"]
    assert table.utt_ids == list(refs) and table.total_words == sum(map(len, refs.values()))
    hyps = [(hyp, refs[nbest.utt_id]) for nbest in lists for hyp in nbest.hyps]
    assert table.errors.tolist() == [count_errors(ref, hyp.words).errors for hyp, ref in hyps]
    assert table.matrix[:, 4].tolist() == [len(hyp.words) for hyp, _ in hyps]
    assert table.matrix[:, 1].tolist() == [hyp.scores["lm1"] for hyp, _ in hyps]
    part = table.select(np.array([3, 1]))
    assert part.utt_ids == ["u3", "u1"] and part.offsets[-1] == len(lists[3].hyps) + len(lists[1].hyps)
    assert part.matrix[0].tolist() == table.matrix[table.offsets[3]].tolist()
    own = [np.std(table.matrix[a:b], axis=0) ** 2 * (b - a) for a, b in itertools.pairwise(table.offsets)]
    assert table.spread() == pytest.approx(np.sqrt(np.sum(own, axis=0) / len(table.errors)))


def test_bad_tables_say_what_is_wrong() -> None:
    lists, refs = make_set(4, 0)
    with pytest.raises(ReferencesError, match=r"1 of 4 references have no N-best lists \(u0\)"):
        build_table(lists[1:], refs)
    with pytest.raises(ReferencesError, match=r"1 of 4 N-best lists have no reference \(u3\)"):
        build_table(lists, {utt_id: refs[utt_id] for utt_id in ("u0", "u1", "u2")})
    with pytest.raises(ScoreError, match="u1 occurs a second time"):
        build_table([*lists, lists[1]], refs)
    with pytest.raises(ScoreError, match="u0: no hypothesis"):
        build_table([NbestList("u0", []), *lists[1:]], refs)
    with pytest.raises(ReferencesError, match="letter case"):
        build_table(lists, {utt_id: tuple(w.lower() for w in ref) for utt_id, ref in refs.items()})
    lists[2].hyps[-1].scores["lm1"] = float("inf")
    with pytest.raises(ScoreError, match=r"u2: hypothesis \d+ has the score lm1 = inf"):
        build_table(lists, refs)
    lists[2].hyps[-1].scores["lm1"] = -1e160
    with pytest.raises(ScoreError, match=r"u2: hypothesis \d+ has the score lm1 = -1e\+160; to tune, .* from -1e\+100"):
        build_table(lists, refs)
    lists[2].hyps[-1].scores["lm1"] = cast(float, None)
    with pytest.raises(ScoreError, match=r"u2: hypothesis \d+ has the score lm1 = None"):
        build_table(lists, refs)
    del lists[2].hyps[-1].scores["lm1"]
    with pytest.raises(ScoreError, match=r"u2: hypothesis \d+ has no score 'lm1', which utterance u0 has; found: am"):
        build_table(lists, refs)


@pytest.mark.parametrize("objective", ["errors", "risk"])
def test_the_largest_scores_and_fixed_scales(objective: str) -> None:
    lists, refs = make_set(10, 3)
    for nbest in lists:
        for hyp in nbest.hyps:
            hyp.scores = {"am": 1e97 * hyp.scores["am"], "lm1": hyp.scores["lm1"]}
    table = build_table(lists, refs, distances=True)
    scales = tune(table, Settings({"am": 1e50}, objective, folds=2))[0].scales
    assert scales["am"] == 1e50 and np.isfinite(list(scales.values())).all()
    with pytest.raises(UsageError, match=r"the fixed scale of 'am' is 1e\+300, expected one from -1e\+50 to 1e\+50"):
        tune(table, Settings({"am": 1e300}, objective))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_a_coarse_grid_never_beats_tuning(seed: int) -> None:
    table = make_table(30, seed, noise=1.0 + seed)
    weights = tuned(table, seed=seed, restarts=6, folds=0)
    lists = PaddedLists.from_table(table)
    grid = itertools.product((1.0,), (0, 2, 5, 10, 20), (0, 1, 2, 4, 8), (0, 5, 20), (-20, -5, 0, 5, 20))
    assert weights.info["errors"] <= min(lists.count(np.array(point, dtype=float)) for point in grid)
    assert weights.info["errors"] <= lists.count(np.array([1.0, 0, 0, 0, 0]))
    assert weights.info["errors"] >= table.oracle_errors()


def test_two_scales_reach_the_best_of_a_fine_grid() -> None:
    lists, refs = make_set(25, 11)
    for nbest in lists:
        for hyp in nbest.hyps:
            hyp.scores = {"am": hyp.scores["am"], "lm": hyp.scores["lm1"], "words": 0.0}
    table = build_table(lists, refs)
    found = tuned(table, folds=0)
    padded = PaddedLists.from_table(table)
    fine = min(padded.count(np.array([1.0, lm, 0.0])) for lm in np.arange(0, 500, 0.02))
    assert found.info["errors"] == fine
    assert found.scales["words"] == 0.0  # the same in every list


@pytest.mark.slow
def test_large_sets_are_searched_on_a_sample_first_and_then_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(40, 9)
    whole = tuned(table, restarts=3, folds=0)
    monkeypatch.setattr("rescore.tuning.descent.SAMPLE", 120)
    sampled = tuned(table, restarts=3, folds=0)
    assert sampled.info["errors"] == slow_errors(table, np.array([sampled.scales[name] for name in table.names]))
    assert sampled.info["errors"] <= 1.1 * whole.info["errors"]


def test_planted_scales_are_found() -> None:
    # The hypothesis with the highest am + 7 lm - 3 words has no errors, all others have one.
    rng = np.random.default_rng(0)
    utterances, hyps = 200, 10
    matrix = rng.standard_normal((utterances * hyps, 3)) * (7.0, 1.0, 2.0)
    totals = (matrix @ (1.0, 7.0, -3.0)).reshape(utterances, hyps)
    errors = np.ones((utterances, hyps), dtype=np.int64)
    errors[np.arange(utterances), totals.argmax(axis=1)] = 0
    offsets = np.arange(0, utterances * hyps + 1, hyps)
    ids = [f"u{i}" for i in range(utterances)]
    table = ScoreTable(["am", "lm", "words"], ids, offsets, matrix, errors.ravel(), np.full(utterances, 10))
    weights = tuned(table, restarts=2, folds=2)
    assert weights.info["errors"] == 0
    assert (weights.scales["am"], weights.scales["lm"], weights.scales["words"]) == (
        1.0,
        pytest.approx(7.0, rel=0.05),
        pytest.approx(-3.0, rel=0.05),
    )
    low, high = weights.info["flat_region"]["lm"]["same"]
    assert low <= weights.scales["lm"] <= high
    assert weights.info["cv_wer"] < 1.0


@pytest.mark.slow
def test_the_same_seed_gives_the_same_scales() -> None:
    table = make_table(20)
    first, second = (tuned(table, seed=5, restarts=2, folds=2) for _ in range(2))
    assert first == second


def test_reported_errors_are_those_of_combination(tmp_path: Path) -> None:
    lists, refs = make_set(40, 2)
    weights = tuned(build_table(lists, refs), restarts=3, folds=0)
    save_weights(tmp_path / "w.json", weights)
    read = load_weights(tmp_path / "w.json")
    assert read == weights
    best = {nbest.utt_id: combine_list(nbest, read).hyps[0].words for nbest in lists}
    counts = corpus_errors(refs, best)
    assert counts.errors == weights.info["errors"]
    assert weights.info["wer"] == pytest.approx(counts.wer, abs=1e-3)


def test_lm_scales_are_not_negative_but_the_word_reward_may_be() -> None:
    lists, refs = make_set(40, 3)
    for nbest in lists:
        for hyp in nbest.hyps:
            hyp.scores["bad"] = -hyp.scores["lm1"]  # only a negative scale could make use of it
            del hyp.scores["lm1"]
            hyp.words = hyp.words + ("X",) * count_errors(refs[nbest.utt_id], hyp.words).errors
    weights = tuned(build_table(lists, refs), restarts=3, folds=0)
    assert all(scale >= 0 for name, scale in weights.scales.items() if name != "words")
    assert weights.scales["words"] < 0


def test_fixed_scales() -> None:
    def of(*columns: str) -> ScoreTable:
        return build_table([NbestList("u", [Hypothesis(("A",), dict.fromkeys(columns, -1.0))])], {"u": ("A",)})

    names = of("lm", "am", "words")
    assert choose_fixed(names, {}) == {"am": 1.0}
    assert choose_fixed(names, {"lm": 0.0}) == {"lm": 0.0, "am": 1.0}
    assert choose_fixed(names, {"lm": 2.0}) == {"lm": 2.0}
    assert choose_fixed(of("lm", "words"), {}) == {"lm": 1.0}
    with pytest.raises(WeightsError, match="no score 'nnlm', whose scale is to be fixed; found: lm, am, words"):
        choose_fixed(names, {"nnlm": 1.0})
    with pytest.raises(UsageError, match="fixed at 0"):
        choose_fixed(of("am"), {"am": 0.0, "words": 0.0})
    table = make_table()
    weights = tuned(table, {"lm1": 0.0, "am": 0.5}, restarts=2, folds=0)
    assert weights.scales["lm1"] == 0.0 and weights.scales["am"] == 0.5
    assert tuned(table, {"am": 0.123456}, restarts=2, folds=0).scales["am"] == 0.123456
    everything = dict.fromkeys(table.names, 1.0)
    assert tuned(table, everything, folds=2).scales == everything
    with pytest.raises(UsageError, match="restarts must be at least 1"):
        tuned(table, restarts=0)


@pytest.mark.slow
def test_multiplying_a_column_divides_its_scale() -> None:
    table = make_table(30, 7)
    weights = tuned(table, restarts=3, folds=0)
    table.matrix = table.matrix * np.array([1.0, 8.0, 0.25, 1.0, 1.0])  # powers of 2: exact
    other = tuned(table, restarts=3, folds=0)
    assert other.info["errors"] == weights.info["errors"]
    assert other.scales["lm1"] == pytest.approx(weights.scales["lm1"] / 8, rel=0.01)
    assert other.scales["lm2"] == pytest.approx(weights.scales["lm2"] * 4, rel=0.01)


def test_flat_regions_are_flat() -> None:
    table = make_table(40, 1)
    weights = tuned(table, restarts=3, folds=0)
    scales = np.array([weights.scales[name] for name in table.names])
    for name, intervals in weights.info["flat_region"].items():
        for title, slack in (("same", 0.0), ("within_0.1", 0.001 * table.total_words)):
            low, high = intervals[title]
            assert low <= weights.scales[name] <= high
            for part in np.linspace(0.01, 0.99, 9):
                moved = scales.copy()
                moved[table.names.index(name)] = low + part * (high - low)
                if low < moved[table.names.index(name)] < high:
                    assert slow_errors(table, moved) <= weights.info["errors"] + slack


def test_rounding_keeps_the_errors() -> None:
    table = make_table(40, 4)
    problem = make_problem(table, {"am": 1.0})
    found = search(problem, np.random.default_rng(0), 2)
    assert problem.lists.count(rounded(problem, found)) == found.errors == point_at(problem, found.scales).errors


def test_cross_validation_uses_each_utterance_once_and_never_its_own_scales() -> None:
    table = make_table(20, 5)
    result = cross_fit(table, {"am": 1.0}, seed=3, restarts=1, folds=2)
    assert sorted(np.concatenate(result.parts)) == list(range(20))
    errors = 0
    for fold, part in enumerate(result.parts):
        others = np.array([u for u in range(20) if u not in part])
        found = search(make_problem(table.select(others), {"am": 1.0}), np.random.default_rng([3, fold]), 1)
        errors += slow_errors(table.select(part), found.scales)
    assert result.errors(table) == errors
    assert "2 folds" in result.how and "seed 3" in result.how
    assert tuned(table, {"am": 1.0}, seed=3, restarts=1, folds=2).info["cv_wer"] == percent(errors, table.total_words)
    assert tuned(table, {"am": 1.0}, restarts=2, folds=1).info["cv_wer"] is None
    assert percent(errors, table.total_words) >= tuned(table, restarts=3, folds=0).info["wer"]


def test_a_speaker_is_in_one_fold() -> None:
    table = replace(make_table(24, 5), utt_ids=[f"spk{number % 6}-{number}" for number in range(24)])
    result = cross_fit(table, {"am": 1.0}, seed=0, restarts=1, folds=3)
    speakers = [{table.utt_ids[u].split("-")[0] for u in part} for part in result.parts]
    assert len(speakers) == 3 and sum(map(len, speakers)) == 6 and "6 groups of utterances" in result.how


def test_one_hypothesis_each_leaves_nothing_to_tune() -> None:
    lists, refs = make_set(5, 0)
    for nbest in lists:
        nbest.hyps = nbest.hyps[:1]
    weights = tuned(build_table(lists, refs))
    assert weights.scales == {"am": 1.0, "lm1": 0.0, "lm2": 0.0, "noise": 0.0, "words": 0.0}
    assert weights.info["flat_region"] == {}


def test_weights_of_a_folder_say_how_they_were_made(tmp_path: Path) -> None:
    lists, refs = make_set(20, 6)
    write_nbest(f"jsonl:{tmp_path / 'dev' / 'scores.jsonl.gz'}", lists)
    write_kaldi_text(tmp_path / "dev.text", refs)
    settings = Settings({}, seed=1, restarts=2, folds=2)
    weights, *_ = tune_folder(tmp_path / "dev", tmp_path / "dev.text", settings, command="rescore tune ...")
    info = weights.info
    assert info["data"]["scores"]["file"] == "scores.jsonl.gz" and len(info["data"]["ref"]["sha256"]) == 64
    assert (info["data"]["utterances"], info["data"]["words"]) == (20, sum(map(len, refs.values())))
    assert (info["seed"], info["restarts"], info["columns"][0], info["fixed"]) == (1, 2, "am", {"am": 1.0})
    assert str(tmp_path) not in str(weights)
    assert [line.split()[0] for line in summary(weights)][2:] == ["am", "lm1", "lm2", "noise", "words"]


@pytest.mark.parametrize("fixed", [{}, {"lm": 0.0}, {"am": 2.0}])
@pytest.mark.parametrize("seed", range(4))
def test_on_a_flat_optimum_the_scales_are_small(seed: int, fixed: dict[str, float]) -> None:
    """No scale changes an error beyond the point where it has done its work, however large it gets."""
    rng = np.random.default_rng(seed)
    lists, refs = [], {}
    for u in range(6):
        right = {"am": 0.0, "lm": -1.0 - rng.random(), "words": 0.0}
        wrong = {"am": -1.0 - rng.random(), "lm": -5.0, "words": 0.0}
        lists.append(NbestList(f"u{u}", [Hypothesis(("A", "B"), right), Hypothesis(("A",), wrong)]))
        refs[f"u{u}"] = ("A", "B")
    weights = tuned(build_table(lists, refs), fixed, restarts=3, folds=0, seed=seed)
    assert weights.info["errors"] == 0
    assert abs(weights.scales["words"]) < 1.0 and weights.scales["lm"] < 1.0, weights.scales


@pytest.mark.parametrize("seed", range(4))
def test_a_scale_that_must_be_large_is_no_larger_than_that(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists = []
    for u in range(8):
        right = {"am": -2.0 - rng.random(), "lm": -1.0}
        wrong = {"am": 0.0, "lm": -2.0}
        lists.append(NbestList(f"u{u}", [Hypothesis(("B",), wrong), Hypothesis(("A",), right)]))
    weights = tuned(build_table(lists, {f"u{u}": ("A",) for u in range(8)}), restarts=3, folds=0, seed=seed)
    assert weights.info["errors"] == 0 and 2.0 < weights.scales["lm"] < 6.0


@pytest.mark.parametrize("seed", [68, 69, 70])
def test_no_grid_of_two_scales_beats_tuning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    utterances, hyps = 12, 8
    matrix, errors = rng.standard_normal((utterances * hyps, 3)), rng.integers(0, 6, utterances * hyps)
    matrix[:, :2] -= 0.3 * errors[:, None]
    offsets, ids = np.arange(0, utterances * hyps + 1, hyps), [f"u{u}" for u in range(utterances)]
    table = ScoreTable(["am", "lm", "words"], ids, offsets, matrix, errors, np.full(utterances, 10))
    axis = np.geomspace(0.01, 20, 60)
    grid = np.array([(1.0, lm, words) for lm in [0, *axis] for words in [*-axis, 0, *axis]])
    assert tuned(table, folds=0).info["errors"] <= PaddedLists.from_table(table).count_all(grid).min()


def test_references_without_a_word() -> None:
    lists, refs = make_set(3, 0)
    with pytest.raises(ReferencesError, match="all references are empty: there is no word to count errors by"):
        tuned(build_table(lists, dict.fromkeys(refs, ())))
