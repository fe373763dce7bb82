"""`rescore run`: the steps, what is checked before them, and what is not done twice."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from rescore.cli.main import cli
from rescore.evaluation.wer import corpus_errors
from rescore.files import read_kaldi_text
from rescore.formats import read_nbest, write_nbest
from tests.lm_zoo.zoo import ARPA
from tests.rescore.formats.test_kaldi_lattice import TEXT, WORDS
from tests.rescore.runs import LIKES, LM, write_inputs
from tests.toy_lm import Toy

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rescore.tuning.risk_tune.INNER", 2)  # the steps are tested here, not the scales
    write_inputs(tmp_path)
    return tmp_path


def start(*more: str, lm: str = LM, ref: str = "text", **sources: str) -> Result:
    """`rescore run` on the files of the folder, or on other `dev` and `test`."""
    dev, test = (sources.get(part, f"{part}.jsonl.gz") for part in ("dev", "test"))
    arguments = ["--dev", dev, "--test", test, "--ref", ref, "--lm", lm, "--out", "out", *more]
    return CliRunner().invoke(cli, ["run", *arguments])


def steps(result: Result) -> list[str]:
    """The commands that were printed."""
    return [line.removeprefix("$ rescore ") for line in result.stdout.splitlines() if line.startswith("$ rescore ")]


def test_every_step_is_a_command(folder: Path) -> None:
    result = start()
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in steps(result)]
    assert names == ["nbest", "nbest", "tune", "combine", "tune", "combine", "compare", "report"]
    made, table = (json.loads(Path("out", name).read_text()) for name in ("run.json", "table.json"))
    assert [row["name"] for row in table["rows"]] == ["first-pass", "tuned", "toy"]
    assert made["chosen"] == "toy" and made["baseline"] == "tuned"
    assert [step["command"] for step in made["steps"].values()] == [f"rescore {line}" for line in steps(result)]
    errors = corpus_errors(read_kaldi_text("out/ref/test.txt"), read_kaldi_text("out/test/toy/1best.txt"))
    assert table["rows"][2]["errors"] == errors.errors < table["rows"][1]["errors"]
    assert "decided on dev: toy" in result.stdout.splitlines()[-1]
    assert Path("out/report.html").exists()


def test_the_result_as_json(folder: Path) -> None:
    alone = start("--json", "-")  # nothing else on standard output
    assert alone.exit_code == 0, alone.output
    made, table = (json.loads(Path("out", name).read_text()) for name in ("run.json", "table.json"))
    assert json.loads(alone.stdout) == {**made, "table": table}
    assert "$ rescore report out" in alone.stderr
    with_lines = start("--json", "result.json")
    assert json.loads(Path("result.json").read_text()) == json.loads(alone.stdout)
    assert with_lines.stdout.startswith("decided on dev: toy") and with_lines.stdout.count("\n") == 1


def test_the_printed_commands_do_the_same_by_hand(folder: Path) -> None:
    lines = steps(start())
    before = {file: file.read_bytes() for file in Path("out").rglob("*") if file.is_file()}
    for line in lines:
        assert CliRunner().invoke(cli, shlex.split(line)).exit_code == 0, line
    assert {file: file.read_bytes() for file in before} == before


def test_steps_are_done_once_for_their_input(folder: Path) -> None:
    start()
    assert steps(start()) == []
    Path("out/weights/toy.json").unlink()
    assert [line.split()[0] for line in steps(start())] == ["tune"]  # the same weights: what follows is there
    lists = list(read_nbest("test.jsonl.gz"))
    lists[0].hyps[0].scores["am"] -= 100
    lists[0].hyps.reverse()
    write_nbest("test.jsonl.gz", lists)
    assert [line.split()[0] for line in steps(start())] == ["nbest", "combine", "combine", "compare", "report"]


def test_a_step_that_was_stopped_is_done_again_for_the_input_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    scores, lists = Path("out/dev/scores.jsonl.gz"), Path("dev.jsonl.gz")
    before, given = scores.read_bytes(), lists.read_bytes()
    write_nbest("dev.jsonl.gz", [replace(nbest, hyps=nbest.hyps[:1]) for nbest in [*read_nbest("dev.jsonl.gz")]])
    with monkeypatch.context() as patch:
        patch.setattr("rescore.workflows.nbest.note_lms", Mock(side_effect=KeyboardInterrupt))
        assert start().exit_code != 0 and scores.read_bytes() != before
    lists.write_bytes(given)
    assert [line.split()[0] for line in steps(start())] == ["nbest"]
    assert scores.read_bytes() == before


def test_the_report_is_of_the_references_of_dev_that_are_there(folder: Path) -> None:
    start()
    text = Path("text").read_text()
    Path("text").write_text(text.replace("THEY WENT HOME", "THEY WENT HUM", 1))  # of dev: the first lines
    assert steps(start())[-1].split()[0] == "report"
    assert hashlib.sha256(Path("out/ref/dev.txt").read_bytes()).hexdigest() in Path("out/report.html").read_text()


def test_systems_with_an_ngram_and_two_lms(folder: Path) -> None:
    Path("tiny.arpa").write_text(ARPA)
    result = start("--ngram", "tiny.arpa", "--max-unknown", "1", "--lm", "b=tests.toy_lm:Toy?likes=UH")
    assert result.exit_code == 0, result.output
    rows = json.loads(Path("out/table.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["first-pass", "tuned", "ngram", "toy", "b", "all"]
    assert set(rows[3]["p_values"]) == {"first-pass", "tuned", "ngram"}
    scales = json.loads(Path("out/weights/b.json").read_text())["scales"]
    assert scales["toy"] == 0 and set(scales) == {"am", "toy", "b", "ngram", "words"}


def test_lattices_become_lists(folder: Path) -> None:
    for part in ("one", "two"):
        (folder / part).mkdir()
        (folder / part / "lat.1").write_text(TEXT.replace("utt-", f"{part}-"))
        (folder / part / "words.txt").write_text(WORDS)
    Path("text").write_text("one-a A C\none-b B B\ntwo-a A C\ntwo-b B B\n")
    result = start("-n", "5", dev="kaldi:one", test="kaldi:two", lm="toy=tests.toy_lm:Toy?likes=A")
    assert result.exit_code == 0, result.output
    assert steps(result)[0] == "convert kaldi:one out/lists/dev.jsonl.gz -n 5"
    assert len(list(read_nbest("out/lists/test.jsonl.gz"))) == 2


@pytest.mark.parametrize(
    "spoil, options, message",
    [
        (lambda text: text.replace("test-003", "other"), {}, "1 of 24 utterances have no reference (test-003)"),
        (str.lower, {}, "differ in letter case"),
        (None, {"test": "dev.jsonl.gz"}, "12 utterances are in --dev and in --test"),
        (None, {"dev": "nothing.jsonl"}, "no such file"),
        (None, {"ref": "nothing"}, "no such file"),
        (None, {"lm": "no-such-lm"}, "no LM is called 'no-such-lm'"),
        (
            None,
            {"lm": "am=tests.toy_lm:Toy?likes=A"},
            "there is a score 'am' already; name the LM: --lm NEW",
        ),
        (None, {"lm": "exp/lr=0.1"}, "the column 'lr=0.1' has a '=', which ends names; name the LM: --lm NEWNAME="),
        (
            None,
            {"lm": f"-x=tests.toy_lm:Toy?likes={LIKES}"},
            "the column '-x' reads as an option; name the LM: --lm NEW",
        ),
        (None, {"lm": "tuned=tests.toy_lm:Toy?likes=A"}, "'tuned' is the name of a system of every run"),
        (None, {"lm": f"toy=tests.toy_lm:Toy?likes={LIKES}&knows=A"}, "more than 50% are refused"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_computed(
    folder: Path, spoil: Callable[[str], str] | None, options: dict[str, str], message: str
) -> None:
    if spoil:
        Path("text").write_text(spoil(Path("text").read_text()))
    result = start(**options)
    assert message in f"{result.exception} {result.output}"
    assert steps(result) == [] and not Path("out").exists()


def test_references_of_no_utterance_are_counted(folder: Path) -> None:
    with open("text", "a") as stream:
        stream.write("more-1 A\n")
    result = start()
    assert "1 references have no utterance in --dev or --test and are not used: more-1" in result.stderr


def test_normalised_text_is_so_in_every_step(folder: Path) -> None:
    lines = Path("text").read_text().splitlines()
    Path("text").write_text("".join(f"{line.split(' ', 1)[0]} {line.split(' ', 1)[1].lower()}\n" for line in lines))
    result = start("--normalise", "basic")
    assert result.exit_code == 0, result.output
    table = json.loads(Path("out/table.json").read_text())
    assert table["how"]["normalise"] == "basic" and "|norm:basic|" in table["how"]["signature"]
    assert table["rows"][2]["errors"] < table["rows"][1]["errors"]
    page = Path("out/report.html").read_text()
    assert "normalised by basic" in page and '"he said so"' in page


def scored_by(monkeypatch: pytest.MonkeyPatch, most: float = math.inf) -> Counter[str]:
    """LM (what it likes) -> how many sentences it scores from now on; behind `most` of all it is stopped."""
    scored, score_words = Counter[str](), Toy.score_words

    def counted(self: Toy, sentences: list[tuple[str, ...]], max_unknown: float | None = None) -> list[list[float]]:
        if scored.total() > most:
            raise KeyboardInterrupt
        scored[",".join(sorted(self.likes))] += len(sentences)
        return score_words(self, sentences, max_unknown)

    monkeypatch.setattr(Toy, "score_words", counted)
    return scored


def contents(out: Path) -> dict[str, bytes]:
    """The scores and decisions of both sets, and the scales."""
    files = [file for each in ("dev", "test", "weights") for file in (out / each).rglob("*") if file.is_file()]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}


def test_an_lm_that_is_added_is_scored_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert start().exit_code == 0
    scored = scored_by(monkeypatch)
    added = start("--lm", "b=tests.toy_lm:Toy?likes=UH")
    assert added.exit_code == 0, added.output
    sentences = sum(len(nbest.hyps) for part in ("dev", "test") for nbest in read_nbest(f"{part}.jsonl.gz"))
    assert scored == {"UH": sentences}
    assert "toy: kept, out/dev/scores.jsonl.gz has the scores" in added.stderr
    from_both = contents(Path("out"))
    shutil.rmtree("out")
    start("--lm", "b=tests.toy_lm:Toy?likes=UH")
    assert contents(Path("out")) == from_both
    scored.clear()
    assert start().exit_code == 0 and start("--lm", "b=tests.toy_lm:Toy?likes=UH,HOME").exit_code == 0
    assert scored == {"HOME,UH": sentences}  # `toy` alone needs no LM, `b` is another one than before


def test_a_run_with_an_lm_more_that_was_stopped_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescore.workflows.scoring.BATCH_WORDS", 64)
    start()
    with monkeypatch.context() as patch:
        before = scored_by(patch, most=20)
        assert start("--lm", "b=tests.toy_lm:Toy?likes=UH").exit_code != 0
    assert next(read_nbest("out/dev/scores.jsonl.gz")).columns == ["am", "toy"]  # until all of `b` are there
    after = scored_by(monkeypatch)
    result = start("--lm", "b=tests.toy_lm:Toy?likes=UH")
    assert result.exit_code == 0 and "of them by a run that was stopped" in result.stderr
    sentences = sum(len(nbest.hyps) for part in ("dev", "test") for nbest in read_nbest(f"{part}.jsonl.gz"))
    assert before["UH"] > 20 and sentences - before["UH"] <= after["UH"] < sentences and list(after) == ["UH"]


def test_another_set_of_lms_leaves_nothing_behind(folder: Path) -> None:
    start("--lm", "b=tests.toy_lm:Toy?likes=UH")
    result = start()
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in steps(result)][:3] == ["nbest", "nbest", "tune"]
    rows = json.loads(Path("out/table.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["first-pass", "tuned", "toy"]
    made = json.loads(Path("out/run.json").read_text())
    assert made["systems"] == ["tuned", "toy"] and "scales of b" not in made["steps"]
