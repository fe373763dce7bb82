"""`asr decode` from manifest to result files, with small untrained models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner, Result

from asr.cli.decode import command
from asr.cli.main import cli
from asr.dataset.manifests import load_cuts, store_fbank
from asr.decoding.beam_search import modified_beam_search
from asr.decoding.decode import Decoder
from asr.decoding.lattice_path import best_score
from asr.decoding.options import DecodeOptions
from asr.decoding.prefixes import Pieces
from asr.decoding.sets import set_name
from asr.errors import CheckpointError, ConfigError, DataError
from asr.model.checkpoint import load_model, write_checkpoint
from lm_zoo.registry import save_folder
from rescore.errors import RescoreError, UsageError
from rescore.formats import read_lattices, read_nbest
from rescore.lattices.paths import best_path
from rescore.types import NbestList
from tests.asr.cli.test_cli_transcribe import noise, small_model
from tests.asr.decoding.test_shallow_fusion import neural
from tests.asr.tiny import Tiny, pieces, vocabulary

pytest.importorskip("lhotse")
TEXTS = {"a-1": "THE CAT SAT", "b-2": "THE HAT", "c-3": "A MAT", "d-4": "THE CAT"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, an LM over the same pieces, and cuts of which one has lost its audio."""
    from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

    folder = tmp_path_factory.mktemp("decode")
    small_model(folder / "stateless")
    small_model(folder / "lstm", "lstm")
    save_folder(folder / "mylm", neural(vocabulary()), "lstm", {})
    cuts = []
    for number, (utt_id, text) in enumerate(TEXTS.items()):
        path = folder / f"{utt_id}.wav"
        soundfile.write(path, noise(0.5 + 0.3 * number, number), 16000)
        recording = Recording.from_file(path, recording_id=utt_id)
        segment = SupervisionSegment(utt_id, utt_id, 0.0, recording.duration, text=text)
        cuts.append(MonoCut(utt_id, 0.0, recording.duration, 0, recording=recording, supervisions=[segment]))
    (folder / "c-3.wav").write_bytes(b"no audio")
    CutSet.from_cuts(cuts).to_file(str(folder / "my_cuts_test.jsonl.gz"))
    return folder


def run(folder: Path, *args: object, model: str = "stateless") -> Result:
    arguments = ["decode", *map(str, args), "--model", str(folder / model), str(folder / "my_cuts_test.jsonl.gz")]
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def nbests(path: Path) -> dict[str, NbestList]:
    return {nbest.utt_id: nbest for nbest in read_nbest(str(path))}


def test_greedy_writes_icefalls_files(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "--decoding-method", "greedy_search", "--out", tmp_path, "--json", tmp_path / "errors.json")
    found = json.loads((tmp_path / "errors.json").read_text())["test"]
    assert found["words"] == 9 and f"test: %WER {found['wer']:.2f} [ {found['errors']} / 9" in result.stdout
    assert result.stdout.startswith("test: %WER ") and " / 9, " in result.stdout
    suffix = "test-stateless-greedy_search.txt"
    recogs = (tmp_path / f"recogs-{suffix}").read_text().splitlines()
    assert recogs[0] == "a-1:\tref=['THE', 'CAT', 'SAT']" and recogs[5] == "c-3:\thyp=[]"
    assert (tmp_path / f"wer-summary-{suffix}").read_text().startswith("settings\tWER\ngreedy_search\t")
    assert (tmp_path / f"errs-{suffix}").read_text().startswith("%WER = ")
    assert "cut c-3 left out: cannot be loaded" in result.stderr
    first = nbests(tmp_path / "nbest-test-stateless-greedy_search.jsonl.gz")
    assert [nbest.hyps[0].words for nbest in first.values()] == [
        tuple(part for part in line.split("hyp=")[1].strip("[]").replace("'", "").split(", ") if part)
        for line in recogs[1::2]
    ]
    assert first["c-3"].hyps[0].words == () and first["c-3"].ref == ("A", "MAT")


