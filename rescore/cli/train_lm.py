"""`rescore train-lm`: train a neural LM of the zoo from text to a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from rescore.cli.completion import formats, kinds, lm_names
from rescore.cli.kinds import NeuralKind, TrainingCommand
from rescore.cli.once import Once
from rescore.cli.outputs import OutputPath
from rescore.cli.processes import process_options
from rescore.cli.settings import parse_settings
from rescore.cli.utterances import utterances_option

if TYPE_CHECKING:
    from lm_zoo.training.mwer import TrainingLists


@click.command(cls=TrainingCommand)
@click.argument("kind", type=NeuralKind(), shell_complete=kinds)
@click.option(
    "--text",
    "texts",
    multiple=True,
    help="Training text, one sentence a line; kaldi:FILE drops utterance ids. May be repeated.",
)
@click.option("--valid", cls=Once, required=True, help="Validation text; with --nbest: N-best lists.")
@click.option("--out", required=True, type=OutputPath(folder=True), help="Folder of the run and of the model.")
@click.option(
    "--tokens",
    type=click.Choice(["bpe", "unigram", "word"]),
    help="Of a new vocabulary: pieces (bpe if left out) or whole words.",
)
@click.option(
    "--vocab-size",
    type=click.IntRange(min=3),
    help="Tokens of the vocabulary; if left out 5000 pieces, or with --tokens word all words.",
)
@click.option(
    "--vocab",
    help="Take the vocabulary of this LM (name or folder) instead of building one, or this list of words "
    "(words.txt too), or the pieces of this recogniser (bpe.model).",
)
@click.option(
    "--init",
    metavar="[COLUMN=]NAME|DIR",
    shell_complete=lm_names,
    help="Start from the weights, settings and vocabulary of this trained LM; COLUMN names its score, for --nbest.",
)
@click.option(
    "--nbest",
    cls=Once,
    metavar="[FORMAT:]PATH",
    shell_complete=formats,
    help="Train on these N-best lists instead, for few expected errors; --text may be given beside them.",
)
@click.option(
    "--ref",
    cls=Once,
    type=click.Path(path_type=Path),
    help="With --nbest: references of all lists: Kaldi text, recogs, lists, manifests of NeMo or lhotse.",
)
@click.option(
    "--weights",
    "weights_file",
    cls=Once,
    type=click.Path(path_type=Path),
    help="With --nbest: the scales of the other scores and of the LM, as written by rescore tune.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the model, e.g. dim=512.")
@click.option(
    "--train",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the training, e.g. lr=0.002, steps=5000, dtype=bfloat16.",
)
@click.option(
    "--longest",
    default=256,
    show_default=True,
    type=click.IntRange(min=1),
    help="Cut sentences of more tokens into pieces (not with --train text=windows).",
)
@utterances_option
@process_options
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda|cuda:N", help="Where to train.")
def command(
    kind: str,
    texts: tuple[str, ...],
    valid: str,
    out: Path,
    tokens: str | None,
    vocab_size: int | None,
    vocab: str | None,
    init: str | None,
    nbest: str | None,
    ref: Path | None,
    weights_file: Path | None,
    settings: tuple[str, ...],
    options: tuple[str, ...],
    longest: int,
    common: bool,
    world_size: int,
    master_port: int,
    device: str,
) -> None:
    """Train an LM of KIND and write its folder; run it again to continue after a stop.

    With --nbest, the LM of --init is trained to leave few errors in the lists: the expected errors under the posteriors
    of the hypotheses are minimised.  --train posterior=0.1 makes the posteriors flatter, --train lm_loss=0.1 is the
    share of the usual loss where --text is given.  Its defaults are lr=0.0001, weight_decay=0.0, warmup=0, passes=3 and
    valid_every=0, with optimizer=muon muon_lr=0.001; the others are those below.

    \b
    Example: rescore train-lm transfornn --text books.txt.xz --valid valid.txt --vocab-size 3000 \\
               --set dim=320 --train steps=5000 --train dtype=bfloat16 --out exp/transfornn
    Example: rescore train-lm transfornn --init transfornn --nbest train.jsonl.gz --valid dev.jsonl.gz --ref text \\
               --weights exp/weights.json --text books.txt.xz --out exp/discriminative
    """
    from lm_zoo.inference.devices import find_device
    from lm_zoo.registry import settings_of
    from lm_zoo.training.mwer import run_on_lists
    from lm_zoo.training.run import TextRecipe, run
    from rescore.console import remark

    given, plan = parse_settings(settings), parse_settings(options)
    _tell_of_longest(bool(texts), plan.get("text"))
    settings_of(kind, given)  # mistakes are told before any text is read
    find_device(device)
    if nbest is None:
        _refuse("without", ref=ref, weights=weights_file, utterances="common" if common else None)
        if not texts:
            raise click.UsageError("Missing option '--text', or '--nbest' for N-best lists.")
        recipe = TextRecipe(list(texts), valid, tokens, vocab_size, vocab, init, longest)
        run(kind, given, recipe, plan, str(out), device, remark, world_size, master_port)
        return
    _refuse("with", tokens=tokens, vocab=vocab, vocab_size=vocab_size)
    if init is None or ref is None:
        raise click.UsageError("--nbest needs --init NAME|DIR, the LM to be trained, and --ref TEXT.")
    lists, name = _lists(nbest, valid, ref, init, weights_file, common)
    recipe = TextRecipe(list(texts), "", init=name, longest=longest)
    run_on_lists(kind, given, recipe, lists, plan, str(out), device, remark, world_size)


def _refuse(beside: str, **options: object) -> None:
    """Options that say nothing beside the others."""
    for name, value in options.items():
        if value is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} says nothing {beside} --nbest.")


def _tell_of_longest(on_text: bool, text: object) -> None:
    """Says that --longest on the command line says nothing; no error, as a run goes on by the command of its begin."""
    from rescore.console import remark

    given = click.get_current_context().get_parameter_source("longest") is ParameterSource.COMMANDLINE
    if given and on_text and text == "windows":
        remark("--longest says nothing with --train text=windows, which cuts no sentence")
    elif given and not on_text:
        remark("--longest says nothing without --text")


def _lists(
    nbest: str, valid: str, ref: Path, init: str, weights_file: Path | None, common: bool
) -> tuple[TrainingLists, str]:
    """The lists to train on and to validate with, and the name of the LM; pipes are refused before anything is read."""
    from lm_zoo.training.mwer import TrainingLists
    from lm_zoo.training.run_identity import text_identity
    from rescore.errors import UsageError
    from rescore.files import read_kaldi_text
    from rescore.formats import is_pipe, source_identity
    from rescore.weights import given_weights
    from rescore.workflows.columns import column_of
    from rescore.workflows.error_lists import error_lists, weights_for

    if pipe := next(filter(is_pipe, (nbest, valid)), None):
        raise UsageError(f"{pipe} is a pipe, which is read but once; write it to a file first")
    read = {"nbest": source_identity(nbest), "valid": source_identity(valid), "ref": text_identity(str(ref))}
    column, name = column_of(init)
    weights, scale = weights_for(nbest, column, given_weights(weights_file, ()))
    references = read_kaldi_text(ref)
    train, held_out = (error_lists(source, references, weights, common) for source in (nbest, valid))
    return TrainingLists(train, held_out, scale, {**read, "scales": weights.scales}, [Path(nbest).name]), name
