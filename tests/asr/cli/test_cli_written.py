"""`asr decode` and `asr transcribe` with encoder-decoders: a tiny one, and Moonshine where its package is."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner, Result

from asr.cli.main import cli, main
from asr.dataset.manifests import load_cuts
from asr.decoding import shares_written, written
from asr.decoding.journal import Journal
from asr.decoding.run_written import entries
from asr.errors import CheckpointError, ConfigError, DataError
from asr.seq2seq import models
from asr.seq2seq.internal_lm import InternalLM
from lm_zoo.text.normalise import normalise
from rescore.errors import UsageError
from rescore.files import read_kaldi_text
from rescore.formats import read_nbest

pytest.importorskip("lhotse")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import torch
from lhotse import CutSet

from tests.asr.seq2seq.tiny_onnx import FRAME, speech, write
from tests.commands import run_line

TEXTS = {"a-1": "A B", "b-2": "B", "c-3": "A A B", "d-4": "B A"}
STEM = "test-tiny-modified_beam_search-beam-size-6"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and cuts of which one has lost its audio."""
    from lhotse import MonoCut, Recording, SupervisionSegment

    folder = tmp_path_factory.mktemp("written")
    write(folder / "tiny", end=1.0)
    cuts = []
    for number, (utt_id, text) in enumerate(TEXTS.items()):
        path = folder / f"{utt_id}.wav"
        soundfile.write(path, 0.1 * speech(40 + 10 * number, number), 16000)
        recording = Recording.from_file(path, recording_id=utt_id)
        segment = SupervisionSegment(utt_id, utt_id, 0.0, recording.duration, text=text)
        cuts.append(MonoCut(utt_id, 0.0, recording.duration, 0, recording=recording, supervisions=[segment]))
    (folder / "c-3.wav").write_bytes(b"no audio")
    CutSet.from_cuts(cuts).to_file(str(folder / "my_cuts_test.jsonl.gz"))
    return folder


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


def decode(folder: Path, out: Path, *args: object) -> Result:
    return run(
        "decode", "--model", folder / "tiny", "--beam-size", 6, "--out", out, *args, folder / "my_cuts_test.jsonl.gz"
    )


def test_decode_writes_lists_of_written_text(folder: Path, tmp_path: Path) -> None:
    result = decode(folder, tmp_path)
    assert result.stdout.startswith("test: %WER ") and " / 8, " in result.stdout
    assert "cut c-3 left out" in result.stderr and "1 of 4 utterances were not recognised" in result.stderr
    lists = {nbest.utt_id: nbest for nbest in read_nbest(str(tmp_path / f"nbest-{STEM}.jsonl.gz"))}
    assert sorted(lists) == sorted(TEXTS) and lists["a-1"].ref == ("A", "B")
    basic = normalise("basic")
    for utt_id, nbest in lists.items():
        texts = [" ".join(hyp.words) for hyp in nbest.hyps]
        assert len({basic(text) for text in texts}) == len(texts) == (1 if utt_id == "c-3" else 6)
        assert all(set(hyp.scores) == {"am", "ilm"} for hyp in nbest.hyps)
    assert any(text != basic(text) for nbest in lists.values() for text in (" ".join(h.words) for h in nbest.hyps))
    recogs = (tmp_path / f"recogs-{STEM}.txt").read_text()
    assert "a-1:\tref=['a', 'b']" in recogs and "," not in recogs.split("hyp=")[1].split("]")[0].replace("', '", "")
    single = read_kaldi_text(tmp_path / f"single-{STEM}.txt")
    assert sorted(single) == sorted(TEXTS) and single["c-3"] == ()
    assert all(single[utt_id] in [hyp.words for hyp in nbest.hyps] for utt_id, nbest in lists.items())
    cut_off = (tmp_path / f"cut-off-{STEM}.txt").read_text().split()
    assert (f"{len(cut_off)} utterances cut off" in result.stderr) == bool(cut_off)
    assert not list(tmp_path.glob("*.part.jsonl"))


