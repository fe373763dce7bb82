"""`asr prepare` from end to end, and reading what it writes."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from asr.cli.main import cli
from asr.dataset.features import fbank
from asr.dataset.loader import LoaderOptions, load_samples, make_loader
from asr.dataset.manifests import load_cuts
from asr.errors import DataError
from lm_zoo.errors import TextError
from rescore.errors import FormatError

pytest.importorskip("lhotse")
soundfile = pytest.importorskip("soundfile")
pytest.importorskip("kaldi_native_fbank")
LIBRISPEECH = Path(__file__).resolve().parents[4] / "shared" / "data" / "librispeech"


def prepare(*args: object, ok: bool = True) -> Any:
    result = CliRunner().invoke(cli, ["prepare", *map(str, args)], catch_exceptions=False)
    assert (result.exit_code == 0) == ok, result.output
    return result


def write_audio(path: Path, seconds: float, seed: int = 0, rate: int = 16000) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = (0.1 * np.random.default_rng(seed).standard_normal(round(seconds * rate))).astype(np.float32)
    soundfile.write(str(path), samples, rate)
    return samples


@pytest.fixture
def librispeech(tmp_path: Path) -> Path:
    chapter = tmp_path / "LibriSpeech" / "dev-clean" / "84" / "1"
    write_audio(chapter / "84-1-0000.flac", 1.0)
    write_audio(chapter / "84-1-0001.mp3", 1.5)
    (chapter / "84-1.trans.txt").write_text("84-1-0000 A CAT\n84-1-0001 A HAT\n84-1-0002 NO AUDIO\n")
    other = tmp_path / "LibriSpeech" / "dev-clean" / "99" / "1"
    write_audio(other / "99-1-0000.wav", 1.2)
    (other / "99-1.trans.txt").write_text("99-1-0000 THE MAT\n")
    return tmp_path / "LibriSpeech"


def test_librispeech(librispeech: Path, tmp_path: Path) -> None:
    result = prepare(tmp_path / "data", "--librispeech", librispeech)
    assert "librispeech_cuts_dev-clean.jsonl.gz: 3 utterances" in result.stdout
    assert "1 utterances left out, no audio (84-1-0002)" in result.stderr
    cuts = load_cuts(tmp_path / "data" / "librispeech_cuts_dev-clean.jsonl.gz")
    assert [(cut.id, cut.supervisions[0].text, cut.supervisions[0].speaker) for cut in cuts] == [
        ("84-1-0000", "A CAT", "84"),
        ("84-1-0001", "A HAT", "84"),
        ("99-1-0000", "THE MAT", "99"),
    ]
    for cut in cuts:
        assert cut.load_audio().shape == (1, cut.num_samples)
        assert len(load_samples(cut)) == cut.num_samples
    from lhotse import CutSet, load_manifest

    parts = [
        load_manifest(tmp_path / "data" / f"librispeech_{kind}_dev-clean.jsonl.gz")
        for kind in ("recordings", "supervisions")
    ]
    assert len(CutSet.from_manifests(*parts)) == 3


def test_librispeech_audio_without_text_is_counted(librispeech: Path, tmp_path: Path) -> None:
    write_audio(librispeech / "dev-clean" / "84" / "1" / "84-1-0003.flac", 1.0)
    write_audio(librispeech / "dev-clean" / "99" / "2" / "99-2-0000.flac", 1.0)  # no transcripts at all
    result = prepare(tmp_path / "data", "--librispeech", librispeech)
    assert "2 utterances left out, no text (84-1-0003, 99-2-0000)" in result.stderr


def test_parts_of_librispeech(librispeech: Path, tmp_path: Path) -> None:
    """By lhotse's option; others are not read."""
    (librispeech / "dev-clean").rename(librispeech / "train-clean-5")
    (librispeech / "dev-clean" / "1" / "1").mkdir(parents=True)
    (librispeech / "dev-clean" / "1" / "1" / "1-1.trans.txt").write_bytes(b"\xff")
    result = prepare(tmp_path / "data", "--librispeech", librispeech, "-p", "train-clean-5")
    assert "librispeech_cuts_train-clean-5.jsonl.gz: 3 utterances" in result.stdout and "dev-clean" not in result.stdout
    with pytest.raises(DataError, match="no part dev-other; found dev-clean, train-clean-5"):
        prepare(tmp_path / "data", "--librispeech", librispeech, "-p", "train-clean-5", "-p", "dev-other")
    (librispeech / "test-clean").mkdir()
    with pytest.raises(DataError, match=r"test-clean: no SPEAKER/CHAPTER/\*.trans.txt in it"):
        prepare(tmp_path / "data", "--librispeech", librispeech, "-p", "test-clean")


