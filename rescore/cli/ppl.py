"""`rescore ppl`: perplexity of LMs and of their interpolation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rescore.cli.device import device_option, lms_option, max_unknown_option, text_view_option
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.results import is_alone, json_option
from rescore.cli.sharing import sharing_options

if TYPE_CHECKING:
    from rescore.sharing.shares import Sharing


@click.command()
@lms_option("An LM, by name or model folder; may be repeated.")
@click.option("--ngram", cls=Once, metavar="FILE|NAME", help="An n-gram LM (ARPA or KenLM binary).")
@click.option(
    "--text", cls=Once, required=True, help="Text, one sentence a line (.gz, .xz); kaldi:FILE drops utterance ids."
)
@click.option(
    "--tune-mix", cls=Once, metavar="TEXT", help="Find interpolation weights on this text by EM (never the test text)."
)
@click.option(
    "--mixture",
    "mixtures",
    multiple=True,
    metavar="COLUMN,COLUMN...",
    help="With --tune-mix: interpolate these LMs instead of all; may be repeated.",
)
@click.option("--mix", type=click.Path(path_type=Path), help="Use these interpolation weights.")
@click.option("--save-mix", type=OutputPath(), help="Write the weights found; rescore nbest --mix takes them.")
@click.option(
    "--window", type=click.IntRange(min=1), help="Score running text in windows of so many tokens instead of sentences."
)
@click.option(
    "--position",
    type=click.Choice(["all", "final", "carried", "recurrent"]),
    default="all",
    show_default=True,
    help="With --window: score every position, slide by one token and score the last, or go on in the state of the "
    "window before: carried, all of it (an LSTM's cells, a Transformer's keys and values), as with --train carry=true; "
    "recurrent, the LSTM layers alone, attention begins anew.",
)
@click.option("--tail", type=click.Path(path_type=Path), help="Perplexity on rare words too: counts of rescore count.")
@device_option
@max_unknown_option
@text_view_option
@json_option
@sharing_options
def command(
    lms: tuple[str, ...],
    ngram: str | None,
    text: str,
    tune_mix: str | None,
    mixtures: tuple[str, ...],
    mix: Path | None,
    save_mix: Path | None,
    window: int | None,
    position: str,
    tail: Path | None,
    device: str,
    max_unknown: float,
    text_view: str,
    json_file: Path | None,
    sharing: Sharing,
) -> None:
    """Perplexity a word (with and without words that the LM does not know) and a token, with the counts.

    With --tail, perplexity on the words of the tail (Tail-1) and on those that end a tail bigram (Tail-2) too, without
    sentence ends.  The tail of the training text that was counted is all but the most frequent words or bigrams, which
    cover 95 % of it; those it does not have are in the tail.  Words are those that the LMs see (--text-view).

    \b
    Example: rescore ppl --lm transfornn --ngram 4gram.arpa --text test.txt --tune-mix dev.txt --save-mix mix.json
    Example: rescore ppl --lm lstm --lm transfornn --ngram 4gram.arpa --text test.txt --tune-mix dev.txt \\
               --mixture ngram,lstm --mixture ngram,transfornn
    Example: rescore ppl --lm transfornn --text test.txt --tail counts.txt.gz
    """
    from rescore.errors import UsageError
    from rescore.workflows.perplexity import measure

    if position != "all" and window is None:
        raise UsageError(f"--position {position} is of windows of running text: give --window N, as the LM was trained")
    exact = text_view == "exact"
    if not sharing.alone:
        from rescore.workflows.perplexity_shares import TextRequest, measure_shared

        if json_file is None or is_alone(json_file) or tune_mix or mixtures or save_mix or window:
            raise UsageError("a text that is shared out needs --json FILE, and takes no --tune-mix and no --window")
        request = TextRequest(lms, ngram, text, json_file, mix, tail, device, max_unknown, exact)
        measure_shared(request, sharing, show_merged)
        return
    windows = (window, position)
    rows = measure(lms, ngram, text, tune_mix, mix, save_mix, windows, tail, mixtures, device, max_unknown, exact)
    _show(rows, json_file)


def show_merged(folder: Path, json_file: Path | None = None) -> None:
    """Writes and prints the figures of the parts in a folder, which goes; `json_file` as of `show`."""
    from rescore.cli.results import show
    from rescore.sharing.parts import remove_parts, whole_plan
    from rescore.workflows.perplexity_shares import merged_rows

    target = Path(whole_plan(folder, "target")["target"])
    rows = merged_rows(folder)
    show(rows, [], target)
    _show(rows, json_file)
    remove_parts(folder)


def _show(rows: list[dict[str, Any]], json_file: Path | None) -> None:
    from rescore.cli.results import show
    from rescore.tables import width
    from rescore.workflows.perplexity import row_lines

    show(rows, row_lines(rows, width()), json_file)
