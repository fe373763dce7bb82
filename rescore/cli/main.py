"""The command `rescore`: a table of subcommands, each in its own module and imported only when it is called."""

from __future__ import annotations

import click

from rescore import __version__
from rescore.cli.lazy import LazyGroup, offline_option

COMMANDS = {
    "sample": "N-best lists and references to try the commands on",
    "run": "the whole of it: score, tune, combine, compare, report",
    "report": "a page for a browser on what a run changed",
    "nbest": "score every hypothesis of N-best lists with LMs and combine the scores",
    "tune": "find the scales that minimise WER on a development set",
    "combine": "apply weights to saved scores: new 1-best and N-best",
    "merge": "put the shares of a scoring by several machines together",
    "wer": "word error rate as Kaldi and icefall print it",
    "compare": "a table of systems: WER, intervals, significance, oracle",
    "ppl": "perplexity of LMs and of their interpolation on text",
    "count": "count the words and bigrams of a training text, for --tail",
    "transcripts": "plain text for LMs from transcripts of Switchboard, Fisher, NIST STM, CHAT",
    "convert": "N-best lists and lattices from one format to another",
    "lattice": "inspect, cut, rescore and write lattices",
    "kaldi": "N-best rescoring in Kaldi's files",
    "lms": "the LMs of the zoo",
    "train-lm": "train a neural LM of the zoo",
    "curves": "training runs in one picture: perplexity against passes, tokens, core-hours",
    "push-lm": "bring a trained LM to the hub of Hugging Face",
    "convert-lm": "turn a trained LM into one of another kind (Bayesian, lookup)",
    "import-lm": "turn an LM checkpoint of icefall or Kaldi into a model folder",
    "export-lm": "write an LM as a checkpoint for icefall",
    "icefall-decode": "run icefall's decode.py with LMs of the zoo, or keep its lattices",
    "train-ngram": "estimate a modified Kneser-Ney n-gram LM, write ARPA",
}

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=LazyGroup, package="rescore.cli", table=COMMANDS, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="rescore")
@click.option("--quiet", is_flag=True, help="No progress and no remarks; results and errors only.")
@offline_option
@click.pass_context
def cli(ctx: click.Context, quiet: bool) -> None:
    """Rescore N-best lists and lattices with language models.

    Example: rescore nbest --nbest lists.jsonl.gz --lm transfornn --out exp/scores
    """
    from rescore.console import quietly

    ctx.with_resource(quietly(quiet))  # until the command has ended: a caller from Python keeps its remarks


def main() -> None:
    """Entry point."""
    from rescore.cli.door import run

    run("rescore", cli)


if __name__ == "__main__":  # for torchrun -m rescore.cli.main
    main()
