"""The recipe of Moonshine from audio to tables, on seconds of tones and a tiny encoder-decoder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.egs.conftest import Recipes, write_lms
from tests.egs.corpora import SENTENCES, librispeech
from tests.egs.test_asr import rows

for package in ("lhotse", "soundfile", "onnxruntime", "onnx"):
    pytest.importorskip(package)

pytestmark = pytest.mark.slow


def test_moonshine_from_audio_to_tables(recipes: Recipes, tmp_path: Path) -> None:
    from tests.asr.seq2seq.tiny_onnx import write

    speech = librispeech(tmp_path / "data" / "librispeech", {"dev-clean": 6, "train-clean-100": 2})
    split = {"train": ["10", "11"], "dev": ["12", "13"], "test": ["14", "15"]}
    (speech / "dev-clean-speaker-split.json").write_text(json.dumps(split))
    lm, _ = write_lms(tmp_path, [word for sentence in SENTENCES for word in sentence.split()])
    write(tmp_path / "small", end=1.0)
    options = ["--data", tmp_path / "data", "--model", tmp_path / "small", "--lms", lm, "--noise", "white:5"]
    options += ["--beam", 4, "--noisy-beam", 3, "--max-unknown", 1]
    said = recipes.run("moonshine/run.sh", *options)
    exp = recipes.folder / "moonshine" / "exp"
    assert said.count(" utterances cut off\n") >= 6 and " in \n" not in said
    for condition in ("clean", "white-5dB"):
        for part in ("dev", "test", "seen"):
            own = rows(exp / condition / part / "recogniser.json")
            assert list(own) == ["single", "summed"] and own["summed"]["oracle_wer"] <= own["summed"]["wer"]
        for part in ("test", "seen"):
            found = rows(exp / condition / part / "lms.json")
            assert list(found) == ["summed", "+ words", "+ tiny", "+ all"]
            assert set(found["+ tiny"]["p_values"]) == {"summed", "+ words"}
        scales = json.loads((exp / condition / "tiny.json").read_text())
        assert scales["scales"]["ilm"] == 0.0 and "librispeech" in json.dumps(scales)
        whole = rows(exp / condition / "whole" / "lms.json")
        assert list(whole) == ["single", "summed", "no LM", "+ tiny", "+ all", "+ all, by errors"]
        words = [rows(exp / condition / part / "recogniser.json")["summed"]["words"] for part in ("dev", "test")]
        assert whole["summed"]["words"] > sum(words)  # those of the speakers of train, too
    lists = sorted(path.name for path in (exp / "decoded").glob("nbest-*"))
    assert len(lists) == 8 and not [name for name in lists if "part" in name]
    said = recipes.run("moonshine/run.sh", *options, "--stop-stage", 1)
    assert said.count("already done") == 4 + 8 + 1, said

    (tmp_path / "small").rename(tmp_path / "another")
    options[options.index("--model") + 1] = tmp_path / "another"
    said = recipes.run("moonshine/run.sh", *options, "--stage", 1, "--stop-stage", 2)
    assert "already done" not in said and len(list((exp / "decoded").glob("nbest-*-another-*"))) == 8

    shutil.copytree(lm, tmp_path / "other")
    options[options.index("--lms") + 1] = f"{lm} {tmp_path / 'other'}"
    recipes.run("moonshine/run.sh", *options, "--noise", "", "--stage", 6)
    scales = json.loads((exp / "clean" / "whole" / "all.json").read_text())["scales"]
    assert {"tiny", "other"} <= scales.keys(), "scales of other LMs are tuned anew"


def test_what_is_missing_is_told(recipes: Recipes, tmp_path: Path) -> None:
    said = recipes.run("moonshine/run.sh", "--data", tmp_path, code=2)
    assert "librispeech/LibriSpeech is not there: give --data" in said
