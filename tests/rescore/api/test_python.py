"""`import rescore as rs`: the README's example, and what each name does beside the command of the same name."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import rescore as rs
from lm_zoo.base import LanguageModel
from rescore.api.weights import TunedWeights
from rescore.cli.main import cli
from rescore.evaluation.wer import kaldi_lines
from tests.lm_zoo import hugging_face, zoo

ROOT = Path(__file__).resolve().parents[3]
TEXT = ["HE SAID SO", "THEY WENT HOME", "SHE SAW THE OLD MAN", "IT WAS A COLD DAY", "WE HAVE SEEN IT"]
WRONG = {"HE": "HEY", "SAID": "SAD", "HOME": "HUM", "OLD": "HOLD", "COLD": "GOLD", "SEEN": "SCENE", "MAN": "MEN"}


def lists(utterances: int = 10) -> rs.Lists:
    """Two hypotheses an utterance; the recogniser prefers the wrong one in every second."""
    made = []
    for number in range(utterances):
        ref = tuple(TEXT[number % len(TEXT)].split())
        wrong = tuple(WRONG.get(word, word) for word in ref)
        scores = random.Random(number).sample([-10.0, -11.0], 2)
        hyps = [rs.Hypothesis(ref, {"am": scores[0]}), rs.Hypothesis(wrong, {"am": scores[1]})]
        made.append(rs.NbestList(f"u{number}", sorted(hyps, key=lambda hyp: -hyp.scores["am"]), ref))
    return rs.Lists(made)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that the README's example reads."""
    monkeypatch.chdir(tmp_path)
    for name in ("dev", "test"):
        lists().write(f"{name}.jsonl.gz")
        Path(f"{name}.txt").write_text("".join(f"{each.utt_id} {' '.join(each.ref or ())}\n" for each in lists()))
    return tmp_path


