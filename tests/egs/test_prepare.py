"""Each recipe's prepare.sh: killed in every command and run again, it makes what it makes in one go."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.egs import corpora
from tests.egs.conftest import Recipes
from tests.egs.test_all import CORPORA, EGS

Arguments = list[object]


def ptb(recipes: Recipes, folder: Path) -> Arguments:
    return ["--dl-dir", corpora.write_parts(folder, "ptb.{}.txt", upper=False)]


def wikitext2(recipes: Recipes, folder: Path) -> Arguments:
    corpora.write(recipes.folder / "wikitext2/LM/wikitext-2.sha1", corpora.wikitext2(folder))
    return ["--dl-dir", folder]


def earnings21(recipes: Recipes, folder: Path) -> Arguments:
    return ["--dl-dir", corpora.write_parts(folder), "--sizes", "100 all"]


def swbd(recipes: Recipes, folder: Path) -> Arguments:
    return [*corpora.swbd(folder), "--held-out", 20, "--vocab-size", 50]


def pitt(recipes: Recipes, folder: Path) -> Arguments:
    return ["--pitt-dir", corpora.pitt(folder)]


def librispeech_lm(recipes: Recipes, folder: Path) -> Arguments:
    return ["--dl-dir", corpora.librispeech_texts(recipes.folder / "librispeech/ASR/data", folder)]


def librispeech(recipes: Recipes, folder: Path) -> Arguments:
    corpora.librispeech(folder, {"train-clean-100": 2, "dev-clean": 1})
    return ["--dl-dir", corpora.musan(folder), "--vocab-size", 20]


def mini_librispeech(recipes: Recipes, folder: Path) -> Arguments:
    return ["--dl-dir", corpora.librispeech(folder, {"train-clean-5": 3, "dev-clean-2": 2}), "--vocab-size", 24]


def aishell(recipes: Recipes, folder: Path) -> Arguments:
    return ["--dl-dir", corpora.aishell(corpora.musan(folder))]


def synthetic(recipes: Recipes, folder: Path) -> Arguments:
    for engine in ("ttspico", "espeakng_loader"):
        pytest.importorskip(engine)
    sentences = "".join(f"{sentence}\n" for sentence in corpora.SENTENCES)
    corpora.books(folder, dict.fromkeys(("train", "valid", "test"), sentences))
    counts = ["--count", 3, "--short-count", 2, "--valid-count", 2, "--test-count", 2]
    return ["--text-dir", folder, "--vocab-size", 24, "--jobs", 1, *counts]


PREPARED: dict[str, Callable[[Recipes, Path], Arguments]] = {
    "aishell/ASR": aishell,
    "earnings21/LM": earnings21,
    "librispeech/ASR": librispeech,
    "librispeech/LM": librispeech_lm,
    "mini_librispeech/ASR": mini_librispeech,
    "pitt/LM": pitt,
    "ptb/LM": ptb,
    "swbd/LM": swbd,
    "synthetic/ASR": synthetic,
    "wikitext2/LM": wikitext2,
}


def test_all_recipes_are_here() -> None:
    assert {str(folder.relative_to(EGS)) for folder in CORPORA} == PREPARED.keys()


def contents(folder: Path) -> dict[str, object]:
    """What there is: of texts the content, of manifests the number of lines, of features and audio nothing."""
    found: dict[str, object] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix in (".txt", ".arpa") or "_text_" in path.name:
            found[name] = path.read_text(encoding="utf-8")
        elif path.name.endswith(".jsonl.gz"):
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                found[name] = len(stream.readlines())
        else:
            found[name] = None
    return found


@pytest.mark.parametrize("recipe", PREPARED)
def test_killed_in_every_command(recipes: Recipes, tmp_path: Path, recipe: str) -> None:
    if recipe.endswith("ASR"):
        pytest.importorskip("lhotse")
    (tmp_path / "corpus").mkdir()
    arguments = PREPARED[recipe](recipes, tmp_path / "corpus")
    script, data, killed = f"{recipe}/prepare.sh", recipes.folder / recipe / "data", tmp_path / "killed"
    while (done := recipes.start(script, *arguments, killed=killed)).returncode == -9:
        pass
    assert done.returncode == 0, done.stdout
    kills = killed.read_text().splitlines()
    assert len(kills) == len(set(kills)) >= 2
    again = recipes.run(script, *arguments)
    assert "already done" in again
    found = contents(data)
    shutil.rmtree(data)
    recipes.run(script, *arguments)
    whole = contents(data)
    assert whole and {name: found.get(name, "nothing") for name in whole} == whole


def test_what_was_done_by_another_command_is_said(recipes: Recipes) -> None:
    """`once` keeps the command in its mark; what it runs on does not count."""
    script = recipes.folder / "toy/run.sh"
    script.parent.mkdir()
    script.write_text(
        'set -eou pipefail\ncd "$(dirname "$0")"\nsize=1\ndevice=cpu\n. ../shared/recipe.sh\n'
        'once made.done echo made --size "$size" --device "$device"\n'
    )
    assert "made --size 1" in recipes.run("toy/run.sh")
    again = recipes.run("toy/run.sh", "--device", "cuda")
    assert "already done: made.done" in again and "another command" not in again
    other = recipes.run("toy/run.sh", "--size", 2)
    assert "already done: made.done, but by another command: echo made --size 1; it would be" in other
    (script.parent / "made.done").write_text("")  # of a recipe before commands were kept
    assert "another command" not in recipes.run("toy/run.sh", "--size", 2)


def test_counts_and_an_ngram_of_another_text_are_made_again(recipes: Recipes, tmp_path: Path) -> None:
    corpus, script = corpora.write_parts(tmp_path, "ptb.{}.txt", upper=False), "ptb/LM/prepare.sh"
    assert "data/train.txt is not there: an earlier stage writes it" in recipes.run(script, "--stage", 1, code=2)
    recipes.run(script, "--dl-dir", corpus)
    ngram = recipes.folder / "ptb/LM/data/5gram.arpa"
    before = ngram.read_text()
    (corpus / "ptb.train.txt").write_text(corpora.text(200, 7, upper=False))
    said = recipes.run(script, "--dl-dir", corpus)
    assert "data: another text than before; counts and n-gram are made again" in said and "already done" not in said
    assert ngram.read_text() != before
    assert "another text" not in recipes.run(script, "--dl-dir", corpus)


@pytest.mark.parametrize("sizes", ["50k", "", "10,000", "all -5"])
def test_sizes_of_text_are_numbers_of_words(recipes: Recipes, sizes: str) -> None:
    said = recipes.run("earnings21/LM/run.sh", "--sizes", sizes, code=2)
    assert f"--sizes: found '{sizes}', expected numbers of words, or all" in said


def test_a_damaged_archive_is_one_line(recipes: Recipes, tmp_path: Path) -> None:
    (tmp_path / "wikitext-2-v1.zip").write_text("not found")
    said = recipes.run("wikitext2/LM/prepare.sh", "--dl-dir", tmp_path, code=2)
    assert "wikitext-2-v1.zip is no zip archive, or damaged" in said and "Traceback" not in said


def test_a_model_that_is_not_trained_yet_is_said(recipes: Recipes) -> None:
    said = recipes.run("synthetic/ASR/run.sh", "--stage", 2, code=2)
    assert "exp/long/last-checkpoint is not there: an earlier stage trains it" in said and "--iter" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("prepare.sh --stage 7", "no stage from --stage 7 to --stop-stage 2; there are 0 1 2"),
        ("prepare.sh --stage 1 --stop-stage 0", "no stage from --stage 1 to --stop-stage 0; there are 0 1 2"),
        ("run.sh --stage 4", "no stage from --stage 4 to --stop-stage 3; there are 0 1 2 3"),
    ],
)
def test_stages_that_are_not_there(recipes: Recipes, options: str, said: str) -> None:
    assert said in recipes.run(f"wikitext2/LM/{options.split()[0]}", *options.split()[1:], code=2)


def test_switchboard_tells_what_is_not_whole(recipes: Recipes, tmp_path: Path) -> None:
    script, corpus, data = "swbd/LM/prepare.sh", corpora.swbd(tmp_path), recipes.folder / "swbd/LM/data"
    fisher = tmp_path / "fsh"
    said = recipes.run(script, *corpus, "--fisher-dirs", f"{fisher} {tmp_path}/nowhere", code=2)
    assert "nowhere is not there: give --fisher-dirs" in said
    said = recipes.run(script, *corpus, "--eval2000-dir", fisher, code=2)
    assert f"{fisher} has no hub5e00.english.000405.stm: give --eval2000-dir" in said and not data.exists()
    said = recipes.run(script, *corpus, code=2)
    assert "found 150 utterances, expected more than the 10000 that validate" in said
    assert not (data / "train.txt").exists()
    recipes.run(script, *corpus, "--held-out", 149)
    assert len((data / "train.txt").read_text().splitlines()) == 151


@pytest.mark.parametrize("part", ["wav/dev", "transcript/aishell_transcript_v0.8.txt"])
def test_aishell_names_the_part_that_is_missing(recipes: Recipes, tmp_path: Path, part: str) -> None:
    corpora.write(tmp_path / "aishell/data_aishell/transcript/aishell_transcript_v0.8.txt", "")
    for name in ("train", "dev", "test"):
        (tmp_path / "aishell/data_aishell/wav" / name).mkdir(parents=True)
    path = tmp_path / "aishell/data_aishell" / part
    path.rename(tmp_path / "elsewhere")
    said = recipes.run("aishell/ASR/prepare.sh", "--dl-dir", tmp_path, "--stage", 1, code=2)
    assert f"{path} is not there: stage 0 downloads and unpacks it" in said and "Traceback" not in said


@pytest.mark.slow
def test_audio_that_lhotse_cannot_read_is_a_line(recipes: Recipes, tmp_path: Path) -> None:
    pytest.importorskip("lhotse")
    corpora.aishell(corpora.musan(tmp_path))
    for script, path in (
        ("aishell/ASR/prepare.sh", tmp_path / "aishell/data_aishell/wav/dev/S1/BAC009dev1.wav"),
        ("shared/musan.sh", tmp_path / "musan/noise/here/noise.wav"),
    ):
        path.write_bytes(b"RIFF")
        said = recipes.run(script, "--dl-dir", tmp_path, "--stage", 1, code=2)
        assert f"audio from '{path}' failed; expected readable audio" in said and "Traceback" not in said
    (tmp_path / "musan/noise").rename(tmp_path / "noise")
    said = recipes.run("shared/musan.sh", "--dl-dir", tmp_path, "--stage", 1, code=2)
    assert f"{tmp_path / 'musan/noise'} is not there" in said


def test_text_of_ones_own_for_lms_of_aishell_stays(recipes: Recipes) -> None:
    data = recipes.folder / "aishell/ASR/data"
    for part in ("train", "dev"):
        corpora.write(data / f"aishell_text_{part}", corpora.kaldi("对 楼 市\n楼 市\n"))
    recipes.run("aishell/ASR/prepare.sh", "--stage", 7)
    assert "楼" in (data / "lm/4gram.arpa").read_text(encoding="utf-8")
    with (data / "lm/train.txt").open("a", encoding="utf-8") as text:
        text.write("成 交\n")
    recipes.run("aishell/ASR/prepare.sh", "--stage", 7)
    assert (data / "lm/train.txt").read_text(encoding="utf-8") == "对 楼 市\n楼 市\n成 交\n"
    assert "交" in (data / "lm/4gram.arpa").read_text(encoding="utf-8")
    with (data / "lm/train.txt").open("a", encoding="utf-8") as text:
        text.write("恤\n")
    said = recipes.run("aishell/ASR/run.sh", "--kinds", "", "--fusion", "", "--stage", 2, "--stop-stage", 2)
    assert "another text than before" in said
    assert "恤" in (data / "lm/4gram.arpa").read_text(encoding="utf-8")


def test_lms_of_librispeech_need_all_parts(recipes: Recipes, tmp_path: Path) -> None:
    """And texts at other speeds, which the recogniser's recipe has with `--mini true`, count once."""
    script, asr = "librispeech/LM/prepare.sh", recipes.folder / "librispeech/ASR/data"
    corpora.librispeech_texts(asr, tmp_path)
    part, kept = asr / "librispeech_text_test-other", tmp_path / "kept"
    part.rename(kept)
    said = recipes.run(script, "--dl-dir", tmp_path, code=2)
    assert "librispeech_text_test-other is not there: run ../ASR/prepare.sh" in said
    assert not (recipes.folder / "librispeech/LM/data").exists()
    kept.rename(part)
    with (asr / "librispeech_text_train-clean-100").open("a") as text:
        text.write("utt-0_sp0.9 AGAIN\n")
    said = recipes.run(script, "--dl-dir", tmp_path, "--stop-stage", 1)
    assert "transcripts of librispeech_text_train-clean-100 librispeech_text_train-other-500\n" in said
    lines = (recipes.folder / "librispeech/LM/data/transcripts.txt").read_text().splitlines()
    assert len(lines) == 400 and "AGAIN" not in lines


def test_more_unknown_words_can_be_allowed_as_the_error_says(recipes: Recipes, tmp_path: Path) -> None:
    script, corpus = "swbd/LM/run.sh", corpora.swbd(tmp_path)
    recipes.run("swbd/LM/prepare.sh", *corpus, "--held-out", 20, "--vocab-size", 50)
    tiny = "--set dim=16 --set heads=2 --set feedforward=16 --set layers=1 --train steps=1 --train dtype=float32"
    recipes.run(script, "--rows", "", "--stage", 1, "--stop-stage", 2, "--train-options", tiny)
    corpora.write(recipes.folder / "swbd/LM/data/test.txt", "xo xa be\n" * 20)
    assert "or allow more: --max-unknown 1" in recipes.run(script, "--rows", "", "--stage", 3, code=2)
    assert "transformer" in recipes.run(script, "--rows", "", "--stage", 3, "--max-unknown", 1)
