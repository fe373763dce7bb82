"""`rescore wer`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rescore.cli.completion import formats
from rescore.cli.normalise import cer_option, normalise_option
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option
from rescore.cli.utterances import utterances_option

if TYPE_CHECKING:
    from rescore.evaluation.tail import Tail
    from rescore.evaluation.wer import ErrorCounts
    from rescore.types import Words


@click.command()
@click.option(
    "--ref",
    cls=Once,
    required=True,
    type=click.Path(path_type=Path),
    help="References: Kaldi text, recogs, lists, manifests of NeMo or lhotse.",
)
@click.option(
    "--hyp",
    cls=Once,
    required=True,
    metavar="[FORMAT:]PATH",
    shell_complete=formats,
    help="Hypotheses: Kaldi text, recogs, NeMo manifests (pred_text); or N-best lists, of which the first count.",
)
@cer_option
@click.option("--details", type=OutputPath(), help="Write alignments and confusions as icefall does.")
@click.option("--tail", type=click.Path(path_type=Path), help="Error rates on rare words too: counts of rescore count.")
@normalise_option
@utterances_option
@json_option
def command(
    ref: Path,
    hyp: str,
    cer: bool,
    details: Path | None,
    tail: Path | None,
    normalise: str | None,
    common: bool,
    json_file: Path | None,
) -> None:
    """Word error rate as Kaldi's compute-wer prints it; texts are Kaldi's, or icefall's recogs-SET-SUFFIX.txt.

    Of a folder of rescore combine, references and hypotheses are normalised as it says that they were, without
    --normalise.

    With --tail, the error rates on tail words (tail-1) and tail bigrams (tail-2) of a training text: all but the most
    frequent ones, which cover 95 % of that text; those it does not have are in the tail.  A tail word of the reference
    is wrong if it is deleted or substituted; an inserted word counts if it is a tail word itself.  With --cer, the
    counts are of characters (rescore count --characters).

    \b
    Example: rescore wer --ref data/test/text --hyp exp/test/1best.txt --details exp/test/errs.txt
    Example: rescore wer --ref data/test/text --hyp exp/test/1best.txt --tail counts.txt.gz
    Example: rescore wer --ref data/test/text --hyp exp/test/1best.txt --normalise librispeech
    """
    from rescore.cli.results import show
    from rescore.console import remark
    from rescore.evaluation.common import shared_references
    from rescore.evaluation.icefall_errs import write_errs
    from rescore.evaluation.tail import json_tails, tail_lines
    from rescore.evaluation.wer import corpus_errors, json_counts, kaldi_lines
    from rescore.files import read_kaldi_text
    from rescore.workflows.compare import read_hypotheses
    from rescore.workflows.normalising import KEY, normaliser_of_systems

    normaliser = normaliser_of_systems({"hyp": hyp}, normalise, cer)
    refs, hyps = normaliser.texts(read_kaldi_text(ref)), normaliser.texts(read_hypotheses(hyp))
    given, refs = len(refs), shared_references(refs, {"hypotheses": hyps}, common)
    absent = given - len(refs)
    hyps = {utt_id: words for utt_id, words in hyps.items() if utt_id in refs}
    name, counts = normaliser.rate, corpus_errors(refs, hyps)
    lines = kaldi_lines(counts, name, absent)
    if normaliser.name != "none":
        lines.append(f"text normalised by {normaliser.name}")
    data = {"name": name, **json_counts(counts), "absent": absent, KEY: normaliser.name}
    if tail:
        rare, on_tail = _on_tail(refs, hyps, tail, name)
        what = rare.describe(normaliser.cer)
        lines, data = [*lines, *tail_lines(on_tail, name)], {**data, **json_tails(on_tail), "tail": what}
        remark(what)
    show(data, lines, json_file)
    if details:
        write_errs(details, refs, hyps)
        remark(f"details: {details}")


def _on_tail(refs: dict[str, Words], hyps: dict[str, Words], path: Path, name: str) -> tuple[Tail, list[ErrorCounts]]:
    from rescore.evaluation.tail import corpus_tail_errors, load_tail
    from rescore.workflows.normalising import CER

    tail = load_tail(path)
    if name == CER:
        tail.check_characters()
    return tail, corpus_tail_errors(refs, hyps, tail)
