"""Weights files, and combination of scores into new lists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescore.errors import FormatError, RescoreError, ScoreError, UsageError, WeightsError
from rescore.evaluation.distances import nbest_expected_errors
from rescore.files import read_kaldi_text
from rescore.formats import read_nbest, write_nbest
from rescore.types import Hypothesis, NbestList, Weights
from rescore.weights import load_weights, parse_scales, save_weights, total
from rescore.workflows.combine import combine_list, read_scores, write_combined

finite = st.floats(-1e6, 1e6)


def make_list(utt_id: str = "a", **columns: list[float]) -> NbestList:
    """A list whose hypotheses are `W0`, `W0 W1`, ... with the given scores."""
    count = len(next(iter(columns.values())))
    hyps = [
        Hypothesis(tuple(f"W{j}" for j in range(i + 1)), {name: values[i] for name, values in columns.items()})
        for i in range(count)
    ]
    return NbestList(utt_id, hyps, ref=("W0",))


def test_weights_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    weights = Weights({"am": 1.0, "lm": 0.0, "words": -1 / 3}, {"seed": 3, "note": "é"})
    save_weights(tmp_path / "new" / "w.json", weights)
    assert load_weights(tmp_path / "new" / "w.json") == weights


def test_info_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"scales": {"lm": 2}}')
    assert load_weights(tmp_path / "w.json") == Weights({"lm": 2.0}, {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ("{'am': 1}", "not JSON"),
        ("[1]", 'no "scales"'),
        ('{"am": 1.0}', 'no "scales"'),
        ('{"scales": {}}', "at least one score"),
        ('{"scales": [1]}', "at least one score"),
        ('{"scales": {"lm": NaN}}', "scale of 'lm' is nan"),
        ('{"scales": {"lm": 1e999}}', "scale of 'lm' is inf"),
        ('{"scales": {"lm": "1"}}', "scale of 'lm' is '1'"),
        ('{"scales": {"lm": true}}', "scale of 'lm' is True"),
        ('{"scales": {"lm": null}}', "scale of 'lm' is None"),
        ('{"scales": {"lm": 1.0}, "info": 3}', '"info" is not an object'),
    ],
)
def test_bad_weights_files_say_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "w.json"
    path.write_text(content)
    with pytest.raises(RescoreError, match=message) as caught:
        load_weights(path)
    assert str(path) in str(caught.value)


def test_missing_weights_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file; `rescore tune`"):
        load_weights(tmp_path / "w.json")
    with pytest.raises(FormatError, match="is a folder"):
        load_weights(tmp_path)


def test_bad_weights_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="scale of 'am'"):
        save_weights(tmp_path / "w.json", Weights({"am": float("nan")}))
    assert not list(tmp_path.iterdir())


def test_scales_on_the_command_line() -> None:
    assert parse_scales(("lm=0.5", "words=-2", "am=0", "a=b=1")) == {"lm": 0.5, "words": -2.0, "am": 0.0, "a=b": 1.0}
    for bad in ("lm", "lm=", "=1", "lm=x", "lm=nan", "lm=inf"):
        with pytest.raises(UsageError, match="expected NAME=VALUE"):
            parse_scales((bad,))
    with pytest.raises(UsageError, match="'lm' is given twice"):
        parse_scales(("lm=1", "lm=1"))


def test_best_first_and_all_scores_kept() -> None:
    nbest = make_list(am=[-10.0, -12.0, -11.0], lm=[-5.0, -1.0, -4.0])
    result = combine_list(nbest, Weights({"am": 1.0, "lm": 1.0}))
    assert [total(hyp.scores, {"am": 1.0, "lm": 1.0}) for hyp in result.hyps] == [-13.0, -15.0, -15.0]
    assert [hyp.words for hyp in result.hyps] == [nbest.hyps[i].words for i in (1, 0, 2)]  # ties keep their order
    assert result.hyps[0].scores == {"am": -12.0, "lm": -1.0}
    assert result.ref == nbest.ref and result.utt_id == "a"


def test_scale_of_zero_is_a_scale_and_words_are_counted() -> None:
    nbest = make_list(am=[-10.0, -12.0, -11.0])
    assert combine_list(nbest, Weights({"am": 0.0})).hyps == nbest.hyps
    longest_first = combine_list(nbest, Weights({"am": 0.0, "words": 1.0}))
    assert [len(hyp.words) for hyp in longest_first.hyps] == [3, 2, 1]
    own = make_list(am=[0.0, 0.0], words=[5.0, 1.0])  # a column `words` of the source is not counted again
    assert combine_list(own, Weights({"words": 1.0})).hyps == own.hyps


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=8), finite, finite)
def test_combination_sorts_by_the_totals(scores: list[tuple[float, float]], am: float, lm: float) -> None:
    nbest = make_list(am=[s[0] for s in scores], lm=[s[1] for s in scores])
    result = combine_list(nbest, Weights({"am": am, "lm": lm}))
    totals = [am * hyp.scores["am"] + lm * hyp.scores["lm"] for hyp in result.hyps]
    assert totals == sorted(totals, reverse=True)
    assert sorted(hyp.words for hyp in result.hyps) == sorted(hyp.words for hyp in nbest.hyps)


def test_missing_and_bad_scores_name_utterance_and_hypothesis() -> None:
    nbest = make_list("utt7", am=[-1.0, -2.0], lm=[-1.0, -2.0])
    with pytest.raises(WeightsError, match=r"utt7 has no score 'nnlm', which the weights have a scale for; found: am"):
        combine_list(nbest, Weights({"am": 1.0, "nnlm": 0.1}))
    nbest.hyps[1].scores["lm"] = float("nan")
    with pytest.raises(ScoreError, match="utt7: hypothesis 2 has the score lm = nan"):
        combine_list(nbest, Weights({"am": 1.0, "lm": 0.0}))
    del nbest.hyps[1].scores["lm"]
    with pytest.raises(ScoreError, match="utt7: hypothesis 2 has no score 'lm', which other hypotheses have; found"):
        combine_list(nbest, Weights({"am": 1.0, "lm": 1.0}))
    with pytest.raises(ScoreError, match="utt8: no hypothesis"):
        combine_list(NbestList("utt8", []), Weights({"am": 1.0}))


def test_results_are_written_in_input_order(tmp_path: Path) -> None:
    lists = [make_list("b", am=[-2.0, -1.0], extra=[0.0, 0.0]), make_list("a", am=[-1.0, -2.0], extra=[0.0, 0.0])]
    weights = Weights({"am": 1.0}, {"seed": 0})
    counts = write_combined(iter(lists), weights, tmp_path / "out")
    assert (counts.utterances, counts.hypotheses, counts.changed, counts.unused) == (2, 4, 1, ["extra"])
    texts = read_kaldi_text(tmp_path / "out" / "1best.txt")
    assert list(texts.items()) == [("b", ("W0", "W1")), ("a", ("W0",))]
    assert load_weights(tmp_path / "out" / "weights.json") == weights
    written = list(read_nbest(f"jsonl:{tmp_path / 'out' / 'nbest.jsonl.gz'}"))
    assert written == [combine_list(nbest, weights) for nbest in lists]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"1best.txt", "nbest.jsonl.gz", "weights.json"}


def test_nothing_is_written_on_an_error(tmp_path: Path) -> None:
    good, bad = make_list("a", am=[-1.0]), make_list("b", lm=[-1.0])
    for lists in ([good, bad], [good, good], []):
        with pytest.raises(RescoreError):
            write_combined(iter(lists), Weights({"am": 1.0}), tmp_path / "new" / "out")
        assert not list(tmp_path.iterdir())


def test_combination_is_a_stream(tmp_path: Path) -> None:
    alive = 0

    class Counted(NbestList):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def lists() -> Iterator[NbestList]:
        nonlocal alive
        for i in range(50):
            alive += 1
            assert alive < 5
            yield Counted(f"u{i}", make_list(am=[-1.0]).hyps)

    assert write_combined(lists(), Weights({"am": 1.0}), tmp_path / "out").utterances == 50


def test_scores_folder(tmp_path: Path) -> None:
    with pytest.raises(RescoreError, match="no such folder"):
        read_scores(tmp_path / "none")
    with pytest.raises(FormatError, match="`rescore nbest --out DIR` writes it"):
        read_scores(tmp_path)
    write_nbest(f"jsonl:{tmp_path / 'scores.jsonl.gz'}", [make_list("a", am=[-1.0])])
    assert [nbest.utt_id for nbest in read_scores(tmp_path)] == ["a"]


def test_expected_errors_that_differ_by_rounding_are_equal() -> None:
    probabilities = {("c",): 4, ("a", "c"): 5, ("c", "a"): 1}  # of ten; 0.6 errors are expected of the first two
    nbest = NbestList("a", [Hypothesis(words, {"am": math.log(p)}) for words, p in probabilities.items()])
    risks = nbest_expected_errors([*probabilities], [hyp.scores["am"] for hyp in nbest.hyps], 1.0)
    assert risks[0] < risks[1] == pytest.approx(risks[0])
    ranked = combine_list(nbest, Weights({"am": 1.0}, {"decision": "mbr", "inverse_temperature": 1.0}))
    assert [hyp.words for hyp in ranked.hyps] == [("a", "c"), ("c",), ("c", "a")]


def test_totals_are_finite() -> None:
    nbest = make_list("a", am=[-9.0, -1.0])
    for weights in (Weights({"am": 1e308}), Weights({"am": 1.0}, {"decision": "mbr", "inverse_temperature": 1e308})):
        with pytest.raises(ScoreError, match="utterance a: the total of hypothesis 1 is no finite number"):
            combine_list(nbest, weights)
