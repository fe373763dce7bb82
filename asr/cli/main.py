"""The command `asr`: a table of subcommands, each in its own module and imported only when it is called."""

from __future__ import annotations

import click

from rescore import __version__
from rescore.cli.lazy import LazyGroup, offline_option

COMMANDS = {
    "transcribe": "words of audio files, at once or streaming",
    "decode": "decode a set of cuts to words, N-best lists and lattices, with icefall's result files",
    "merge": "put the shares of a decoding by several machines together",
    "train": "train an RNN-T (icefall's arguments)",
    "average": "average checkpoints into a model folder",
    "prepare": "manifests, features and tokens of a corpus",
    "add-noise": "a set of cuts under white noise or babble",
    "synthesise": "synthetic speech of a text, as a lhotse manifest",
    "info": "parameters of a configuration or model, by part",
}

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=LazyGroup, package="asr.cli", table=COMMANDS, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="asr")
@click.option("--quiet", is_flag=True, help="No progress and no remarks; results and errors only.")
@offline_option
@click.pass_context
def cli(ctx: click.Context, quiet: bool) -> None:
    """Recognise speech with an RNN-T whose encoder is an S4former.

    Example: asr transcribe speech.wav
    """
    from rescore.console import quietly

    ctx.with_resource(quietly(quiet))  # until the command has ended: a caller from Python keeps its remarks


def main() -> None:
    """Entry point."""
    from rescore.cli.door import run

    run("asr", cli)


if __name__ == "__main__":  # for torchrun -m asr.cli.main
    main()
