"""What is left to those who need it: commands, n-grams and formats are there without seconds of heavy packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("package", ["rescore", "asr"])
def test_the_command_line_loads_no_heavy_package(package: str) -> None:
    """Help and argument checks are quick: importing every command loads neither torch nor an LM's packages."""
    program = (
        "import importlib, sys\n"
        f"from {package}.cli.main import COMMANDS\n"
        f"for name in COMMANDS: importlib.import_module('{package}.cli.' + name.replace('-', '_'))\n"
        "print(*sorted({module.split('.')[0] for module in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "kenlm", "k2", "lhotse", "sentencepiece", "scipy", "kaldialign", "transformers"}
    assert heavy.intersection(done.stdout.split()) == set()


def test_torch_is_left_to_neural_lms() -> None:
    """A worker that is begun, n-grams, formats, and what needs no LM at all are there without seconds of torch.

    Nor could a worker else be told its share of the threads, which torch reads when it is imported.
    """
    modules = ["rescore.sharing.shares", "lm_zoo.base", "lm_zoo.hub", "lm_zoo.registry", "lm_zoo.ngram.kenlm_lm"]
    work = ["convert", "kaldi_nbest", "lattice_nbest", "lattice_rescore", "merge", "nbest", "perplexity", "run"]
    modules += [f"rescore.workflows.{name}" for name in [*work, "report.write", "scoring", "streams"]]
    modules += [f"rescore.formats.{file.stem}" for file in (ROOT / "rescore/formats").glob("[a-z]*.py")]
    program = f"import sys, {', '.join(modules)}\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)


def test_ngrams_are_asked_without_torch(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("A B C\nB C\n")
    (tmp_path / "lists.jsonl").write_text('{"utt_id": "u", "hyps": [{"words": "A B", "scores": {"am": -1.0}}]}\n')
    mix = "ppl --ngram 2.arpa --lm b=2.arpa --text text --tune-mix text --save-mix mix.json"
    nbest = "nbest --nbest lists.jsonl --ngram 2.arpa --lm b=2.arpa --mix mix.json --out scored"
    count = "train-ngram --text text --order 2 --discount-fallback --out 2.arpa"
    program = (
        "import sys\nfrom rescore.cli.main import cli\n"
        f"for line in {[count, mix, nbest, 'lms']}: cli(line.split(), standalone_mode=False)\n"
        "import rescore as rs\nrs.read_lattices, rs.score(rs.read_nbest('lists.jsonl'), '2.arpa')\n"
        "assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, env=environment)


def test_old_names_that_the_documentation_showed() -> None:
    program = (
        "from lm_zoo.icefall_scorer import LmScorer, ZooLM\nfrom lm_zoo.ngram import NgramLM\n"
        "from rescore.k2_rescoring import rescore_with_ngram\nprint(LmScorer, ZooLM, NgramLM, rescore_with_ngram)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)
