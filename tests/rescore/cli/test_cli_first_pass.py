"""`rescore lattice nbest|rescore --ref`: LM weight and word insertion penalty found on dev before the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lm_zoo.errors import ModelError
from lm_zoo.registry import save_folder
from rescore.cli.main import cli
from rescore.errors import ReferencesError, RescoreError, ScoreError, UsageError
from rescore.evaluation.wer import corpus_errors
from rescore.files import read_kaldi_text
from rescore.formats import read_lattices, read_nbest
from rescore.lattices.best_path import best_words
from rescore.weights import load_weights
from rescore.workflows.first_pass import usual_beams, weights_beside
from tests.lm_zoo import zoo

WORDS = "<eps> 0\nA 1\nB 2\nC 3\n"
# Costs graph,acoustic: A C is right; below LM weight 4 A B is the best path, and without a penalty A C C is.
LATTICE = "0 1 1 1,10,\n1 2 3 2,20,\n1 2 2 4,12,\n1 3 3 0.9,10,\n3 2 3 0.9,9.5,\n2\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for part in ("dev", "test"):
        Path(part).mkdir()
        Path(part, "lat.1").write_text("".join(f"{part}-{k} \n{LATTICE}\n" for k in range(3)))
        Path(f"{part}.text").write_text("".join(f"{part}-{k} A C\n" for k in range(3)))
    Path("data/lang_test").mkdir(parents=True)
    Path("data/lang_test/words.txt").write_text(WORDS)
    return tmp_path


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, ["lattice", *map(str, args)], catch_exceptions=False)


def best_of_kaldi(part: str) -> int:
    """The fewest errors of best paths over Kaldi's LM weights and penalties."""
    lattices = list(read_lattices(f"kaldi:{part}"))
    refs = read_kaldi_text(f"{part}.text")
    settings = ((lmwt, wip) for lmwt in range(7, 18) for wip in (0.0, 0.5, 1.0))
    return min(corpus_errors(refs, best_words(lattices, *setting)).errors for setting in settings)


def test_lists_come_at_scales_found_on_dev(folder: Path) -> None:
    result = run("nbest", "kaldi:dev", "lists/dev.jsonl.gz", "--ref", "dev.text")
    weights = load_weights("lists/dev.weights.json")
    scales = weights.scales
    assert "looking for scales of graph, am, words over 3 lattices" in result.stderr
    lmwt, penalty = scales["graph"] / scales["am"], -scales["words"] / scales["graph"]
    assert f"LMWT {lmwt:.4g}, word insertion penalty {penalty:.3g}" in result.stderr
    assert "--weights lists/dev.weights.json" in result.stderr and "data/lang_test/words.txt" in result.stderr
    assert weights.info["errors"] == 0 <= best_of_kaldi("dev")
    assert {nbest.hyps[0].words for nbest in read_nbest("lists/dev.jsonl.gz")} == {("A", "C")}
    run("nbest", "kaldi:test", "test.jsonl.gz", "--weights", "lists/dev.weights.json")
    assert {nbest.hyps[0].words for nbest in read_nbest("test.jsonl.gz")} == {("A", "C")}
    dev = [vars(hyp) for hyp in next(read_nbest("lists/dev.jsonl.gz")).hyps]
    assert dev == [vars(hyp) for hyp in next(read_nbest("test.jsonl.gz")).hyps]


def test_given_scales_are_held(folder: Path) -> None:
    line = ("nbest", "kaldi:dev", "dev.jsonl", "--ref", "dev.text", "--scale", "graph=12")
    run(*line)
    weights = load_weights("dev.weights.json")
    assert weights.scales["graph"] == 12.0 and weights.info["fixed"] == {"graph": 12.0}
    with pytest.raises(ScoreError, match="lattice 'dev-0' has no score 'grpah'; it has: graph, am, words"):
        run(*line, "--scale", "grpah=12")


