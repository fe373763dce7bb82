"""`rescore kaldi`: the steps of N-best rescoring in Kaldi's files, for scripts in Kaldi's recipes."""

from __future__ import annotations

import click

from rescore.cli.lazy import LazyGroup

COMMANDS: dict[str, str] = {
    "archives": "lattices of a job to linear lattices and archives.JOB",
    "score": "costs of an LM for the hypotheses of archives.JOB",
    "lattices": "archives.JOB with new costs to lat.JOB.gz",
}


@click.group(cls=LazyGroup, package="rescore.cli.kaldi", table=COMMANDS)
def command() -> None:
    """Steps of Kaldi's lmrescore_nbest_pytorchnn.sh, with the same files; egs/kaldi has the script that calls them.

    Example: rescore kaldi score exp/decode_nn/archives.1 --lm exp/lstm --weight 0.8
    """
