"""What is no list, score, column or share is one clear error, with a normaliser as without."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rescore as rs
from lm_zoo.base import LanguageModel
from rescore.lattices.build import build_lattice
from tests.lm_zoo import zoo


def lists(score: Any = -1.0, hyps: Any = None) -> rs.Lists:
    """An utterance of two hypotheses that are one without case; the first has the score."""
    made = [rs.Hypothesis(("A",), {"am": score}), rs.Hypothesis(("a",), {"am": -1.0})]
    return rs.Lists([rs.NbestList("u", made if hyps is None else hyps, ("a",))])


def lattice(utt_id: str) -> rs.Lattice:
    """Of one arc."""
    arc = np.array([0]), np.array([1]), np.array([1]), {"am": np.array([-1.0])}, ("", "A")
    return rs.Lattice.of(build_lattice(utt_id, 2, *arc, 0, 1))


@pytest.mark.parametrize("score", [None, "-1", float("nan")])
def test_a_score_that_is_no_number_where_hypotheses_become_equal(score: Any) -> None:
    with pytest.raises(rs.RescoreError, match="hypothesis 1 has the score am = "):
        rs.combine(lists(score), {"am": 1.0}, normalise="basic")
    assert rs.compare(lists(), {"a": lists(score)}, normalise="basic").rows[0].counts.errors == 0


def several() -> rs.Lists:
    """Utterances with the right words first in every second list."""
    made = []
    for number in range(8):
        hyps = [rs.Hypothesis(("a", "b"), {"am": -1.0}), rs.Hypothesis(("a",), {"am": -1.0 - number % 2})]
        made.append(rs.NbestList(f"u{number}", hyps[:: (-1) ** number], ("a", "b")))
    return rs.Lists(made)


def test_numbers_of_numpy_are_scales() -> None:
    plain = rs.combine(several(), {"am": 3.0})
    for three in (np.int64(3), np.float32(3.0), 3):
        assert rs.combine(several(), {"am": three}).lists == plain.lists  # type: ignore[dict-item]
        assert rs.tune(several(), fix={"am": three}, folds=np.int64(0)).scales["am"] == 3.0  # type: ignore[dict-item, arg-type]


@pytest.mark.parametrize("value", [np.float32("inf"), np.float16("nan"), np.float64("-inf"), 10**400])
def test_numbers_that_are_not_finite_are_no_scales(value: Any) -> None:
    with pytest.raises(rs.RescoreError, match=r"the scale of 'am' is .*, expected a finite number"):
        rs.combine(several(), {"am": value})
    with pytest.raises(rs.RescoreError, match=r"expected a number from 0|expected a finite number above 0"):
        rs.combine(several(), {"am": 1.0}, mbr=value)


def test_numbers_of_numpy_are_written(tmp_path: Path) -> None:
    """As in loops over `np.arange`."""
    counts: dict[str, Any] = {"seed": np.int64(1), "restarts": np.int32(2), "folds": np.int64(2)}
    for objective in ("risk", "errors"):
        weights = rs.tune(several(), objective=objective, **counts)
        weights.save(tmp_path / "weights.json")
        assert rs.read_weights(tmp_path / "weights.json").info == weights.info
    table = rs.compare(several(), {"a": several()}, seed=np.int64(1), samples=np.int64(10))  # type: ignore[arg-type]
    assert json.loads(json.dumps(table.how)) == table.how
    plain = rs.combine(several(), {"am": 1.0}, mbr=2.0)
    for two in (np.float32(2.0), np.int64(2)):
        assert rs.combine(several(), {"am": 1.0}, mbr=two).lists == plain.lists  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.arange(2), float("inf")])
def test_info_that_is_no_json_is_not_saved(value: Any, tmp_path: Path) -> None:
    weights = rs.tune(lists(), folds=0, normalise="basic")
    weights.info["seeds"] = value
    with pytest.raises(rs.RescoreError, match='weights to save: "info" has what JSON cannot hold'):
        weights.save(tmp_path / "weights.json")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: rs.combine(lists("-1"), {"am": 1.0}), "hypothesis 1 has the score am = '-1'; scores must be finite"),
        (lambda: rs.tune(lists("-1")), "hypothesis 1 has the score am = '-1'; to tune, scores must be finite"),
        (
            lambda: rs.wer({"u": ["a", "", "b"]}, {"u": ("a", "b")}),
            "u has the word '', expected words without blanks",
        ),
        (lambda: rs.wer({"u": ("a", "b")}, {"u": ("a b",)}), "hypothesis of utterance u has the word 'a b', expected"),
        (lambda: rs.wer({"u": ["a", "b\n"]}, {"u": ("a", "b")}), r"u has the word 'b\\n', expected words without"),
        (lambda: lists(hyps=[rs.Hypothesis(("a\tb",))]), r"hypothesis 1 has the word 'a\\tb', expected words without"),
        (
            lambda: lists(hyps=[rs.Hypothesis(("",), {"am": -1.0})]),
            "utterance u: hypothesis 1 has the word '', expected",
        ),
        (lambda: rs.Lists(None), r"lists are a NoneType, expected a sequence of them: rs.Lists\(\[...\]\)"),  # type: ignore[arg-type]
        (lambda: rs.Lists(lists()[0]), r"lists are a NbestList, expected a sequence of them"),  # type: ignore[arg-type]
        (lambda: rs.combine(lists(), lists()), "weights is a Lists, expected scales by column"),  # type: ignore[arg-type]
        (lambda: rs.read_nbest(["dev-1", "dev-2"]), r"found \['dev-1', 'dev-2'\], expected a path"),  # type: ignore[arg-type]
        (lambda: rs.read_lattices(None), "found None, expected a path"),  # type: ignore[arg-type]
        (lambda: rs.read_text({"u": ("a",)}), r"found {'u': \('a',\)}, expected a path"),  # type: ignore[dict-item]
        (lambda: rs.read_weights({"am": 1.0}), r"found {'am': 1.0}, expected a path"),  # type: ignore[arg-type]
        (lambda: rs.compare(lists(), {"a": lists()}, tail=20), "found 20, expected a path"),  # type: ignore[arg-type]
        (lambda: lists(hyps=7), "utterance u: the hypotheses are 7, expected rs.NbestList"),
        (lambda: lists(hyps=[rs.Hypothesis(("A",), None)]), "utterance u: the scores of a hypothesis are None"),  # type: ignore[arg-type]
        (lambda: lists(hyps=[rs.Hypothesis(("A",), {1: -1.0})]), "utterance u: a score is called 1, expected a string"),  # type: ignore[dict-item]
        (lambda: rs.combine(lists(), {1: 1.0}), "weights: a scale is called 1, expected the name of a score"),  # type: ignore[dict-item]
        (lambda: rs.combine(lists(), rs.Weights(None)), 'weights: "scales" must name at least one score'),  # type: ignore[arg-type]
        (lambda: rs.combine(lists(), rs.Weights({"am": 1.0}, None)), "the info of weights is None, expected"),  # type: ignore[arg-type]
        (lambda: rs.Lattices([]).rescore(ngram=zoo.neural("lstm")), r"found LSTM\(.*, expected a path"),
        (lambda: rs.Lattices([lattice("u")]).rescore("lstm", old_ngram=7), "found 7, expected a path"),  # type: ignore[arg-type]
        (lambda: lattice("u").nbest(True), "n is True, expected a whole number from 1"),
        (lambda: rs.tune(lists(), folds=True), "folds is True, expected a whole number from 0"),
        (lambda: rs.score(lists(), "lstm", max_unknown=True), "max_unknown is True, expected a number from 0 to 1"),
        (lambda: lattice("u").dot(max_arcs="all"), "max_arcs is 'all', expected a whole number from 0"),  # type: ignore[arg-type]
        (lambda: rs.score(lists(), {5: zoo.neural("lstm")}), "an LM's column is 5, expected a name"),  # type: ignore[dict-item]
        (lambda: rs.score(lists(), {"": zoo.neural("lstm")}), "an LM's column is '', expected a name"),
        (lambda: rs.score(lists(), "lstm", max_unknown="all"), "max_unknown is 'all', expected a number from 0 to 1"),  # type: ignore[arg-type]
        (lambda: rs.score(lists(), "lstm", max_unknown=5), "max_unknown is 5, expected a number from 0 to 1"),
        (lambda: rs.Lattices([]).rescore("lstm", max_unknown=-1), "max_unknown is -1, expected a number from 0 to 1"),
    ],
)
def test_what_is_not_as_expected_is_one_error(work: Callable[[], object], message: str) -> None:
    with pytest.raises(rs.RescoreError, match=message):
        work()


@pytest.mark.parametrize(
    "work", [lambda name: rs.wer(lists(), lists(), normalise=name), lambda name: rs.tune(lists(), normalise=name)]
)
def test_a_normaliser_that_is_no_name(work: Callable[[Any], object]) -> None:
    with pytest.raises(rs.LMError, match=r"no normaliser '\['basic'\]'; there are"):
        work(["basic"])


def test_words_that_are_no_strings_are_told_by_lms() -> None:
    with pytest.raises(rs.LMError, match="the text has the word 1, expected strings alone"):
        zoo.neural("lstm").score_words([("A", 1)])


@pytest.mark.parametrize("value", [np.int64(3), float("nan"), {1, 2}])
def test_what_else_lists_hold_that_is_no_json_is_not_written(value: Any, tmp_path: Path) -> None:
    hyps = [rs.Hypothesis(("A",), {"am": -1.0}, {"tokens": value})]
    with pytest.raises(rs.RescoreError, match="utterance 'u': something that JSON cannot hold"):
        lists(hyps=hyps).write(tmp_path / "lists.jsonl")
    assert not any(tmp_path.iterdir())


class Counted(list[Any]):
    """Counts the passes over it."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return super().__iter__()


