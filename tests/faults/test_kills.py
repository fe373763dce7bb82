"""A few kills of some commands; `python -m tests.faults.kills` does many of all."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    "only",
    [
        "rescore nbest --nbest lists.jsonl --lm small --out",
        "rescore lattice rescore slf:lattices --ngram text.arpa --case upper --scale ngram=1 slf",
        "rescore train-ngram",
        "rescore merge n",
        "asr prepare out --cuts cuts.jsonl --fbank",
    ],
)
def test_a_killed_command_is_run_again_and_gives_the_same(only: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kills", "--kills", "4", "--only", only], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
