"""What a report counts and says; the page itself is opened in a browser by tests/rescore/cli/test_report_page.py."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lm_zoo.registry import build, save_folder
from lm_zoo.text.vocabulary import WordVocabulary
from rescore import console
from rescore.cli.main import cli
from rescore.errors import RescoreError, WeightsError
from rescore.evaluation.wer import corpus_errors, oracle_errors
from rescore.files import read_kaldi_text
from rescore.formats import read_nbest, write_nbest
from rescore.types import Hypothesis, NbestList, Weights, Words
from rescore.weights import load_weights, save_weights
from rescore.workflows.columns import LMColumn
from rescore.workflows.normalising import Normaliser
from rescore.workflows.report import analyses, charts
from rescore.workflows.report.gather import Gathered, gather, shown_lists
from rescore.workflows.report.write import _with_word_scores, _written, word_scores, write_report
from tests.rescore.runs import LIKES, LM, write_inputs

pytestmark = pytest.mark.slow

REFS: dict[str, Words] = {"a": ("A", "B", "C"), "b": ("A",), "c": ("D", "E")}
BEFORE: dict[str, Words] = {"a": ("A", "X", "C"), "b": ("A",), "c": ("D", "E", "E")}
AFTER: dict[str, Words] = {"a": ("A", "B", "C"), "b": (), "c": ("D", "E", "E")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    write_inputs(made)
    inputs = ["--dev", f"{made}/dev.jsonl.gz", "--test", f"{made}/test.jsonl.gz", "--ref", f"{made}/text"]
    result = CliRunner().invoke(cli, ["run", *inputs, "--lm", LM, "--out", f"{made}/out"])
    assert result.exit_code == 0, result.output
    return made / "out"


def test_outcomes_and_confusions() -> None:
    found = analyses.outcomes(REFS, [BEFORE, AFTER])
    assert [(each.errors(0), each.errors(1)) for each in found] == [(1, 0), (0, 1), (1, 1)]
    assert [each.ops[each.which[0]] for each in found] == ["=s=", "=", "==i"]
    assert analyses.confusions(found, 0, 1) == [("B", "X", 1, 0), ("A", "", 0, 1)]


def test_errors_by_length_and_frequency() -> None:
    found = analyses.outcomes(REFS, [BEFORE, AFTER])
    assert analyses.by_length(found, 2) == [("0 to 5", 3, [pytest.approx(100 / 3), pytest.approx(100 / 3)])]
    assert analyses.by_frequency(found, 2, {"A": 2, "B": 1, "C": 1, "D": 1, "E": 1}) == [
        ("1", 4, [25.0, 0.0]),
        ("2 to 3", 2, [0.0, 50.0]),
    ]


def row(name: str, errors: int, p_value: float | None = None) -> dict[str, object]:
    return {"name": name, "errors": errors, "p_values": {"base": p_value}}


@pytest.mark.parametrize(
    "errors, p_value, said",
    [
        (90, 0.0004, "helps: 10 fewer errors (10.0 %) than base, p <0.001"),
        (90, 0.03, "helps: 10 fewer errors (10.0 %) than base, p = 0.030"),
        (90, 0.2, "may be chance: 10 fewer errors (10.0 %) than base, p 0.200"),
        (110, 0.01, "hurts: 10 more errors (10.0 %) than base, p = 0.010"),
        (100, 1.0, "no difference: as many errors as base"),
    ],
)
def test_verdicts(errors: int, p_value: float, said: str) -> None:
    assert analyses.verdict(row("lm", errors, p_value), row("base", 100)) == said
    assert analyses.verdict(row("base", 100), row("base", 100)) == "what the LMs are compared with"


def decided(folder: Path, made: Path, decision: str) -> Gathered:
    """The run with weights of the LM that ask for a decision, and what `rescore combine` and `compare` make of them."""
    shutil.copytree(folder, made)
    weights = load_weights(made / "weights" / "toy.json")
    scales = {"am": 1.0, "toy": 0.0, "words": -9.0}  # the shortest has the highest total
    info = {**weights.info, "decision": decision, "inverse_temperature": 0.02}
    save_weights(made / "weights" / "toy.json", Weights(scales, info))
    commands = json.loads((made / "run.json").read_text())["steps"]
    for step in ("decisions of toy", "comparison"):
        words = [word.replace(str(folder), str(made)) for word in shlex.split(commands[step]["command"])]
        result = CliRunner().invoke(cli, words[1:])
        assert result.exit_code == 0, result.output
    return gather(made)


@pytest.mark.parametrize("decision", ["map", "mbr", "first"])
def test_all_figures_are_those_of_what_combine_writes(folder: Path, tmp_path: Path, decision: str) -> None:
    run = decided(folder, tmp_path / "run", decision)
    weights, rates = run.weights["toy"], {row["name"]: row["wer"] for row in run.table["rows"]}
    for name, at in weights.scales.items():
        curve = dict(analyses.over_scale(run.test_table, weights, name))
        assert curve[at] == pytest.approx(rates["toy"], abs=1e-3)
    rows = analyses.by_n(run.test_table, weights)
    assert rows[0][0] == 1 and rows[0][1] == rows[0][2] == pytest.approx(rates["first-pass"], abs=1e-3)
    assert rows[-1][1] == pytest.approx(rates["toy"], abs=1e-3)
    assert rows[-1][2] == pytest.approx(oracle_errors(run.test, run.refs["test"]).wer)
    hyps = {each.utt_id: each.texts[each.which[2]] for each in run.found}
    assert corpus_errors(run.refs["test"], hyps).wer == pytest.approx(rates["toy"], abs=1e-3)
    combined = read_nbest(f"jsonl:{tmp_path / 'run' / 'test' / 'toy' / 'nbest.jsonl.gz'}")
    assert [[hyp["w"].split() for hyp in shown["h"]] for shown in shown_lists(run, 2)] == [
        [list(hyp.words) for hyp in nbest.hyps[:2]] for nbest in combined
    ]
    assert rates["toy"] == pytest.approx({"map": 23.077, "mbr": 7.692, "first": 25.0}[decision], abs=1e-3)


def test_word_scores_are_of_what_the_lm_sees(folder: Path, tmp_path: Path) -> None:
    """Lists in capitals, and an LM of text in small letters, which is named by a path from where the run was."""
    words = sorted({word.lower() for word in LIKES.split(",") if word.isalpha()} | {"five", "dollars"})
    lm = build("lstm", WordVocabulary(["<sos/eos>", "<unk>", *words], "lower"), {"dim": 8}).eval()
    save_folder(tmp_path / "small", lm, "lstm", {})
    shutil.copytree(folder, tmp_path / "run")
    made = json.loads((folder / "run.json").read_text())
    assert made["folder"] == os.getcwd()
    made |= {"lms": {"small": "small"}, "folder": str(tmp_path)}
    (tmp_path / "run" / "run.json").write_text(json.dumps(made))
    run = gather(tmp_path / "run")
    write_report(tmp_path / "run", tmp_path / "page.html", 3, True, None)
    assert os.getcwd() != str(tmp_path)
    shown = list(_with_word_scores(run, shown_lists(run, 1)))
    for each, found in zip(run.found, shown, strict=True):
        for text, row in zip(each.texts, found["p"]["small"], strict=True):
            assert len(row) == len(text) + 1 and row[-1][0] == "</s>"
            seen = [part for word, _ in row[:-1] for part in word.split()]
            (expected,) = lm.score_sentences([seen], None)
            assert sum(score for _, score in row) == pytest.approx(expected, abs=0.01 * len(row))
            if all(word.isalpha() for word in text):
                assert [word for word, _ in row[:-1]] == [word.lower() for word in text]
    rows = word_scores(LMColumn("small", lm), [NbestList("u", [Hypothesis(("HE", "$5", "--", "SAID"))])])
    assert [word for word, _ in rows[0]] == ["he", "five dollars", "", "said", "</s>"] and rows[0][2][1] == 0.0


def test_audio_that_is_not_there_is_told(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "wav.scp").write_text(f"test-000 {tmp_path}/a.wav\ntest-002 {tmp_path}/b.wav\n")
    write_report(folder, tmp_path / "page.html", 3, False, tmp_path / "wav.scp")
    assert f"1 of 2 files are not there, such as {tmp_path}/b.wav; the page plays the others" in capsys.readouterr().err


def _with_another_writing(nbest: NbestList) -> NbestList:
    """The list with its first hypothesis in small letters, and less probable, before it."""
    first = nbest.hyps[0]
    small = Hypothesis(tuple(map(str.lower, first.words)), {**first.scores, "am": first.scores["am"] - 1.0})
    return replace(nbest, hyps=[small, *nbest.hyps])


def test_word_scores_are_of_the_words_as_they_were_written(folder: Path, tmp_path: Path) -> None:
    """The table compares normalised texts; the LMs have scored others."""
    shutil.copytree(folder, tmp_path / "run")
    made = json.loads((folder / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**made, "normalise": "basic"}))
    scores = f"jsonl:{tmp_path / 'run' / 'test' / 'scores.jsonl.gz'}"
    write_nbest(scores, [_with_another_writing(nbest) for nbest in read_nbest(scores)])
    run = gather(tmp_path / "run")
    for shown, nbest in zip(shown_lists(run, 99), read_nbest(scores), strict=True):  # the 2nd one became the 1st
        assert sorted(hyp["r"] for hyp in shown["h"]) == [1, *range(3, 1 + len(nbest.hyps))]
        came = [" ".join(Normaliser("basic").words(hyp.words)) for hyp in nbest.hyps]
        assert all(came[hyp["r"] - 1] == hyp["w"] for hyp in shown["h"])
    toy = read_kaldi_text(folder / "test" / "toy" / "1best.txt")
    first = {nbest.utt_id: nbest.hyps[0].words for nbest in read_nbest(scores)}
    for each in run.found:
        texts = _written(run, each)
        assert texts[each.which[0]] == first[each.utt_id]
        assert each.which[2] == each.which[0] or texts[each.which[2]] == toy[each.utt_id]
        assert [Normaliser("basic").words(text) for text in texts] == each.texts != texts


def test_curves_over_scales_of_many_lists_say_how_far_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = gather(folder)
    monkeypatch.setattr(console, "SECONDS", 0.0)
    analyses.over_scale(run.test_table, Weights({"am": 1.0}), "am")
    assert "errors over the scale of am: 2 of 42 after" in capsys.readouterr().err


def test_a_score_that_the_weights_want(folder: Path) -> None:
    run = gather(folder)
    with pytest.raises(WeightsError, match="utterance test-000 has no score 'nn', which the weights have a scale for"):
        analyses.by_n(run.test_table, Weights({"am": 1.0, "nn": 0.5}))


def test_ticks_are_round_and_cover() -> None:
    for low, high in [(0.0, 1.0), (3.2, 3.3), (-7.0, 12.0), (5.0, 5.0), (0.0, 0.0)]:
        found = charts.ticks(low, high)
        assert found[0] <= low <= high <= found[-1] and 2 <= len(found) <= 9
        assert np.allclose(np.diff(found), found[1] - found[0])


class _Structure(HTMLParser):
    """Tags that are open, ids, and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.ids, self.scripts, self.sources = list[str](), list[str](), 0, list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [str(found["id"])] if "id" in found else []
        self.sources += [str(found[name]) for name in ("src", "href") if name in found]
        self.scripts += tag == "script"
        if tag not in ("meta", "input", "line", "rect", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("line", "rect", "polyline"):
            return
        assert self.open.pop() == tag


def test_the_page_is_whole_and_holds_no_foreign_markup(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    page = _Structure()
    page.feed(text)
    assert page.open == [] and page.sources == []
    assert len(page.ids) == len({*page.ids})
    assert page.scripts == 3  # the data, one chunk of lists, the page's own
    assert "alert(1)</script>" not in text and "http://" not in text and "https://" not in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert len(data["utts"]) == 24 and data["systems"] == ["first-pass", "tuned", "toy"]
    assert any("<script>alert(1)</script>" in utt[1] for utt in data["utts"])
    assert "rescore tune --scores" in text and "sha256" in text and "helps:" in text


def test_wrong_input(folder: Path, tmp_path: Path) -> None:
    def report(source: Path, audio: Path | None = None) -> None:
        write_report(source, tmp_path / "page.html", 3, False, audio)

    with pytest.raises(RescoreError, match=r"run.json: no such file; expected a folder that rescore run has written"):
        report(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "table.json").write_text("{}")
    with pytest.raises(RescoreError, match="the run has not ended"):
        report(tmp_path)
    for name, key in (("run.json", "normalise"), ("table.json", "rows"), ("table.json", "how")):
        damaged = tmp_path / f"without {key}"
        shutil.copytree(folder, damaged)
        found = json.loads((folder / name).read_text())
        (damaged / name).write_text(json.dumps({k: value for k, value in found.items() if k != key}))
        with pytest.raises(RescoreError, match=f"{name}: has no '{key}', .*start the same rescore run again"):
            report(damaged)
    found = json.loads((folder / "table.json").read_text())
    (tmp_path / "without rows" / "table.json").write_text(json.dumps({**found, "how": None}))
    with pytest.raises(RescoreError, match="start the same rescore run again"):
        report(tmp_path / "without rows")
    (tmp_path / "wav.scp").write_text("someone a.wav\n")
    with pytest.raises(RescoreError, match="no utterance of the test set is in it"):
        report(folder, tmp_path / "wav.scp")
    for file, what in (
        ("flac -cds a.flac |", "a pipe"),
        ("raw_wav.1.ark:1234", "a place in an archive"),
        ("https://example.org/a.wav", "an address"),
    ):
        (tmp_path / "wav.scp").write_text(f"test-000 {file}\n")
        with pytest.raises(RescoreError, match=f"utterance 'test-000' has {what}, expected a file"):
            report(folder, tmp_path / "wav.scp")
    (tmp_path / "mbr.jsonl").write_text("[]\n")
    with pytest.raises(RescoreError, match=r"mbr.jsonl:1: expected a line of rescore lattice mbr --network"):
        write_report(folder, tmp_path / "page.html", 3, False, None, tmp_path / "mbr.jsonl")
    assert not (tmp_path / "page.html").exists()