def test_error_rates_of_normalised_texts(folder: Path, tmp_path: Path) -> None:
    """Lists keep the words as they are."""
    run(folder, "--decoding-method", "greedy_search", "--normalise", "basic", "--out", tmp_path)
    suffix = "test-stateless-greedy_search"
    assert (tmp_path / f"recogs-{suffix}.txt").read_text().startswith("a-1:\tref=['the', 'cat', 'sat']\n")
    assert nbests(tmp_path / f"nbest-{suffix}.jsonl.gz")["a-1"].ref == ("THE", "CAT", "SAT")


@pytest.mark.parametrize("split", [(), ("--split", "1/2")])
def test_transcripts_in_the_other_case_show_before_the_work(folder: Path, tmp_path: Path, split: Any) -> None:
    for name in ("a-1.wav", "b-2.wav", "d-4.wav"):
        shutil.copy(folder / name, tmp_path)
    cuts = load_cuts(folder / "my_cuts_test.jsonl.gz").map_supervisions(lambda part: part.transform_text(str.lower))
    cuts.to_file(str(tmp_path / "my_cuts_test.jsonl.gz"))
    shutil.copytree(folder / "stateless", tmp_path / "stateless")
    options = ("--decoding-method", "greedy_search", "--out", tmp_path / "out", *split)
    with pytest.raises(
        RescoreError, match=r"transcripts are lower case throughout, the recogniser's tokens upper case"
    ):
        run(tmp_path, *options)
    assert not (tmp_path / "out").exists()
    assert run(tmp_path, *options, "--normalise", "basic").exit_code in (0, 3)


def test_cuts_without_audio_are_decoded_by_their_features(folder: Path, tmp_path: Path) -> None:
    """As `asr prepare --kaldi-feats` makes them."""
    from lhotse import CutSet

    options = ("--decoding-method", "greedy_search", "--out")
    audio = CutSet.from_cuts(cut for cut in load_cuts(folder / "my_cuts_test.jsonl.gz") if cut.id != "c-3")
    stored = store_fbank(list(audio), tmp_path / "feats", "test", "numpy")
    for name, cuts in (("audio", audio), ("features", [cut.drop_recording() for cut in stored])):
        (tmp_path / name).mkdir()
        CutSet.from_cuts(cuts).to_file(str(tmp_path / name / "cuts_test.jsonl"))
        arguments = ["decode", "--model", folder / "stateless", *options, tmp_path / name]
        result = CliRunner().invoke(cli, [*map(str, arguments), str(tmp_path / name / "cuts_test.jsonl")])
        assert result.exit_code == 0 and ("cuts have no audio" in result.stderr) == (name == "features")
    recogs = [
        (tmp_path / name / "recogs-test-stateless-greedy_search.txt").read_text() for name in ("audio", "features")
    ]
    assert recogs[0] == recogs[1]


def test_words_beyond_the_audio_are_told(folder: Path, tmp_path: Path) -> None:
    """All words of a supervision are references, of a window that holds a part of them alone too."""
    from lhotse import CutSet

    cuts = CutSet.from_cuts(cut for cut in load_cuts(folder / "my_cuts_test.jsonl.gz") if cut.id != "c-3")
    cuts.cut_into_windows(0.6).to_file(str(tmp_path / "windows.jsonl"))
    arguments = ["decode", "--model", folder / "stateless", "--decoding-method", "greedy_search", "--out", tmp_path]
    result = CliRunner().invoke(cli, [*map(str, arguments), str(tmp_path / "windows.jsonl")], catch_exceptions=False)
    assert "windows.jsonl: 5 cuts have words beyond their audio (b-2-0, b-2-1," in result.stderr
    assert "words beyond" not in run(folder, "--decoding-method", "greedy_search", "--out", tmp_path).stderr