def test_the_example_of_the_readme(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = [(ROOT / page).read_text() for page in ("README.md", "docs/python.md")]
    in_readme, blocks = (re.findall(r"```python\n(.*?)```", page, re.DOTALL) for page in pages)
    assert in_readme == blocks[:1]
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert len(blocks[0].strip().splitlines()) <= 12
    printed = capsys.readouterr().out
    assert "recogniser" in printed and "rescored" in printed and "10 utterances" in printed
    first, second = names["table"].rows  # type: ignore[attr-defined]
    assert second.counts.errors < first.counts.errors
    assert list(names["errors"].columns) == ["utt_id", "errors", "sub", "del", "ins", "ref_words"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["lstm", "ngram", "bayesian-average", "interpolated"])
@pytest.mark.parametrize("given", ["A B", ["A B"]])
def test_a_string_is_no_sentence(name: str, given: object, tmp_path: Path) -> None:
    lm = zoo.make(name, tmp_path)
    for ask in (lm.score_words, lm.score_hypotheses, lm.score_sentences):
        with pytest.raises(rs.LMError, match=r"found the string 'A B', expected .*a sequence of words"):
            ask(given, max_unknown=1)
    with pytest.raises(rs.LMError, match="found the string"):
        lm.score_words(given, max_unknown=None)


@pytest.mark.parametrize(
    "work",
    [
        lambda: rs.Lists([rs.NbestList("a", [rs.Hypothesis("A B", {"am": 1.0})])]),  # type: ignore[arg-type]
        lambda: rs.Lists([rs.NbestList("a", [rs.Hypothesis(("A",), {"am": 1.0})], "A")]),  # type: ignore[arg-type]
        lambda: rs.wer({"a": "A B"}, {"a": ("A", "B")}),
        lambda: rs.wer({"a": ("A", "B")}, {"a": "A B"}),
        lambda: rs.compare({"a": ("A", "B")}, {"one": {"a": "A B"}}),
        lambda: rs.tune(lists(), {"u0": "HE SAID SO"}),
    ],
)
def test_a_string_is_no_words(work: Callable[[], object]) -> None:
    with pytest.raises(rs.RescoreError, match=r"is the string '.*', expected a sequence of words"):
        work()


def test_words_may_be_given_as_lists() -> None:
    """Everywhere as tuples, in copies: what was given stays as it is."""
    tuples = lists()
    ours = [
        rs.NbestList(
            each.utt_id, [rs.Hypothesis(list(hyp.words), hyp.scores) for hyp in each.hyps], list(each.ref or ())
        )  # type: ignore[arg-type]
        for each in tuples
    ]
    given = rs.Lists(ours)
    assert isinstance(given[0].hyps[0].words, tuple) and isinstance(ours[0].hyps[0].words, list)
    assert given[0].hyps == tuples[0].hyps and tuples[0] is rs.Lists(tuples.lists)[0]
    refs = {each.utt_id: list(each.ref or ()) for each in tuples}
    assert rs.tune(given, folds=2).scales == rs.tune(tuples, refs, folds=2).scales
    assert rs.combine(given, {"am": 1.0}, mbr=0.1)[0].hyps == rs.combine(tuples, {"am": 1.0}, mbr=0.1)[0].hyps
    assert rs.compare(refs, {"a": given}).rows == rs.compare(refs, {"a": tuples}).rows


def test_text_in_another_case_raises_what_the_command_says() -> None:
    lower = rs.Lists([rs.NbestList("u0", [rs.Hypothesis(("a", "b"), {"am": 0.0})])])
    with pytest.raises(rs.LMError, match="utterance u0: found 'a', but the LM was trained on upper-case text"):
        rs.score(lower, {"tiny": zoo.neural("lstm")}, text_view="exact")
    with pytest.raises(rs.RescoreError, match="differ in letter case"):
        rs.wer({"u0": ("A", "B")}, lower)
    with pytest.raises(rs.RescoreError, match="differ in letter case"):
        rs.tune(lower, {"u0": ("A", "B")})


# -- LMs ---------------------------------------------------------------------------------------------------------------


def letters() -> rs.Lists:
    return rs.Lists([rs.NbestList("u0", [rs.Hypothesis(("A", "B"), {"am": 0.0}), rs.Hypothesis(("C",), {"am": 1.0})])])


def test_scores_are_those_of_the_lm_by_name() -> None:
    lm, other = zoo.neural("lstm"), zoo.neural("transformer")
    scored = rs.score(letters(), {"one": lm, "two": other})
    assert scored.columns == ["am", "one", "two"]
    expected = lm.score_sentences([("A", "B"), ("C",)])
    assert [hyp.scores["one"] for hyp in scored[0].hyps] == pytest.approx(expected, abs=1e-5)
    assert letters().columns == ["am"]
    assert scored["u0"] is scored[0] and len(scored[:1]) == 1 and "u0" in scored and "u9" not in scored
    assert list(scored.to_pandas().columns) == ["utt_id", "rank", "words", "am", "one", "two"]


def test_an_lm_is_loaded_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_zoo.inference.devices.find_device", torch.device)
    assert next(rs.load_lm("lstm", device="meta").parameters()).device.type == "meta"  # type: ignore[attr-defined]
    monkeypatch.undo()
    with pytest.raises(rs.LMError, match="device 'meta'; expected cpu, cuda or cuda:N"):
        rs.load_lm("lstm", device="meta")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_an_lm_scores_in_the_dtype_that_it_was_loaded_in(dtype: str) -> None:
    lists = rs.Lists([rs.NbestList("u0", [rs.Hypothesis(("HE", "SAID")), rs.Hypothesis(("HE", "SAYS"))])])
    wanted = rs.score(lists, "lstm", dtype=dtype)
    lm = rs.load_lm("lstm", dtype=dtype)
    assert rs.score(lists, lm) == wanted
    assert rs.score(lists, lm, dtype="float32") == rs.score(lists, "lstm")


def test_lms_need_different_names() -> None:
    lm = zoo.neural("lstm")
    with pytest.raises(rs.RescoreError, match="a LSTM without a name"):
        rs.score(letters(), lm)
    with pytest.raises(rs.RescoreError, match="two LMs would write the column 'x'"):
        rs.score(letters(), [rs.load_lm(lm, name="x"), rs.load_lm(lm, name="x")])
    with pytest.raises(rs.RescoreError, match="there is a score 'am' already"):
        rs.score(letters(), {"am": lm})
    with pytest.raises(rs.RescoreError, match="the column 'words' is the number of words"):
        rs.score(letters(), {"words": lm})


@pytest.mark.parametrize("none", [{}, [], ()])
def test_no_lm_at_all_is_told(none: Any) -> None:
    with pytest.raises(rs.RescoreError, match="no LM given"):
        rs.score(letters(), none)


def test_what_is_no_lm_is_refused() -> None:
    with pytest.raises(rs.LMError, match="a int is no LM; expected a name, a folder"):
        rs.score(letters(), 5)  # type: ignore[arg-type]


def test_lms_are_named_as_by_the_commands() -> None:
    lm = rs.load_lm("lstm")
    assert isinstance(lm, LanguageModel) and lm.name == "lstm"
    assert rs.load_lm("other=lstm").name == "other"
    second = rs.load_lm(lm, name="second")
    assert second.name == "second" and lm.name == "lstm", "what is given keeps its name"
    assert rs.load_lm(lm) is lm and rs.load_lm(lm, name="lstm") is lm
    columns = rs.score(letters(), [lm, second]).lists[0].columns
    assert columns[-2:] == ["lstm", "second"]
    with pytest.raises(rs.LMError, match="no LM is called 'nonsense'"):
        rs.load_lm("nonsense")
    with pytest.raises(rs.LMError, match="a dict is no LM"):
        rs.load_lm({})


def test_a_model_object_of_hugging_face(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    path = hugging_face.words(tmp_path / "tiny")
    model = transformers.AutoModelForCausalLM.from_pretrained(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    lm = rs.load_lm(model, tokenizer=tokenizer, case="mixed")
    assert lm.name == "tiny"
    expected = rs.load_lm(f"hf:{path}?case=mixed").score_sentences([("A", "B")])
    assert rs.score(letters(), lm)[0].hyps[0].scores["tiny"] == pytest.approx(expected[0], abs=1e-4)
    assert rs.load_lm(model, case="mixed").score_sentences([("A", "B")]) == pytest.approx(expected, abs=1e-4)
    assert rs.score(letters(), model).lists == rs.score(letters(), [model]).lists
    assert rs.score(letters(), model).columns == ["am", "tiny"]
    with pytest.raises(rs.LMError, match="needs its tokenizer"):
        rs.load_lm(hugging_face.gpt2_model(10))


@pytest.mark.parametrize("kind", ["CausalLM", "MaskedLM"])
def test_a_model_in_training_is_scored_without_dropout(tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers", reason="Hugging Face models need transformers")
    path = (hugging_face.gpt2 if kind == "CausalLM" else hugging_face.bert)(tmp_path / "tiny")
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    lists = rs.Lists(
        [rs.NbestList("u0", [rs.Hypothesis(("the", "cat", "sat"), {}), rs.Hypothesis(("the", "dog"), {})])]
    )
    lm = rs.load_lm(model, tokenizer)
    expected = rs.score(lists, lm).lists
    parts = list(model.train().modules())
    parts[-1].training = False
    assert rs.score(lists, lm).lists == rs.score(lists, rs.load_lm(model, tokenizer)).lists == expected
    assert [part.training for part in parts] == [True] * (len(parts) - 1) + [False], "the training goes on as it was"


# -- scales, error rates ----------------------------------------------------------------------------------------------


def test_weights_are_kept_in_files(folder: Path) -> None:
    weights = rs.tune(lists(), folds=0)
    assert weights.scales["am"] == 1.0 and "dev WER" in repr(weights)
    weights.save("weights.json")
    assert rs.read_weights("weights.json").scales == weights.scales
    by_file = rs.combine(lists(), "weights.json")
    assert [each.hyps[0] for each in by_file] == [each.hyps[0] for each in rs.combine(lists(), weights)]
    with pytest.raises(rs.RescoreError, match="no score 'lm', which the weights have a scale for; found: am, words;"):
        rs.combine(lists(), {"lm": 1.0})
    with pytest.raises(rs.RescoreError, match="expected a finite number"):
        rs.combine(lists(), {"am": "much"})  # type: ignore[dict-item]


def test_weights_of_another_objective_and_decision(folder: Path) -> None:
    weights = rs.tune(lists(20), objective="risk", decision="mbr", folds=2)
    assert weights.info["objective"] == "risk" and weights.info["decision"] in ("mbr", "first")
    assert "dev WER" in repr(weights)
    first = rs.combine(lists(), rs.Weights({"am": 0.0}, {"decision": "first"}))
    assert [each.hyps for each in first] == [each.hyps for each in lists()]
    with pytest.raises(rs.RescoreError, match="objective 'wer', decision 'map'; expected one of errors, risk"):
        rs.tune(lists(), objective="wer")


def test_weights_show_what_the_command_says() -> None:
    """Also that there is nothing to rescore, where they keep the first hypotheses."""
    held_out = {"first_wer": 9.0, "alone_wer": 9.5, "rescored_wer": 8.0, "p_first": 0.01, "p_alone": 0.02, "kept": True}
    info = {"wer": 7.0, "cv_wer": 8.0, "oracle_wer": 4.0, "fixed": {"am": 1.0}, "decision": "mbr", "held_out": held_out}
    tuned = TunedWeights({"am": 1.0, "lm": 0.4}, {**info, "fold_scales": {"lm": [0.3, 0.5]}})
    frame = tuned.to_pandas().set_index("column")
    assert frame.loc["lm", "without one fold from"] == 0.3 and frame.loc["lm", "to"] == 0.5
    assert "first hypotheses 9.00 %, am=1 alone 9.50 %, rescored 8.00 %" in repr(tuned)
    assert "do not rescore" not in repr(tuned)
    idle = TunedWeights({"am": 1.0, "lm": 0.0}, {**info, "decision": "first", "fold_scales": {}})
    for shown in (repr(idle), idle._repr_html_()):
        assert "do not rescore: utterances not tuned on speak against it" in shown
    by_errors = rs.tune(lists(), objective="errors", folds=0)
    assert list(by_errors.to_pandas().columns) == ["column", "scale", "same WER from", "to"]


def test_error_rates(folder: Path) -> None:
    found = rs.wer("test.txt", lists())
    assert found.wer == pytest.approx(rs.wer(lists(), "jsonl:test.jsonl.gz").wer)
    assert kaldi_lines(found.total)[0] in repr(found)
    assert sum(found.to_pandas()["errors"]) == found.total.errors
    assert rs.wer("test.txt", lists(), cer=True).name == "CER"
    with pytest.raises(rs.RescoreError, match="have no hypotheses"):
        rs.wer("test.txt", lists(3))


def test_an_utterance_of_lists_counts_once() -> None:
    one, none = rs.NbestList("u", [rs.Hypothesis(("A",), {"am": 1.0})], ("A",)), rs.NbestList("u", [], ("A",))
    for twice in (lambda lists: rs.wer({"u": ("A",)}, lists), lambda lists: rs.wer(lists, {"u": ("A",)})):
        with pytest.raises(rs.RescoreError, match="utterance u occurs a second time in the lists"):
            twice(rs.Lists([one, one]))
    assert rs.wer({"u": ("A",)}, rs.Lists([none])).total.dele == 1


@pytest.mark.parametrize(
    "fix, message",
    [("am=1", "fix is 'am=1', expected scales by name"), ({"am": float("nan")}, "fix: the scale of 'am' is nan")],
)
def test_scales_to_hold_are_numbers(fix: Any, message: str) -> None:
    with pytest.raises(rs.RescoreError, match=message):
        rs.tune(lists(), fix=fix)


def test_comparisons_are_those_of_the_command(folder: Path) -> None:
    table = rs.compare("test.txt", {"a": lists(), "b": "test.txt", "c": rs.read_text("test.txt")}, samples=50)
    frame = table.to_pandas().set_index("name")
    assert frame.loc["b", "wer"] == frame.loc["c", "wer"] == 0
    assert frame.loc["a", "oracle_wer"] == 0 and frame.loc["a", "ci_low"] <= frame.loc["a", "wer"]
    by_file = rs.compare("test.txt", {"a": "jsonl:test.jsonl.gz"}, samples=50)
    said = CliRunner().invoke(cli, ["compare", "--ref", "test.txt", "a=jsonl:test.jsonl.gz", "--samples", "50"])
    assert "|ref:" in str(by_file) and str(by_file).splitlines()[-1] == said.stdout.splitlines()[-1]
    assert by_file.rows[0].counts == table.rows[0].counts and by_file.rows[0].interval == table.rows[0].interval


def test_one_system_more_may_be_compared_with_by_its_name() -> None:
    systems = {"first": lists(), "other": lists(), "third": lists()}
    table = rs.compare(lists(), systems, against="other", samples=10)
    assert table.against == ["first", "other"] == rs.compare(lists(), systems, against=["other"], samples=10).against


def test_html_is_escaped() -> None:
    evil = rs.Lists([rs.NbestList("<b>", [rs.Hypothesis(("<script>", "&"), {"<i>": 0.0})])])
    shown = evil._repr_html_()
    assert "&lt;script&gt; &amp;" in shown and "&lt;b&gt;" in shown and "&lt;i&gt;" in shown
    assert "<script" not in shown and "<i>" not in shown


def test_long_results_are_shown_in_part() -> None:
    assert "<p>80 more rows</p>" in lists(50)._repr_html_() and "80 more rows" in repr(lists(50))
    assert len(lists(50).to_pandas()) == 100


def test_scores_that_some_lists_alone_have_are_shown() -> None:
    given = lists(2)
    given[1].hyps = [rs.Hypothesis(hyp.words, {**hyp.scores, "late": 5.0}) for hyp in given[1].hyps]
    assert given.columns == [*given[0].columns, "late"]
    heads, rows = given._table()
    assert heads[-1] == "late" and {row[-1] for row in rows if row[0] == "u0"} == {None} and rows[-1][-1] == 5.0


def test_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(rs.RescoreError, match=r"needs the package pandas.*pip install 'rescore\[pandas\]'"):
        lists().to_pandas()


def test_written_text_is_normalised_as_by_the_commands() -> None:
    """Neither writing of the right words is the most probable hypothesis, both together are."""
    texts = {"Mister Hail.": -1.0, "Mr. Hale.": -1.1, "mister hale": -1.2}
    hyps = [rs.Hypothesis(tuple(text.split()), {"am": am}) for text, am in texts.items()]
    written, ref = rs.Lists([rs.NbestList("u", hyps)]), {"u": ("MISTER", "HALE")}
    tuned = rs.tune(written, ref, folds=0, normalise="librispeech")
    assert tuned.info["normalise"] == "librispeech" and tuned.info["errors"] == 0
    best = rs.combine(written, tuned)
    assert [hyp.words for hyp in best.lists[0].hyps] == [("Mr.", "Hale."), ("Mister", "Hail.")]
    assert rs.wer(ref, best, normalise="librispeech").wer == 0.0 and rs.wer(ref, best).wer == 100.0
    table = rs.compare(ref, {"first": written, "best": best}, normalise="librispeech", samples=10)
    assert [row.counts.errors for row in table.rows] == [1, 0] and table.how["normalise"] == "librispeech"


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (
            lambda: rs.combine(lists(), None),
            r"weights is None, expected scales by column, as in \{'am': 1.0, 'lm': 0.5\}",
        ),  # type: ignore[arg-type]
        (lambda: rs.combine(lists(), ["am"]), r"weights is \['am'\], expected scales"),  # type: ignore[arg-type]
        (lambda: rs.combine(rs.Lists([*lists(), lists()[0]]), {"am": 1.0}), "utterance u0 occurs a second time"),
        (lambda: rs.combine(lists(), {"am": True}), "the scale of 'am' is True, expected a finite number"),
        (lambda: rs.combine(lists(), {"am": 1.0}, mbr=True), "mbr is True, expected a number above 0"),
        (lambda: rs.combine(lists(), {"am": 1.0}, mbr="0.1"), "mbr is '0.1', expected a number above 0"),  # type: ignore[arg-type]
        (
            lambda: rs.wer({"u1": ("A",)}, {"u1": None}),
            "hypothesis of utterance u1 is None, expected a sequence of words",
        ),  # type: ignore[dict-item]
        (
            lambda: rs.Lists([rs.NbestList("u1", [rs.Hypothesis(None)])]),
            "u1: hypothesis 1 is None, expected a sequence",
        ),  # type: ignore[arg-type]
        (
            lambda: rs.Lists([rs.NbestList("u1", [rs.Hypothesis((7, 9))])]),
            r"u1: hypothesis 1 has the word 7, expected strings alone: tuple\(map\(str, ...\)\)",
        ),  # type: ignore[arg-type]
        (lambda: rs.wer({"u1": ("A",)}, {"u1": (1,)}), "the hypothesis of utterance u1 has the word 1, expected"),
        (lambda: rs.compare({"u1": ("A",)}, [lists()]), "systems are a list, expected them by name"),
        (lambda: rs.Lists({"u1": []}), "found 'u1' among the lists, expected rs.NbestList"),
        (lambda: rs.tune(lists(), folds=2.5), "folds is 2.5, expected a whole number from 0"),  # type: ignore[arg-type]
        (lambda: rs.tune(lists(), seed=-1), "seed is -1, expected a whole number from 0"),
        (lambda: rs.tune(rs.Lattices([]), {}), "there is no lattice to tune on"),
        (lambda: rs.Lattices(lists()), "found a NbestList among the lattices, expected rs.Lattice"),  # type: ignore[arg-type]
        (
            lambda: rs.Lists([rs.NbestList("u1", [("A", "B")])]),
            r"utterance u1: found \('A', 'B'\) among the hypotheses",
        ),  # type: ignore[list-item]
        (lambda: rs.Lists([rs.NbestList(7, [])]), "the utterance id 7 is a int, expected a string"),  # type: ignore[arg-type]
        (lambda: rs.wer({7: ("A",)}, {7: ("A",)}), "the utterance id 7 is a int, expected a string"),  # type: ignore[dict-item]
        (lambda: rs.compare(lists(), {"a": lists()}, samples=1.5), "samples is 1.5, expected a whole number from 1"),  # type: ignore[arg-type]
        (lambda: rs.compare(lists(), {"a": lists()}, seed="1"), "seed is '1', expected a whole number from 0"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_as_expected_is_one_error(work: Callable[[], object], message: str) -> None:
    with pytest.raises(rs.RescoreError, match=message):
        work()


def test_a_score_that_is_none() -> None:
    given = lists()
    given[3].hyps[1].scores["am"] = None  # type: ignore[assignment]
    with pytest.raises(rs.RescoreError, match="utterance u3: hypothesis 2 has the score am = None"):
        rs.tune(given)
    with pytest.raises(rs.RescoreError, match="utterance u3: hypothesis 2 has the score am = None"):
        rs.combine(given, {"am": 1.0})
    with pytest.raises(rs.RescoreError, match="'u3': hypothesis 2 has no score 'am'"):
        given.write("lists.jsonl")


def test_places_may_be_numbers_of_numpy() -> None:
    given = lists()
    assert given[np.int64(1)] is given[1] and given[np.int32(-1)].utt_id == "u9"
    assert given[np.int64(2) :].lists == given.lists[2:]


def test_what_is_no_list_is_refused_by_its_kind(folder: Path) -> None:
    refs, wrong = {"u0": ("HE",)}, "dev.jsonl.gz"
    of_lists = r"found a (str|list|Lattices), expected N-best lists: rs\.read_nbest\(SPEC\)"
    for call in (
        lambda: rs.score(wrong, zoo.neural("transfornn")),  # type: ignore[arg-type]
        lambda: rs.combine(wrong, {"am": 1.0}),  # type: ignore[arg-type]
        lambda: rs.wer(refs, rs.Lattices([])),  # type: ignore[arg-type]
        lambda: rs.wer(lists().lists, refs),  # type: ignore[arg-type]
        lambda: rs.compare(refs, {"a": lists().lists}),  # type: ignore[dict-item]
    ):
        with pytest.raises(rs.RescoreError, match=of_lists):
            call()
    for texts in (["he said"], None):  # as jiwer takes them
        with pytest.raises(
            rs.RescoreError, match=r"; or words by utterance id: \{'utt': \('HE', 'SAID'\)\}; or a file"
        ):
            rs.wer(texts, texts)  # type: ignore[arg-type]
    with pytest.raises(rs.RescoreError, match="dev is a str, expected N-best lists or lattices"):
        rs.tune(wrong, refs)  # type: ignore[arg-type]
    with pytest.raises(rs.RescoreError, match="side is 'left', expected 'ref' or 'hyp'"):
        rs.read_text("dev.txt", "left")
    with pytest.raises(rs.RescoreError, match="dtype is 'float', expected one of float32, bfloat16, int8"):
        rs.load_lm("transfornn", dtype="float")
