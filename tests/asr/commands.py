"""The commands of `asr` that write, and inputs for them, for the tests of full disks, locks and killed processes."""

from __future__ import annotations

import json
from pathlib import Path

import lhotse
import pytest
import soundfile

from asr.cli.main import main
from tests.asr.cli.test_cli_transcribe import noise, small_model
from tests.asr.tiny import TEXT, vocabulary
from tests.commands import run_line

ENCODER = {"channels": 4, "dim": 16, "layers": 1, "heads": 2, "feedforward": 24, "dropout": 0.0}
CONFIG = {"encoder": ENCODER, "decoder": "stateless", "decoder_dim": 16, "joiner_dim": 16, "decoder_dropout": 0.0}
TRAIN = "train --config tiny.json --bpe-model bpe.model --train-cuts cuts.jsonl --max-steps 2 --save-every-n 1"
RECOGS = "recogs-cuts-model-modified_beam_search-beam-size-4.txt"
LINES = [  # a command, and what it holds
    (f"{TRAIN} --valid-cuts cuts.jsonl --exp-dir out", "out"),
    ("average --exp-dir run --epoch 1 --out out", "out"),
    ("decode cuts.jsonl --model model --out out", f"out/{RECOGS}"),
    ("decode cuts.jsonl --model model --lattices slf --out out", f"out/{RECOGS}"),
    ("prepare out --audio audio --text text", "out"),
    ("prepare out --cuts cuts.jsonl --fbank --storage numpy", "out"),
    ("prepare out --cuts cuts.jsonl --fbank", "out"),
    ("prepare out --bpe-text words --vocab-size 18", "out"),
]
LONG_LINES = [  # for the kills alone: those of several processes, of many steps, of encoder-decoders
    "decode cuts.jsonl --model model --lattices slf --executor local --workers 2 --shards 3 --out out",
    "decode cuts.jsonl --model tiny --beam-size 4 --out out",
    "merge shares",
    "add-noise cuts.jsonl --kind babble --snr 5 --voices 2 out",
    "synthesise words --pico 0 --jobs 2 out",
]


def make_inputs(folder: Path) -> None:
    """Writes what the commands read."""
    (folder / "audio").mkdir()
    rows = []
    for index in range(4):
        path = folder / f"audio/u{index}.wav"
        soundfile.write(path, noise(0.5, index), 16000, subtype="FLOAT")
        recording = lhotse.Recording.from_file(path)
        segment = lhotse.SupervisionSegment(f"u{index}", f"u{index}", 0.0, recording.duration, text="THE CAT")
        rows.append(lhotse.MonoCut(f"u{index}", 0.0, recording.duration, 0, [segment], recording=recording).to_dict())
    (folder / "cuts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "text").write_text("".join(f"u{index} THE CAT\n" for index in range(4)))
    (folder / "words").write_text(f"{TEXT}\n")
    (folder / "tiny.json").write_text(json.dumps(CONFIG))
    vocabulary().save(folder)
    small_model(folder / "model")
    _run(folder, f"{TRAIN.replace('--max-steps 2', '--num-epochs 1')} --exp-dir run")


def make_long_inputs(folder: Path) -> None:
    """Writes what LONG_LINES read beside that: an encoder-decoder, shares that are to be merged."""
    from tests.asr.seq2seq.tiny_onnx import write

    write(folder / "tiny", end=1.0)
    for share in ("1/2", "2/2"):
        _run(folder, f"decode cuts.jsonl --model model --split {share} --out shares")


def _run(folder: Path, line: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_line("asr", main, line)[0] == 0, line
