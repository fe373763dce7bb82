"""`asr train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from asr.cli.pipes import pipes_option
from asr.cli.settings import settings_option
from rescore.cli.numbers import POSITIVE, Number
from rescore.cli.outputs import OutputPath
from rescore.cli.processes import process_options

_PATH = click.Path(path_type=Path)
_SHARE = Number(min=0)

# Options that are settings, `asr.training.config.TransducerTrainConfig`: name -> type, help; they have its defaults.
SETTINGS: dict[str, tuple[Any, str]] = {
    "num_epochs": (int, "Epochs, where no budget is given [30]."),
    "max_steps": (int, "Budget of batches: the learning rate falls to zero at its end."),
    "max_minutes": (POSITIVE, "Budget of time: the learning rate falls to zero at its end."),
    "optimizer": (click.Choice(["adamw", "muon"]), "Muon is for the layers' matrices [adamw]."),
    "base_lr": (POSITIVE, "Highest learning rate of AdamW [0.001]."),
    "muon_lr": (POSITIVE, "Highest learning rate of Muon [0.02]."),
    "lr_batches": (POSITIVE, "Batches after which Eden lowers the learning rate [5000]; not with a budget."),
    "lr_epochs": (POSITIVE, "Epochs after which Eden lowers the learning rate [6]; not with a budget."),
    "warm_step": (int, "Batches of warm-up of learning rate and pruned loss; at most a tenth of a budget [500]."),
    "prune_range": (int, "Token positions kept at each frame by the pruned loss [5]."),
    "lm_scale": (_SHARE, "Share of the decoder's own probabilities in the simple loss [0.25]."),
    "am_scale": (_SHARE, "Share of the encoder's own probabilities in the simple loss [0]."),
    "simple_loss_scale": (_SHARE, "Scale of the simple loss after the warm-up [0.5]."),
    "ctc_scale": (_SHARE, "Scale of a CTC loss on the encoder [0]."),
    "loss_backend": (
        click.Choice(["torch", "k2"]),
        "What sums the transducer's losses: plain torch, or k2's kernel, for which k2 must be installed [torch].",
    ),
    "variational_noise": (_SHARE, "Deviation of noise on the prediction network's weights after the warm-up [0]."),
    "save_every_n": (int, "Batches between files checkpoint-BATCH.pt [1000]."),
    "keep_last_k": (int, "Files checkpoint-BATCH.pt, and files epoch-N.pt, to keep [30]."),
    "average_period": (int, "Batches between updates of the running average of the weights [100]."),
    "valid_every": (int, "Batches between validations [1000]."),
    "log_every": (int, "Batches between lines of the log [50]."),
    "seed": (int, "Seed [42]."),
}

_BUDGET, _EPOCHS = {"max_steps", "max_minutes"}, {"lr_batches", "lr_epochs", "num_epochs"}  # how long: one of the two


def settings(command: Any) -> Any:
    """Adds an option for each of SETTINGS."""
    for name, (kind, text) in reversed(SETTINGS.items()):
        command = click.option(f"--{name.replace('_', '-')}", name, type=kind, help=text)(command)
    return command


@click.command()
@click.option("--exp-dir", required=True, type=OutputPath(folder=True), help="Folder of the run.")
@click.option("--config", metavar="NAME|FILE", help="Configuration of the model, such as small (see: asr info).")
@settings_option
@click.option("--bpe-model", type=_PATH, help="Sentencepiece model of the tokens.")
@click.option("--init", type=_PATH, metavar="DIR", help="Start from this model folder, instead of the two above.")
@click.option("--train-cuts", multiple=True, type=_PATH, help="Lhotse cuts. May be repeated.")
@click.option("--valid-cuts", multiple=True, type=_PATH, help="Lhotse cuts. May be repeated.")
@click.option(
    "--manifest-dir",
    type=_PATH,
    help="icefall's: LibriSpeech's cuts in this folder, instead of --train-cuts and --valid-cuts.",
)
@click.option("--full-libri", type=bool, default=True, show_default=True, help="With it: 960 hours, or 100.")
@click.option("--context-size", type=click.IntRange(1), help="icefall's name for --set context_size=.")
@click.option("--max-duration", default=200.0, show_default=True, type=POSITIVE, help="Seconds of audio in a batch.")
@click.option("--bucketing-sampler", type=bool, default=True, show_default=True, help="Batches of similar lengths.")
@click.option("--num-workers", default=0, show_default=True, type=click.IntRange(0), help="Processes that load data.")
@click.option("--enable-spec-aug", type=bool, default=True, show_default=True, help="SpecAugment.")
@click.option("--enable-musan", type=bool, help="Mix the cuts of --musan-cuts in; true where they are given.")
@click.option("--musan-cuts", type=_PATH, help="Lhotse cuts of noise.")
@click.option("--speed-perturb", type=bool, default=False, show_default=True, help="Speeds 0.9, 1 and 1.1.")
@click.option("--on-the-fly-feats", "on_the_fly", type=bool, default=True, show_default=True, help="Else: stored ones.")
@click.option(
    "--start-epoch", type=click.IntRange(1), help="Continue from epoch-(N-1).pt; 1: anew.  [from the newest checkpoint]"
)
@click.option("--start-batch", type=click.IntRange(1), help="Continue from checkpoint-N.pt.")
@click.option("--use-fp16", type=bool, default=False, show_default=True, help="Compute in float16 (GPU).")
@click.option(
    "--use-bf16", type=bool, default=False, show_default=True, help="Compute in bfloat16, where that is fast."
)
@process_options
@pipes_option
@click.option("--device", help="cpu or cuda.  [cuda where there is one]")
@settings
def command(use_fp16: bool, use_bf16: bool, enable_spec_aug: bool, enable_musan: bool | None, **values: Any) -> None:
    """Train an RNN-T, or continue the run that EXP_DIR holds.

    EXP_DIR gets icefall's files (epoch-N.pt, checkpoint-BATCH.pt, best-valid-loss.pt, tensorboard) and the best model
    so far as a model folder, EXP_DIR/model.  The threads are those of OMP_NUM_THREADS.

    \b
    Example: asr train --config paper-com --bpe-model data/lang_bpe_500/bpe.model --manifest-dir data/fbank \\
               --full-libri false --exp-dir exp
    Example: asr train --config small --bpe-model data/lang_bpe_256/bpe.model --train-cuts data/train.jsonl.gz \\
               --valid-cuts data/dev.jsonl.gz --exp-dir exp --use-bf16 true --max-minutes 60
    """
    from asr.errors import ConfigError
    from asr.training.config import TransducerTrainConfig
    from asr.training.run import TrainPlan, run
    from rescore.cli.settings import parse_settings

    given = {name: value for name in SETTINGS if (value := values.pop(name)) is not None}
    context = click.get_current_context()
    given = _of_one_length(context, given)
    if use_fp16 and use_bf16:
        raise ConfigError("found --use-fp16 and --use-bf16, expected one of them")
    values = _with_manifests(context, values)
    if enable_musan and values["musan_cuts"] is None:
        raise ConfigError("--enable-musan needs the noise: --musan-cuts FILE")
    if enable_musan is False:
        values["musan_cuts"] = None
    changes = parse_settings(values.pop("changes"))
    if (context_size := values.pop("context_size")) is not None:
        changes["context_size"] = context_size
    dtype = "float16" if use_fp16 else "bfloat16" if use_bf16 else "float32"
    plan = TrainPlan(spec_aug=enable_spec_aug, model_settings=changes, **values)
    run(plan, TransducerTrainConfig(dtype=dtype, **given))


def _of_one_length(context: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """The settings with a budget or with epochs; what a recipe's YAML file has gives way to the command line.

    Raises:
      ConfigError: both on the command line, or both in the file.
    """
    from asr.errors import ConfigError

    budget, epochs = _BUDGET & given.keys(), _EPOCHS & given.keys()
    if not (budget and epochs):
        return given
    typed = {name for name in budget | epochs if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if not typed or (typed & budget and typed & epochs):
        raise ConfigError("--num-epochs, --lr-batches and --lr-epochs are for runs without --max-steps, --max-minutes")
    dropped = epochs if typed & budget else budget
    return {name: value for name, value in given.items() if name not in dropped}


def _with_manifests(context: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The options with the cuts of --manifest-dir in their places; what a recipe's YAML file has gives way.

    Raises:
      UsageError: cuts are named on the command line as well, or nowhere.
    """
    from asr.dataset.librispeech import VALID, cuts_there, training_cuts
    from rescore.errors import UsageError

    folder, full = values.pop("manifest_dir"), values.pop("full_libri")
    if folder is None:
        if not values["train_cuts"]:
            raise UsageError("give --train-cuts FILE, or --manifest-dir FOLDER with the cuts of LibriSpeech")
        return values
    for name in ("train_cuts", "valid_cuts"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"give either --manifest-dir or --{name.replace('_', '-')}, not both")
    return {**values, "train_cuts": training_cuts(folder, full), "valid_cuts": cuts_there(folder, VALID)}
