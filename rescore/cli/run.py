"""`rescore run`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from rescore.cli.completion import formats
from rescore.cli.device import device_option, dtype_option, lms_option, max_unknown_option
from rescore.cli.normalise import cer_option, normalise_option
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option
from rescore.cli.utterances import utterances_option


@click.command()
@click.option(
    "--dev",
    cls=Once,
    required=True,
    metavar="[FORMAT:]PATH",
    shell_complete=formats,
    help="N-best lists or lattices to tune on.",
)
@click.option(
    "--test",
    cls=Once,
    required=True,
    metavar="[FORMAT:]PATH",
    shell_complete=formats,
    help="Lists or lattices of other utterances to report on.",
)
@click.option(
    "--ref",
    "refs",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    help="References of both: Kaldi text, recogs, lists, manifests of NeMo or lhotse; may be repeated.",
)
@click.option("--ngram", cls=Once, metavar="FILE|NAME", help="An n-gram LM for all systems, column `ngram`.")
@lms_option("An LM to try; may be repeated.", required=True)
@click.option(
    "-n",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Hypotheses of a lattice, the best with an LM scale of 10 (others: lists of rescore lattice nbest --ref).",
)
@dtype_option
@device_option
@max_unknown_option
@cer_option
@normalise_option
@utterances_option
@json_option
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of tuning and of the bootstrap."
)
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
    cer: bool,
    normalise: str | None,
    common: bool,
    seed: int,
    json_file: Path | None,
    out: Path,
) -> None:
    """From lists or lattices to a report on what LMs change: scores, tunes, combines, compares.

    Systems: `first-pass` (the lists as they come), `tuned` (the recogniser's own scores with tuned scales), `ngram`,
    each LM (with the n-gram, if there is one), and `all` LMs together.  Scales are tuned on dev alone; the system with
    the lowest cross-validated error rate on dev is the one that is decided for.  References, utterance ids, letter
    cases, words tables and LMs are checked before anything is computed.  Each step is a command, which is printed; when
    the same run is started again, steps whose input is the same are not done again; scores of an LM are kept where
    another is added or left out.

    \b
    Example: rescore run --dev dev.jsonl.gz --test test.jsonl.gz --ref text --lm transfornn --out exp/run
    Example: rescore run --dev slf:lat/dev --test slf:lat/test --ref dev.txt --ref test.txt \\
               --ngram 4gram.arpa --lm transfornn --lm lstm --out exp/run
    """
    from contextlib import nullcontext, redirect_stdout

    from lm_zoo.reading import read_json
    from rescore.cli.results import is_alone, show
    from rescore.console import is_quiet
    from rescore.workflows.run import RUN_FILE, TABLE_FILE, Run, execute

    def step(arguments: list[str]) -> None:
        from rescore.cli.main import cli

        click.echo(f"$ rescore {shlex.join(arguments)}")
        cli.main(["--quiet", *arguments] if is_quiet() else arguments, prog_name="rescore", standalone_mode=False)

    run = Run(dev, test, refs, ngram, lms, n, dtype, device, max_unknown, normalise, seed, out, common, cer)
    with redirect_stdout(sys.stderr) if is_alone(json_file) else nullcontext():  # the steps print, too
        chosen = execute(run, step)
    made, table = (read_json(out / name) for name in (RUN_FILE, TABLE_FILE))
    show({**made, "table": table}, [chosen], json_file)