def test_what_lms_saw_is_in_the_names_of_results(folder: Path, tmp_path: Path) -> None:
    """In one folder `--text-view exact` took the place of the results with the LMs' own form."""
    for view in ("lm", "exact"):
        run(folder, "--lm", f"mine={folder / 'mylm'}", "--text-view", view, "--out", tmp_path)
    stem = "recogs-test-stateless-modified_beam_search-beam-size-4-mine-lm-scale-0.3"
    assert sorted(path.name for path in tmp_path.glob("recogs-*")) == [f"{stem}-text-view-exact.txt", f"{stem}.txt"]


def test_ctc_decoding_takes_the_ctc_head(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "--decoding-method", "ctc-decoding", "--out", tmp_path, "--lattices", "slf")
    assert "by the CTC head alone" in result.stderr and (tmp_path / "recogs-test-stateless-ctc-decoding.txt").exists()
    lists = nbests(tmp_path / "nbest-test-stateless-ctc-decoding.jsonl.gz")
    for lattice in read_lattices(f"slf:{tmp_path}/lattices-test-stateless-ctc-decoding"):
        first = lists[lattice.utt_id].hyps[0]
        assert best_path(lattice, {"am": 1.0}).words == first.words or first.words == ()
    assert {"am", "words"} == set(lists["a-1"].hyps[0].scores) and len(lists["a-1"].hyps) > 1


def test_beam_search_keeps_every_score(folder: Path, tmp_path: Path) -> None:
    lm = f"mine={folder / 'mylm'}"
    run(
        folder,
        "--beam-size",
        6,
        "--length-norm",
        "false",
        "--lm",
        lm,
        "--lm-scale",
        0.3,
        "--ilme-scale",
        0.2,
        "--out",
        tmp_path,
        "--lattices",
        "k2",
    )
    stem = "test-stateless-modified_beam_search-beam-size-6-by-total-mine-lm-scale-0.3-ilme-scale-0.2"
    found = nbests(tmp_path / f"nbest-{stem}.jsonl.gz")
    assert list(found) == sorted(TEXTS)
    for utt_id, nbest in found.items():
        assert set(nbest.hyps[0].scores) == {"am", "alignments", "mine", "ilm", "words"}
        totals = [total(h.scores, {"am": 1.0, "alignments": 1.0, "mine": 0.3, "ilm": -0.2}) for h in nbest.hyps]
        assert totals == sorted(totals, reverse=True)
        assert len(nbest.hyps) > 1 or utt_id == "c-3"
    spec = f"k2:{tmp_path / f'lattices-{stem}.pt'}?words={tmp_path / f'lattices-{stem}.words.txt'}"
    lattices = {lattice.utt_id: lattice for lattice in read_lattices(spec)}
    assert list(lattices) == sorted(TEXTS)
    for utt_id, nbest in found.items():
        if nbest.hyps[0].words:
            in_lattice = best_score(lattices[utt_id], nbest.hyps[0].words)
            assert in_lattice == pytest.approx(nbest.hyps[0].scores["am"], abs=0.01) or in_lattice > totals[0]
            assert in_lattice >= nbest.hyps[0].scores["am"] - 1e-3


def test_label_synchronous_search_with_an_lm(folder: Path, tmp_path: Path) -> None:
    lm = ("--lm", f"mine={folder / 'mylm'}", "--lm-scale", 0.3)
    run(folder, "--decoding-method", "label_sync_beam_search", "--beam-size", 3, *lm, "--out", tmp_path)
    stem = "test-stateless-label_sync_beam_search-beam-size-3-mine-lm-scale-0.3"
    assert (
        (tmp_path / f"wer-summary-{stem}.txt").read_text().startswith("settings\tWER\nbeam_size_3_mine_lm_scale_0.3\t")
    )
    found = nbests(tmp_path / f"nbest-{stem}.jsonl.gz")
    assert list(found) == sorted(TEXTS)
    for nbest in found.values():
        assert set(nbest.hyps[0].scores) == {"am", "alignments", "mine", "words"} and len(nbest.hyps) <= 3
        totals = [total(hyp.scores, {"am": 1.0, "alignments": 1.0, "mine": 0.3}) for hyp in nbest.hyps]
        assert totals == sorted(totals, reverse=True)


