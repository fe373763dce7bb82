"""Readers of recognisers, their configurations and tokens, and of manifests, features and audio."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from asr.dataset.kaldi import kaldi_cuts
from asr.dataset.kaldi_places import read_place
from asr.dataset.loader import load_errors, load_samples
from asr.dataset.manifests import load_cuts, make_cut, read_recording, split_by_speaker
from asr.decoding.journal import Journal
from asr.errors import DataError
from asr.model.average import average
from asr.model.checkpoint import load_model, read_checkpoint, save_model, write_checkpoint
from asr.model.config import EncoderConfig, TransducerConfig, load_config
from asr.model.transducer import Transducer
from asr.seq2seq.tokens import MoonshineTokens
from asr.seq2seq.whisper import WhisperTokens
from tests.asr.tiny import vocabulary
from tests.faults.damage import Target, begins, within_zip
from tests.faults.readers.inputs import data, files, text

PICKLE = within_zip(lambda name: name == "data.pkl")
ASR_FILES = ("config.json", "model.safetensors", "bpe.model")
KALDI_FILES = ("wav.scp", "segments", "text", "utt2spk")
CUT = {
    "id": "a",
    "start": 0.0,
    "duration": 0.1,
    "channel": 0,
    "supervisions": [{"id": "a", "recording_id": "r1", "start": 0.0, "duration": 0.1, "channel": 0, "text": "A"}],
    "recording": {
        "id": "r1",
        "sources": [{"type": "file", "channels": [0], "source": "r1.wav"}],
        "sampling_rate": 16000,
        "num_samples": 1600,
        "duration": 0.1,
        "channel_ids": [0],
    },
    "type": "MonoCut",
}
WHISPER = {
    "vocab.json": json.dumps({"a": 0, "b": 1, "<|endoftext|>": 2}),
    "added_tokens.json": json.dumps(
        {"<|startoftranscript|>": 3, "<|en|>": 4, "<|transcribe|>": 5, "<|notimestamps|>": 6}
    ),
    "generation_config.json": json.dumps({"is_multilingual": True, "suppress_tokens": [1]}),
}
TOKENIZER = b"\5<unk>\3<s>\4</s>\4" + "\u2581a".encode() + b"\x82\1" + b"b" * 130
JOURNAL = '{"model": "x"}\n' + "".join(f'{{"id": "{name}", "text": "A"}}\n' for name in "abc")


def recogniser(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        vocab = vocabulary()
        sizes: dict[str, Any] = {"channels": 2, "dim": 8, "layers": 1, "heads": 2, "feedforward": 8}
        config = TransducerConfig(len(vocab), EncoderConfig(**sizes), "stateless", decoder_dim=8, joiner_dim=8)
        made = Transducer(config)
        save_model(folder / "asr", made, vocab, {"trained": {"steps": 1}})
        write_checkpoint(folder / "asr" / "epoch-1.pt", {"model": made.state_dict(), "batch_idx_train": 3})
        return folder / "asr" / damaged

    return make


def averaged(damaged: str) -> Callable[[Path], Path]:
    """Two checkpoints of a training run, with running averages."""

    def make(folder: Path) -> Path:
        vocab = vocabulary()
        sizes: dict[str, Any] = {"channels": 2, "dim": 8, "layers": 1, "heads": 2, "feedforward": 8}
        config = TransducerConfig(len(vocab), EncoderConfig(**sizes), "stateless", decoder_dim=8, joiner_dim=8)
        weights = Transducer(config).state_dict()
        for epoch in (1, 2):
            contents = {"model": weights, "model_avg": weights, "model_config": config.to_dict()}
            contents |= {"batch_idx_train": 4 * epoch, "average_period": 2, "case": "upper"}
            write_checkpoint(folder / f"epoch-{epoch}.pt", contents)
        vocab.save(folder)
        return folder / damaged

    return make


def averages(path: Path) -> object:
    made = [average(path.parent, 2, None, 2 - averaged, bool(averaged)) for averaged in (0, 1)]
    return [one.steps for one in made]


def wav() -> bytes:
    content = b"\0\0" * 1600
    sizes = struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16)
    riff = b"RIFF" + struct.pack("<I", 36 + len(content)) + b"WAVE"
    head = riff + b"fmt " + sizes + b"data" + struct.pack("<I", len(content))
    return head + content


def npy() -> bytes:
    """NumPy's form in an archive of kaldiio."""
    made = io.BytesIO()
    np.save(made, np.ones((3, 2), dtype=np.float32))
    return b"NPY\1" + bytes([len(made.getvalue())]) + made.getvalue()


