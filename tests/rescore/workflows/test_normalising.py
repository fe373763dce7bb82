"""Lists whose hypotheses become equal by normalising, and which normaliser repeats which."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.text.normalise import normalise
from rescore.errors import UsageError, WeightsError
from rescore.types import Hypothesis, NbestList, Weights
from rescore.weights import save_weights
from rescore.workflows.combine import write_combined
from rescore.workflows.normalising import Normaliser, log_sum, normaliser_of, normaliser_of_systems, under_weights

WRITTEN = ["Mr. Hale", "mr hale", "MISTER HALE.", "hail", "Hail!", "Hale", "", "..."]
hypotheses = st.lists(
    st.tuples(st.sampled_from(WRITTEN), st.floats(-30, 0), st.floats(-9, 9)), min_size=1, max_size=12
)  # fmt: skip


@pytest.mark.parametrize("name", ["basic", "librispeech"])
@settings(deadline=None)
@given(rows=hypotheses)
def test_probabilities_of_equal_hypotheses_are_summed(name: str, rows: list[tuple[str, float, float]]) -> None:
    """Against sums over the whole list for each hypothesis, in plain arithmetic."""
    plain = [normalise(name)(text) for text, _, _ in rows]
    hyps = [Hypothesis(tuple(text.split()), {"am": am, "lm": lm}) for text, am, lm in rows]
    merged, written = Normaliser(name).merge(NbestList("u", hyps))
    assert [" ".join(hyp.words) for hyp in merged.hyps] == list(dict.fromkeys(plain))
    for hyp, words in zip(merged.hyps, written, strict=True):
        same = [row for row, text in zip(rows, plain, strict=True) if text == " ".join(hyp.words)]
        best = max(same, key=lambda row: row[1])
        assert math.exp(hyp.scores["am"]) == pytest.approx(sum(math.exp(am) for _, am, _ in same), rel=1e-12)
        assert hyp.scores["lm"] == best[2] and words == tuple(best[0].split())


def test_none_keeps_equal_hypotheses_apart() -> None:
    nbest = NbestList("u", [Hypothesis(("A",), {"am": -1.0}), Hypothesis(("A",), {"am": -2.0})])
    assert Normaliser("none").merge(nbest) == (nbest, [("A",), ("A",)])


def test_sums_of_very_small_probabilities() -> None:
    assert log_sum([-5000.0, -5000.0]) == pytest.approx(-5000 + math.log(2))
    assert log_sum([-5000.0, 0.0]) == 0.0 and math.isnan(log_sum([-math.inf, 0.0]))


def test_without_am_the_first_counts_and_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    normaliser = Normaliser("basic")
    nbest = NbestList("u", [Hypothesis(("a",), {"lm": -3.0}), Hypothesis(("A",), {"lm": -1.0})])
    assert normaliser.merge(nbest)[0].hyps == [Hypothesis(("a",), {"lm": -3.0})]
    normaliser.say()
    assert capsys.readouterr().err == (
        "basic: 1 of 2 hypotheses became equal to another of their list; the scores are those of the first one, as "
        "there is no am to be summed\n"
    )


def test_combine_sums_and_writes_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither writing of A B is the best hypothesis, both together are."""
    texts = {"A C": -1.0, "A b.": -1.2, "A, B!": -1.1}
    hyps = [Hypothesis(tuple(text.split()), {"am": am, "lm": -am}) for text, am in texts.items()]
    weights = Weights({"am": 1.0}, {"normalise": "basic"})
    counts = write_combined([NbestList("u", hyps)], weights, tmp_path)
    assert (tmp_path / "1best.txt").read_text() == "u A, B!\n"
    assert (counts.hypotheses, counts.changed) == (2, 1)
    assert "am is the log of their summed probabilities" in capsys.readouterr().err
    counts = write_combined([NbestList("u", hyps)], Weights({"am": 1.0}), tmp_path)
    assert (tmp_path / "1best.txt").read_text() == "u A C\n" and counts.hypotheses == 3


def test_first_hypotheses_that_are_kept_keep_their_writing(tmp_path: Path) -> None:
    """Where there is nothing to rescore: not the writing that has the highest `am`."""
    hyps = [Hypothesis(("A", "b."), {"am": -1.2, "lm": -1.0}), Hypothesis(("A,", "B!"), {"am": -1.1, "lm": -9.0})]
    weights = Weights({"am": 1.0}, {"normalise": "basic", "decision": "first"})
    counts = write_combined([NbestList("u", hyps)], weights, tmp_path)
    assert (tmp_path / "1best.txt").read_text() == "u A b.\n"
    assert (counts.hypotheses, counts.changed) == (2, 0)


def test_words_are_counted_as_they_were_when_tuning(tmp_path: Path) -> None:
    """`$5` is two words by librispeech: with a reward for words it beats a hypothesis that is one better."""
    hyps = [Hypothesis(("five",), {"am": -1.0}), Hypothesis(("$5",), {"am": -2.0})]
    write_combined([NbestList("u", hyps)], Weights({"am": 1, "words": 2}, {"normalise": "librispeech"}), tmp_path)
    assert (tmp_path / "1best.txt").read_text() == "u $5\n"


def test_weights_say_what_is_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    tuned = Weights({"am": 1.0}, {"normalise": "basic", "wer": 3.0})
    assert under_weights(tuned, None, "w.json") == tuned
    assert under_weights(Weights({"am": 1.0}), None, None).info == {}
    assert capsys.readouterr().err == ""
    assert under_weights(tuned, "librispeech", "w.json").info == {"normalise": "librispeech", "wer": 3.0}
    assert capsys.readouterr().err == "w.json: tuned with the normaliser basic, but combined with librispeech\n"
    with pytest.raises(WeightsError, match=r"""w.json: 'normalise' in "info" is 3; expected one of none, basic"""):
        normaliser_of(Weights({"am": 1.0}, {"normalise": 3}), "w.json")


def test_systems_say_what_is_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("basic", "librispeech", "none"):
        save_weights(tmp_path / name / "weights.json", Weights({"am": 1.0}, {"normalise": name}))
    specs = {name: str(tmp_path / name) for name in ("basic", "none", "text.txt")}
    assert normaliser_of_systems(specs).name == "basic"
    assert normaliser_of_systems({"text": "text.txt"}).name == "none"
    assert normaliser_of_systems(specs, "none").name == "none"
    with pytest.raises(UsageError, match="basic with basic, librispeech with librispeech; choose one with --normalise"):
        normaliser_of_systems({name: str(tmp_path / name) for name in ("basic", "librispeech")})
    save_weights(tmp_path / "zh" / "weights.json", Weights({"am": 1.0}, {"rate": "CER"}))
    capsys.readouterr()
    assert normaliser_of_systems({"zh": str(tmp_path / "zh")}).rate == "WER"
    assert capsys.readouterr().err == "'zh' was tuned for characters; --cer (in Python cer=True) counts them\n"
    assert normaliser_of_systems({"zh": str(tmp_path / "zh")}, cer=True).rate == "CER"
    assert capsys.readouterr().err == ""