def total(scores: dict[str, float], scales: dict[str, float]) -> float:
    return sum(scale * scores[name] for name, scale in scales.items())


def test_settings_of_other_searches_are_named(folder: Path, tmp_path: Path) -> None:
    """Scripts give those of all methods in a loop over them."""
    others = ("--beam", 8, "--max-contexts", 4, "--beam-size", 4)
    said = run(folder, *others, "--decoding-method", "modified_beam_search", "--out", tmp_path).stderr
    assert "modified_beam_search does not use --beam, --max-contexts\n" in said
    said = run(folder, *others, "--decoding-method", "fast_beam_search", "--out", tmp_path).stderr
    assert "fast_beam_search does not use --beam-size\n" in said
    assert "does not use" not in run(folder, *others, "--lattices", "slf", "--out", tmp_path).stderr


def test_the_best_is_normalised_by_its_length_unless_told(folder: Path, tmp_path: Path) -> None:
    chosen = {}
    for norm in ("true", "false"):
        run(folder, "--out", tmp_path, "--length-norm", norm)
        by_total = "" if norm == "true" else "-by-total"  # that neither takes the other's place in one folder
        chosen[norm] = nbests(tmp_path / f"nbest-test-stateless-modified_beam_search-beam-size-4{by_total}.jsonl.gz")
    for utt_id, nbest in chosen["true"].items():
        words = {hyp.words: hyp.scores for hyp in nbest.hyps}
        assert words == {hyp.words: hyp.scores for hyp in chosen["false"][utt_id].hyps}
    model, first = Tiny(18, seed=3), []
    encoded, lengths = model.encoded(12, 9, 0)
    for norm in (True, False):
        assert norm or DecodeOptions().length_norm
        options = DecodeOptions("modified_beam_search", length_norm=norm)
        found = Decoder(model, pieces(), options).search(encoded, lengths, ["a", "b", "c"])
        first.append([decoded.words for decoded in found])
        direct = modified_beam_search(model, encoded, lengths, 4, length_norm=norm)
        assert first[-1] == [pieces().words(hyps[0].tokens) for hyps in direct]
    assert first[0] != first[1]


@pytest.mark.parametrize("model", ["stateless", "lstm"])
def test_fast_beam_search_gives_lattices_and_their_nbest(folder: Path, tmp_path: Path, model: str) -> None:
    limits = ("--beam", 8, "--max-contexts", 4, "--max-states", 16, "--num-paths", 10, "--lattice-beam", 4)
    fast = ("--decoding-method", "fast_beam_search", "--lattices", "slf")
    run(folder, *fast, *limits, "--out", tmp_path, model=model)
    stem = f"test-{model}-fast_beam_search-beam-8.0-max-contexts-4-max-states-16"
    found = nbests(tmp_path / f"nbest-{stem}.jsonl.gz")
    for lattice in read_lattices(f"slf:{tmp_path / f'lattices-{stem}'}"):
        best = best_path(lattice, {"am": 1.0})
        assert best.words == found[lattice.utt_id].hyps[0].words
        assert best.scores["am"] == pytest.approx(found[lattice.utt_id].hyps[0].scores["am"], abs=1e-3)
    run(folder, "--decoding-method", "fast_beam_search_nbest", *limits, "--out", tmp_path, model=model)
    summed = nbests(
        tmp_path
        / f"nbest-test-{model}-fast_beam_search_nbest-{stem.split('search-')[1]}-num-paths-10-nbest-scale-0.5.jsonl.gz"
    )
    for utt_id, nbest in summed.items():
        assert {hyp.words for hyp in nbest.hyps} == {hyp.words for hyp in found[utt_id].hyps}
        best = {hyp.words: hyp.scores["am"] for hyp in found[utt_id].hyps}
        assert all(hyp.scores["am"] >= best[hyp.words] - 1e-3 for hyp in nbest.hyps)