@pytest.mark.parametrize("kind", ["lists", "lattices"])
def test_utterances_are_found_by_their_ids_in_one_pass(kind: str) -> None:
    """Each pass for each id would take time by the square of their number; a set that has changed is looked at anew."""
    ids = [f"u{number}" for number in range(9)]
    given: Any = rs.Lists([rs.NbestList(utt_id, [rs.Hypothesis(("A",))]) for utt_id in ids])
    if kind == "lattices":
        given = rs.Lattices([lattice(utt_id) for utt_id in ids])
    setattr(given, kind, held := Counted(getattr(given, kind)))
    assert [given[utt_id].utt_id for utt_id in ids] == ids
    assert all(utt_id in given for utt_id in ids) and held.passes == 1
    held[0], held[3] = held[3], held[0]
    held.pop()
    assert given["u0"] is held[3] and given["u3"] is held[0] and "u8" not in given and "u9" not in given
    with pytest.raises(KeyError, match="u8"):
        given["u8"]


def test_devices_of_torch() -> None:
    lm = rs.load_lm("lstm", device=torch.device("cpu"))
    scored = rs.score(lists(hyps=[rs.Hypothesis(("A",))]), lm, device=torch.device("cpu"))
    assert scored.columns == ["lstm"]
    for work in (lambda: rs.load_lm("lstm", device=0), lambda: rs.score(lists(), lm, device=0)):  # type: ignore[arg-type]
        with pytest.raises(rs.LMError, match="device '0'; expected cpu, cuda or cuda:N"):
            work()


