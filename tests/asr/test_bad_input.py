"""Bad input at the command line of `asr`: one line that says what is wrong, exit code 2, nothing half-written."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from asr.cli.main import cli, main
from asr.decoding.decode import Decoded
from asr.decoding.results import Spool, empty_lattice, empty_nbest
from asr.model.checkpoint import load_model, read_checkpoint, write_checkpoint
from lm_zoo.errors import LMError
from rescore.errors import RescoreError
from tests.asr.cli.test_cli_transcribe import noise, small_model
from tests.asr.tiny import vocabulary

lhotse = pytest.importorskip("lhotse")
TEXTS = ("THE CAT SAT", "THE HAT", "A MAT", "THE CAT")
ENCODER = {"channels": 4, "dim": 16, "layers": 1, "heads": 2, "feedforward": 24, "dropout": 0.0}
CONFIG = {"encoder": ENCODER, "decoder": "stateless", "decoder_dim": 16, "joiner_dim": 16, "decoder_dropout": 0.0}


def cut(folder: Path, name: str, text: str | None, samples: np.ndarray, rate: int = 16000) -> lhotse.MonoCut:
    path = folder / f"{name}.wav"
    soundfile.write(path, samples, rate, subtype="FLOAT")
    recording = lhotse.Recording.from_file(path, recording_id=name)
    segment = lhotse.SupervisionSegment(name, name, 0.0, recording.duration, text=text)
    return lhotse.MonoCut(name, 0.0, recording.duration, 0, recording=recording, supervisions=[segment])


def save(path: Path, *cuts: lhotse.MonoCut, **changes: object) -> None:
    """Writes a manifest; `changes` are of the first cut."""
    values = [one.to_dict() for one in cuts]
    values[0] |= changes
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a configuration, tokens, and cuts of all sorts."""
    folder = tmp_path_factory.mktemp("bad")
    good = [cut(folder, f"g{index}", text, noise(0.5, index)) for index, text in enumerate(TEXTS)]
    save(folder / "good.jsonl", *good)
    save(folder / "twice.jsonl", *good, good[0])
    save(folder / "blank.jsonl", *good, good[0].with_id("g 0"))
    save(folder / "endless.jsonl", *good, duration=float("nan"))
    save(folder / "words.jsonl", *good, duration="long")
    spoilt = noise(0.5)
    spoilt[7] = np.nan
    cut_short, gone = cut(folder, "short", "THE CAT", noise(1.0)), cut(folder, "gone", "THE CAT", noise(0.5))
    # lhotse fills up to half a second
    (folder / "short.wav").write_bytes((folder / "short.wav").read_bytes()[:9000])
    (folder / "gone.wav").unlink()
    none, hour = cut(folder, "none", "THE HAT", np.zeros(10)), cut(folder, "hour", "A CAT", noise(0.5))
    hour.recording.duration = hour.duration = 3600.0
    bad = [cut_short, gone, cut(folder, "nan", "A MAT", spoilt), none, hour]
    save(folder / "some.jsonl", *good, *bad)
    save(folder / "bad.jsonl", *bad)
    save(folder / "slow.jsonl", cut(folder, "slow", "THE CAT", noise(0.5), 8000))
    save(folder / "silent.jsonl", *(cut(folder, f"s{index}", None, noise(0.5)) for index in range(2)))
    save(folder / "greek.jsonl", cut(folder, "omega", "THE ΩMEGA", noise(0.5)))
    (folder / "empty.jsonl.gz").write_bytes(gzip.compress(b""))
    lhotse.CutSet.from_cuts(good).to_file(str(folder / "good.yaml"))
    lhotse.RecordingSet.from_recordings(one.recording for one in good).to_file(str(folder / "recordings.jsonl"))
    small_model(folder / "model")
    vocabulary().save(folder)
    (folder / "other").mkdir()
    vocabulary(20).save(folder / "other")
    for name, config in {
        "tiny": CONFIG,
        "wide": {**CONFIG, "joiner_dim": 12},
        "bins": {**CONFIG, "encoder": {**ENCODER, "features": 40}},
        "word": {**CONFIG, "encoder": {**ENCODER, "dim": "big"}},
        "list": [1],
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    (folder / "file").write_text("a file\n")
    (folder / "folder").mkdir()
    return folder


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def asr(line: str) -> Result:
    return CliRunner().invoke(cli, line.split())


def problem(line: str) -> str:
    """The error of a command that must end in one; `asr.cli.main.main` prints it and exits with 2."""
    result = asr(line)
    if isinstance(result.exception, (RescoreError, LMError)):
        message = str(result.exception)
        assert "\n" not in message
        return message
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.exception
    return result.output


TRAIN = "train --config tiny.json --bpe-model bpe.model --exp-dir new --max-steps 1"
DECODE = "decode --out new --model model"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{DECODE} bad.jsonl", "bad: none of 5 utterances could be recognised"),
        (f"{DECODE} empty.jsonl.gz", "empty.jsonl.gz: empty file, expected lhotse cuts"),
        (f"{DECODE} twice.jsonl", "twice.jsonl: found 2 cuts with the id 'g0'"),
        (f"{DECODE} blank.jsonl", "blank.jsonl: the id 'g 0' has blanks"),
        (f"{DECODE} endless.jsonl", "endless.jsonl:1: not a lhotse cut (its duration is nan, expected seconds)"),
        (f"{DECODE} words.jsonl", "words.jsonl:1: not a lhotse cut"),
        (f"{DECODE} good.yaml", "good.yaml: expected cuts one a line, as .jsonl or .jsonl.gz: lhotse copy good.yaml"),
        (f"{DECODE} recordings.jsonl", "of recordings and supervisions, make cuts: lhotse cut simple -r RECORDINGS"),
        (f"{DECODE} good.jsonl --device gpu", "device 'gpu'; expected cpu, cuda or cuda:N"),
        (f"{DECODE} good.jsonl --max-duration 0", "Invalid value for '--max-duration'"),
        (f"{DECODE}/config.json good.jsonl", "model/config.json: not a model folder"),
        ("decode --model model good.jsonl --out file", "file: is a file, expected a folder for the results"),
        ("decode --exp-dir none --epoch 3 good.jsonl", "epoch-3.pt: no such checkpoint; there is no folder none"),
        ("decode --exp-dir folder --epoch 3 good.jsonl", "epoch-3.pt: no such checkpoint; in folder there are: none"),
        ("average --exp-dir folder --iter 3", "found 0 files checkpoint-BATCH.pt up to batch 3"),
        (f"{TRAIN} --train-cuts empty.jsonl.gz", "empty.jsonl.gz: empty file, expected lhotse cuts"),
        (f"{TRAIN} --train-cuts none.jsonl", "none.jsonl: no such file"),
        (f"{TRAIN} --train-cuts good.jsonl --config list.json", "list.json: found a list, expected an object"),
        (f"{TRAIN} --train-cuts good.jsonl --config word.json", 'word.json: found dim "big", expected int'),
        (f"{TRAIN} --train-cuts good.jsonl --config bins.json", "found an encoder of 40 features, expected 80"),
        (f"{TRAIN} --train-cuts good.jsonl --bpe-model none.model", "none.model: no such file"),
        (f"{TRAIN} --train-cuts good.jsonl --device gpu", "device 'gpu'; expected cpu, cuda or cuda:N"),
        (f"{TRAIN} --train-cuts good.jsonl --exp-dir file", "file: is a file, expected a folder to write"),
        (
            f"{TRAIN} --train-cuts good.jsonl --valid-cuts silent.jsonl --valid-cuts greek.jsonl",
            "greek.jsonl: no transcript that the tokens can spell, expected some to validate on; found 'ΩMEGA'",
        ),
        (f"{TRAIN} --train-cuts good.jsonl --valid-cuts silent.jsonl", "some to validate on; they have no words"),
        (f"{TRAIN} --train-cuts good.jsonl --world-size 0", "Invalid value for '--world-size'"),
        (f"{TRAIN} --train-cuts good.jsonl --context-size 0", "Invalid value for '--context-size'"),
        ("train --init model --bpe-model none.model --train-cuts good.jsonl --exp-dir new", "none.model: no such file"),
        ("train --init model --bpe-model other/bpe.model --train-cuts x --exp-dir new", "not the tokens of model"),
        ("transcribe --model model folder", "folder: is a folder, expected an audio file"),
        ("prepare new --bpe-text empty.jsonl.gz", "empty.jsonl.gz: no sentence in 0 lines"),
        ("info list.json", "list.json: found a list, expected an object"),
    ],
)
def test_one_line_says_what_is_wrong(here: Path, line: str, message: str) -> None:
    assert message in problem(line)
    assert not [path for path in (here / "new").rglob("*") if path.is_file()]
    assert not (line.startswith("decode") and (here / "new").exists())
    shutil.rmtree(here / "new", ignore_errors=True)


