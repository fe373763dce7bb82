"""`rescore compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rescore.cli.normalise import cer_option, normalise_option
from rescore.cli.once import Once
from rescore.cli.results import json_option
from rescore.cli.utterances import utterances_option

if TYPE_CHECKING:
    from rescore.types import Words
    from rescore.workflows.compare import Comparison, System


@click.command()
@click.option(
    "--ref",
    cls=Once,
    required=True,
    type=click.Path(path_type=Path),
    help="References: Kaldi text, recogs, lists, manifests of NeMo or lhotse.",
)
@click.option("--against", multiple=True, metavar="NAME", help="p-values against this system too; may be repeated.")
@json_option
@click.option("--markdown", "form", cls=Once, flag_value="markdown", help="Print the table as Markdown.")
@click.option("--latex", "form", cls=Once, flag_value="latex", help="Print it as LaTeX (booktabs).")
@click.option("--csv", "form", cls=Once, flag_value="csv", help="Print it as CSV.")
@cer_option
@click.option("--tail", type=click.Path(path_type=Path), help="Error rates on rare words too: counts of rescore count.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the bootstrap.")
@click.option(
    "--samples", type=click.IntRange(min=1), default=10_000, show_default=True, help="Samples of the bootstrap."
)
@normalise_option
@utterances_option
@click.argument("systems", nargs=-1, required=True, metavar="NAME=HYP...")
def command(
    ref: Path,
    against: tuple[str, ...],
    json_file: Path | None,
    form: str | None,
    cer: bool,
    tail: Path | None,
    seed: int,
    samples: int,
    normalise: str | None,
    common: bool,
    systems: tuple[str, ...],
) -> None:
    """A table of systems: WER, 95 % interval, change and significance (MAPSSWE) against the first, oracle.

    HYP is a file of Kaldi text, icefall's recogs, a NeMo manifest (pred_text), N-best lists as FORMAT:PATH, or a folder
    of `rescore nbest` or `rescore combine` (its nbest.jsonl.gz, or else scores.jsonl.gz).  The first hypothesis of a
    list counts; lists have an oracle WER too.
    --tail adds error rates on tail words (Tail-1) and tail bigrams (Tail-2), or with --cer on tail characters; see
    rescore wer -h.
    The last line is a signature: normaliser, references, seed, significance test, version; to be quoted with figures.
    Without --normalise, references and all systems are normalised as a folder of rescore combine says that it was.

    \b
    Example: rescore compare --ref data/test/text first=exp/first.txt rescored=exp/test/best --against first
    """
    from rescore.cli.results import show
    from rescore.files import read_kaldi_text
    from rescore.workflows.compare import compare_with, parse_system, read_system, to_json
    from rescore.workflows.compare_forms import signature
    from rescore.workflows.normalising import normaliser_of_systems

    named = [parse_system(option) for option in systems]
    normaliser = normaliser_of_systems(dict(named), normalise, cer)

    def loaded(refs: Mapping[str, Words]) -> list[System]:
        return [read_system(name, spec, refs, normaliser) for name, spec in named]

    texts = read_kaldi_text(ref)
    comparison = compare_with(texts, ref, normaliser, loaded, against, seed, samples, tail, common)
    comparison.how["signature"] = signature(comparison)
    show(to_json(comparison), _lines(comparison, form), json_file)


def _lines(comparison: Comparison, form: str | None) -> list[str]:
    from rescore.tables import width
    from rescore.workflows.compare import comparison_lines, to_markdown
    from rescore.workflows.compare_forms import signature, to_csv, to_latex

    if form in ("latex", "csv"):
        return (to_latex(comparison) if form == "latex" else to_csv(comparison)).splitlines()
    if form == "markdown":
        return [to_markdown(comparison), f"`{signature(comparison)}`"]
    return [*comparison_lines(comparison, width()), signature(comparison)]
