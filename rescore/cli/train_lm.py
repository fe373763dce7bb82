"""`rescore train-lm`: train a neural LM of the zoo from text to a model folder."""

from __future__ import annotations

from pathlib import Path

import click

from rescore.cli.outputs import OutputPath
from rescore.cli.processes import process_options
from rescore.cli.settings import parse_settings


@click.command()
@click.argument("kind")
@click.option(
    "--text",
    "texts",
    multiple=True,
    required=True,
    help="Training text, one sentence a line; kaldi:FILE drops utterance ids. May be repeated.",
)
@click.option("--valid", required=True, help="Validation text.")
@click.option("--out", required=True, type=OutputPath(folder=True), help="Folder of the run and of the model.")
@click.option("--tokens", default="bpe", type=click.Choice(["bpe", "unigram", "word"]), help="Pieces or whole words.")
@click.option(
    "--vocab-size",
    type=click.IntRange(min=3),
    help="Tokens of the vocabulary; all words if left out with --tokens word.",
)
@click.option(
    "--vocab",
    help="Take the vocabulary of this LM (name or folder) instead of building one, or this list of words, or the "
    "pieces of this recogniser (bpe.model).",
)
@click.option("--init", metavar="NAME|DIR", help="Start from the weights, settings and vocabulary of this trained LM.")
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
    help="Cut sentences of more tokens into pieces.",
)
@process_options
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda|cuda:N", help="Where to train.")
def command(
    kind: str,
    texts: tuple[str, ...],
    valid: str,
    out: Path,
    tokens: str,
    vocab_size: int | None,
    vocab: str | None,
    init: str | None,
    settings: tuple[str, ...],
    options: tuple[str, ...],
    longest: int,
    world_size: int,
    master_port: int,
    device: str,
) -> None:
    """Train an LM of KIND (see: rescore lms) and write its folder; run it again to continue after a stop.

    \b
    Example: rescore train-lm transfornn --text books.txt.xz --valid valid.txt --vocab-size 3000 \\
               --set dim=320 --train steps=5000 --train dtype=bfloat16 --out exp/transfornn
    """
    from lm_zoo.inference.devices import find_device
    from lm_zoo.registry import settings_of
    from lm_zoo.training.run import TextRecipe, run
    from rescore.console import remark

    recipe = TextRecipe(list(texts), valid, tokens, vocab_size, vocab, init, longest)
    given, plan = parse_settings(settings), parse_settings(options)
    settings_of(kind, given)  # mistakes are told before any text is read
    find_device(device)
    run(kind, given, recipe, plan, str(out), device, remark, world_size, master_port)