def test_a_killed_decoding_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode(folder, tmp_path / "whole")
    expected = (tmp_path / "whole" / f"nbest-{STEM}.jsonl.gz").read_bytes()
    real, calls = written.WrittenDecoder.nbest, list[str]()

    def killed(self: written.WrittenDecoder, samples: np.ndarray, utt_id: str) -> object:
        if utt_id == "d-4":
            raise RuntimeError("killed")
        return real(self, samples, utt_id)

    monkeypatch.setattr(written.WrittenDecoder, "nbest", killed)
    with pytest.raises(RuntimeError, match="killed"):
        decode(folder, tmp_path)
    assert not (tmp_path / f"nbest-{STEM}.jsonl.gz").exists()
    part = tmp_path / f"nbest-{STEM}.part.jsonl"
    with open(part, "a") as stream:
        stream.write('{"id": "d-4", "hy')  # a line that was not written to its end

    def counted(self: written.WrittenDecoder, samples: np.ndarray, utt_id: str) -> object:
        calls.append(utt_id)
        return real(self, samples, utt_id)

    monkeypatch.setattr(written.WrittenDecoder, "nbest", counted)
    result = decode(folder, tmp_path)
    assert calls == ["d-4"] and "goes on after 3 utterances" in result.stderr
    assert (tmp_path / f"nbest-{STEM}.jsonl.gz").read_bytes() == expected


def test_a_decoding_of_a_mended_manifest_begins_anew(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids are the same: what was found belongs to the cuts as they were."""
    line = ("decode", "--model", folder / "tiny", "--out", tmp_path / "out", tmp_path / "cuts_test.jsonl")
    cuts = [cut for cut in load_cuts(folder / "my_cuts_test.jsonl.gz") if cut.id != "c-3"]
    CutSet.from_cuts(cuts).to_file(str(tmp_path / "cuts_test.jsonl"))
    real, calls = written.WrittenDecoder.nbest, list[str]()

    def killed(self: written.WrittenDecoder, samples: np.ndarray, utt_id: str) -> object:
        calls.append(utt_id)
        if len(calls) == 2:
            raise RuntimeError("killed")
        return real(self, samples, utt_id)

    monkeypatch.setattr(written.WrittenDecoder, "nbest", killed)
    with pytest.raises(RuntimeError, match="killed"):
        run(*line)
    CutSet.from_cuts([cut.truncate(duration=0.3, preserve_id=True) for cut in cuts]).to_file(
        str(tmp_path / "cuts_test.jsonl")
    )
    assert "with other settings or cuts; begun anew" in run(*line).stderr
    assert calls == ["a-1", "b-2", "a-1", "b-2", "d-4"]


def test_a_journal_of_other_settings_or_cuts_is_not_taken(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(tmp_path / "part.jsonl", {"beam": 6})
    journal.add({"id": "a", "cut": False})
    again = Journal(tmp_path / "part.jsonl", {"beam": 6})
    assert again.count == 1 and list(again) == [{"id": "a", "cut": False}]
    assert Journal(tmp_path / "part.jsonl", {"beam": 7}).count == 0
    assert "of a run with other settings or cuts; begun anew" in capsys.readouterr().err
    journal.add({"id": "x", "lost": "no audio"})
    stale = Journal(tmp_path / "part.jsonl", {"beam": 7})
    with pytest.raises(DataError, match=r"of other cuts \(found x, expected a-1"):
        list(entries(None, load_cuts(folder / "my_cuts_test.jsonl.gz"), stale))  # type: ignore[arg-type]


def test_shares_give_the_files_of_one_process(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the utterances cannot be loaded; that shows when the shares are merged."""
    whole = decode(folder, tmp_path / "whole")
    monkeypatch.setattr(shares_written, "CUTS", 2)
    for share in ("2/2", "1/2", "2/2"):
        assert decode(folder, tmp_path / "out", "--split", share).stdout == ""
    with pytest.raises(UsageError, match="parts of a run with another outputs, normalise"):
        decode(folder, tmp_path / "out", "--normalise", "librispeech", "--split", "1/2")
    merged = run("merge", tmp_path / "out")
    assert merged.stdout == whole.stdout and "cut c-3 left out" in merged.stderr
    found = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("whole", "out")]
    assert found[0] == found[1] and len(found[0]) == 6


@pytest.mark.slow
def test_workers_give_the_files_of_one_process(folder: Path, tmp_path: Path) -> None:
    whole = decode(folder, tmp_path / "whole")
    shared = decode(folder, tmp_path / "out", "--executor", "local", "--workers", 1, "--shards", 2)
    assert shared.stdout == whole.stdout
    found = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("whole", "out")]
    assert found[0] == found[1]