def test_split_by_speaker(librispeech: Path, tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text('{"test": ["84"], "train": ["99"]}')
    result = prepare(tmp_path / "data", "--librispeech", librispeech, "--split", tmp_path / "split.json")
    assert "dev-clean-test.jsonl.gz: 2 utterances" in result.stdout
    assert "dev-clean-train.jsonl.gz: 1 utterances" in result.stdout
    (tmp_path / "split.json").write_text('{"test": ["84"]}')
    with pytest.raises(DataError, match="speaker 99 of dev-clean is in no set"):
        prepare(tmp_path / "data", "--librispeech", librispeech, "--split", tmp_path / "split.json")
    (tmp_path / "split.json").write_text('["84"]')
    with pytest.raises(DataError, match="expected JSON such as"):
        prepare(tmp_path / "data", "--librispeech", librispeech, "--split", tmp_path / "split.json")
    (tmp_path / "split.json").write_text('{"test": ["84"], "train": "99"}')
    with pytest.raises(DataError, match=r"expected JSON such as .* \('train' has no list of speakers\)"):
        prepare(tmp_path / "data", "--librispeech", librispeech, "--split", tmp_path / "split.json")


@pytest.mark.parametrize("storage", ["lilcom", "numpy"])
def test_stored_features_load_as_those_computed(librispeech: Path, tmp_path: Path, storage: str) -> None:
    """And those at other speeds, of the training part alone."""
    (tmp_path / "split.json").write_text('{"train": ["84"], "test": ["99"]}')
    plan = ("--librispeech", librispeech, "--split", tmp_path / "split.json", "--fbank", "--perturb-speed")
    prepare(tmp_path / "data", *plan, "--storage", storage)
    assert len(load_cuts(tmp_path / "data" / "librispeech_cuts_dev-clean-test.jsonl.gz")) == 1
    cuts = load_cuts(tmp_path / "data" / "librispeech_cuts_dev-clean-train.jsonl.gz")
    ids = ["84-1-0000", "84-1-0001"]
    assert [cut.id for cut in cuts] == [name + speed for speed in ("", "_sp0.9", "_sp1.1") for name in ids]
    options = LoaderOptions(max_duration=10, shuffle=False)
    for name, features in loaded(cuts, options, stored=True).items():
        expected = fbank(load_samples(cuts[name]))
        assert features.shape == expected.shape
        assert np.abs(features - expected).max() < (1e-6 if storage == "numpy" else 0.1)


def test_truncated_audio_is_left_out_at_every_speed(librispeech: Path, tmp_path: Path) -> None:
    """The file has its header and not one whole frame: lhotse reads no samples, and torch refuses to resample them."""
    flac = librispeech / "dev-clean" / "84" / "1" / "84-1-0000.flac"
    flac.write_bytes(flac.read_bytes()[:3000])
    (tmp_path / "split.json").write_text('{"train": ["84"], "test": ["99"]}')
    plan = ("--librispeech", librispeech, "--split", tmp_path / "split.json", "--fbank", "--perturb-speed")
    result = prepare(tmp_path / "data", *plan)
    assert "3 utterances left out, audio cannot be loaded" in result.stderr
    assert "84-1-0000.flac: damaged" in result.stderr
    cuts = load_cuts(tmp_path / "data" / "librispeech_cuts_dev-clean-train.jsonl.gz")
    assert [cut.id for cut in cuts] == ["84-1-0001", "84-1-0001_sp0.9", "84-1-0001_sp1.1"]


def test_no_part_is_for_training(librispeech: Path, tmp_path: Path) -> None:
    result = prepare(tmp_path / "data", "--librispeech", librispeech, "--fbank", "--perturb-speed")
    assert "found no part named *train* (dev-clean); none is perturbed" in result.stderr
    assert len(load_cuts(tmp_path / "data" / "librispeech_cuts_dev-clean.jsonl.gz")) == 3


def loaded(cuts: Any, options: LoaderOptions, stored: bool) -> dict[str, np.ndarray]:
    from dataclasses import replace

    found = {}
    for batch in make_loader(cuts, replace(options, stored=stored))():
        for row, name in enumerate(batch["ids"]):
            found[name] = batch["features"][row, : int(batch["lengths"][row])].numpy()
    assert len(found) == len(cuts)
    return found


def write_flac_without_length(path: Path) -> None:
    """As an encoder that writes through a pipe: no number of samples (36 bits) in its header."""
    write_audio(path, 1.0)
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    path.write_bytes(data)


def test_flac_without_its_length_is_left_out(librispeech: Path, tmp_path: Path) -> None:
    write_flac_without_length(tmp_path / "in" / "a.flac")
    write_audio(tmp_path / "in" / "b.flac", 1.0)
    result = prepare(tmp_path / "data", "--audio", tmp_path / "in")
    reason = "1 utterances left out, audio whose header has no number of samples, as from a pipe; write it anew"
    assert f"{reason} (a)" in result.stderr and "1 utterances, 0.00 hours" in result.stdout
    (tmp_path / "in" / "wav.scp").write_text("a a.flac\nb b.flac\n")
    assert f"{reason} (a)" in prepare(tmp_path / "data", "--kaldi", tmp_path / "in").stderr
    write_flac_without_length(librispeech / "dev-clean" / "84" / "1" / "84-1-0000.flac")
    assert f"{reason} (84-1-0000)" in prepare(tmp_path / "data", "--librispeech", librispeech).stderr


def test_audio_and_text(tmp_path: Path) -> None:
    write_audio(tmp_path / "in" / "deep" / "a.flac", 1.0)
    (tmp_path / "in" / "b.wav").write_bytes(b"no audio")
    (tmp_path / "text").write_text("a A CAT\nb A HAT\nc NOTHING\n")
    result = prepare(tmp_path / "data", "--audio", tmp_path / "in", "--text", tmp_path / "text")
    assert "audio_cuts_in.jsonl.gz: 1 utterances" in result.stdout
    assert "unreadable or empty (b)" in result.stderr and "no audio (c)" in result.stderr
    write_audio(tmp_path / "in" / "a.wav", 1.0)
    with pytest.raises(DataError, match="a second file named a"):
        prepare(tmp_path / "data", "--audio", tmp_path / "in")


def test_lang_folder_is_icefalls(tmp_path: Path) -> None:
    from lm_zoo.text.vocabulary import PieceVocabulary

    (tmp_path / "text").write_text("THE CAT SAT ON THE MAT\nTHE HAT\n" * 5)
    write_audio(tmp_path / "in" / "a.wav", 1.0)
    (tmp_path / "names").write_text("a THE QUIZ\n")
    args = (tmp_path / "data", "--bpe-text", tmp_path / "text", "--vocab-size", 16)
    result = prepare(*args, "--audio", tmp_path / "in", "--text", tmp_path / "names")
    assert "1 transcripts have symbols that the tokens lack (the first: a)" in result.stderr
    lang = tmp_path / "data" / "lang_bpe_16"
    tokens = [line.split() for line in (lang / "tokens.txt").read_text().splitlines()]
    assert tokens[:3] == [["<blk>", "0"], ["<sos/eos>", "1"], ["<unk>", "2"]] and len(tokens) == 16
    words = [line.split()[0] for line in (lang / "words.txt").read_text().splitlines()]
    assert words == [
        "<eps>",
        "!SILENCE",
        "<SPOKEN_NOISE>",
        "<UNK>",
        "CAT",
        "HAT",
        "MAT",
        "ON",
        "SAT",
        "THE",
        "#0",
        "<s>",
        "</s>",
    ]
    vocab = PieceVocabulary.load(lang, "upper")
    assert vocab.processor.decode(list(vocab.encode_word("THE"))) == "THE"
    assert [vocab.processor.id_to_piece(index) for index in range(16)] == [token for token, _ in tokens]
    made = (lang / "bpe.model").stat().st_mtime_ns
    prepare(*args)  # as after a kill
    assert (lang / "bpe.model").stat().st_mtime_ns == made
    (tmp_path / "text").write_text("THE CAT SAT ON THE MAT\nTHE HEN\n" * 5)
    with pytest.raises(DataError, match=r"lang_bpe_16: has not the tokens and words of .*text; remove it first"):
        prepare(*args)


@pytest.mark.parametrize("how", [("--vocab-size", "12"), ("--characters",)])
def test_ids_of_a_text_make_no_tokens(how: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"utt-{number} THE CAT\n" for number in range(5)))
    with pytest.raises(TextError, match=r"begins with what looks like an utterance id \('utt-0'\); write kaldi:"):
        prepare(tmp_path / "data", "--bpe-text", tmp_path / "text", *how)
    prepare(tmp_path / "data", "--bpe-text", f"kaldi:{tmp_path / 'text'}", *how)
    (lang,) = (tmp_path / "data").iterdir()
    words = [line.split()[0] for line in (lang / "words.txt").read_text().splitlines()]
    assert words[4:-3] == (["CAT", "THE"] if "--characters" not in how else list("ACEHT"))