def test_checkpoints_of_a_run_are_averaged_first(folder: Path, tmp_path: Path) -> None:
    network, vocab = load_model(folder / "lstm")
    vocab.save(tmp_path)
    for epoch in (1, 2):
        contents = {
            "model": network.state_dict(),
            "batch_idx_train": 10 * epoch,
            "model_config": network.config.to_dict(),
        }
        write_checkpoint(tmp_path / f"epoch-{epoch}.pt", contents)
    arguments = ["decode", "--exp-dir", tmp_path, "--epoch", 2, "--avg", 2, "--max-seconds", 1.2]
    cuts = folder / "my_cuts_test.jsonl.gz"
    result = CliRunner().invoke(cli, [str(argument) for argument in (*arguments, cuts)], catch_exceptions=False)
    assert "cut d-4 left out: too long" in result.stderr
    name = "nbest-test-epoch-2-avg-2-modified_beam_search-beam-size-4.jsonl.gz"
    averaged = nbests(tmp_path / "modified_beam_search" / name)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["modified_beam_search"]  # no model folder
    run(folder, "--out", tmp_path / "direct", model="lstm")
    direct = nbests(tmp_path / "direct/nbest-test-lstm-modified_beam_search-beam-size-4.jsonl.gz")
    assert averaged["d-4"].hyps[0].words == () and list(averaged) == list(direct)
    assert averaged["b-2"].hyps[0].words == direct["b-2"].hyps[0].words


def test_a_model_that_is_not_there_is_told_and_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    """As recipes call it: their YAML file names a model and a run; what the command line asks for stands above it."""
    network, vocab = load_model(folder / "stateless")
    (tmp_path / "exp").mkdir()
    vocab.save(tmp_path / "exp")
    contents = {"model": network.state_dict(), "batch_idx_train": 10, "model_config": network.config.to_dict()}
    for name in ("epoch-1.pt", "checkpoint-10.pt"):
        write_checkpoint(tmp_path / "exp" / name, contents)
    there = {"folder": str(folder / "stateless"), "exp_dir": str(tmp_path / "exp"), "out": str(tmp_path / "out")}
    old = {"exp_dir": str(tmp_path / "exp"), "epoch": 40, "avg": 2, "use_averaged_model": True, "out": there["out"]}
    none = str(tmp_path / "none")

    def decode(defaults: dict[str, Any], *arguments: object) -> set[str]:
        line = [*map(str, arguments), "--decoding-method", "greedy_search", str(folder / "my_cuts_test.jsonl.gz")]
        CliRunner().invoke(command, line, default_map=defaults, catch_exceptions=False)
        return {path.name.removeprefix("recogs-test-") for path in (tmp_path / "out").glob("recogs-*")}

    refused: list[tuple[dict[str, Any], tuple[object, ...], str]] = [
        (there, ("--epoch", 77, "--avg", 3), r"epoch-77.pt: no such checkpoint; .*: epoch-1.pt, checkpoint-10"),
        (there, ("--iter", 5), r"found 0 files checkpoint-BATCH.pt up to batch 5, expected 1"),
        (there, ("--avg", 3), r"give either an epoch or an iteration"),
        (there, ("--exp-dir", none), r"give either an epoch or an iteration"),
        (there, ("--exp-dir", none, "--epoch", 1), r"epoch-1.pt: no such checkpoint; there is no folder"),
        (there, ("--model", none), r"none: not a model folder, it has no config.json"),
        (there, ("--model", none, "--epoch", 1), r"give either --model FOLDER .* found --model and --epoch"),
        ({"out": there["out"]}, ("--epoch", 77, "--avg", 3), r"give either --model FOLDER or --exp-dir"),
        ({}, ("--model", none), r"none: not a model folder"),
        ({"folder": there["folder"], "epoch": 77}, ("--out", there["out"]), r"is decoded as it is; epochs, batches"),
    ]
    for defaults, arguments, message in refused:
        with pytest.raises(RescoreError, match=message):
            decode(defaults, *arguments)
        assert not (tmp_path / "out").exists() and not (tmp_path / "none").exists()
    assert [path.name for path in (tmp_path / "exp").iterdir() if path.is_dir()] == []
    assert decode(there) == {"stateless-greedy_search.txt"}
    assert "epoch-1-avg-1-greedy_search.txt" in decode(there, "--epoch", 1)
    assert "lstm-greedy_search.txt" in decode(old, "--model", folder / "lstm")
    assert "iter-99-avg-1-greedy_search.txt" in decode(old, "--iter", 99, "--avg", 1, "--use-averaged-model", "false")
    assert [path.name for path in (tmp_path / "exp").iterdir() if path.is_dir()] == []
    (tmp_path / "exp").rename(tmp_path / "other")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    decode(there, "--exp-dir", tmp_path / "other", "--epoch", 1)  # the file's folder is for the file's own run
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    assert (tmp_path / "other/greedy_search/recogs-test-epoch-1-avg-1-greedy_search.txt").exists()