def test_the_exit_status_tells_of_what_was_not_recognised(folder: Path, tmp_path: Path) -> None:
    line = f"decode --model {folder}/tiny --decoding-method greedy_search --out {tmp_path}"
    said = "1 left out because of errors; all else is done (exit status 3)"
    assert run_line("asr", main, f"{line} {folder}/my_cuts_test.jsonl.gz") == (3, said)
    fine = [cut for cut in load_cuts(folder / "my_cuts_test.jsonl.gz") if cut.id != "c-3"]
    CutSet.from_cuts(fine).to_file(str(tmp_path / "cuts_fine.jsonl.gz"))
    assert run_line("asr", main, f"{line} {tmp_path}/cuts_fine.jsonl.gz")[0] == 0


def test_the_longest_cut_that_is_recognised(folder: Path, tmp_path: Path) -> None:
    """`--max-seconds` is that of a transducer; a-1 is the shortest of the cuts."""
    seconds = {cut.id: cut.duration for cut in load_cuts(folder / "my_cuts_test.jsonl.gz")}
    result = decode(folder, tmp_path, "--max-seconds", seconds["a-1"])
    assert "3 of 4 utterances were not recognised" in result.stderr and "cut b-2 left out" in result.stderr


def test_ids_that_cannot_be_are_told_before_the_work(folder: Path, tmp_path: Path) -> None:
    first, second, *_ = load_cuts(folder / "my_cuts_test.jsonl.gz")
    path = tmp_path / "cuts.jsonl.gz"
    words = ("decode", "--model", folder / "tiny", "--out", tmp_path, path)
    for cuts, problem in (
        ([first, second.with_id("b 2")], "the id 'b 2' has blanks"),
        ([first, second.with_id(first.id)], "found 2 cuts with the id 'a-1', expected ids that differ"),
    ):
        CutSet.from_cuts(cuts).to_file(str(path))
        for split in ((), ("--split", "1/1")):
            with pytest.raises(DataError, match=problem):
                run(*words, *split)
        assert not list(tmp_path.glob("nbest-*"))


def test_narrow_band_is_told(folder: Path, tmp_path: Path) -> None:
    from lhotse import MonoCut, Recording

    soundfile.write(tmp_path / "slow.wav", 0.1 * speech(20), 8000)
    recording = Recording.from_file(tmp_path / "slow.wav", recording_id="slow")
    cut = MonoCut("slow", 0.0, recording.duration, 0, recording=recording)
    CutSet.from_cuts([cut]).to_file(str(tmp_path / "slow.jsonl"))
    for line in (f"decode --out {tmp_path} {tmp_path}/slow.jsonl", f"transcribe {tmp_path}/slow.wav"):
        done = run(*line.split(), "--model", folder / "tiny")
        assert done.exit_code == 0 and "a model that was trained on 16000 or more gets more words wrong" in done.stderr


def test_what_only_transducers_have_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"takes no --lm, --lattices; rescore its N-best lists"):
        decode(folder, tmp_path, "--lm", "lstm", "--lattices", "slf")
    with pytest.raises(UsageError, match=r"takes no --length-norm"):
        decode(folder, tmp_path, "--length-norm", "false")
    with pytest.raises(ConfigError, match="'fast_beam_search': tiny has greedy_search and modified_beam_search"):
        decode(folder, tmp_path, "--decoding-method", "fast_beam_search")
    with pytest.raises(UsageError, match="runs on the CPU, found --device cuda"):
        decode(folder, tmp_path, "--device", "cuda")
    with pytest.raises(UsageError, match="give --out"):
        run("decode", "--model", folder / "tiny", folder / "my_cuts_test.jsonl.gz")
    with pytest.raises(UsageError, match="hears whole utterances"):
        run("transcribe", "--model", folder / "tiny", "--streaming", folder / "a-1.wav")


def test_transcribe_prints_the_text_as_written(folder: Path) -> None:
    greedy = run("transcribe", "--model", folder / "tiny", folder / "a-1.wav")
    beam = run(
        "transcribe", "--model", folder / "tiny", "--decoding-method", "modified_beam_search", folder / "d-4.wav"
    )
    assert greedy.stdout.startswith(f"{folder}/a-1.wav: ") and "RTF" in greedy.stderr
    assert beam.stdout.startswith(f"{folder}/d-4.wav: ")