def kaldi_folder(damaged: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "r1.wav").write_bytes(wav())
        (folder / "wav.scp").write_text("r1 r1.wav\n")
        (folder / "segments").write_text("a r1 0.0 0.05\nb r1 0.05 0.1\n")
        (folder / "text").write_text("a A B\nb C\n")
        (folder / "utt2spk").write_text("a s\nb s\n")
        return folder / damaged

    return make


def use_kaldi_folder(path: Path) -> object:
    with TemporaryDirectory() as out:
        return [cut.to_dict() for cut in kaldi_cuts(path.parent, Path(out))]


def matrix(form: bytes) -> bytes:
    """A float matrix of two rows and three columns in Kaldi's binary form, `FM ` or compressed."""
    if form == b"FM ":
        return b"\0BFM \4" + struct.pack("<iBi", 2, 4, 3) + np.arange(6, dtype="<f4").tobytes()
    return b"\0B" + form + struct.pack("<ffii", -1.0, 2.0, 2, 3) + bytes(range(2 * 3 * (2 if form == b"CM2 " else 1)))


def place(path: Path) -> object:
    found = read_place(str(path))
    return [np.asarray(part).tolist() for part in (found if isinstance(found, tuple) else [found])]


def sounding(path: Path) -> object:
    """The samples of an audio file, as `asr prepare --audio` takes it."""
    recording = read_recording(path, "a")
    if recording is None:
        raise DataError(f"{path}: damaged")
    try:
        return load_samples(make_cut(recording, "a", "", None)).shape
    except load_errors() as error:
        raise DataError(str(error)[:200]) from None


def journal(path: Path) -> list[Any]:
    return list(Journal(path, {"model": "x"}))


def moonshine(path: Path) -> object:
    return MoonshineTokens(path).spelled


def whisper(path: Path) -> object:
    return WhisperTokens(path.parent).spelled


ASR_TARGETS = [
    *(
        Target(f"asr {name}", recogniser(name), lambda path: load_model(path.parent) and 0, share=0.5)
        for name in ASR_FILES
    ),
    Target("asr epoch-1.pt", recogniser("epoch-1.pt"), lambda path: sorted(read_checkpoint(path)), checked=True),
    Target(
        "asr epoch-1.pt pickle",
        recogniser("epoch-1.pt"),
        lambda path: len(read_checkpoint(path)),
        within=PICKLE,
    ),
    Target("asr average", averaged("epoch-2.pt"), averages, within=PICKLE, share=0.5),
    Target("asr named config", text("c.json", json.dumps(TransducerConfig().to_dict())), load_config),
    Target(
        "cuts",
        text("cuts.jsonl", json.dumps(CUT) + "\n"),
        lambda path: [cut.id for cut in load_cuts(path)],
        kept=begins,
    ),
    Target("speakers", text("s.json", '{"train": ["1", "2"], "test": ["3"]}'), lambda path: split_by_speaker({}, path)),
    *(Target(f"Kaldi folder {name}", kaldi_folder(name), use_kaldi_folder) for name in KALDI_FILES),
    Target("audio wav", data("a.wav", wav()), sounding),
    Target("Kaldi matrix", data("m.ark", matrix(b"FM ")), place),
    *(Target(f"Kaldi matrix {form.decode()}", data("m.ark", matrix(form)), place) for form in (b"CM2 ", b"CM3 ")),
    Target("Kaldi text matrix", text("m.ark", " [\n 0.5 1.5\n 2.5 3.5 ]\n"), place),
    Target("npy", data("m.npy", npy()), place),
    Target("decoding journal", text("journal", JOURNAL), journal),
    Target("tokenizer.bin", data("t.bin", TOKENIZER), moonshine),
    *(Target(f"Whisper {name}", files(name, WHISPER), whisper) for name in WHISPER),
]
