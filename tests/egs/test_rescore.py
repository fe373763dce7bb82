"""From lattices to tables: egs/shared/rescore.sh and the recipe of PocketSphinx on lattices whose errors are known."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.egs.conftest import Recipes, write_lms

SENTENCES = ["the cat sat on a mat", "a dog ate the bone", "the u.s. man ran", "a cat sat on the bone", "the dog ran"]
NORMALISED = [sentence.upper().replace(".", "") for sentence in SENTENCES]
CONFUSED = {"cat": "hat", "dog": "dock", "man": "mine"}  # what the acoustics like better, once a sentence
FORMATS = {"lists": ["+ n-gram", "+ tiny", "+ n-gram and tiny", "+ all"]}
FORMATS["lattices"] = [
    f"{system}, {how}" for system in ("+ n-gram", "+ n-gram and tiny") for how in ("4-best", "lattice", "lattice, MBR")
]


def lattice(sentence: str) -> str:
    """PocketSphinx's kind of lattice: words on nodes, ids backward in time, `p=`; the confused word is 1.5 better."""
    slots = [["!SENT_START"], *([word, CONFUSED.get(word, "um")] for word in sentence.split()), ["!SENT_END"]]
    numbers = iter(range(sum(map(len, slots)) - 1, -1, -1))
    nodes = [[(next(numbers), word) for word in slot] for slot in slots]
    lines = [f"I={node}\tt={place / 10}\tW={word}\tv=1" for place, slot in enumerate(nodes) for node, word in slot]
    links = []
    for slot, after in pairwise(nodes):
        for start, word in slot:
            score = {"um": -25.0, **dict.fromkeys(CONFUSED, -11.5)}.get(word, -10.0)
            links += [f"S={start}\tE={end}\ta={score}\tp=0.5" for end, _ in after]
    head = f"VERSION=1.0\nstart={nodes[0][0][0]}\nend=0\nN={len(lines)}\tL={len(links)}\n"
    return head + "\n".join(lines + [f"J={number}\t{link}" for number, link in enumerate(links)]) + "\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Lattices, references, an n-gram and an LM; the n-gram knows the right words, not the wrong ones."""
    folder = tmp_path / "data"
    (folder / "slf_pocketsphinx" / "lat").mkdir(parents=True)
    for name in ("dev", "test"):
        refs = {f"{name}{number}": sentence for number, sentence in enumerate(SENTENCES)}
        for utt_id, sentence in refs.items():
            (folder / "slf_pocketsphinx" / "lat" / f"{utt_id}.slf.gz").write_bytes(compressed(lattice(sentence)))
        lines = (f"{utt_id} {text}\n" for utt_id, text in zip(refs, NORMALISED, strict=True))
        (folder / "slf_pocketsphinx" / f"{name}.text").write_text("".join(lines))
    write_lms(folder, (word for sentence in NORMALISED for word in sentence.split()))
    return folder


def compressed(text: str) -> bytes:
    import gzip

    return gzip.compress(text.encode())


def rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(path.read_text())["rows"]}


def test_pocketsphinx_from_lattices_to_tables(recipes: Recipes, data: Path, tmp_path: Path) -> None:
    exp = tmp_path / "exp"
    (exp / "test").mkdir(parents=True)
    (exp / "dev").mkdir()
    for name in ("dev", "test"):  # without PocketSphinx, stage 1 has been there before
        (exp / name / ".recogniser.done").touch()
    confused = [" ".join(CONFUSED.get(word, word) for word in sentence.split()).upper() for sentence in SENTENCES]
    lines = (f"test{number} {text.replace('.', '')}\n" for number, text in enumerate(confused))
    (exp / "test" / "recogniser.txt").write_text("".join(lines))
    options = ["--data", data, "--exp", exp, "--lms", data / "tiny", "--ngram", data / "tiny.arpa", "--num-paths", 4]
    said = recipes.run("pocketsphinx/run.sh", *options)
    assert "already done" in said and "Stage 4: the tables of test" in said and "Stage 3 took" in said
    lists, lattices = rows(exp / "lists.json"), rows(exp / "lattices.json")
    assert list(lists) == ["recogniser", *FORMATS["lists"]] and list(lattices) == FORMATS["lattices"]
    assert lists["recogniser"]["errors"] == len(SENTENCES) and lists["recogniser"]["words"] == 24
    for table in (lists, lattices):
        for name, row in table.items():
            assert row["errors"] == 0 or name in ("recogniser", "+ tiny"), (name, row)
    assert lists["+ n-gram"]["oracle_wer"] == 0.0
    assert set(lists["+ tiny"]["p_values"]) == {"recogniser", "+ n-gram"}
    assert set(lattices["+ n-gram, lattice"]["p_values"]) == {"+ n-gram, 4-best", "+ n-gram and tiny, 4-best"}
    for weights in ("ngram", "tiny", "ngram+tiny", "all", "lattices.ngram", "lattices.tiny"):
        scales = json.loads((exp / f"{weights}.json").read_text())["scales"]
        assert scales["posterior"] == 0.0, weights
    assert "| + all | 0.00 |" in (exp / "lists.md").read_text()
    assert "user" in (exp / "dev" / "lattices.tiny.log").read_text()

    (exp / "lists.md").unlink()
    lattices_table = (exp / "lattices.md").read_text()
    said = recipes.run("pocketsphinx/run.sh", *options, "--stage", 5)
    assert "Stage 1" not in said and (exp / "lists.md").exists()
    assert (exp / "lattices.md").read_text() == lattices_table, "run twice, the same"


