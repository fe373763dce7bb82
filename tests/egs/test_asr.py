"""The recipes of recognisers, from audio to tables of error rates, on seconds of tones and tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.egs.conftest import Recipes, write_lms
from tests.egs.corpora import MANDARIN, SENTENCES, aishell, books, librispeech, musan

pytest.importorskip("lhotse")
pytest.importorskip("soundfile")

WORDS = [word for sentence in SENTENCES for word in sentence.split()]
ENCODER = {"channels": 4, "dim": 16, "layers": 1, "heads": 2, "feedforward": 16, "kernel": 2}
TINY: dict[str, Any] = {"decoder": "stateless", "decoder_dim": 16, "joiner_dim": 16, "encoder": ENCODER}
FEW_ARCS = {"beam": 3.0, "max_contexts": 2, "lattice_beam": 0.3}  # a model that knows nothing gives large lattices
CPU = ("--device", "cpu")


def adapt(conf: Path, **changes: Any) -> None:
    """Gives options of a YAML file other values; None takes them out."""
    values = yaml.safe_load(conf.read_text()) | {name.replace("_", "-"): value for name, value in changes.items()}
    conf.write_text(yaml.safe_dump({name: value for name, value in values.items() if value is not None}))


def small(conf: Path, **changes: Any) -> None:
    """A training of three batches, with any torch."""
    plan = {
        "optimizer": "adamw",
        "use_bf16": False,
        "max_duration": 3,
        "max_minutes": None,
        "max_steps": 3,
        "warm_step": 1,
    }
    adapt(conf, **(plan | {"save_every_n": 2} | changes))


def rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(path.read_text())["rows"]}


def check_tables(folder: Path, words: int, lms: tuple[str, ...] = ("tiny",)) -> None:
    lists, lattices = rows(folder / "lists.json"), rows(folder / "lattices.json")
    assert {"recogniser", "+ n-gram", *(f"+ n-gram and {lm}" for lm in lms), "+ all"} <= lists.keys()
    assert {f"+ n-gram and {lm}, lattice" for lm in lms} <= lattices.keys()
    assert all(row["words"] == words for table in (lists, lattices) for row in table.values())


def test_mini_librispeech(recipes: Recipes, tmp_path: Path) -> None:
    here = recipes.folder / "mini_librispeech" / "ASR"
    librispeech(tmp_path / "download", {"train-clean-5": 3, "dev-clean-2": 4})
    lm, ngram = write_lms(tmp_path, WORDS)
    options = ("--dl-dir", tmp_path / "download", "--vocab-size", 24)
    assert "already there: " in recipes.run("mini_librispeech/ASR/prepare.sh", *options)
    assert "already done" in recipes.run("mini_librispeech/ASR/prepare.sh", *options)
    assert json.loads((here / "data" / "speakers.json").read_text()) == {"dev": ["13", "15"], "test": ["14", "16"]}
    assert (here / "data" / "transcript_words.txt").read_text().splitlines() == SENTENCES[:6]

    (here / "conf" / "s4former.json").write_text(json.dumps(TINY))
    small(here / "conf" / "train.yaml", bpe_model="data/lang_bpe_24/bpe.model")
    adapt(here / "conf" / "decode.yaml", **FEW_ARCS)
    untrained = (*CPU, "--stage", 1, "--max-unknown", 1)  # it says no word of the LMs
    recipes.run("mini_librispeech/ASR/run.sh", *untrained, "--lms", lm, "--ngram", ngram)
    check_tables(here / "exp" / "rescored", words=12)
    assert len(list((here / "exp" / "decoded").glob("wer-summary-*"))) == 6
    said = recipes.run(
        "mini_librispeech/ASR/run.sh", *CPU, "--stage", 1, "--stop-stage", 1, "--conf", "conf/from-small.yaml", code=2
    )
    assert "pretrained/small" in said


def test_aishell(recipes: Recipes, tmp_path: Path) -> None:
    """Characters are the words of references, recognised text, lattices and LMs."""
    here, download = recipes.folder / "aishell" / "ASR", tmp_path / "download"
    aishell(musan(download))
    recipes.run("aishell/ASR/prepare.sh", "--dl-dir", download)
    assert "already done" in recipes.run("aishell/ASR/prepare.sh", "--dl-dir", download)
    assert (here / "data" / "lm" / "train.txt").read_text(encoding="utf-8").count("\n对 楼 市\n") == 1

    (here / "conf" / "tiny.json").write_text(json.dumps(TINY))
    epochs = {"max_steps": None, "num_epochs": 2, "average_period": 1}
    small(here / "conf" / "train.yaml", config="conf/tiny.json", num_workers=0, **epochs)
    adapt(here / "conf" / "decode.yaml", epoch=2, avg=1, beam_size=2, **FEW_ARCS)
    for kind in ("lookup", "transformer"):
        conf = here / "conf" / f"{kind}.yaml"
        values = yaml.safe_load(conf.read_text())
        values["set"] |= {"dim": 8, "heads": 1, "feedforward": 8, "layers": 1}
        values["set"] |= {"slots": 7, "entries": 2} if kind == "lookup" else {}
        conf.write_text(yaml.safe_dump(values | {"train": {"steps": 2, "warmup": 0, "valid_every": 2}}))
    options = (*CPU, "--dl-dir", download, "--world-size", 1)
    recipes.run("aishell/ASR/run.sh", *options, "--stop-stage", 3)
    recipes.run("aishell/ASR/run.sh", *options, "--stage", 4, "--kinds", "lookup")
    check_tables(here / "exp" / "rescored", sum(map(len, MANDARIN)), ("lookup",))
    assert (here / "exp" / "rescored" / "lattices.md").read_text().startswith("| system | CER % |")
    for name in ("all.json", "lattices.lookup.json"):
        assert json.loads((here / "exp" / "rescored" / name).read_text())["info"]["rate"] == "CER"
    assert "tail1" in rows(here / "exp" / "rescored" / "lists.json")["+ all"]
    fused = list((here / "exp" / "decoded").glob("recogs-test-*-lookup-lm-scale-0.4-ilme-scale-0.2.txt"))
    assert len(fused) == 1 and "ref=['对', '楼', '市']" in fused[0].read_text(encoding="utf-8")


def test_synthetic_and_librispeech_mini(recipes: Recipes, tmp_path: Path) -> None:
    for engine in ("ttspico", "espeakng_loader"):
        pytest.importorskip(engine)
    books(tmp_path / "books", dict.fromkeys(("train", "valid", "test"), "".join(f"{s}\n" for s in SENTENCES)))
    here = recipes.folder / "synthetic" / "ASR"
    counts = ("--count", 4, "--short-count", 4, "--valid-count", 2, "--test-count", 2, "--vocab-size", 24)
    recipes.run("synthetic/ASR/prepare.sh", "--text-dir", tmp_path / "books", *counts)
    (here / "conf" / "tiny.json").write_text(json.dumps(TINY))
    small(here / "conf" / "short.yaml", config="conf/tiny.json", bpe_model="data/lang_bpe_24/bpe.model")
    small(here / "conf" / "train.yaml")
    said = recipes.run("synthetic/ASR/run.sh", "--text-dir", tmp_path / "books")
    assert "already done" in said and said.count("%WER") == 3

    here = recipes.folder / "librispeech" / "ASR"
    librispeech(tmp_path, {"train-clean-100": 2, "dev-clean": 3})
    (tmp_path / "dev-clean-speaker-split.json").write_text('{"train": ["12"], "dev": ["13"], "test": ["14"]}')
    (here / "conf" / "mini" / "small-rep.json").write_text(
        json.dumps(TINY | {"encoder": {**ENCODER, "component": "rep"}})
    )
    adapt(here / "conf" / "mini" / "decode.yaml", **FEW_ARCS)
    for name in ("short", "long", "real", "best"):
        small(here / "conf" / "mini" / f"{name}.yaml")
    adapt(here / "conf" / "mini" / "short.yaml", bpe_model="../../synthetic/ASR/data/lang_bpe_24/bpe.model")
    shipped = recipes.folder.parent / "asr" / "pretrained"
    shipped.mkdir(parents=True)
    (recipes.folder / "synthetic" / "ASR" / "exp" / "small").rename(shipped / "small")
    lm, ngram = write_lms(tmp_path, WORDS)
    options = ("--mini", "true", "--dl-dir", tmp_path, "--components", "rep", "--lms", lm, "--ngram", ngram)
    fused = ("--fusion-lm", lm, "--fusion-scales", 0.1)
    unknown = ("--max-unknown", 1)  # processors round apart, and such a recogniser finds other words, or none
    recipes.run("librispeech/ASR/run.sh", *options, "--text-dir", tmp_path / "books", *fused, *unknown)
    check_tables(here / "exp" / "best" / "rescored", words=6)
    assert len(list((here / "exp" / "rep" / "decoded").glob("wer-summary-*"))) == 4
    for stage in (1, 2, 3, 4):
        options = ("--mini", "true", "--components", "rep", "--lms", lm, "--ngram", ngram, "--device", "cuda:99")
        said = recipes.run("librispeech/ASR/run.sh", *options, *unknown, "--stage", stage, code=2)
        assert "device 'cuda:99'" in said and f"Stage {stage}:" in said and f"Stage {stage + 1}:" not in said


def test_librispeech_from_the_download(recipes: Recipes, tmp_path: Path) -> None:
    """The large recipe: manifests, tokens and the loading of its configuration."""
    here = recipes.folder / "librispeech" / "ASR"
    librispeech(
        tmp_path,
        dict.fromkeys(("train-clean-100", "train-clean-360", "train-other-500", "dev-clean", "dev-other"), 1),
    )
    musan(tmp_path)
    recipes.run("librispeech/ASR/prepare.sh", "--dl-dir", tmp_path, "--vocab-size", 16)
    assert (here / "data" / "lang_bpe_16" / "tokens.txt").exists()
    (here / "conf" / "tiny.json").write_text(json.dumps(TINY))
    plan = {"config": "conf/tiny.json", "bpe_model": "data/lang_bpe_16/bpe.model", "num_workers": 0, "num_epochs": 1}
    small(here / "conf" / "train.yaml", max_steps=None, **plan)
    recipes.run("librispeech/ASR/run.sh", "--stage", 2, "--stop-stage", 2, "--world-size", 1)
    assert (here / "exp" / "paper-com" / "epoch-1.pt").exists()


DECODE = """#!/bin/sh
echo "$*" >> decode.log
case "$*" in *--lm-scale*) ;; *) exit 0 ;; esac
mkdir -p exp/paper-com/decoded
for set in dev-clean dev-other; do
  case "$*" in
    *"lm-scale 0.1 "*"$set"*) echo "beam_size_8_lm_lm_scale_0.1 20" ;;
    *"lm-scale 0.15 "*"$set"*) echo "beam_size_8_lm_lm_scale_0.15 $([ $set = dev-other ] && echo 10 || echo 30)" ;;
    *) continue ;;
  esac > "exp/paper-com/decoded/wer-summary-$set-lm-lm-scale-$(echo "$*" | sed 's/.*lm-scale \\([0-9.]*\\).*/\\1/').txt"
done
"""


@pytest.mark.parametrize("other", [True, False])
def test_librispeech_decodes_the_other_parts_where_they_are_there(recipes: Recipes, other: bool) -> None:
    """Their scales are those of dev-other."""
    here = recipes.folder / "librispeech" / "ASR"
    (here / "data").mkdir()
    for part in ("dev-clean", "test-clean", "dev-other", *(["test-other"] if other else [])):
        (here / "data" / f"librispeech_cuts_{part}.jsonl.gz").touch()
    (here / "decode.py").write_text(DECODE)
    recipes.run("librispeech/ASR/run.sh", "--stage", 3, "--stop-stage", 3, "--fusion-lm", "exp/lm")
    lines = (here / "decode.log").read_text().splitlines()
    scales = {part: [line for line in lines if "--lm-scale" in line and line.endswith(f"_{part}.jsonl.gz")]
              for part in ("test-clean", "test-other")}  # fmt: skip
    assert len(lines) == (12 if other else 6)
    assert [" --lm-scale 0.1 " in line for line in scales["test-clean"]] == [True]
    assert [" --lm-scale 0.15 " in line for line in scales["test-other"]] == [True] * other
    assert sum("librispeech_cuts_dev-other" in line for line in lines) == (5 if other else 0)
