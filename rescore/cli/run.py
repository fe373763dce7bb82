"""`rescore run`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from rescore.cli.device import device_option, dtype_option, max_unknown_option
from rescore.cli.normalise import normalise_option
from rescore.cli.outputs import OutputPath
from rescore.cli.utterances import utterances_option


@click.command()
@click.option("--dev", required=True, metavar="[FORMAT:]PATH", help="N-best lists or lattices to tune on.")
@click.option(
    "--test", required=True, metavar="[FORMAT:]PATH", help="Lists or lattices of other utterances to report on."
)
@click.option(
    "--ref",
    "refs",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    help="References of both, Kaldi text; may be repeated.",
)
@click.option("--ngram", metavar="FILE|NAME", help="An n-gram LM for all systems, column `ngram`.")
@click.option(
    "--lm", "lms", required=True, multiple=True, metavar="[COLUMN=]NAME|DIR", help="An LM to try; may be repeated."
)
@click.option("-n", type=click.IntRange(min=1), default=100, show_default=True, help="Hypotheses of a lattice.")
@dtype_option
@device_option
@max_unknown_option
@normalise_option
@utterances_option
@click.option("--seed", default=0, show_default=True, help="Seed of tuning and of the bootstrap.")
@click.option("--out", required=True, type=OutputPath(folder=True), help="Folder for everything.")
def command(
    dev: str,
    test: str,
    refs: tuple[Path, ...],
    ngram: str | None,
    lms: tuple[str, ...],
    n: int,
    dtype: str,
    device: str,
    max_unknown: float,
    normalise: str | None,
    common: bool,
    seed: int,
    out: Path,
) -> None:
    """From lists or lattices to a report on what LMs change: scores, tunes, combines, compares.

    Systems: `first-pass` (the lists as they come), `tuned` (the recogniser's own scores with tuned scales), `ngram`,
    each LM (with the n-gram, if there is one), and `all` LMs together.  Scales are tuned on dev alone; the system with
    the lowest cross-validated WER on dev is the one that is decided for.  References, utterance ids, letter cases,
    words tables and LMs are checked before anything is computed.  Each step is a command, which is printed; when the
    same run is started again, steps whose input is the same are not done again.

    \b
    Example: rescore run --dev dev.jsonl.gz --test test.jsonl.gz --ref text --lm transfornn --out exp/run
    Example: rescore run --dev slf:lat/dev --test slf:lat/test --ref dev.txt --ref test.txt \\
               --ngram 4gram.arpa --lm transfornn --lm lstm --out exp/run
    """
    from rescore.workflows.run import Run, execute

    def step(arguments: list[str]) -> None:
        from rescore.cli.main import cli

        click.echo(f"$ rescore {shlex.join(arguments)}")
        cli.main(["--quiet", *arguments] if is_quiet() else arguments, prog_name="rescore", standalone_mode=False)

    from rescore.console import is_quiet

    run = Run(dev, test, refs, ngram, lms, n, dtype, device, max_unknown, normalise, seed, out, common)
    chosen = execute(run, step)
    click.echo(chosen)