def given(folder: Path, data: Path) -> list[object]:
    """Options of shared/rescore.sh for lattices in `folder`, which go there."""
    for name in ("dev", "test"):
        (folder / name).mkdir()
        for number, sentence in enumerate(SENTENCES):
            (folder / name / f"{name}{number}.slf").write_text(lattice(sentence))
    options: list[object] = ["--ngram", data / "tiny.arpa", "--num-paths", 4, "--mbr", "", "--out", folder / "out"]
    for name in ("dev", "test"):
        options += [f"--{name}", f"slf:{folder}/{name}", f"--{name}-ref", data / f"slf_pocketsphinx/{name}.text"]
    return [*options, "--normalise", "--case upper --delete ."]


def test_lattices_that_cannot_be_read_are_left_out_if_asked_to(recipes: Recipes, data: Path, tmp_path: Path) -> None:
    options = [*given(tmp_path, data), "--lms", data / "tiny"]
    for name in ("dev", "test"):
        (tmp_path / name / f"{name}2.slf").write_text("VERSION=1.0\nN=1 L=0\n")
    assert "dev2.slf" in recipes.run("shared/rescore.sh", *options, code=2)
    said = recipes.run("shared/rescore.sh", *options, "--on-error", "skip")
    assert "skipped: " in said and "1 of 5 references left out (test2)" in said
    for table in (rows(tmp_path / "out/lists.json"), rows(tmp_path / "out/lattices.json")):
        assert {row["words"] for row in table.values()} == {24 - 4} and table


def test_the_ngram_alone(recipes: Recipes, data: Path, tmp_path: Path) -> None:
    options = given(tmp_path, data)
    said = recipes.run("shared/rescore.sh", *options, "--lms", f"{data / 'tiny'} ngram", code=2)
    assert "--lms names ngram, the score of --ngram, which is taken anyway" in said
    said = recipes.run("shared/rescore.sh", *options, "--lms", "")
    assert "scores of the n-gram alone, which the lists have" in said
    lists, lattices = rows(tmp_path / "out/lists.json"), rows(tmp_path / "out/lattices.json")
    assert list(lists) == ["+ n-gram"] and list(lattices) == ["+ n-gram, 4-best", "+ n-gram, lattice"]
    assert {row["errors"] for table in (lists, lattices) for row in table.values()} == {0}


def test_what_is_missing_is_told(recipes: Recipes, tmp_path: Path) -> None:
    said = recipes.run("shared/rescore.sh", "--dev", "slf:lat", code=2)
    assert "--test is missing; see --help" in said
    linked = recipes.run("swbd/LM/rescore.sh", "--dev", "slf:lat", code=2)
    assert said.split()[2:] == linked.split()[2:]  # but for the time
    assert "there is no option --nonsense" in recipes.run("shared/rescore.sh", "--nonsense", 1, code=2)
    assert "--mini: found 'ls', expected true or false" in recipes.run("ptb/LM/run.sh", "--mini", "ls", code=2)
    assert "--stage: found '1.5', expected a whole number" in recipes.run("shared/rescore.sh", "--stage", "1.5", code=2)
    assert "--beam: found '6x', expected a number" in recipes.run("shared/rescore.sh", "--beam", "6x", code=2)
    assert "--stage needs a value" in recipes.run("shared/rescore.sh", "--stage", code=2)
    said = recipes.run("pocketsphinx/run.sh", "--data", tmp_path / "nothing", code=2)
    assert "slf_pocketsphinx/lat is not there: give --data" in said
    assert "Usage: ./run.sh" in recipes.run("pocketsphinx/run.sh", "--help")
    options = recipes.run("shared/rescore.sh", "--help")
    assert "\n  --mbr  posterior scale of minimum Bayes risk; empty: none  [0.15]\n" in options
    assert "\n  --train-options\n" in recipes.run("ptb/LM/run.sh", "--help"), "those of lm.sh too"