def test_the_command_line_ends_with_2(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    monkeypatch.setattr("sys.argv", ["asr", "info", "list.json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("asr: list.json: found a list")  # type: ignore[attr-defined]


def test_bad_cuts_do_not_end_a_decoding(here: Path, tmp_path: Path) -> None:
    done = asr(f"decode --model model --out {tmp_path} some.jsonl")
    assert done.exit_code == 0, done.output
    for text in (
        "cut short left out: cannot be loaded (",
        "short.wav: damaged, truncated, or not the audio that its manifest tells of)",
        "gone.wav: no such file)",
        "samples are NaN or infinite; look at its audio)",
        "cut none left out: cannot be loaded (no frame of features: it is empty)",
        "cut hour left out: too long (3600.0 s, expected 120.0 s or less)",
        "some: 5 of 9 utterances were not recognised; they count as without a word",
    ):
        assert text in done.stderr
    assert len((tmp_path / "recogs-some-model-modified_beam_search-beam-size-4.txt").read_text().splitlines()) == 18
    assert not list(tmp_path.glob(".*"))
    done = asr(f"decode --model model --out {tmp_path} slow.jsonl")
    assert "cut slow has 8000 Hz: such cuts are resampled to 16000 Hz" in done.stderr
    assert "slow.jsonl: 1 cuts have fewer than 16000 samples a second (slow); a model that was trained" in done.stderr


def test_bad_cuts_do_not_end_a_training(here: Path, tmp_path: Path) -> None:
    plan = f"train --config tiny.json --bpe-model bpe.model --num-epochs 2 --exp-dir {tmp_path / 'run'}"
    data = "--train-cuts some.jsonl --train-cuts greek.jsonl --train-cuts silent.jsonl"
    done = asr(f"{plan} {data}")
    assert done.exit_code == 0, done.output
    assert done.stderr.count("utterance omega not used: unknown symbols (in 'ΩMEGA')") == 1
    assert "not used: 4 x no words, 2 x unknown symbols" in done.stderr or "2 x unknown symbols, 4 x" in done.stderr
    assert "training cuts left out: " in done.stderr and "3 x cannot be loaded" in done.stderr
    assert "cut hour left out: too long (3600.0 s, expected 30.0 s or less)" in done.stderr


@pytest.mark.parametrize("data", ["silent.jsonl", "greek.jsonl", "bad.jsonl"])
def test_a_training_without_a_usable_utterance_leaves_no_model(here: Path, tmp_path: Path, data: str) -> None:
    plan = f"train --config tiny.json --bpe-model bpe.model --num-epochs 2 --exp-dir {tmp_path / 'run'}"
    assert "no utterance of the training data could be used in epoch 1" in problem(f"{plan} --train-cuts {data}")
    assert not (tmp_path / "run" / "model").exists() and not list((tmp_path / "run").glob("*.pt"))


def test_noise_that_cannot_be_loaded_is_named_and_left_away(here: Path, tmp_path: Path) -> None:
    plan = f"train --config tiny.json --bpe-model bpe.model --num-epochs 4 --exp-dir {tmp_path / 'run'}"
    done = asr(f"{plan} --train-cuts good.jsonl --musan-cuts bad.jsonl")
    assert done.exit_code == 0, done.output
    assert "noise cannot be loaded" in done.stderr and "cut g" not in done.stderr


def test_a_run_of_other_tokens_or_sizes_keeps_its_files(here: Path, tmp_path: Path) -> None:
    plan = f"train --max-steps 1 --train-cuts good.jsonl --exp-dir {tmp_path}"
    assert asr(f"{plan} --config tiny.json --bpe-model bpe.model").exit_code == 0
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    shuffled = tmp_path.parent / "shuffled.model"
    shuffled.write_bytes(vocabulary().model.replace("\u2581THE".encode(), "\u2581TEH".encode()))
    for tokens, config, message in (
        ("other/bpe.model", "tiny.json", "not of a run with this configuration"),
        ("bpe.model", "wide.json", "not of a run with this configuration"),
        (shuffled, "tiny.json", "the run has other tokens than those given"),
    ):
        assert message in problem(f"{plan} --config {config} --bpe-model {tokens}")
        assert message in problem(f"{plan} --config {config} --bpe-model {tokens} --start-batch 1")
    assert "in " in problem(f"{plan} --config tiny.json --bpe-model bpe.model --start-batch 9")
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before
    contents = read_checkpoint(tmp_path / "checkpoint-1.pt")
    contents["model"]["joiner.output.weight"] = torch.zeros(2, 2)
    write_checkpoint(tmp_path / "checkpoint-2.pt", contents)
    assert "'joiner.output.weight' has the shape (2, 2)" in problem(f"average --exp-dir {tmp_path} --iter 2")
    assert "checkpoint-1.pt" in problem(f"average --exp-dir {tmp_path} --epoch 2")
    assert not (tmp_path / "iter-2-avg-1").exists()


def test_weights_that_are_no_numbers(here: Path, tmp_path: Path) -> None:
    shutil.copytree("model", tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    weights["joiner.output.bias"][0] = float("nan")
    save_file(weights, tmp_path / "model" / "model.safetensors")
    for command in ("decode good.jsonl", "transcribe g0.wav", "transcribe --streaming g0.wav"):
        found = problem(f"{command} --model {tmp_path / 'model'}")
        assert "'joiner.output.bias' has 1 of 18 values that are NaN or infinite" in found


def test_an_utterance_that_the_encoder_cannot_take_is_given_up(here: Path, tmp_path: Path) -> None:
    from asr.decoding.decode import Decoder
    from asr.decoding.options import DecodeOptions
    from asr.decoding.prefixes import Pieces
    from asr.decoding.results import Outputs
    from asr.decoding.run import recognised
    from asr.decoding.sets import decode_set

    model, vocab = load_model("model")
    encode = model.encoder.forward

    def spoilt(features: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        encoded, sizes = encode(features, lengths)
        return torch.where(torch.tensor([False, True]).view(-1, 1, 1), float("nan"), encoded), sizes

    model.encoder.forward = spoilt
    decoder = Decoder(model, Pieces(vocab), DecodeOptions("greedy_search"))
    features, lengths = torch.randn(2, 40, 80), torch.tensor([40, 40])
    batch = {"ids": ["a", "b"], "texts": ["THE CAT", "A MAT"], "features": features, "lengths": lengths}
    outputs = Outputs(tmp_path, "set", "greedy", "greedy")
    counts = decode_set(recognised(decoder, [batch]), dict, 2, outputs, print)
    assert counts is not None
    recogs = (tmp_path / "recogs-set-greedy.txt").read_text().splitlines()
    assert recogs[1] != "a:\thyp=[]" and recogs[3] == "b:\thyp=[]"


def test_stored_features_that_cannot_be_used(here: Path, tmp_path: Path) -> None:
    from asr.dataset.manifests import load_cuts
    from asr.dataset.stores import with_features

    cuts = list(load_cuts("good.jsonl"))
    made: list[np.ndarray] = [np.random.default_rng(index).standard_normal((50, 80)) for index in range(4)]
    made[1][3, 3] = np.nan
    made[2] = made[2][:, :40]
    with lhotse.NumpyFilesWriter(tmp_path / "feats") as storage:
        stored = [with_features(one, part.astype(np.float32), storage) for one, part in zip(cuts, made, strict=True)]
    stored[2].features.num_features = 80  # a manifest that is wrong
    stored[3].features.num_features = 40
    save(tmp_path / "stored.jsonl", *stored)
    plan = f"train --config tiny.json --bpe-model bpe.model --num-epochs 1 --exp-dir {tmp_path / 'run'}"
    done = asr(f"{plan} --on-the-fly-feats false --train-cuts {tmp_path / 'stored.jsonl'}")
    assert done.exit_code == 0, done.output
    assert "cut g1 left out: cannot be loaded (1 of 50 frames hold NaN or infinite values" in done.stderr
    assert "cut g2 left out: cannot be loaded (features of shape (50, 40), expected 80 bins a frame)" in done.stderr
    assert "cut g3 left out: wrong features (40 bins, expected 80)" in done.stderr


def test_prepare_leaves_bad_audio_out(here: Path, tmp_path: Path) -> None:
    done = asr(f"prepare {tmp_path / 'a'} --cuts some.jsonl --fbank")
    assert done.exit_code == 0, done.output
    assert "short.wav: damaged, truncated, or not the audio that its manifest tells of\n" in done.stderr
    assert "audio cannot be loaded (short, gone" in done.stderr
    assert "samples are NaN or infinite; look at its audio (nan)" in done.stderr
    assert "no frame of features: it is empty (none)" in done.stderr
    assert "no utterance is left whose features could be computed" in problem(
        f"prepare {tmp_path / 'b'} --cuts bad.jsonl --fbank"
    )
    assert not list((tmp_path / "b").glob("*.jsonl.gz"))


@pytest.mark.parametrize(("size", "whole"), [(b"\x00\x7d\x00\x00", False), (b"\xff\xff\xff\xff", True)])
def test_wav_files_with_samples_missing(here: Path, tmp_path: Path, size: bytes, whole: bool) -> None:
    """A header that tells of more than there is; but a pipe's header does not know the length."""
    soundfile.write(tmp_path / "a.wav", noise(0.5), 16000)
    data = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(data[:40] + size + data[44:])
    line = f"transcribe --model model {tmp_path / 'a.wav'}"
    if whole:
        assert asr(line).exit_code == 0
        return
    assert "a.wav: damaged or truncated, 8000 samples could be read, its header tells of more" in problem(line)
    assert "no audio in it that can be read" in problem(f"prepare {tmp_path / 'data'} --audio {tmp_path}")


def test_long_streams_show_their_last_words_alone(here: Path) -> None:
    soundfile.write("long.wav", noise(6.0), 16000)
    done = asr("transcribe --model model --streaming long.wav")
    lines = done.stdout.splitlines()
    words = lines[-1].split()[1:]
    assert len(words) > 30 and lines[-2].split()[2:] == ["...", *words[-30:]]


def test_results_wait_on_disk_and_come_sorted(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for name in ("b", "a", "c"):
        spool.add(name, Decoded(empty_nbest(name, ["am"]), empty_lattice(name, ["am"])))
    assert [item.nbest.utt_id for item in spool] == ["a", "b", "c"] == [item.lattice.utt_id for item in spool]
    with pytest.raises(RescoreError, match="utterance 'a' occurs a second time"):
        spool.add("a", None)
    assert not list(tmp_path.iterdir())
