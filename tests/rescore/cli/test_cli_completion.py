"""What bash is told to complete, as its script asks."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rescore.cli.main import cli


@pytest.mark.parametrize(
    "words, found",
    [
        ("rescore tu", ["plain,tune"]),
        ("rescore nbest --lm transfo", ["plain,transfornn", "dir,transfo"]),
        ("rescore train-lm baye", ["plain,bayesian"]),
        ("rescore wer --ref x --hyp kald", ["plain,kaldi:", "plain,kaldi-lat:", "file,kald"]),
        ("rescore lattice info op", ["plain,openfst:", "file,op"]),
        ("rescore lattice convert x sl", ["plain,slf:", "file,sl"]),
        ("rescore nbest --dtype b", ["plain,bfloat16"]),
        ("rescore compare --utt", ["plain,--utterances"]),
    ],
)
def test_completion(words: str, found: list[str]) -> None:
    environment = {"_RESCORE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    result = CliRunner().invoke(cli, prog_name="rescore", env=environment)
    assert set(found) <= set(result.stdout.splitlines()), result.output