def test_audio_that_is_too_long_or_bad_is_told(folder: Path) -> None:
    decoder = written.WrittenDecoder(models.load(folder / "tiny", "tiny"), "greedy_search", 1, normalise("basic"))
    with pytest.raises(DataError, match=r"80\.0 s of audio, tiny takes 64 s at most; split it"):
        decoder(np.zeros(80 * 16000, dtype=np.float32))
    with pytest.raises(DataError, match="NaN or infinite"):
        decoder(np.full(FRAME, np.nan, dtype=np.float32))


def test_one_file_that_the_model_refuses_does_not_end_a_run(folder: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "long.wav", np.zeros(80 * 16000, dtype=np.float32), 16000)
    line = ["transcribe", "--model", str(folder / "tiny"), str(tmp_path / "long.wav")]
    result = CliRunner().invoke(cli, [*line, str(folder / "a-1.wav")])
    assert "1 of 2 files could not be transcribed" in str(result.exception)
    assert f"{tmp_path}/long.wav: 80.0 s of audio, tiny takes 64 s at most" in result.stderr
    assert result.stdout.startswith(f"{folder}/a-1.wav: ")
    with pytest.raises(DataError, match=r"long.wav: 80\.0 s of audio"):
        run(*line)


def test_the_internal_lm_hears_silence(folder: Path) -> None:
    tiny = models.load(folder / "tiny", "tiny")
    sequences = [(3, 6, 5), (), (4,), (5, 7, 10, 3, 4)] * 3
    silence = tiny.model.encode(tiny.tokens.features([np.zeros(16000, dtype=np.float32)]))
    for ids, score in zip(sequences, InternalLM(tiny.model, tiny.tokens).scores(sequences), strict=True):
        rows = np.array([(*tiny.tokens.prompt, *ids)], dtype=np.int64)
        after = torch.from_numpy(tiny.model.logits(silence, rows)[0]).double().log_softmax(1)
        expected = sum(float(after[place, token]) for place, token in enumerate((*ids, tiny.tokens.end)))
        assert score == pytest.approx(expected, abs=1e-4)


def test_models_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models.find_folder("nothing") is None and models.find_folder(str(tmp_path)) is None
    write(tmp_path / "whole")
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"moonshine-voice 0.0.49: pip install 'rescore\[moonshine\]'"):
        models.find_folder("moonshine")
    (tmp_path / "whole" / "tokenizer.bin").write_bytes(b"\x03ab")
    with pytest.raises(CheckpointError, match=r"tokenizer.bin: ends within token 0"):
        models.load(tmp_path / "whole", "x")
    decoder = tmp_path / "whole" / "decoder_model_merged.onnx"
    decoder.write_bytes(decoder.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"not a model that onnxruntime can open"):
        models.load(tmp_path / "whole", "x")
    decoder.write_bytes((tmp_path / "whole" / "encoder_model.onnx").read_bytes())
    with pytest.raises(CheckpointError, match="expected a merged decoder with encoder_hidden_states"):
        models.load(tmp_path / "whole", "x")
    decoder.unlink()
    with pytest.raises(CheckpointError, match=r"no decoder_model_merged.onnx or decoder_model_merged.ort"):
        models.load(tmp_path / "whole", "x")


@pytest.mark.skipif(find_spec("moonshine_voice") is None, reason="needs moonshine_voice")
def test_moonshine_hears_a_sentence(tmp_path: Path) -> None:
    """The real weights, on speech from a synthesiser."""
    pytest.importorskip("espeakng_loader")
    from asr.dataset.synthesis import SPEAKERS, Speakers, draw_setting

    text = "the old man walked slowly to the sea"
    setting = draw_setting(3, "a", SPEAKERS["train"], 1.0, (40.0, 40.0))
    soundfile.write(tmp_path / "a.wav", Speakers().speak(text, setting), 16000)
    said = run("transcribe", "--model", "moonshine", tmp_path / "a.wav").stdout.split(": ", 1)[1]
    assert len(set(normalise("basic")(said).split()) & set(text.split())) >= 5, said
    assert said[0].isupper() and said.strip().endswith(".")
