"""egs/kaldi: decoding folders of Kaldi, rescored into others, with the files of Kaldi's scripts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from lm_zoo.ngram.grammar_fst import GrammarLM
from lm_zoo.registry import load, save_folder
from rescore.formats import read_lattices
from rescore.formats.symbols import read_symbols
from rescore.lattices.paths import best_path
from tests.egs.conftest import Recipes
from tests.lm_zoo.grammar_fst import write_lang
from tests.lm_zoo.zoo import ARPA, neural

FILES = [
    "words",
    "words_text",
    "ali",
    "acwt",
    "lmwt.nolm",
    "lmwt.withlm",
    "lmwt.lmonly",
    "lmwt.nn",
    "lmwt.nn.sum",
    "lmwt.interp.0.5",
]
# Costs graph,acoustic; the first word of each pair is the right one, the second 0.5 better at LM weight 10.
ARCS = "0 1 {A} 3,90,1_1\n0 1 {B} 2.5,90,1_1\n1 2 {C} 4,70,2_2_2\n1 2 {D} 3.5,70,2_2\n2 1,5,3\n"
RUN_PL = """#!/bin/bash
# As Kaldi's run.pl: what has no blanks in it is given to a shell as it is.
jobs=${1#JOB=1:} log=$2 line=
for word in "${@:3}"; do if [[ $word =~ ^[^[:space:]]+$ ]]; then line+="$word "; else line+="\\"$word\\" "; fi; done
for job in $(seq "$jobs"); do bash -c "${line//JOB/$job}" > "${log//JOB/$job}" 2>&1 || exit 1; done
"""
SCORE = '#!/bin/sh\necho "$@" > score.log\n'


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """`data/{lang,dev,test}`, `exp/tri1/decode_{dev,test}` of two jobs, and an LM."""
    lang = write_lang(tmp_path / "data/lang", ARPA).parent
    ids = read_symbols(lang / "words.txt").ids
    for name in ("dev", "test"):
        decode, data = tmp_path / f"exp/tri1/decode_{name}", tmp_path / f"data/{name}"
        decode.mkdir(parents=True)
        data.mkdir()
        for job in (1, 2):
            text = "".join(f"{name}-{job}-{k} \n{ARCS.format(**ids)}\n" for k in range(2))
            (decode / f"lat.{job}.gz").write_bytes(gzip.compress(text.encode()))
        (decode / "num_jobs").write_text("2\n")
        (data / "text").write_text("".join(f"{name}-{job}-{k} A C\n" for job in (1, 2) for k in range(2)))
    (tmp_path / "exp/tri1/final.mdl").write_text("model")
    (tmp_path / "exp/tri1/frame_subsampling_factor").write_text("3\n")
    save_folder(tmp_path / "lm", neural("lstm"), "lstm", {})
    return tmp_path


def arguments(work: Path, out: str) -> list[Path | str]:
    return [work / "data/lang", work / "lm", "vocab", work / "data/test", work / "exp/tri1/decode_test", work / out]


def test_nbest_drop_in(recipes: Recipes, work: Path) -> None:
    (recipes.folder / "kaldi/steps/local").mkdir()
    (recipes.folder / "kaldi/steps/local/score.sh").write_text(SCORE)
    (recipes.folder / "kaldi/steps/local/score.sh").chmod(0o755)
    given = arguments(work, "exp/nn/decode_test")
    options = [
        "--N",
        "3",
        "--inv-acwt",
        "10",
        "--weight",
        "0.5",
        "--split-words",
        "-",
        "--model-type",
        "LSTM",
        "--embedding-dim",
        "768",
        "--nlayers",
        "2",
    ]
    recipes.run("kaldi/steps/lmrescore_nbest_zoo.sh", *options, *given)
    out = work / "exp/nn/decode_test"
    assert (out / "num_jobs").read_text() == "2\n" and (out / "../final.mdl").read_text() == "model"
    assert (out / "../frame_subsampling_factor").read_text() == "3\n"
    for job in (1, 2):
        assert sorted(file.name for file in (out / f"archives.{job}").iterdir()) == sorted(FILES)
        costs = {name: column(out / f"archives.{job}" / name) for name in FILES[3:]}
        for row in range(6):
            no, old, new = (costs[name][row] for name in ("lmwt.nolm", "lmwt.lmonly", "lmwt.nn.sum"))
            assert costs["lmwt.interp.0.5"][row] == pytest.approx(no + 0.5 * new + 0.5 * old)
            assert costs["lmwt.withlm"][row] == pytest.approx(no + old)
    assert (recipes.folder / "kaldi/steps/score.log").read_text().split() == [
        "--cmd", "run.pl", f"{work}/data/test", f"{work}/data/lang", str(out),
    ]  # fmt: skip
    best = {lattice.utt_id: best_path(lattice, {"graph": 1.0, "am": 0.1}).words for lattice in lattices(work, out)}
    texts = [line.split()[1:] for line in (out / "archives.1/words_text").read_text().splitlines()]
    totals = [g + a / 10 for g, a in zip(costs["lmwt.interp.0.5"], costs["acwt"], strict=True)]
    assert len(best) == 4 and list(best["test-1-0"]) == texts[totals.index(min(totals[:3]))]

    recipes.run(
        "kaldi/steps/lmrescore_nbest_zoo.sh", *["--weight", "0.25", "--stage", "7", "--skip-scoring", "true"], *given
    )
    assert (out / "archives.2/lmwt.interp.0.25").exists()
    recipes.run("kaldi/steps/lmrescore_nbest_zoo.sh", *["--test", "true", "--N", "4"], *given)
    old = {lattice.utt_id: best_path(lattice, {"graph": 1.0, "am": 0.1}) for lattice in lattices(work, given[4])}
    for lattice in lattices(work, out):
        found = best_path(lattice, {"graph": 1.0, "am": 0.1})
        assert found.words == old[lattice.utt_id].words == ("B", "D")
        assert found.scores == pytest.approx(old[lattice.utt_id].scores, rel=1e-6)


def test_words_that_a_shell_would_take_for_its_own_go_through_run_pl(recipes: Recipes, work: Path) -> None:
    run_pl = work / "run.pl"
    run_pl.write_text(RUN_PL)
    run_pl.chmod(0o755)
    options = ["--cmd", run_pl, "--drop", "<v-noise> [noise]", "--delete", "'", "--skip-scoring", "true"]
    recipes.run("kaldi/steps/lmrescore_nbest_zoo.sh", *options, *arguments(work, "exp/nn/decode_test"))
    assert len(lattices(work, work / "exp/nn/decode_test")) == 4


def column(path: Path) -> list[float]:
    return [float(line.split()[1]) for line in path.read_text().splitlines() if len(line.split()) > 1]


def lattices(work: Path, folder: object) -> list:
    return list(read_lattices(f"kaldi:{folder}?words={work}/data/lang/words.txt"))


def test_lattice_drop_in(recipes: Recipes, work: Path) -> None:
    given = arguments(work, "exp/tri1/decode_test_nn")
    options = ["--inv-acwt", "10", "--weight", "0.5", "--beam", "6", "--epsilon", "0.5", "--skip-scoring", "true"]
    recipes.run("kaldi/steps/lmrescore_lattice_zoo.sh", *options, *given)
    out = work / "exp/tri1/decode_test_nn"
    assert (out / "lat.2.gz").exists() and (out / "num_jobs").read_text() == "2\n"
    old, new = GrammarLM(work / "data/lang/G.fst"), load(str(work / "lm"))
    first = {lattice.utt_id: lattice for lattice in lattices(work, given[4])}
    found = lattices(work, out)
    assert len(found) == 4
    for lattice in found:
        best = best_path(lattice, {"graph": 1.0, "am": 0.1})
        only = restricted(first[lattice.utt_id], best.words)
        change = 0.5 * (sum(new.score_words([best.words])[0]) - sum(old.score_words([best.words])[0]))
        assert best.scores["graph"] == pytest.approx(only.scores["graph"] + change, rel=1e-5)
        assert best.scores["am"] == pytest.approx(only.scores["am"])
        assert lattice.alignments is not None and set(lattice.alignments.ids.tolist()) <= {1, 2, 3}


def restricted(lattice, words):  # type: ignore[no-untyped-def]
    """The path of the lattice with these words."""
    from rescore.lattices.nbest import exact_nbest

    return next(hyp for hyp in exact_nbest(lattice, {"graph": 1.0, "am": 0.1}, 9).hyps if hyp.words == words)


def one_job(work: Path) -> None:
    """Decodes test again, in one job."""
    decode = work / "exp/tri1/decode_test"
    both = b"".join((decode / f"lat.{job}.gz").read_bytes() for job in (1, 2))
    (decode / "lat.2.gz").unlink()
    (decode / "lat.1.gz").write_bytes(both)
    (decode / "num_jobs").write_text("1\n")


@pytest.mark.parametrize("kind", ["nbest", "lattice"])
def test_drop_ins_leave_nothing_of_an_earlier_run_with_more_jobs(recipes: Recipes, work: Path, kind: str) -> None:
    script, given = f"kaldi/steps/lmrescore_{kind}_zoo.sh", arguments(work, "exp/tri1/decode_test_nn")
    recipes.run(script, "--skip-scoring", "true", *given)
    out = work / "exp/tri1/decode_test_nn"
    before = {str(path.relative_to(out)) for path in out.rglob("*")} - {"log"}
    (out / "lat.orig.gz").write_bytes(b"")  # of the user's own
    one_job(work)
    recipes.run(script, "--skip-scoring", "true", *given)
    after = {str(path.relative_to(out)) for path in out.rglob("*")} - {"log"}
    first = {name for name in before if ".2" not in name or name.endswith(".log")}
    assert after == first | {"lat.orig.gz"}
    (out / "lat.orig.gz").unlink()
    assert sorted(lattice.utt_id for lattice in lattices(work, out)) == [
        f"test-{j}-{k}" for j in (1, 2) for k in (0, 1)
    ]


def test_scoring_without_kaldi(recipes: Recipes, work: Path) -> None:
    given = (work / "data/test", work / "data/lang", work / "exp/tri1/decode_test")
    options = ["--min-lmwt", "10", "--max-lmwt", "11", "--word-ins-penalty", "0.0,0.5"]
    (given[2] / "wer_7_0.0").write_text("%WER 0.00 [ 0 / 8, 0 ins, 0 del, 0 sub ]\n")  # of an earlier scoring
    recipes.run("kaldi/steps/score_zoo.sh", *options, *given)
    assert (given[2] / "wer_11_0.5").read_text().startswith("%WER 100.00 [ 8 / 8, 0 ins, 0 del, 8 sub ]\n%SER 100.00")
    assert (given[2] / "scoring_kaldi/best_wer").read_text().startswith("%WER 100.00 [ 8 / 8, 0 ins, 0 del, 8 sub ]")
    assert len(list(given[2].glob("wer_1*"))) == 4


def test_what_is_wrong_is_said(recipes: Recipes, work: Path) -> None:
    script, given = "kaldi/steps/lmrescore_nbest_zoo.sh", arguments(work, "exp/nn/decode_test")
    assert "expected 6 arguments, found 5" in recipes.run(script, *given[1:], code=1)
    assert "invalid option --nbest" in recipes.run(script, "--nbest", 5, *given, code=1)
    assert "Usage: lmrescore_nbest_zoo.sh" in recipes.run(script, "--help")
    (work / "data/lang/G.carpa").write_text("")
    assert "G.carpa is not read: give the ARPA file" in recipes.run(script, *given, code=1)
    (work / "data/lang/G.carpa").unlink()
    (work / "exp/tri1/decode_test/num_jobs").rename(work / "num_jobs")
    assert "decode_test/num_jobs to exist" in recipes.run(script, *given, code=1)
    (work / "num_jobs").rename(work / "exp/tri1/decode_test/num_jobs")
    (work / "exp/tri1/decode_test/lat.2.gz").unlink()
    assert "job 2 failed" in recipes.run(script, *given, code=1)
    (work / "exp/tri1/decode_test/lat.1.gz").unlink()
    assert "lat.1.gz to exist" in recipes.run(script, *given, code=1)


WRONG = [
    (("--skip-scoring", "yes"), "--skip-scoring: found 'yes', expected true or false"),
    (("--use-phi", "True"), "--use-phi: found 'True', expected true or false"),
    (("--weight", "x"), "--weight: found 'x', expected a number"),
    (("--stage", "x"), "--stage: found 'x', expected a whole number"),
    (("--cmd", "quue.pl --mem 4G"), "no command 'quue.pl' is on the PATH"),
    (("--config", "none.conf"), "--config: none.conf is not there"),
]


def test_values_of_options_are_looked_at_before_anything_is_written(recipes: Recipes, work: Path) -> None:
    given = arguments(work, "exp/nn/decode_test")
    for options, said in WRONG:
        assert said in recipes.run("kaldi/steps/lmrescore_nbest_zoo.sh", *options, *given, code=1)
    given[1] = work / "lms/none"
    assert "lms/none to exist: a model folder" in recipes.run("kaldi/steps/lmrescore_lattice_zoo.sh", *given, code=1)
    assert not (work / "exp/nn").exists()


def test_decoding_folders_are_looked_at_before_anything_is_written(recipes: Recipes, work: Path) -> None:
    script, given = "kaldi/steps/lmrescore_nbest_zoo.sh", arguments(work, "exp/nn/decode_test")
    jobs = work / "exp/tri1/decode_test/num_jobs"
    assert "name another for the output" in recipes.run(script, *given[:5], given[4], code=1)
    for number in ("", "x", "0"):
        jobs.write_text(f"{number}\n")
        assert f"num_jobs: found '{number}', expected the number" in recipes.run(script, *given, code=1)
    jobs.write_text("1\n")
    assert "lat.2.gz is left out" in recipes.run(script, "--test", "true", *given)
    (work / "data/lang/words.txt").unlink()
    assert "data/lang/words.txt to exist" in recipes.run(script, *given[:5], work / "exp/other/decode_test", code=1)
    assert not (work / "exp/other").exists() and not (jobs.parent / "log").exists()


def test_options_of_a_file_come_before_those_of_the_command_line(recipes: Recipes, work: Path) -> None:
    conf, given = work / "nbest.conf", arguments(work, "exp/nn/decode_test")
    conf.write_text("N=2  # of 4\nweight=0.25\nskip_scoring=true\n")
    recipes.run("kaldi/steps/lmrescore_nbest_zoo.sh", "--weight", "0.5", "--config", conf, *given)
    archive = work / "exp/nn/decode_test/archives.1"
    assert len((archive / "words").read_text().splitlines()) == 2 * 2 and (archive / "lmwt.interp.0.5").exists()


def test_scoring_that_fails_leaves_no_file(recipes: Recipes, work: Path) -> None:
    folders = (work / "data", work / "data/lang", work / "exp/tri1/decode_test")
    assert "data/text: no such file" in recipes.run("kaldi/steps/score_zoo.sh", *folders, code=2)
    assert "--min-lmwt 9 is more than --max-lmwt 8" in recipes.run(
        "kaldi/steps/score_zoo.sh", "--max-lmwt", 8, *folders, code=1
    )
    assert not list(folders[2].glob("wer_*"))


def test_filters_that_are_not_used_are_named(recipes: Recipes, work: Path) -> None:
    (recipes.folder / "kaldi/steps/local").mkdir()
    (recipes.folder / "kaldi/steps/local/wer_output_filter").write_text(SCORE)
    (recipes.folder / "kaldi/steps/local/wer_output_filter").chmod(0o755)
    options = ("--max-lmwt", 9, "--word-ins-penalty", "0.0")
    given = (work / "data/test", work / "data/lang", work / "exp/tri1/decode_test")
    assert "local/wer_output_filter is not used" in recipes.run("kaldi/steps/score_zoo.sh", *options, *given)


def test_run(recipes: Recipes, work: Path) -> None:
    folders = [(f"--{name}", work / f"exp/tri1/decode_{name}", f"--{name}-data", work / f"data/{name}")
               for name in ("dev", "test")]  # fmt: skip
    given = ["--lang", work / "data/lang", *folders[0], *folders[1], "--lm", work / "lm", "--out", work / "out"]
    recipes.run("kaldi/run.sh", *given)
    scales = json.loads((work / "out/weights.json").read_text())["scales"]
    assert float((work / "out/lmwt").read_text()) == pytest.approx(scales["graph"] / scales["am"])
    target = work / "out/decode_test"
    assert (target / "num_jobs").read_text() == "2\n" and (work / "out/final.mdl").read_text() == "model"
    assert (work / "out/frame_subsampling_factor").read_text() == "3\n"
    new = load(str(work / "lm"))
    first = {lattice.utt_id: lattice for lattice in lattices(work, work / "exp/tri1/decode_test")}
    for lattice in lattices(work, target):
        best = best_path(lattice, {"graph": scales["graph"], "am": scales["am"]})
        only = restricted(first[lattice.utt_id], best.words)
        more = scales["nn"] * sum(new.score_words([best.words])[0]) + scales["words"] * len(best.words)
        assert best.scores["graph"] == pytest.approx(only.scores["graph"] + more / scales["graph"], rel=1e-4)
    rows = json.loads((work / "out/results.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["Kaldi", "+ lm"]
    assert "decode with Kaldi first" in recipes.run("kaldi/run.sh", *given, "--dev", work / "none", code=2)
    (work / "exp/tri1/decode_test/num_jobs").rename(work / "num_jobs")
    said = recipes.run("kaldi/run.sh", *given, "--out", work / "other", code=2)
    assert "decode_test/num_jobs" in said and not (work / "other").exists()
    (work / "num_jobs").rename(work / "exp/tri1/decode_test/num_jobs")
    one_job(work)
    recipes.run("kaldi/run.sh", *given, "--stage", 2)
    assert [path.name for path in sorted(target.glob("lat.*"))] == ["lat.1.gz"] and len(lattices(work, target)) == 4
    text = work / "data/test/text"
    text.write_text("".join(text.read_text().splitlines(keepends=True)[1:]))
    said = recipes.run("kaldi/run.sh", *given, "--out", work / "other", code=2)
    assert f"{text} does not fit" in said and not (work / "other/dev").exists()


def test_run_with_references_of_other_utterances(recipes: Recipes, work: Path) -> None:
    """Some that were not decoded, some that are missing."""
    for name in ("dev", "test"):
        text = work / f"data/{name}/text"
        text.write_text("".join(text.read_text().splitlines(keepends=True)[1:]) + f"{name}-9 A C\n")
    folders = [(f"--{name}", work / f"exp/tri1/decode_{name}", f"--{name}-data", work / f"data/{name}")
               for name in ("dev", "test")]  # fmt: skip
    given = ["--lang", work / "data/lang", *folders[0], *folders[1], "--lm", work / "lm", "--out", work / "out"]
    assert "--utterances common" in recipes.run("kaldi/run.sh", *given, code=2)
    recipes.run("kaldi/run.sh", *given, "--utterances", "common")
    rows = json.loads((work / "out/results.json").read_text())["rows"]
    assert [row["utterances"] for row in rows] == [3, 3]
    assert len(lattices(work, work / "out/decode_test")) == 4