def test_what_does_not_fit_is_said_before_any_work(folder: Path) -> None:
    Path("dev.text").write_text("dev-0 A C\n")
    with pytest.raises(ReferencesError, match="2 of 3 lattices have no reference"):
        run("nbest", "kaldi:dev", "dev.jsonl", "--ref", "dev.text")
    assert not Path("dev.jsonl").exists() and not Path("dev.weights.json").exists()
    result = run("nbest", "kaldi:dev", "dev.jsonl", "--ref", "dev.text", "--utterances", "common")
    assert "2 of 3 lattices left out (dev-1, dev-2)" in result.stderr
    assert len(list(read_nbest("dev.jsonl"))) == 3  # it is the tuning alone that needs references
    with pytest.raises(UsageError, match="--weights FILE or --ref TEXT"):
        run("nbest", "kaldi:dev", "dev.jsonl", "--ref", "dev.text", "--weights", "dev.weights.json")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("nbest kaldi:dev lattice-rescore:out", "lattice-rescore is read only"),
        (
            "rescore kaldi:dev openfst:out.fst.txt?words=no.txt --lm lstm --words data/lang_test/words.txt",
            "no.txt: no such",
        ),
        ("rescore kaldi:dev slf:out --lm lstm -n 3", "slf holds lattices, expected N-best lists"),
    ],
)
def test_a_target_that_cannot_be_written_is_refused_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    """Scales were looked for over all lattices, and lost."""
    monkeypatch.setattr("rescore.workflows.first_pass.find_first_pass", lambda *_: pytest.fail("looked for scales"))
    with pytest.raises(RescoreError, match=message):
        run(*command.split(), "--ref", "dev.text")


@pytest.mark.parametrize(
    ("lms", "message"),
    [
        ("", "no LM given"),
        ("--ngram no.arpa", "no LM is called 'no.arpa'"),
        ("--lm nn=no/lm", "no LM is called 'no/lm'"),
        ("--lm lstm --old-ngram no/G.fst", "no LM is called 'no/G.fst'"),
    ],
)
def test_an_lm_that_is_not_there_is_told_first(
    folder: Path, capsys: pytest.CaptureFixture[str], lms: str, message: str
) -> None:
    with pytest.raises((UsageError, ModelError), match=message):
        cli.main(
            ["lattice", "rescore", "kaldi:dev", "slf:out", "--ref", "dev.text", *lms.split()], standalone_mode=False
        )
    assert "looking for scales" not in capsys.readouterr().err


def test_weights_have_the_name_of_what_they_belong_to() -> None:
    targets = ["dev.jsonl.gz", "slf:dev.clean", "slf:dev.other", "kaldi-lat:decode.si", "kaldi-lat:new", "k2:dev.pt"]
    targets += ["espnet:dev.clean", "kaldi:dev.clean", "jsonl:dev.clean", "dev.json", "openfst:dev.fst.txt"]
    names = ["dev", "dev.clean", "dev.other", "decode.si", "new", "dev", *["dev.clean"] * 3, "dev", "dev.fst"]
    assert [weights_beside(target) for target in targets] == [Path(f"{name}.weights.json") for name in names]


def test_usual_beams_go_by_the_lattices_own_lm_or_the_largest_new_one() -> None:
    assert usual_beams({"am": 1.0, "graph": 12.0, "ngram": 3.0, "nn": 20.0}, ["nn"]) == (96.0, 72.0)
    assert usual_beams({"am": 1.0, "ngram": 8.0, "nn": 0.5}, ["nn"]) == (64.0, 48.0)
    assert usual_beams({"am": 1.0, "ngram": 3.0, "nn": 7.0}, ["nn"]) == (56.0, 42.0)


def test_lists_on_standard_output_have_no_place_for_weights(folder: Path) -> None:
    result = run("nbest", "kaldi:dev", "jsonl:-", "--ref", "dev.text")
    assert len(result.stdout.splitlines()) == 3 and "are not written" in result.stderr


def test_lattices_under_a_new_lm(folder: Path) -> None:
    save_folder(folder / "nn", zoo.neural("lstm"), "lstm", {})
    line = ("rescore", "kaldi:dev", "slf:exp/dev", "--lm", "nn", "--ref", "dev.text")
    with pytest.raises(ScoreError, match="no score 'mm'; it has: graph, am, words, nn"):
        run(*line, "--scale", "mm=3")
    assert run(*line[:2], "slf:exp/held", *line[3:], "--scale", "nn=3").exit_code == 0
    assert load_weights("exp/held.weights.json").scales["nn"] == 3.0
    result = run(*line)
    weights = load_weights("exp/dev.weights.json")
    graph = weights.scales["graph"]
    assert weights.scales["nn"] == pytest.approx(graph / 2)
    assert f"--ngram-beam {8 * graph:.6g} --beam {6 * graph:.6g}: the usual width" in result.stderr
    scores = next(read_lattices("slf:exp/dev")).scores
    assert {"am", "graph", "nn"} <= set(scores) and np.isfinite(scores["nn"]).all()
    result = run("rescore", "kaldi:test", "slf:exp/test", "--lm", "nn", "--weights", "exp/dev.weights.json", "--exact")
    assert "usual width" not in result.stderr and Path("exp/test/test-0.slf.gz").exists()
