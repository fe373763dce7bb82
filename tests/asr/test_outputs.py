"""What the commands of `asr` do with their outputs: two runs of one name, a full disk."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile

from asr.cli.main import main
from lm_zoo.files import locked
from tests.asr.cli.test_cli_transcribe import noise, small_model
from tests.asr.tiny import TEXT, vocabulary
from tests.commands import run_line
from tests.full_disk import full_disk

lhotse = pytest.importorskip("lhotse")
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


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
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
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_line("asr", main, f"{TRAIN.replace('--max-steps 2', '--num-epochs 1')} --exp-dir run")[0] == 0
    return folder


@pytest.fixture
def here(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(inputs)
    yield inputs
    shutil.rmtree(inputs / "out", ignore_errors=True)


@pytest.mark.parametrize(("line", "held"), LINES)
def test_a_second_run_is_refused_and_a_full_disk_leaves_nothing(here: Path, line: str, held: str) -> None:
    with locked(held):
        code, said = run_line("asr", main, line)
    assert code == 2 and "is writing it; wait until it has ended" in said
    assert [path for path in here.rglob("out/*") if path.is_file()] == []
    failures = 0
    for room in (0, 300, 2000, 20000, 100000):
        with full_disk(room):
            code, said = run_line("asr", main, line)
        if code == 0:
            break
        failures += 1
        assert code == 2 and re.fullmatch(r"asr: (.* cannot be written \(.*\).*|File too large)", said)
        assert not [path for path in here.rglob(".*") if path.name.endswith((".tmp", ".lock"))]
    assert failures
    assert code == 0 or run_line("asr", main, line)[0] == 0
