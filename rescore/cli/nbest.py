"""`rescore nbest`: score every hypothesis with every LM, keep the columns, combine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rescore.cli.completion import formats
from rescore.cli.device import device_option, dtype_option, lms_option, max_unknown_option, text_view_option
from rescore.cli.on_error import on_error_option
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import json_option
from rescore.cli.sharing import max_memory_option, max_seconds_option, sharing_options

if TYPE_CHECKING:
    from rescore.sharing.shares import Sharing
    from rescore.skipping import OnError


@click.command()
@click.option(
    "--nbest",
    "source",
    cls=Once,
    required=True,
    metavar="[FORMAT:]PATH",
    shell_complete=formats,
    help="N-best lists, or the lattices' N-best made by rescore convert.",
)
@lms_option("An LM by name or model folder, or hf:NAME|DIR, hf-mlm:NAME|DIR of Hugging Face; may be repeated.")
@click.option("--ngram", cls=Once, metavar="FILE|NAME", help="An n-gram LM (ARPA or KenLM binary), column `ngram`.")
@click.option(
    "--mix",
    cls=Once,
    type=click.Path(path_type=Path),
    help="Interpolation weights written by rescore ppl --save-mix: adds the column `mix`.",
)
@click.option(
    "--weights", "weights_file", cls=Once, type=click.Path(path_type=Path), help="Weights written by rescore tune."
)
@click.option("--scale", "scales", multiple=True, metavar="NAME=VALUE", help="Scale of one score; may be repeated.")
@click.option(
    "--context",
    metavar="N|all",
    callback=lambda ctx, param, value: _checked(value),
    help="LMs see the last N words (or all) that were said before an utterance in its recording: those of the best "
    "hypotheses by --weights or --scale, else of the first ones.",
)
@click.option(
    "--recording-of",
    metavar="REGEX",
    help="With --context: finds the recording in an utterance's id. Without it: the lists' own field `recording`, or "
    "the id up to the times or the number at its end.",
)
@click.option(
    "--recordings",
    type=click.Path(path_type=Path),
    help="With --context: the utterances' recordings and times: Kaldi's segments or utt2spk, or a lhotse manifest.",
)
@dtype_option
@device_option
@max_unknown_option
@text_view_option
@on_error_option("An utterance")
@click.option(
    "--reuse",
    is_flag=True,
    help="Keep the columns that --out has already of the same lists, LM and settings: LMs that are added are scored.",
)
@max_memory_option
@max_seconds_option
@sharing_options
@json_option
@click.option("--out", required=True, type=OutputPath(folder=True), help="Folder for scores, 1-best and N-best.")
def command(
    source: str,
    lms: tuple[str, ...],
    ngram: str | None,
    mix: Path | None,
    weights_file: Path | None,
    scales: tuple[str, ...],
    context: str | None,
    recording_of: str | None,
    recordings: Path | None,
    dtype: str,
    device: str,
    max_unknown: float,
    text_view: str,
    on_error: OnError,
    reuse: bool,
    max_memory: int | None,
    json_file: Path | None,
    out: Path,
    sharing: Sharing,
) -> None:
    """Score N-best lists with LMs and combine the scores.

    Writes scores.jsonl.gz (every score by name), 1best.txt (Kaldi text) and nbest.jsonl.gz (best first) to the
    folder.  Without --weights and --scale every score but `ilm` and `old-ngram` counts with scale 1: tune on a
    development set for better ones.

    Each LM sees written words in the form of its own text: in its case, without punctuation, numbers and titles in
    words.  What comes out keeps the form it came in.

    --executor shares the work out among processes, --split K/N does one share of it; the scores are the same.

    With --context, the utterances of a recording are scored one after another, in the order of their times or ids, and
    are written together.  Train LMs for it with --train join=128, so that they have seen text across sentences.

    \b
    Example: rescore nbest --nbest dev.jsonl.gz --lm transfornn --ngram 4gram.arpa --out exp/dev
    Example: rescore nbest --nbest test.jsonl.gz --lm exp/joined --context 100 --weights exp/weights.json \\
               --recordings data/test/segments --out exp/test
    """
    from rescore.cli.results import show
    from rescore.errors import UsageError
    from rescore.skipping import Skip
    from rescore.weights import given_weights
    from rescore.workflows.nbest import ContextOptions, Request, rescore_nbest

    if context is None and (recording_of or recordings):
        raise UsageError("--recording-of and --recordings are for --context N|all: add it, or leave them out")
    before = None
    if context is not None:
        before = ContextOptions(None if context == "all" else int(context), recording_of, recordings)
    exact, skip = text_view == "exact", isinstance(on_error, Skip)
    settings = dtype, device, max_unknown, exact
    request = Request(source, lms, out, ngram, mix, *settings, context=before, skip=skip, reuse=reuse)
    counts = rescore_nbest(request, given_weights(weights_file, scales), sharing, max_memory)
    show(asdict(counts), [], json_file)


def _checked(context: str | None) -> str | None:
    from rescore.files import whole_number

    if context is None or context == "all" or whole_number(context):
        return context
    raise click.BadParameter(f"found '{context}', expected a number of words, from 1, or all")