def test_characters_are_words_and_tokens(tmp_path: Path) -> None:
    """Transcripts, tokens and what a search makes of them: all in characters, so that its error rate is CER."""
    from asr.decoding.prefixes import Pieces
    from lm_zoo.text.vocabulary import PieceVocabulary

    write_audio(tmp_path / "in" / "a.wav", 1.0)
    (tmp_path / "text").write_text("而对 楼市T恤\n对楼市\n", encoding="utf-8")
    (tmp_path / "names").write_text("a 楼市 恤T\n", encoding="utf-8")
    lang, data = tmp_path / "data" / "lang_char", tmp_path / "data"
    args = ("--bpe-text", tmp_path / "text", "--audio", tmp_path / "in", "--text", tmp_path / "names")
    assert f"{lang}: 9 tokens" in prepare(data, *args, "--characters").stdout
    assert (data / "audio_text_in").read_text(encoding="utf-8") == "a 楼 市 恤 T\n"
    assert load_cuts(data / "audio_cuts_in.jsonl.gz")["a"].supervisions[0].text == "楼 市 恤 T"
    names = [line.split()[0] for line in (lang / "tokens.txt").read_text(encoding="utf-8").splitlines()]
    assert names[:3] == ["<blk>", "<sos/eos>", "<unk>"] and set(names[3:]) == {
        f"\u2581{char}" for char in "而对楼市T恤"
    }
    vocab = PieceVocabulary.load(lang, "upper")
    tokens = [token for word in ("楼", "市", "恤", "X") for token in vocab.encode_word(word)]
    assert len(tokens) == 4 and tokens[3] == vocab.unk == 2 and vocab.eos == 1
    pieces = Pieces(vocab)
    assert pieces.words(tokens[:3]) == ("楼", "市", "恤") and all(pieces.starts[3:])


