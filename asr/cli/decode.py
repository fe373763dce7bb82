"""`asr decode`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from asr.cli.pipes import pipes_option
from asr.decoding.options import LATTICE_FORMATS, LM_SCALE, METHODS, DecodeOptions, DecodeRun
from rescore.cli.device import text_view_option
from rescore.cli.normalise import normalise_option
from rescore.cli.numbers import NUMBER, POSITIVE, Number
from rescore.cli.results import is_alone, json_option
from rescore.cli.sharing import sharing_options
from rescore.console import remark
from rescore.errors import UsageError

if TYPE_CHECKING:
    from rescore.sharing.shares import Sharing

PATH = click.Path(path_type=Path)
COUNT = click.IntRange(1)
CHECKPOINTS = {"exp_dir": "--exp-dir", "epoch": "--epoch", "iteration": "--iter", "avg": "--avg"}
CHECKPOINTS |= {"use_averaged_model": "--use-averaged-model"}


def setting(of: type, name: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option `--NAME` with the default that the class `of` states."""
    return click.option(f"--{name}", default=getattr(of, name.replace("-", "_")), show_default=True, **more)


def one_model(context: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The options without those that belong to another model than the one that is meant: --model, or checkpoints.

    What the command line has stands above what a recipe's YAML file has.  The file may name a model and a run; the
    model is meant where there is neither an epoch nor a batch.  The file's folder of results is that of its own run:
    the names of results tell epochs, not runs, so that another run's would take their place.

    Raises:
      UsageError: the command line asks for both.
    """
    given = [name for name in values if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    chosen = [option for name, option in CHECKPOINTS.items() if name in given]
    if "folder" in given and chosen:
        raise UsageError(
            "give either --model FOLDER or --exp-dir FOLDER with --epoch (or --iter) and --avg; "
            f"found --model and {', '.join(chosen)}"
        )
    numbers, drop = {"epoch", "iteration"}, set[str]()
    if "folder" in given:
        drop = set(CHECKPOINTS)
    elif chosen:
        drop = {"folder", *(numbers.difference(given) if numbers.intersection(given) else ())}
    elif values["folder"] is not None and values["epoch"] is None and values["iteration"] is None:
        drop = set(CHECKPOINTS)
    of_file = (context.default_map or {}).get("exp_dir")
    if "exp_dir" in given and "out" not in given and str(values["exp_dir"]) != str(of_file):
        drop.add("out")
    return {name: value for name, value in values.items() if name not in drop}


def check_scales(context: click.Context, values: dict[str, Any]) -> None:
    """Raises UsageError for the scale, on the command line, of an LM that is not there."""
    for name, lm in (("lodr_scale", "lodr"), ("ngram_lm_scale", "lang_dir")):
        if values[lm] is None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option, other = (f"--{found.replace('_', '-')}" for found in (name, lm))
            raise UsageError(f"{option} is of the LM that {other} names, found no {other}")


def remark_unused(context: click.Context, options: DecodeOptions) -> None:
    """Says which settings on the command line the search does not read; scripts give those of all methods at once."""
    names = [item.name for item in fields(options) if item.name not in options.used]
    given = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        remark(f"{options.method} does not use {', '.join('--' + name.replace('_', '-') for name in given)}")


def sets_of(cuts: tuple[Path, ...], folder: Path | None) -> tuple[Path, ...]:
    """The manifests to decode: CUTS, or the test sets of LibriSpeech in --manifest-dir.

    Raises:
      UsageError: both or neither.  DataError: no test set there.
    """
    from asr.dataset.librispeech import TEST, cuts_there

    if bool(cuts) == (folder is not None):
        raise UsageError("give either CUTS or --manifest-dir FOLDER with LibriSpeech's test sets")
    return cuts if folder is None else cuts_there(folder, TEST)


@click.command()
@click.argument("cuts", nargs=-1, metavar="CUTS...", type=PATH)
@click.option("--manifest-dir", type=PATH, help="icefall's: LibriSpeech's test sets in this folder, instead of CUTS.")
@click.option("--bpe-model", type=PATH, help="icefall's: must be the model's own tokens, which it carries.")
@click.option(
    "--model",
    "folder",
    type=PATH,
    help="Model folder, shipped model or moonshine; or give --exp-dir and --epoch (or --iter).",
)
@click.option("--exp-dir", type=PATH, help="Folder of a training run.")
@click.option("--epoch", type=int, help="Last epoch to average.")
@click.option("--iter", "iteration", type=int, help="Last checkpoint-B.pt to average.")
@setting(DecodeRun, "avg", help="Checkpoints to average.")
@setting(DecodeRun, "use-averaged-model", type=bool, help="Average over all batches.")
@click.option("--out", type=PATH, help="Folder of the results; METHOD in the exp-dir or own model folder if left out.")
@click.option(
    "--decoding-method", "method", type=click.Choice(METHODS), default=DecodeOptions.method, show_default=True
)
@setting(DecodeOptions, "beam-size", type=COUNT, help="Of modified_beam_search and label_sync_beam_search.")
@setting(
    DecodeOptions,
    "length-norm",
    type=bool,
    help="Of modified_beam_search: the best has the largest total score for each of its tokens, as icefall chooses.",
)
@setting(DecodeOptions, "beam", type=POSITIVE, help="Of fast_beam_search, ctc-decoding and lattices (natural logs).")
@setting(DecodeOptions, "max-contexts", type=COUNT, help="Of the same, a frame.")
@setting(DecodeOptions, "max-states", type=COUNT, help="Of fast_beam_search.")
@setting(DecodeOptions, "num-paths", type=COUNT, help="N of lattices' N-best.")
@setting(DecodeOptions, "nbest-scale", type=POSITIVE, help="Of scores while paths of like words are summed.")
@click.option(
    "--lattices", type=click.Choice(LATTICE_FORMATS), help="Write word lattices too, in this format; see above."
)
@setting(DecodeOptions, "lattice-beam", type=Number(min=0), help="Keep paths so much below the best.")
@click.option("--lm", "lms", multiple=True, metavar="[NAME=]LM", help="An LM in the beam search; may be repeated.")
@click.option(
    "--lm-scale", "lm_scales", multiple=True, type=NUMBER, help=f"Its scale, one for each --lm; {LM_SCALE} each."
)
@setting(
    DecodeRun,
    "ilme-scale",
    type=NUMBER,
    help="How much of the internal LM is subtracted; 0: N-best lists have its score, `ilm`, and nothing is subtracted.",
)
@click.option("--lodr", type=str, metavar="[NAME=]ARPA", help="A token n-gram of low order that is subtracted.")
@setting(DecodeRun, "lodr-scale", type=NUMBER, help="How much of it.")
@setting(DecodeRun, "word-reward", type=NUMBER, help="Added for each word; above 0 against deletions, which LMs cause.")
@text_view_option
@click.option(
    "--lang-dir",
    type=PATH,
    help="Folder with LG.pt and words.txt: the graph of fast_beam_search and fast_beam_search_nbest.",
)
@setting(DecodeOptions, "ngram-lm-scale", type=NUMBER, help="Of the scores of LG in the search, as icefall has it.")
@setting(DecodeRun, "max-duration", type=POSITIVE, help="Seconds of speech in a batch.")
@setting(DecodeRun, "max-seconds", type=POSITIVE, help="Longer cuts count as not recognised.")
@normalise_option
@pipes_option
@json_option
@setting(DecodeRun, "device", help="Such as cpu or cuda, for LMs too; encoder-decoders run on the CPU.")
@partial(sharing_options, merge="asr merge")
@click.pass_context
def command(context: click.Context, sharing: Sharing, **values: Any) -> None:
    """Decode cuts: icefall's recogs, errs and wer-summary files, N-best lists and lattices for `rescore`.

    The files are recogs-SET-SUFFIX.txt and so on, SET after the manifest's name. Without k2, or with an LSTM decoder,
    fast_beam_search is our own search with the same pruning.

    label_sync_beam_search compares hypotheses with the same number of tokens, by the probability that the transcript
    begins so. It sums over the alignments of the training's loss, those with several tokens at a frame too, which no
    other search has: without LMs its totals are minus that loss. It takes longer, needs whole utterances, and writes
    no lattices.

    ctc-decoding takes the CTC head alone (asr train --ctc-scale trains it): its 1-best has the best token of each
    frame, as icefall's; its lists and lattices have what --beam and --max-contexts leave of all others.

    N-best lists keep every score apart: `am` of the best alignment, `alignments`, what all others add to it in searches
    that sum (the beam searches and fast_beam_search_nbest), and that of every LM; the search's own total has am and
    alignments at scale 1. Lattices have `am` of the best alignment alone, and no LM: greedy_search and
    modified_beam_search write those of a fast_beam_search, with the 1-best as a path where it was not in them.
    With --lang-dir, lists and lattices have the scores of LG (of its LM G, above all) as `lm`, unscaled: `rescore tune`
    finds their scale beside those of other LMs; the search weighs them by --ngram-lm-scale.

    --model moonshine (extra `moonshine`), or the folder of another encoder-decoder in ONNX, gives written text. There
    --beam-size is the number of hypotheses that differ in their words, and --normalise says when they do [basic]; `am`
    is the log of the summed probability of all ways to write one, `ilm` that of the decoder alone, its internal LM.
    It needs --out, and goes on where it was killed. WERs are of normalised texts, lists hold them as written.
    Beside icefall's files, single-SET-SUFFIX.txt has the text of the most probable tokens of each utterance, and
    cut-off-SET-SUFFIX.txt names the utterances whose best hypothesis the limit of the length has ended.

    Exit status 3: some utterances could not be recognised; they are named, and count as recognised without a word.

    \b
    Example: asr decode --exp-dir exp --epoch 30 --avg 9 --use-averaged-model true --beam-size 8 \\
               --lm transfornn --lm-scale 0.4 --ilme-scale 0.2 data/cuts_test.jsonl.gz
    Example: asr decode --model small --lattices k2 --out exp/test cuts_test.jsonl.gz
    Example: asr decode --model moonshine --beam-size 32 --normalise librispeech --out exp/test cuts_test.jsonl.gz
    """
    from asr.decoding.run import run
    from asr.decoding.run_written import run_written
    from asr.decoding.shares import run_shared
    from asr.decoding.transcribe import find_model
    from asr.seq2seq.models import find_folder
    from rescore.cli.results import show
    from rescore.evaluation.wer import json_counts

    json_file = values.pop("json_file")
    values["cuts"] = sets_of(values["cuts"], values.pop("manifest_dir"))
    values = one_model(context, values)
    check_scales(context, values)
    search = {item.name: values.pop(item.name) for item in fields(DecodeOptions) if item.name != "lattices"}
    plan, options = DecodeRun(**values), DecodeOptions(lattices=values["lattices"] is not None, **search)
    remark_unused(context, options)
    folder = find_folder(str(plan.folder)) if plan.folder is not None else None
    if plan.folder is not None and folder is None and len(plan.folder.parts) == 1 and not plan.folder.exists():
        plan = replace(plan, folder=find_model(str(plan.folder)))
    say: Callable[[str], None] = (lambda line: None) if is_alone(json_file) else click.echo
    if not sharing.alone:
        found = run_shared(plan, options, folder, sharing, say)
    else:
        found = run(plan, options, say) if folder is None else run_written(plan, options, folder, say)
    show({name: None if counts is None else json_counts(counts) for name, counts in found.items()}, [], json_file)
