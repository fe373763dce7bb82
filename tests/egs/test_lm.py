"""The recipes of LMs: settings that the package knows, and every stage on text that is made here."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lm_zoo.registry import build, model_class, save_folder
from lm_zoo.text.vocabulary import SOS_EOS, UNK, WordVocabulary
from lm_zoo.training.run import train_config
from rescore.cli.recipe import read_defaults
from rescore.cli.settings import parse_settings
from rescore.cli.train_lm import command
from tests.egs.conftest import ROOT, Recipes
from tests.egs.corpora import books_and_transcripts, librispeech_texts, pitt, swbd, wikitext2, write, write_parts

CONFS = sorted((ROOT / "egs").glob("*/LM/conf/**/*.yaml"))
TINY = "--set dim=16 --set heads=2 --set feedforward=16 --set layers=1 --train batch_tokens=256"
QUICK = "--train steps=2 --train warmup=1 --train valid_every=2 --train optimizer=adamw --train dtype=float32"


def source(folder: Path, corpus: Path) -> Path:
    """A tiny Transformer of six layers, as the one that ships has, which adaptation starts from."""
    words = sorted(set((corpus / "train.txt").read_text().split()))
    settings = {"dim": 16, "heads": 2, "feedforward": 16, "layers": 6}
    lm = build("transformer", WordVocabulary([SOS_EOS, UNK, *words], "upper"), settings)
    save_folder(folder, lm, "transformer", {})
    return folder


@pytest.mark.parametrize("path", CONFS, ids=lambda path: str(path.relative_to(ROOT / "egs")))
def test_settings_are_known(path: Path) -> None:
    defaults, given = read_defaults(path, command)
    pairs = {flag: tuple(given[i + 1] for i in range(0, len(given), 2) if given[i] == flag) for flag in given[::2]}
    train_config(parse_settings(pairs.get("--train", ())))
    if "out" not in defaults:
        bases = ("base", "new", "further", "books", "scratch")
        assert path.stem in bases, "what is no base of others says where its LM goes"
        return
    known = {field.name for field in dataclasses.fields(model_class(defaults["kind"]).Config)}
    assert parse_settings(pairs.get("--set", ())).keys() <= known
    assert Path(defaults["out"]).name == path.stem
    assert {"texts", "valid"} <= defaults.keys()


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("ptb/LM/prepare.sh --dl-dir nowhere", "nowhere/ptb.train.txt is not there: give --dl-dir"),
        ("earnings21/LM/prepare.sh --dl-dir nowhere", "nowhere/train.txt is not there: give --dl-dir"),
        ("librispeech/LM/prepare.sh", "librispeech_text_train-clean-100 is not there: run ../ASR/prepare.sh"),
        ("librispeech/LM/prepare.sh --mini true --text-dir nowhere", "nowhere/train.txt.xz is not there"),
        ("swbd/LM/prepare.sh", "give --swbd-dir"),
        ("swbd/LM/prepare.sh --swbd-dir . --fisher-dirs .", "give --eval2000-dir, the folder of LDC2002T43"),
        ("pitt/LM/run.sh", "give --pitt-dir"),
        ("wikitext2/LM/prepare.sh --stage 1", "download/wikitext-2/wiki.train.tokens is not there: stage 0"),
    ],
)
def test_what_is_missing_is_named(recipes: Recipes, script: str, missing: str) -> None:
    assert missing in recipes.run(*script.split(), code=2)


def test_librispeech_mini(recipes: Recipes, tmp_path: Path) -> None:
    books_and_transcripts(tmp_path)
    run = ["librispeech/LM/run.sh", "--mini", "true", "--dl-dir", tmp_path, "--text-dir", tmp_path]
    run += ["--lms", "transformer bayesian", "--books-lms", "lstm"]
    shown = recipes.run(*run, "--train-options", QUICK + " --set dim=16 --train batch_tokens=256")
    table = (recipes.folder / "librispeech/LM/exp/mini/ppl.txt").read_text()
    assert table.strip() in shown and "lstm" in table and "Tail-2" in table
    again = recipes.run(*run, "--stop-stage", 2)
    assert again.count("already done") == 6


def test_librispeech_mini_of_other_lms(recipes: Recipes, tmp_path: Path) -> None:
    """Mixtures and draws are of the LMs that are there; nothing goes on from a Transformer."""
    books_and_transcripts(tmp_path)
    run = ["librispeech/LM/run.sh", "--mini", "true", "--dl-dir", tmp_path, "--text-dir", tmp_path]
    options = QUICK + " --set dim=16 --train batch_tokens=256"
    recipes.run(*run, "--lms", "lstm", "--books-lms", "transfornn", "--train-options", options)
    exp = recipes.folder / "librispeech/LM/exp/mini"
    table = (exp / "ppl.txt").read_text()
    assert re.search(r"ngram \+ \S+ lstm", table) and "bayesian" not in table
    assert sorted(path.name for path in exp.iterdir()) == ["lstm", "ppl.txt", "transfornn"]


def test_librispeech_short_runs(recipes: Recipes, tmp_path: Path) -> None:
    """Steps follow from the speed; the table has the LMs that were asked for, the best first."""
    books_and_transcripts(tmp_path)
    run = ["librispeech/LM/short.sh", "--core-minutes", 0.02, "--only", "lstm adamw", "--text-dir", tmp_path]
    options = "--set dim=16 --train batch_tokens=256 --vocab-size 40"
    shown = recipes.run(*run, "--train-options", options)
    exp = recipes.folder / "librispeech/LM/exp/short"
    rows = [line.split(" | ") for line in (exp / "table.md").read_text().splitlines()[2:]]
    assert {row[0] for row in rows} == {"| lstm", "| adamw"} and float(rows[0][-1][:-2]) <= float(rows[1][-1][:-2])
    assert (exp / "table.md").read_text() in shown
    steps = [json.loads((exp / name / "run.json").read_text())["train"]["steps"] for name in ("lstm", "adamw")]
    assert {row[0]: int(row[2]) for row in rows} == dict(zip(("| lstm", "| adamw"), steps, strict=True))
    (exp / "speed/lstm/log.jsonl").write_text('{"step": 5, "cpu_seconds": 4.0, "loss": 3.0}\n')
    assert "found 1 records of a loss" in recipes.run(*run, "--stage", 1, "--train-options", options, code=2)


def test_librispeech(recipes: Recipes, tmp_path: Path) -> None:
    librispeech_texts(recipes.folder / "librispeech/ASR/data", tmp_path)
    run = ["librispeech/LM/run.sh", "--dl-dir", tmp_path, "--lms", "transformer_2", "--books-lms", "lookup"]
    options = f"{TINY} {QUICK} --train accumulate=1 --vocab-size 40"
    assert "already there" in recipes.run(*run, "--train-options", options)
    exp = recipes.folder / "librispeech/LM/exp"
    assert "UNSEEN" in (exp / "transformer_2/words.txt").read_text()
    assert (exp / "lookup/bpe.model").exists()
    assert (exp / "ppl.txt").read_text().count("ppl/token") == 4


def test_ptb(recipes: Recipes, tmp_path: Path) -> None:
    corpus = write_parts(tmp_path, "ptb.{}.txt", upper=False)
    run = ["ptb/LM/run.sh", "--dl-dir", corpus, "--dim", 16, "--passes", 1, "--rows", "transformer_2 lstm"]
    run += ["--start", "transformer_2", "--further", "bayesian_attention lookup", "--further-passes", 1]
    recipes.run(*run, "--train-options", QUICK)
    table = (recipes.folder / "ptb/LM/exp/ppl.txt").read_text()
    assert table.count("further_lookup") >= 3 and "ngram" in table
    assert "already done" in recipes.run("ptb/LM/prepare.sh", "--dl-dir", corpus)


def test_ptb_of_one_row(recipes: Recipes, tmp_path: Path) -> None:
    """Without Transformers there is no last position, and nothing goes on from one."""
    corpus = write_parts(tmp_path, "ptb.{}.txt", upper=False)
    run = ["ptb/LM/run.sh", "--dl-dir", corpus, "--dim", 16, "--passes", 1, "--rows", "lstm", "--further", ""]
    said = recipes.run(*run, "--train-options", QUICK)
    assert "every position" in said and "last position" not in said
    table = (recipes.folder / "ptb/LM/exp/ppl.txt").read_text()
    assert "ngram + " in table and "further_" not in table


def test_wikitext2(recipes: Recipes, tmp_path: Path) -> None:
    """The archive is taken where it is, its files only with the sums of wikitext-2.sha1."""
    folder, sums = recipes.folder / "wikitext2/LM", wikitext2(tmp_path)
    run = ["wikitext2/LM/run.sh", "--dl-dir", tmp_path, "--dim", 16, "--rows", "transfornn_2_nopos", "--stop-stage", 1]
    run += ["--passes", 1]
    said = recipes.run(*run, code=2)
    assert "wiki.train.tokens: FAILED" in said and "web.archive.org has" in said and "without" in said
    write(folder / "wikitext-2.sha1", sums)
    recipes.run(*run, "--train-options", QUICK)
    assert (folder / "data/valid.txt").read_text().startswith(" = Title = \n")
    assert (folder / "exp/transfornn_2_nopos/model.safetensors").exists()


def test_swbd_and_pitt(recipes: Recipes, tmp_path: Path) -> None:
    corpora = swbd(tmp_path)
    run = ["swbd/LM/run.sh", *corpora, "--rows", "bayes_ff_1"]
    prepare = recipes.run("swbd/LM/prepare.sh", *corpora, "--held-out", 20, "--vocab-size", 50)
    assert "10 utterances" in prepare
    recipes.run(*run, "--stage", 1, "--train-options", f"{TINY} {QUICK}")
    folder = recipes.folder / "swbd/LM"
    assert len((folder / "exp/bayes_ff_1/words.txt").read_text().splitlines()) == 52
    assert "transformer" in (folder / "exp/ppl.txt").read_text()

    run = [
        "pitt/LM/run.sh",
        "--pitt-dir",
        pitt(tmp_path / "pitt"),
        "--sizes",
        "all",
        "--rates",
        0.001,
        "--dropouts",
        0.0,
        "--seeds",
        1,
    ]
    recipes.run(*run, "--train-options", QUICK)
    table = (recipes.folder / "pitt/LM/exp/all/ppl.txt").read_text()
    assert table.count("tuned-then-bayes") >= 2


def test_earnings21(recipes: Recipes, tmp_path: Path) -> None:
    corpus = write_parts(tmp_path)
    recipes.run("earnings21/LM/prepare.sh", "--dl-dir", corpus, "--sizes", "100 all")
    data = recipes.folder / "earnings21/LM/data"
    assert 100 <= len((data / "100/train.txt").read_text().split()) < 120
    assert (data / "all/train.txt").read_text() == (corpus / "train.txt").read_text()
    grid = ["--source", source(tmp_path / "source", corpus), "--sizes", 100, "--rates", "0.001 0.01"]
    grid += ["--dropouts", 0.0, "--seeds", "1 2", "--train-options", QUICK]
    said = recipes.run("earnings21/LM/run.sh", "--stage", 1, *grid)
    exp = recipes.folder / "earnings21/LM/exp/100"
    for kind in ("tuned", "tuned-twice", "bayes", "tuned-then-bayes"):
        assert len(list((exp / kind / "tried").iterdir())) == 2 and (exp / kind / "1").is_symlink()
        assert json.loads((exp / kind / "2/run.json").read_text())["train"]["seed"] == 2
    table = (exp / "ppl.md").read_text()
    assert table in said and [line.split(" | ")[:2] for line in table.splitlines()[2:7]] == [
        ["| source", "1"],
        *([f"| {kind}", "2"] for kind in ("tuned", "bayes", "tuned-twice", "tuned-then-bayes")),
    ]
    said = recipes.run("earnings21/LM/run.sh", "--stage", 1, *grid)
    assert said.count("already done") == 4 * 3


def test_earnings21_places(recipes: Recipes, tmp_path: Path) -> None:
    corpus = write_parts(tmp_path)
    run = ["earnings21/LM/places.sh", "--dl-dir", corpus, "--words", 100, "--seeds", "1 2"]
    run += ["--source", source(tmp_path / "source", corpus)]
    run += ["--places", "uncertain=embedding blocks=1-6", "--dictionaries", "slots=50,order=1", "--steps", 2]
    said = recipes.run(*run, "--valid-every", 1, "--train-options", QUICK)
    exp = recipes.folder / "earnings21/LM/exp/places/100"
    table = (exp / "ppl.md").read_text()
    rows = [line.split(" | ")[0].strip("| ") for line in table.splitlines()[3:7]]
    assert rows == ["tuned", "uncertain_embedding", "blocks_1-6", "lookup_slots50_order1"]
    assert table in said and "against tuned" in table
    configs = [json.loads((exp / f"{row}.2" / "config.json").read_text())["settings"] for row in rows]
    assert [(config.get("uncertain"), config.get("blocks")) for config in configs[1:3]] == [
        ("embedding", "1"),
        ("feedforward", "1-6"),
    ]
    assert (configs[3]["slots"], configs[3]["order"]) == (50, 1)
    trained = json.loads((exp / "tuned.2/run.json").read_text())["train"]
    assert (trained["seed"], trained["patience"]) == (2, 0)


def test_adaptation_starts_from_the_lm_that_ships(recipes: Recipes, tmp_path: Path) -> None:
    run = ["earnings21/LM/places.sh", "--dl-dir", write_parts(tmp_path), "--words", 100, "--seeds", 1, "--steps", 1]
    run += ["--places", "", "--dictionaries", "", "--valid-every", 1, "--stop-stage", 1, "--train-options", QUICK]
    recipes.run(*run)
    folders = (ROOT / "lm_zoo/pretrained/transformer", recipes.folder / "earnings21/LM/exp/places/100/tuned.1")
    shipped, tuned = (json.loads((folder / "config.json").read_text())["settings"] for folder in folders)
    assert tuned == tuned | shipped | {"dropout": 0.0}


def test_earnings21_from_scratch(recipes: Recipes, tmp_path: Path) -> None:
    corpus = write_parts(tmp_path)
    run = ["earnings21/LM/scratch.sh", "--dl-dir", corpus, "--rows", "none bayesian lookup", "--seeds", "1 2"]
    said = recipes.run(*run, "--passes", 1, "--train-options", f"{TINY} {QUICK} --vocab-size 40")
    exp = recipes.folder / "earnings21/LM/exp/scratch"
    table = (exp / "ppl.md").read_text()
    assert table in said and "against none" in table
    assert [line.split(" | ")[:2] for line in table.splitlines()[2:6]] == [
        *([f"| {row}", "2"] for row in ("none", "bayesian", "lookup")),
        ["| ngram", "1"],
    ]
    assert (exp / "information_gain.txt").read_text().count("lookup") == 2


@pytest.mark.parametrize(
    ("recipe", "names", "more"),
    [
        ("earnings21/LM", {}, "--vocab-size 40"),
        ("ptb/LM", {"name": "ptb.{}.txt", "upper": False}, "--train batch_windows=8"),
    ],
)
def test_sweeps(recipes: Recipes, tmp_path: Path, recipe: str, names: dict[str, Any], more: str) -> None:
    corpus = write_parts(tmp_path, **names)
    run = [f"{recipe}/sweeps.sh", "--dl-dir", corpus, "--rows", "none bayesian", "--widths", "8 16"]
    run += ["--dictionaries", "slots=50 slots=60,order=1", "--passes", 1, "--seeds", "1 2"]
    recipes.run(*run, "--train-options", f"{TINY.replace('--set feedforward=16', '')} {QUICK} {more}")
    exp = recipes.folder / recipe / "exp/sweeps"
    rows = [line.split(" | ")[0].strip("| ") for line in (exp / "ppl.md").read_text().splitlines()[2:8]]
    assert rows == ["none_8", "bayesian_8", "none_16", "bayesian_16", "lookup_slots50", "lookup_slots60_order1"]
    configs = [json.loads((exp / f"{row}.1" / "config.json").read_text())["settings"] for row in rows]
    assert [config["feedforward"] for config in configs[:4]] == [8, 8, 16, 16]
    assert [(config["slots"], config["order"]) for config in configs[4:]] == [(50, 2), (60, 1)]
    assert (exp / "information_gain.txt").read_text().count("lookup") == 2 * 2