def test_decoding_an_average_is_as_decoding_the_folder_of_asr_average(folder: Path, tmp_path: Path) -> None:
    """The same files in every byte, but for the name of the model."""
    exp = tmp_path / "exp"
    network, vocab = load_model(folder / "stateless")
    vocab.save(exp)
    for epoch in (1, 2):
        weights = {
            name: tensor / epoch if tensor.is_floating_point() else tensor
            for name, tensor in network.state_dict().items()
        }
        contents = {"model": weights, "batch_idx_train": epoch, "model_config": network.config.to_dict()}
        write_checkpoint(exp / f"epoch-{epoch}.pt", contents)
    chosen = ("--exp-dir", exp, "--epoch", 2, "--avg", 2)
    decode = ("decode", folder / "my_cuts_test.jsonl.gz", "--lattices", "kaldi-lat")
    for line in (
        (*decode, *chosen, "--out", tmp_path / "run"),
        ("average", *chosen),
        (*decode, "--model", exp / "epoch-2-avg-2", "--out", tmp_path / "folder"),
    ):
        CliRunner().invoke(cli, [str(part) for part in line], catch_exceptions=False)
    ends = [{path.name: path.read_bytes() for path in (tmp_path / out).iterdir()} for out in ("run", "folder")]
    assert len(ends[0]) == 6 and ends[0] == ends[1]


def test_names_of_sets() -> None:
    names = [
        "librispeech_cuts_test-clean.jsonl.gz",
        "cuts_dev.jsonl",
        "test.jsonl.gz",
        "dev_cuts.jsonl.gz",
        "cuts.jsonl",
        "data/dev/../test/.",
    ]
    assert [set_name(Path(name)) for name in names] == ["test-clean", "dev", "test", "dev", "cuts", "test"]


@pytest.mark.parametrize("split", [(), ("--split", "1/2")])
def test_a_set_that_is_missing_shows_before_others_are_decoded(folder: Path, tmp_path: Path, split: Any) -> None:
    """A share leaves nothing that `asr merge` would stumble on."""
    with pytest.raises(DataError, match=r"typo\.jsonl: no such file; expected a manifest of cuts"):
        run(folder, "--out", tmp_path / "out", tmp_path / "typo.jsonl", *split)
    assert not (tmp_path / "out").exists()


