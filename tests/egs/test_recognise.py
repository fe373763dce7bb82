"""egs/pocketsphinx/local/recognise.py: what is wrong is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.egs.conftest import ROOT

pytest.importorskip("pocketsphinx")
soundfile = pytest.importorskip("soundfile")


def recognise(folder: Path, *options: object) -> tuple[int, str]:
    script = ROOT / "egs/pocketsphinx/local/recognise.py"
    given = ["--audio", folder, "--ref", folder / "text", "--out", folder / "out.txt", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.returncode, done.stderr


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("1-2-0000 A\n1-2-0001 B\n")
    code, said = recognise(tmp_path, "--jobs", 0)
    assert code == 2 and "0 is not in the range x>=1" in said
    recording = tmp_path / "1/2/1-2-0000.flac"
    recording.parent.mkdir(parents=True)
    recording.write_text("no FLAC")
    code, said = recognise(tmp_path)
    missing = f"of 2 utterances 1 have no recording, such as {tmp_path / '1/2/1-2-0001.flac'}"
    assert (code, said) == (2, f"recognise.py: {tmp_path / 'text'}: {missing}\n")
    (tmp_path / "text").write_text("1-2-0000 A\n")
    code, said = recognise(tmp_path, "--jobs", 1)
    assert code == 2 and said.splitlines()[-1].startswith(f"recognise.py: {recording}: cannot be read (")
    soundfile.write(recording, [0.0] * 100, 8000)
    code, said = recognise(tmp_path, "--jobs", 1)
    assert code == 2 and said.splitlines()[-1].endswith("8000 Hz, channels: 1; expected 16000 Hz and one channel")
    (tmp_path / "text").write_text("")
    code, said = recognise(tmp_path)
    assert code == 2 and said.count("\n") == 1 and "Traceback" not in said and str(tmp_path / "text") in said