def test_a_moved_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_audio(tmp_path / "set" / "audio" / "a.wav", 1.0)
    recording = {"id": "a", "sources": [{"type": "file", "channels": [0], "source": "audio/a.wav"}]}
    recording |= {"sampling_rate": 16000, "num_samples": 16000, "duration": 1.0, "channel_ids": [0]}
    cut = {
        "id": "a",
        "start": 0,
        "duration": 1.0,
        "channel": 0,
        "supervisions": [],
        "recording": recording,
        "type": "MonoCut",
    }
    with gzip.open(tmp_path / "set" / "cuts.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(cut) + "\n")
    shutil.move(tmp_path / "set", tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    prepare("data", "--cuts", "moved")
    monkeypatch.chdir(tmp_path / "moved")  # what was made of it is found from anywhere
    for cuts in (load_cuts(tmp_path / "moved"), load_cuts(tmp_path / "data" / "speech_cuts_moved.jsonl.gz")):
        assert len(load_samples(next(iter(cuts)))) == 16000
    assert not cuts.is_lazy


def test_several_files_are_one_set_in_memory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_audio(tmp_path / name / f"{name}.wav", 1.0)
        prepare(tmp_path / "data", "--audio", tmp_path / name)
    cuts = load_cuts(*(tmp_path / "data" / f"audio_cuts_{name}.jsonl.gz" for name in ("a", "b")))
    assert [cut.id for cut in cuts] == ["a", "b"] and not cuts.is_lazy


def test_what_is_no_manifest(tmp_path: Path) -> None:
    path = tmp_path / "cuts.jsonl"
    for text, problem in (
        ("", "empty file, expected lhotse cuts"),
        ("{\n", "cuts.jsonl:1: not a lhotse cut"),
        ('{"id": "a"}\n', "it has no 'type' of a cut"),
        ('{"type": "MonoCut"}\n', "cuts.jsonl:1: not a lhotse cut"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=problem):
            load_cuts(path)
    with pytest.raises(FormatError, match="no such file"):
        load_cuts(tmp_path / "none.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no cuts.jsonl.gz and no Shar files"):
        load_cuts(tmp_path / "empty")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ([], "nothing to prepare"),
        (["--audio", "x", "--split", "y"], "--split needs --librispeech"),
        (["--audio", "x", "-p", "dev-clean"], "--dataset-parts needs --librispeech"),
        (["--audio", "x", "--perturb-speed"], "--perturb-speed needs --fbank"),
        (["--audio", "x", "--kaldi-feats"], "--kaldi-feats needs --kaldi"),
        (["--kaldi", "x", "--kaldi-feats", "--fbank"], "--fbank needs audio"),
        (["--bpe-text", "x", "--fbank"], "--fbank needs audio"),
        (["--audio", "x", "--storage", "numpy"], "--storage needs features to store: --fbank or --kaldi-feats"),
        (["--audio", "x", "--vocab-size", "500"], "--vocab-size needs --bpe-text"),
        (["--bpe-text", "x", "--characters", "--vocab-size", "9"], "--vocab-size needs --bpe-text, without --char"),
        (["--kaldi", "x", "--kaldi-feats", "--fbank", "--perturb-speed"], "--perturb-speed needs audio"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, args: list[str], problem: str) -> None:
    assert problem in prepare(tmp_path / "data", *args, ok=False).stderr


@pytest.mark.skipif(not LIBRISPEECH.is_dir(), reason="../shared/data/librispeech is not there")
def test_real_mp3_has_the_length_that_its_manifest_says() -> None:
    from asr.dataset.manifests import read_recording

    chapter = LIBRISPEECH / "LibriSpeech" / "dev-clean" / "84" / "121123"
    files = sorted(chapter.glob("*.mp3"))[:5]
    assert files
    for path in files:
        recording = read_recording(path, path.stem)
        assert recording is not None and recording.load_audio().shape == (1, recording.num_samples)
        assert len(soundfile.read(path)[0]) == recording.num_samples


def test_features_of_cuts_that_are_there(librispeech: Path, tmp_path: Path) -> None:
    """As for a set of `asr synthesise`; two sets of one name would overwrite each other."""
    prepare(tmp_path / "data", "--librispeech", librispeech)
    source = tmp_path / "data" / "librispeech_cuts_dev-clean.jsonl.gz"
    result = prepare(tmp_path / "more", "--cuts", source, "--fbank")
    made = tmp_path / "more" / "librispeech_cuts_dev-clean.jsonl.gz"
    assert f"{made}: 3 utterances" in result.stdout
    for cut in load_cuts(made):
        assert np.abs(cut.load_features() - fbank(load_samples(cut))).max() < 0.1  # lilcom is lossy
    assert "two --cuts are named" in prepare(tmp_path / "x", "--cuts", source, "--cuts", source, ok=False).stderr


@pytest.fixture
def mixed(librispeech: Path, tmp_path: Path) -> Path:
    """`x_cuts_mixed.jsonl`: a cut of two recordings and padding, and one with its supervisions in no order."""
    from dataclasses import replace

    from lhotse import CutSet

    prepare(tmp_path / "one", "--librispeech", librispeech)
    first, second, third = load_cuts(tmp_path / "one" / "librispeech_cuts_dev-clean.jsonl.gz")
    both = first.append(second.truncate(offset=0.5)).pad(3.0).with_id("both")
    half = replace(third.supervisions[0], duration=0.5)
    third.supervisions = [replace(half, id="late", start=0.6, text="LATE"), replace(half, id="early", text="EARLY")]
    CutSet.from_cuts([both, third]).to_file(str(tmp_path / "x_cuts_mixed.jsonl"))
    return tmp_path / "x_cuts_mixed.jsonl"


def test_mixed_cuts(mixed: Path, tmp_path: Path) -> None:
    """All their recordings are kept, with supervisions in the times of these; features cannot be stored."""
    from lhotse import load_manifest

    prepare(tmp_path / "data", "--cuts", mixed)
    files = {kind: tmp_path / "data" / f"x_{kind}_mixed.jsonl.gz" for kind in ("recordings", "supervisions")}
    assert [item.id for item in load_manifest(files["recordings"])] == ["84-1-0000", "84-1-0001", "99-1-0000"]
    assert [item.start for item in load_manifest(files["supervisions"])] == [0.0, 0.0, 0.6, 0.0]
    with pytest.raises(DataError, match="cut 'both' is a MixedCut, expected cuts of one recording each"):
        prepare(tmp_path / "more", "--cuts", mixed, "--fbank")
    assert not list((tmp_path / "more").rglob("*.lca"))


def test_texts_are_in_the_order_of_time(mixed: Path, tmp_path: Path) -> None:
    """As `asr decode` has its references."""
    prepare(tmp_path / "data", "--cuts", mixed)
    lines = (tmp_path / "data" / "x_text_mixed").read_text().splitlines()
    assert lines == ["both A CAT A HAT", "99-1-0000 EARLY LATE"]
    args = ["add-noise", str(mixed), str(tmp_path / "noisy"), "--kind", "white", "--snr", "5"]
    assert CliRunner().invoke(cli, args, catch_exceptions=False).exit_code == 0
    assert (tmp_path / "noisy" / "x_text_mixed-white-5dB").read_text().splitlines() == lines


def test_shar_folders_are_refused(librispeech: Path, tmp_path: Path) -> None:
    """Their audio comes with the cuts; JSON cannot hold it."""
    prepare(tmp_path / "one", "--librispeech", librispeech)
    (tmp_path / "shar").mkdir()
    cuts = load_cuts(tmp_path / "one" / "librispeech_cuts_dev-clean.jsonl.gz")
    cuts.to_shar(str(tmp_path / "shar"), fields={"recording": "flac"})
    with pytest.raises(DataError, match=r"carries its audio or features, .* take a Shar folder as it is"):
        prepare(tmp_path / "out", "--cuts", tmp_path / "shar", "--fbank")


def test_ids_with_blanks(tmp_path: Path) -> None:
    """In Kaldi's text `my talk` would be the word `talk` of `my`."""
    write_audio(tmp_path / "audio" / "my talk.wav", 0.5)
    with pytest.raises(DataError, match="audio: the id 'my talk' has blanks, which no file of texts can have; rename"):
        prepare(tmp_path / "data", "--audio", tmp_path / "audio")
    assert not (tmp_path / "data").exists()


def test_ids_of_two_utterances(librispeech: Path, tmp_path: Path) -> None:
    """In Kaldi's text each stands once; of two files of one name the file system's order chose."""
    chapter = librispeech / "dev-clean" / "84"
    write_audio(chapter / "2" / "84-1-0000.flac", 1.0)
    (chapter / "2" / "84-2.trans.txt").write_text("84-1-0000 A COPY\n")
    with pytest.raises(DataError, match="dev-clean: found 2 cuts with the id '84-1-0000', expected ids that differ"):
        prepare(tmp_path / "data", "--librispeech", librispeech)
    write_audio(chapter / "1" / "84-1-0000.wav", 2.0)
    with pytest.raises(DataError, match=r"84-1-0000.wav: a second file named 84-1-0000 \(the first: .*0000.flac\)"):
        prepare(tmp_path / "data", "--librispeech", librispeech)
    assert not (tmp_path / "data").exists()


def test_the_first_of_several_channels_is_taken_and_told_of(tmp_path: Path) -> None:
    first, second = write_audio(tmp_path / "one.wav", 0.5, 1), write_audio(tmp_path / "two.wav", 0.5, 2)
    (tmp_path / "audio").mkdir()
    soundfile.write(str(tmp_path / "audio" / "both.wav"), np.stack([first, second], axis=1), 16000)
    result = prepare(tmp_path / "data", "--audio", tmp_path / "audio")
    assert "audio: 1 utterances are of several channels, of which the first is taken (such as both)" in result.stderr
    (cut,) = load_cuts(tmp_path / "data" / "audio_cuts_audio.jsonl.gz")
    assert np.abs(load_samples(cut) - first).max() < 1e-4


def test_links_are_called_by_their_own_names(librispeech: Path, tmp_path: Path) -> None:
    """Stores such as git-annex have files under the names of their checksums."""
    prepare(tmp_path / "data", "--librispeech", librispeech)
    made, link = tmp_path / "data/librispeech_cuts_dev-clean.jsonl.gz", tmp_path / "librispeech_cuts_dev.jsonl.gz"
    link.symlink_to(made.rename(tmp_path / "SHA256-1f2e.gz"))
    result = prepare(tmp_path / "again", "--cuts", link)
    assert "again/librispeech_cuts_dev.jsonl.gz: 3 utterances" in result.stdout
