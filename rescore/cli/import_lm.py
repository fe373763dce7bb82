"""`rescore import-lm`: LM checkpoints of icefall, ESPnet, SpeechBrain, and of Kaldi's pytorchnn."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from rescore.cli.outputs import OutputPath


@click.command("import-lm")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--bpe",
    type=click.Path(path_type=Path),
    help="icefall: the bpe.model of the LM's recipe. SpeechBrain: tokenizer.ckpt. ESPnet: where it is, if not where "
    "config.yaml says.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="ESPnet: the config.yaml of the LM's training, beside the checkpoint. SpeechBrain: hyperparams.yaml.",
)
@click.option("--words", type=click.Path(path_type=Path), help="Kaldi: the words.txt of the LM's recipe.")
@click.option("--heads", type=click.IntRange(min=1), help="Kaldi: attention heads of a Transformer, its --nhead.")
@click.option("--oov", default="<unk>", show_default=True, help="Kaldi: the word that stands for unknown ones.")
@click.option("--boundary", default="<s>", show_default=True, help="Kaldi: the word for begin and end of sentence.")
@click.option("--out", required=True, type=OutputPath(folder=True), help="Model folder to write.")
@click.pass_context
def command(
    context: click.Context,
    checkpoint: Path,
    bpe: Path | None,
    config: Path | None,
    words: Path | None,
    heads: int | None,
    oov: str,
    boundary: str,
    out: Path,
) -> None:
    """Turn a checkpoint of icefall's rnn_lm or transformer_lm (epoch-N.pt, pretrained.pt) into a model folder.

    With --config, a valid.loss.ave.pth of ESPnet 2's LMs, transformer or seq_rnn (LSTM); with --config and --bpe, an
    lm.ckpt or model.ckpt of SpeechBrain's TransformerLM or RNNLM (LSTM).

    With --words, a model.pt of Kaldi's steps/pytorchnn, LSTM or Transformer.  It scores each sentence on its own;
    Kaldi's scripts carry the state of an LSTM from one utterance to the next.  The kind and all sizes are read from
    the checkpoint, but for --heads.

    \b
    Example: rescore import-lm exp/epoch-30.pt --bpe data/lang_bpe_500/bpe.model --out exp/icefall-lm
    Example: rescore import-lm exp/lm_train/valid.loss.ave.pth --config exp/lm_train/config.yaml --out exp/espnet-lm
    Example: rescore import-lm lm.ckpt --config hyperparams.yaml --bpe tokenizer.ckpt --out exp/speechbrain-lm
    Example: rescore import-lm exp/pytorch_transformer/model.pt --words data/pytorchnn/words.txt --heads 8 --out exp/lm
    """
    from lm_zoo.icefall.checkpoints import import_lm
    from lm_zoo.icefall.espnet_lm import import_espnet
    from lm_zoo.icefall.kaldi_nnlm import import_nnlm
    from lm_zoo.icefall.speechbrain_lm import Tagged, import_speechbrain
    from rescore.cli.hyperparams import read_hyperparams
    from rescore.cli.recipe import read_yaml
    from rescore.console import remark
    from rescore.errors import UsageError

    if (words is None) == (bpe is None and config is None):
        raise UsageError(
            "give --bpe FILE for an LM of icefall, --config FILE for one of ESPnet, both for one of SpeechBrain, or "
            "--words FILE for one of Kaldi's pytorchnn"
        )
    if words is not None:
        made = import_nnlm(checkpoint, words, out, heads, oov, boundary)
    else:
        for name in ("heads", "oov", "boundary"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UsageError(f"--{name} is for LMs of Kaldi (--words), it says nothing of others; leave it out")
        what = "the training of an LM"
        hyperparams = {} if config is None else read_hyperparams(config, what)
        if config is not None and any(isinstance(value, Tagged) for value in hyperparams.values()):
            if bpe is None:
                raise UsageError(
                    f"{config}: of SpeechBrain, whose tokens are in a file of their own: --bpe tokenizer.ckpt"
                )
            made = import_speechbrain(checkpoint, hyperparams, bpe, out, config)
        elif config is not None:
            made = import_espnet(checkpoint, read_yaml(config, what), out, bpe, config)
        elif bpe is not None:
            made = import_lm(checkpoint, bpe, out)
    settings = ", ".join(f"{name} {value}" for name, value in made.settings.items())
    remark(f"{made.kind} with {made.params:,} parameters ({settings}) written to {out}")