def test_options_that_do_not_fit(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give either --model FOLDER or --exp-dir"):
        run(folder, "--exp-dir", tmp_path)
    with pytest.raises(UsageError, match="found 1 --lm and 2 --lm-scale"):
        run(folder, "--lm", folder / "mylm", "--lm-scale", 0.1, "--lm-scale", 0.2)
    with pytest.raises(UsageError, match="--lodr-scale is of the LM that --lodr names, found no --lodr"):
        run(folder, "--lodr-scale", 0.2)
    with pytest.raises(UsageError, match="--ngram-lm-scale is of the LM that --lang-dir names, found no --lang-dir"):
        run(folder, "--ngram-lm-scale", 0.2, "--decoding-method", "fast_beam_search")
    with pytest.raises(UsageError, match="two LMs are called 'mylm'"):
        run(folder, "--lm", folder / "mylm", "--lm", folder / "mylm")
    with pytest.raises(UsageError, match="small: a model that ships; give --out"):  # not into the package
        CliRunner().invoke(
            cli, ["decode", "--model", "small", str(folder / "my_cuts_test.jsonl.gz")], catch_exceptions=False
        )
    (folder / "e=1").mkdir()
    with pytest.raises(UsageError, match="two LMs are called 'mylm'"):  # a '=' in a path makes no name
        run(folder, "--lm", folder / "mylm", "--lm", f"{folder}/e=1/../mylm")
    with pytest.raises(ConfigError, match="LMs take part in modified_beam_search and label_sync_beam_search only"):
        run(folder, "--lm", folder / "mylm", "--decoding-method", "fast_beam_search")
    with pytest.raises(ConfigError, match="label_sync_beam_search gives lists alone"):
        run(folder, "--decoding-method", "label_sync_beam_search", "--lattices", "slf")
    with pytest.raises(ConfigError, match="an LG is for fast_beam_search"):
        Decoder(Tiny(18), pieces(), DecodeOptions(), graph=(None, Path("words.txt")))
    with pytest.raises(DataError, match="the model has 4 tokens"):
        Decoder(Tiny(4), pieces(), DecodeOptions())
    vocabulary(20).save(small_model(tmp_path / "other"))
    (tmp_path / "my_cuts_test.jsonl.gz").touch()
    with pytest.raises(CheckpointError, match="has 20 tokens, but the model is for 18"):
        run(tmp_path, model="other")
    with pytest.raises(RescoreError, match="no such file"):
        CliRunner().invoke(
            cli, ["decode", "--model", str(folder / "lstm"), str(tmp_path / "none.jsonl.gz")], catch_exceptions=False
        )


def test_the_batch_does_not_matter(folder: Path, tmp_path: Path) -> None:
    for seconds in (2, 100):
        run(folder, "--max-duration", seconds, "--out", tmp_path / str(seconds), model="lstm")
    one, other = (
        nbests(tmp_path / f"{seconds}/nbest-test-lstm-modified_beam_search-beam-size-4.jsonl.gz")
        for seconds in (2, 100)
    )
    for utt_id, nbest in one.items():
        assert [hyp.words for hyp in nbest.hyps] == [hyp.words for hyp in other[utt_id].hyps]
        scores = [[hyp.scores["am"] for hyp in found.hyps] for found in (nbest, other[utt_id])]
        assert np.allclose(*scores, atol=1e-3)
    assert Pieces(vocabulary()).names == pieces().names


def test_the_name_of_a_shipped_model_is_its_folder(folder: Path, tmp_path: Path) -> None:
    """As `asr transcribe --model small`; a name that is none says which ship."""
    cuts = str(folder / "my_cuts_test.jsonl.gz")
    result = CliRunner().invoke(cli, ["decode", "--model", "small", "--out", str(tmp_path / "out"), cuts])
    assert result.exception is None, result.output
    assert list((tmp_path / "out").glob("recogs-*.txt"))
    with pytest.raises(ConfigError, match=r"no model is called 'smal'.*shipped are: small"):
        CliRunner().invoke(cli, ["decode", "--model", "smal", cuts], catch_exceptions=False, standalone_mode=False)
