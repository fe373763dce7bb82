"""`rescore lattice rescore`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rescore.cli.device import device_option, dtype_option, lms_option, max_unknown_option, text_view_option
from rescore.cli.lattice.first_pass import find_scales, first_pass_options, keep_scales
from rescore.cli.lattice.source import source_options, words_for
from rescore.cli.numbers import Number
from rescore.cli.once import Once
from rescore.cli.outputs import OutputSpec
from rescore.cli.sharing import max_memory_option, max_seconds_option, sharing_options
from rescore.cli.words import words_options
from rescore.errors import UsageError

if TYPE_CHECKING:
    from rescore.sharing.shares import Sharing
    from rescore.skipping import OnError


def pass_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument `settings`, of the options that say how LMs go over lattices: those of a `LatticeRequest`."""

    @wraps(command)
    def with_settings(**arguments: Any) -> Any:
        names = ("context", "beam", "most", "ngram_beam", "in_flight", "max_unknown", "normalizer")
        given = {name: arguments.pop(name) for name in names}
        given["exact"] = arguments.pop("text_view") == "exact"
        if arguments.pop("exact"):
            source = click.get_current_context().get_parameter_source("context")
            if source is ParameterSource.COMMANDLINE:
                raise UsageError("--exact merges no histories; give it, or --context for those that are merged")
            given["context"] = None
        return command(**arguments, settings=given)

    options = (
        click.option(
            "--context",
            type=click.IntRange(min=0),
            default=3,
            show_default=True,
            help="Histories that share so many last words are merged.",
        ),
        click.option(
            "--exact", is_flag=True, help="Merge no histories, and no beam but those given: all scores are exact."
        ),
        click.option(
            "--beam",
            type=Number(min=0),
            help="Neural LMs: leave out histories that are estimated so much worse than the best one; the best may be "
            "lost.  [default: 6 times the scale of the lattices' own LM, or of the new ones]",
        ),
        click.option("--most", type=click.IntRange(min=1), help="Neural LMs: histories a state, at most."),
        click.option(
            "--ngram-beam",
            type=Number(min=0),
            help="Before the neural LMs: cut arcs whose best path is so much below the best one, and no others.  "
            "[default: 8 times that scale]",
        ),
        click.option(
            "--in-flight", type=click.IntRange(min=1), default=16, show_default=True, help="Lattices at a time."
        ),
        max_unknown_option,
        text_view_option,
        words_options(),
    )
    for option in reversed(options):
        with_settings = option(with_settings)
    return with_settings


@click.command()
@source_options
@click.argument("target", metavar="DST", type=OutputSpec())
@lms_option("A neural LM; may be repeated.")
@click.option(
    "--ngram", cls=Once, metavar="FILE|NAME", help="An n-gram LM over the whole lattice, exactly; score `ngram`."
)
@click.option(
    "--old-ngram", cls=Once, metavar="FILE|NAME", help="The LM that the lattices were made with; score `old-ngram`."
)
@click.option(
    "--weights", "weights_file", cls=Once, type=click.Path(path_type=Path), help="Weights written by rescore tune."
)
@click.option(
    "--scale",
    "scales",
    multiple=True,
    metavar="NAME=VALUE",
    help="Scale of a score; repeat it. Scores without one count 0 in the search (am, score: 1); --ref finds them.",
)
@first_pass_options
@pass_options
@dtype_option
@device_option
@click.option("-n", type=click.IntRange(min=1), help="Write the exact N best of each lattice, not lattices.")
@max_memory_option
@max_seconds_option
@sharing_options
def command(
    source: str,
    words: str | None,
    on_error: OnError,
    target: str,
    lms: tuple[str, ...],
    ngram: str | None,
    old_ngram: str | None,
    weights_file: Path | None,
    scales: tuple[str, ...],
    ref: Path | None,
    cer: bool,
    common: bool,
    settings: dict[str, Any],
    dtype: str,
    device: str,
    n: int | None,
    max_memory: int | None,
    sharing: Sharing,
) -> None:
    """Score whole lattices with LMs: every score is kept by name, states are split by LM histories.

    --ref, for a development set, finds the scales of the lattices' own scores first (Kaldi's LMWT and word insertion
    penalty); the new LMs share half of the LM's scale, or with --old-ngram all of it, where --scale says nothing.  What
    was used is printed, and written beside DST (dev.weights.json of slf:dev) for --weights.  Then: rescore tune.

    Beams are in units of the total score, and need scales that are about right.  --ngram-beam goes by all scores known
    before the neural LMs, whose scales are lent to `ngram`, and cuts exactly; --beam goes by estimates, and may lose
    the best path.  Take the old LM out of `graph` with its scale times -1, so that transitions and pronunciations stay:
    --scale graph=12 --scale old-ngram=-12.
    Kaldi's lattices have one graph cost: of DST it is the sum of all scores but am, the old LM's taken out of it;
    kaldi:DST?graph=graph,ngram,-old-ngram says otherwise.  --words serves SRC and DST.

    \b
    Example: rescore lattice rescore kaldi:exp/tri1/decode_dev slf:exp/dev --lm exp/lm --ref data/dev/text
    Example: rescore lattice rescore slf:lat slf:exp/lat --ngram 4gram.arpa --lm transfornn --scale ngram=3 \\
               --scale transfornn=7 --scale words=-7 --ngram-beam 80 --beam 60
    """
    from rescore.weights import OLD_NGRAM, decision_of, parse_scales
    from rescore.workflows.first_pass import ScaleSearch, given_scales, with_new_lms
    from rescore.workflows.lattice_rescore import LatticeRequest, check_there, new_scores, rescore_lattices, with_beams

    if n:
        (source,) = words_for(words, source)
    else:
        source, target = words_for(words, source, target)
    settings["asked"] = tuple(parse_scales(scales))
    weights = given_scales(weights_file, scales, ref, common, cer)
    decision_of(weights, weights_file)
    found = None
    if ref is not None:
        check_there(lms, ngram, old_ngram)
        new, old = new_scores(lms, ngram), OLD_NGRAM if old_ngram else None
        search = ScaleSearch(ref, weights.scales, [*new, *filter(None, [old])], common, cer, settings["normalizer"])
        found = find_scales(source, target, "nbest" if n else "lattice", search, on_error, sharing)
        found = weights = with_new_lms(found, weights.scales, new, old)
    settings = with_beams(settings, weights.scales, new_scores(lms, None))
    request = LatticeRequest(source, target, lms, ngram, old_ngram, weights, settings, n, dtype, device)
    rescore_lattices(request, on_error, sharing, max_memory)
    keep_scales(found, target)
