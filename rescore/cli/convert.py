"""`rescore convert`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from rescore.cli.completion import formats
from rescore.cli.device import max_unknown_option, text_view_option
from rescore.cli.numbers import POSITIVE
from rescore.cli.on_error import on_error_option
from rescore.cli.once import Once
from rescore.cli.outputs import OutputSpec
from rescore.cli.sharing import sharing_options
from rescore.cli.words import words_options

if TYPE_CHECKING:
    from rescore.sharing.shares import Sharing
    from rescore.skipping import OnError
    from rescore.text import TextNormalizer


@click.command()
@click.argument("source", metavar="SRC", shell_complete=formats)
@click.argument("target", metavar="DST", type=OutputSpec())
@click.option("-n", type=click.IntRange(min=1), help="Hypotheses an utterance; default: 100 of lattices, else all.")
@click.option(
    "--ngram", cls=Once, metavar="FILE|NAME", help="n-gram LM (ARPA, KenLM binary, shipped) to score lattices with."
)
@click.option("--scale", "scales", multiple=True, metavar="NAME=VALUE", help="Scale of a score of lattices; repeat it.")
@click.option(
    "--beam",
    type=POSITIVE,
    help="Search so far below the best path after the n-gram pass; the lists are the same.",
)
@words_options()
@click.option(
    "--pieces", is_flag=True, help="Words of SRC, N-best lists, are sentencepiece pieces: join them to words."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes for lattices; default: the number of cores.")
@max_unknown_option
@text_view_option
@on_error_option("A list or lattice")
@sharing_options
def command(
    source: str,
    target: str,
    n: int | None,
    ngram: str | None,
    scales: tuple[str, ...],
    beam: float | None,
    normalizer: TextNormalizer,
    pieces: bool,
    jobs: int | None,
    max_unknown: float,
    text_view: str,
    on_error: OnError,
    sharing: Sharing,
) -> None:
    """Write N-best lists or lattices in another format, or take exact N-best lists from lattices.

    SRC and DST are PATH or FORMAT:PATH.  Words are normalised on the way, if asked for; of hypotheses that become equal
    the first stays.  From lattices to N-best lists, the N best
    different word sequences are written; with --ngram, that LM scores the whole lattice before (its score is `ngram`).
    Scales not given: am=1, ngram=10 or else lm=10 (Kaldi: graph=10) where lattices have it, words=0 (the reward for
    each word).  --beam leaves arcs out of the search whose best path is further below the best total, and is widened
    where fewer than N paths are left: a search may take less time, the lists are the same.

    \b
    Example: rescore convert espnet:exp/decode lists.jsonl.gz --case upper --drop '[noise]' --drop '[laughter]'
    Example: rescore convert lattices/ lists.jsonl.gz -n 100 --ngram 4gram.bin --scale ngram=8 --scale words=-10
    Example: rescore convert kaldi:exp/decode?words=words.txt slf:exp/htk
    """
    from rescore.weights import parse_scales
    from rescore.workflows.convert import ConvertRequest, convert

    normalizer, exact = replace(normalizer, pieces=pieces), text_view == "exact"
    given = parse_scales(scales)
    convert(
        ConvertRequest(source, target, normalizer, n, ngram, given, beam, max_unknown, exact), jobs, on_error, sharing
    )