def test_against_no_other_system() -> None:
    systems = {"a": several(), "b": several()}
    assert rs.compare(several(), systems, against=None, samples=10) == rs.compare(several(), systems, samples=10)
    for none in (3, 0):
        with pytest.raises(rs.RescoreError, match=f"against is {none}, expected the name of a system, or several"):
            rs.compare(several(), systems, against=none)  # type: ignore[arg-type]


def test_errors_name_arguments_as_python_has_them() -> None:
    refs, given = {"u": ("HE",)}, rs.Lists([rs.NbestList("u", [rs.Hypothesis(("HE",), {"am": -1.0})])])
    for call, message in (
        (lambda: rs.wer(refs, {"u": ("he",)}), r"\(in Python normalise='basic'\)"),
        (lambda: rs.compare(refs, {"a": given}, against="b"), "against 'b', which is none of the systems: a"),
        (lambda: rs.tune(given, refs, fix={"nn": 1.0}), "no score 'nn', whose scale is to be fixed"),
        (lambda: rs.combine(given, {"nn": 1.0}), r"adds it \(in Python rs.score\(lists, {'nn': lm}\)\)"),
        (lambda: rs.compare(refs, {}), "no system to compare; expected at least one: {'name': lists}"),
        (lambda: rs.load_lm("lstm", name=3), "name is 3, expected a string"),  # type: ignore[arg-type]
        (lambda: rs.tune(given, {"u": ()}), "no word to count errors by; check them"),
        (lambda: rs.score(given, {"am": zoo.neural("lstm")}), r"\(in Python \{'NEWNAME': lm\}\)"),
        (lambda: rs.Lattices([]).rescore({"nn": zoo.neural("lstm")}), r"\(in Python weights=\{'NAME': VALUE\}\)"),
    ):
        with pytest.raises(rs.RescoreError, match=message):
            call()


class Unfinished(LanguageModel):
    name = "own"

    def score_words(self, sentences: Any, max_unknown: float | None = 0.5) -> Any:
        raise AssertionError


class Short(Unfinished):
    def score_words(self, sentences: Any) -> Any:  # type: ignore[override]
        raise AssertionError

    def knows(self, word: str) -> bool:
        raise AssertionError


@pytest.mark.parametrize(
    ("lm", "message"),
    [
        (Unfinished(), r"a Unfinished has no knows; expected knows\(self, word\), as docs/bring-your-lm.md has it"),
        (Short(), r"a Short has score_words\(self, sentences.*; expected score_words\(self, sentences, max_unknown\)"),
    ],
)
def test_an_lm_has_the_methods_without_default(lm: LanguageModel, message: str) -> None:
    for given in (lm, {"nn": lm}, [lm]):
        with pytest.raises(rs.LMError, match=message):
            rs.score(lists(), given)
    with pytest.raises(rs.LMError, match=message):
        rs.load_lm(lm)
    with pytest.raises(rs.LMError, match=message):
        rs.load_lm(f"{__name__}:{type(lm).__name__}")


@pytest.mark.parametrize("path", [None, 3, ["a.jsonl"]])
def test_what_is_no_path_is_not_written_to(path: Any) -> None:
    weights = rs.tune(several(), folds=0)
    for write in (lists().write, rs.Lattices([]).write, weights.save):
        with pytest.raises(rs.RescoreError, match=r"found (None|3|\['a.jsonl'\]), expected a path"):
            write(path)
